"""Runs inside the sandbox: listens as a proxy, forwards to the gate's socket file, and becomes the command.

Standard library only.

Usage: forward.py SOCKET PORT COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    gate, port, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    listener = socket.create_server(("127.0.0.1", port))
    if os.fork() == 0:
        # Fork twice, so that the command has no child that it did not start.
        if os.fork() == 0:
            _release_pipes()
            _serve(listener, gate)
        os._exit(0)
    os.wait()
    listener.close()
    os.execvp(command[0], command)  # noqa: S606 - becoming the command is the purpose


def _release_pipes() -> None:
    """Close our copies of the command's pipes, because the server reads until every copy is closed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)


def _serve(listener: socket.socket, gate: str) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=connect, args=(client, gate), daemon=True).start()


def connect(client: socket.socket, gate: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as server:
        server.connect(gate)
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # one side is gone; closing both sockets ends the other direction


if __name__ == "__main__":
    main()
