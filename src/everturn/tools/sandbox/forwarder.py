"""Forwards connections of a command under a keeper to the gate. Standard library only."""

from __future__ import annotations

import errno
import socket
import threading

from everturn.tools.sandbox import forward
from everturn.tools.sandbox.kernel_calls import CallRefused


class Forwarder:
    """Listens on loopback and forwards to the gate.

    Any program on the machine can reach the port, so it accepts only the sockets that ``connect`` connected.
    """

    def __init__(self, gate: str) -> None:
        self._gate = gate
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port: int = self._listener.getsockname()[1]
        self._known: set[int] = set()
        self._is_serving = False

    def connect(self, fd: int) -> None:
        """Connect this socket, then close our descriptor of it. Raises OSError, Refused."""
        if not self._is_serving:
            self._serve()
        with socket.socket(fileno=fd) as own:
            if own.family is not socket.AF_INET:
                raise CallRefused(errno.EAFNOSUPPORT)
            try:
                own.bind(("127.0.0.1", 0))
            except OSError as error:
                if error.errno != errno.EINVAL:  # it is bound already
                    raise
            self._known.add(own.getsockname()[1])
            # Not the method, which would wait for a socket that does not block.
            result = own.connect_ex(("127.0.0.1", self._port))
        if result:
            raise CallRefused(result)

    def _serve(self) -> None:
        """Start the thread at the first connection, not before: a process with threads must not fork."""
        self._is_serving = True

        def serve() -> None:
            while True:
                client, (_, port) = self._listener.accept()
                if port in self._known:
                    self._known.discard(port)
                    threading.Thread(target=forward.connect, args=(client, self._gate), daemon=True).start()
                else:
                    client.close()

        threading.Thread(target=serve, daemon=True).start()
