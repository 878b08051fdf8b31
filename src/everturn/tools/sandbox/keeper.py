"""Confines one command where bubblewrap cannot run.

The keeper starts the command under Landlock and a system call filter, answers the calls that the filter
passes on, and ends everything that the command started. Standard library only, no site packages.
``start_keeper`` starts it.

Without a namespace, no single kill ends all processes. Therefore every orphan becomes a child of the keeper,
and no process can fork without the keeper's answer. When the keeper stops answering, no process can be added,
and it kills the remaining ones until none is left. If the keeper itself is killed, the others cannot fork.
"""

from __future__ import annotations

import _socket
import ctypes
import marshal
import os
import select
import struct
import sys
from typing import Any

from everturn.tools.sandbox.answers import CallResponder
from everturn.tools.sandbox.confined import ConfinedCommand
from everturn.tools.sandbox.kernel_calls import CAPBSET_DROP, PDEATHSIG, SUBREAPER, check, prctl
from everturn.tools.sandbox.process_tree import descendants
from everturn.tools.sandbox.scratch import delete, make_scratch

_JOIN_SESSION_KEYRING = 1
_SIGKILL, _SIGTERM, _SIGCHLD = 9, 15, 17


class Keeper:
    # ``Any``: as in the shim of jobs, no library is imported that could validate the data.
    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._child = 0
        self._status: int | None = None
        self._is_stopped = False
        self._listener = -1
        self._scratch = make_scratch(spec["scratch"])
        self._forwarder = _open_forwarder(spec)

    def run(self) -> int:
        """Run the command until it and everything it started has ended; return its exit code."""
        spec, libc = self._spec, ctypes.CDLL(None, use_errno=True)
        try:
            prctl(libc, SUBREAPER, 1)
            if spec["keyctl"]:
                # If keys cannot be used at all, there is nothing to read and the filter refuses the call.
                libc.syscall(ctypes.c_long(spec["keyctl"]), ctypes.c_long(_JOIN_SESSION_KEYRING), None)
            _drop_capabilities(libc)
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
            self._child = os.fork()
            if self._child == 0:
                ours.close()
                ConfinedCommand(spec, self._scratch).become(theirs)
            theirs.close()
            self._follow(ours)
        finally:
            self._end()
        if self._status is None:
            return 128 + _SIGTERM
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def _follow(self, theirs: _socket.socket) -> None:
        spec = self._spec
        if spec["info"] >= 0:
            os.write(spec["info"], b'{"child-pid": %d}\n' % self._child)
            os.close(spec["info"])
        wake = self._handle_signals()
        data, ancillary, _, _ = theirs.recvmsg(1, _socket.CMSG_SPACE(4))
        if not data or not ancillary:
            return  # it could not be started, and said why
        self._listener = struct.unpack("i", ancillary[0][2])[0]
        writable = [os.path.realpath(path) for path in (*spec["write"], self._scratch)]
        answers = CallResponder(self._listener, spec, writable, self._forwarder)
        poll = select.poll()
        for fd in (wake, self._listener, *([spec["hold"]] if spec["hold"] >= 0 else ())):
            poll.register(fd, select.POLLIN)
        if spec["hold"] < 0:
            theirs.send(b"\n")
        while self._status is None and not self._is_stopped:
            for fd, event in poll.poll():
                if fd == wake:
                    os.read(wake, 4096)
                    self._reap()
                elif fd == self._listener:
                    if event & select.POLLIN:
                        answers.answer()
                    else:
                        poll.unregister(fd)  # everything has ended; receiving would block forever
                else:
                    poll.unregister(fd)
                    os.close(fd)
                    theirs.send(b"\n")

    def _handle_signals(self) -> int:
        """From here on a signal wakes the poll; returns what becomes readable then."""
        # Imported only now: the other process is already at work.
        import signal

        def stop(number: int, frame: object) -> None:
            self._is_stopped = True

        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(_SIGTERM, stop)
        signal.signal(_SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.write(write, b"\0")  # what ended before is reaped too
        return read

    def _reap(self) -> bool:
        """Take note of children that have ended; False if there is no child left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._status = status

    def _end(self) -> None:
        """Kill everything, and return when all of it is gone.

        Without the listener every fork fails, so what is found is all there will be. A process whose
        parent has ended is a child of this one: if there is no child, there is nothing.
        """
        if self._listener >= 0:
            os.close(self._listener)
        while self._child and self._reap():
            for pid in descendants(os.getpid()):
                try:
                    os.kill(pid, _SIGKILL)
                except ProcessLookupError:
                    continue  # it has ended
            select.select([], [], [], 0.001)
        delete(self._scratch)


def _open_forwarder(spec: dict[str, Any]) -> Any:
    if not spec["gate"]:
        return None
    # Imported only here: most commands have no network, and it takes as long as all the rest.
    from everturn.tools.sandbox.forwarder import Forwarder

    return Forwarder(spec["gate"])


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for capability in range(64):
        prctl(libc, CAPBSET_DROP, capability)  # only root may, and only root has to
    header, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    check(libc.capset(header, none), "no capabilities")


def main() -> None:
    """Read the description from the descriptor that is named, and run the command."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        spec = marshal.load(file)  # noqa: S302 - from the server that started this
    prctl(ctypes.CDLL(None), PDEATHSIG, _SIGTERM)
    if spec["parent"] and os.getppid() != spec["parent"]:
        os._exit(125)  # it was killed meanwhile
    code = Keeper(spec).run()
    os._exit(code)
