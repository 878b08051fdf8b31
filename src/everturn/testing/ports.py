"""Ports for servers that a test starts, stops and starts again."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A free port of 127.0.0.1, from below the range that the kernel takes ports for connections from.

    A port of that range could be taken by any connection of another test before the server binds it, or while
    the server is down.
    """
    for port in random.sample(range(20_000, 32_000), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("Fifty ports in a row are taken.")
