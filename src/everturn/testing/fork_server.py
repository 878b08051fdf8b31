"""Starts `everturn`, or another module, as a fork of a process that has imported it, which is faster.

Run as a program, it listens on the socket given by its descriptor. Each request names module, arguments,
environment and folder of a new process, with its standard streams attached. The answer carries a pidfd, and
the exit code is written to a pipe.
"""

from __future__ import annotations

import json
import os
import runpy
import selectors
import signal
import socket
import sys

# What a server imports until it is ready, and what the modules of the tests do.
MODULES = (
    "everturn.app",
    "everturn.cli.serve",
    "everturn.engine.engine",
    "everturn.memory.memory",
    "everturn.models.registry",
    "everturn.store.open",
    "everturn.store.postgres.database",
    "everturn.store.sqlite.database",
    "everturn.testing.harness",
    "everturn.tools.toolbox",
    "everturn.web.web",
    "everturn.workspace.restorer",
    "rich.console",
)
REQUEST_BYTES_MAX = 1_000_000


class _Child(Exception):
    """We are the new process."""

    def __init__(self, request: dict[str, object], streams: list[int]) -> None:
        self.request = request
        self.streams = streams


def serve(control: socket.socket) -> None:
    """Fork for each request until the other end is closed. Raises _Child in each fork."""
    exits: dict[int, int] = {}  # process id -> pipe for its exit code
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if woken in ready:
                woken.recv(1000)
                _report_exits(exits)
            if control in ready and not _fork(control, exits):
                return


def _fork(control: socket.socket, exits: dict[int, int]) -> bool:
    body, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 4)
    if not body:
        return False
    pid = os.fork()
    if pid == 0:
        raise _Child(json.loads(body), descriptors[:3])
    for descriptor in descriptors[:3]:
        os.close(descriptor)
    exits[pid] = descriptors[3]
    process = os.pidfd_open(pid)
    socket.send_fds(control, [str(pid).encode()], [process])
    os.close(process)
    return True


def _report_exits(exits: dict[int, int]) -> None:
    while exits:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        pipe = exits.pop(pid)
        os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(pipe)


def _run(child: _Child) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(child.streams):
        os.dup2(descriptor, number)
    os.closerange(3, 1000)
    arguments, environ, folder = (child.request[name] for name in ("arguments", "environ", "folder"))
    assert isinstance(arguments, list)
    assert isinstance(environ, dict)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(str(folder))
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, 1) for number, mode in enumerate("rww"))
    module = str(child.request["module"])
    sys.argv = [module, *arguments]
    sys.path[0] = str(folder)  # as with `python -m`
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    for name in MODULES:
        __import__(name)
    try:
        serve(socket.socket(fileno=int(sys.argv[1])))
    except _Child as child:
        _run(child)


if __name__ == "__main__":
    main()
