"""`everturn` commands and other modules as processes of their own, forked from one that has imported them."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import anyio
import anyio.abc

EVERTURN = "everturn"


def _own_errors() -> int:
    assert sys.__stderr__ is not None
    return sys.__stderr__.fileno()


class _Server:
    """One for each process of the tests, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "everturn.testing.fork_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        atexit.register(self.close)

    def fork(self, request: bytes, descriptors: list[int]) -> tuple[int, int]:
        """The process id and the pidfd of a new process."""
        with self._lock:
            socket.send_fds(self._control, [request], descriptors)
            answer, received, _, _ = socket.recv_fds(self._control, 100, 1)
        if not received:
            raise ChildProcessError("the fork server has ended")
        return int(answer), received[0]

    def close(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


class Fork:
    """A running command."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        environ: Mapping[str, str],
        streams: list[int],
        module: str = EVERTURN,
    ) -> None:
        self._exit, exit_writes = os.pipe()
        folder = os.getcwd()
        request = {"module": module, "arguments": arguments, "environ": dict(environ), "folder": folder}
        self.pid, self._pidfd = _server().fork(json.dumps(request).encode(), [*streams, exit_writes])
        os.close(exit_writes)
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            # It may have ended already: its exit code is not read before a caller waits for it.
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, timeout_s: float) -> int | None:
        """The exit code; None if it runs on."""
        if self.returncode is None and select.select([self._exit], [], [], timeout_s)[0]:
            self._note_exit()
        return self.returncode

    async def wait_async(self) -> int:
        if self.returncode is None:
            await anyio.wait_readable(self._exit)
            self._note_exit()
        assert self.returncode is not None
        return self.returncode

    def _note_exit(self) -> None:
        code = os.read(self._exit, 100)
        if not code:
            raise ChildProcessError("the fork server has ended")
        self.returncode = int(code)
        os.close(self._exit)
        os.close(self._pidfd)


def run_command(
    *arguments: str, environ: Mapping[str, str], stdin: str, timeout_s: float, module: str = EVERTURN
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. ``module``: what it runs, as ``python -m`` would."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        fork = Fork(arguments, environ, [given.fileno(), out.fileno(), err.fileno()], module)
        code = fork.wait(timeout_s)
        if code is None:
            fork.send_signal(signal.SIGKILL)
            fork.wait(timeout_s)
            raise subprocess.TimeoutExpired([module, *arguments], timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read().decode(), err.read().decode())


class ForkOutput(anyio.abc.ByteReceiveStream):
    """What a process prints."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.wait_readable(self._descriptor)
        if data := os.read(self._descriptor, max_bytes):
            return data
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Input(anyio.abc.ByteSendStream):
    """What is typed into a process: lines, which fit into its pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def send(self, item: bytes) -> None:
        os.write(self._descriptor, item)

    async def aclose(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Process(anyio.abc.AsyncResource):
    """A running command with its streams, used like ``anyio.abc.Process``. It is killed when it is closed."""

    def __init__(self, fork: Fork, stdin: Input, stdout: ForkOutput, stderr: ForkOutput) -> None:
        self._fork = fork
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr

    @property
    def pid(self) -> int:
        return self._fork.pid

    @property
    def returncode(self) -> int | None:
        return self._fork.wait(0)

    def send_signal(self, number: int) -> None:
        self._fork.send_signal(number)

    def kill(self) -> None:
        self._fork.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        return await self._fork.wait_async()

    async def aclose(self) -> None:
        self.kill()
        with anyio.CancelScope(shield=True):
            await self.wait()
            for stream in (self.stdin, self.stdout, self.stderr):
                await stream.aclose()


def open_command(
    *arguments: str,
    environ: Mapping[str, str],
    reads_errors: bool = False,
    terminal: int | None = None,
    module: str = EVERTURN,
) -> Process:
    """Start a command. Its errors are printed with those of the tests, unless the test reads them.

    ``terminal``: the descriptor that is its input, output and errors.
    """
    (given, types), (reads, prints), (reads_error, prints_error) = os.pipe(), os.pipe(), os.pipe()
    streams = [given, prints, prints_error if reads_errors else _own_errors()]
    try:
        fork = Fork(arguments, environ, streams if terminal is None else [terminal] * 3, module)
    finally:
        for descriptor in (given, prints, prints_error):
            os.close(descriptor)
    return Process(fork, Input(types), ForkOutput(reads), ForkOutput(reads_error))


def fork_command(*arguments: str, environ: Mapping[str, str], module: str = EVERTURN) -> Fork:
    """Start a command that is given no input. What it says is printed with the errors of the tests."""
    errors = _own_errors()
    with open(os.devnull) as nothing:
        return Fork(arguments, environ, [nothing.fileno(), errors, errors], module)


def start_command(*arguments: str, environ: Mapping[str, str]) -> tuple[Fork, ForkOutput]:
    """Start a command that is given no input. Its errors are printed with those of the tests."""
    reads, writes = os.pipe()
    with open(os.devnull) as nothing:
        fork = Fork(arguments, environ, [nothing.fileno(), writes, _own_errors()])
    os.close(writes)
    return fork, ForkOutput(reads)
