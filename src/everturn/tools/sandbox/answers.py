"""Answers the system calls that the filter passes on to the keeper. Standard library only."""

from __future__ import annotations

import _socket
import ctypes
import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING, Any

from everturn.tools.sandbox.kernel_calls import CallRefused, check
from everturn.tools.sandbox.process_tree import all_processes, descendants, is_descendant, leader_of

if TYPE_CHECKING:
    from everturn.tools.sandbox.forwarder import Forwarder

_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
_RECEIVE, _SEND, _IS_VALID, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
_SYNC_WAKE_UP, _CONTINUE = 1, 1
_NOTIFICATION, _ANSWER = "=QIIiIQ6Q", "=QqiI"
_AT_FDCWD, _NOFOLLOW, _EMPTY_PATH = -100, 0x100, 0x1000
_LOOPBACK = (127, 0, 0, 1)
_PATH_BYTES_MAX = 4096


class CallResponder:
    """Answers the calls that arrive at ``listener``.

    ``writable`` lists the real paths below which the command may change the mode of a file.
    """

    # ``Any``: as in the keeper, no library is imported that could validate the data.
    def __init__(
        self, listener: int, spec: dict[str, Any], writable: list[str], forwarder: Forwarder | None
    ) -> None:
        self._listener = listener
        self._spec = spec
        self._writable = writable
        self._forwarder = forwarder
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._processes = 1  # upper bound on the number of processes, as of the last fork
        try:
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            return  # Linux before 6.6: answers take a little longer

    def answer(self) -> None:
        notification = bytearray(struct.calcsize(_NOTIFICATION))
        try:
            fcntl.ioctl(self._listener, _RECEIVE, notification)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return  # the process was killed
            raise
        call, pid, _, number, _, _, *arguments = struct.unpack(_NOTIFICATION, notification)
        failure = flags = 0
        try:
            name = self._spec["calls"][number]
            if name == "fork":
                self._check_processes()
                flags = _CONTINUE
            elif name == "kill":
                self._check_signal(arguments[0])
                flags = _CONTINUE
            elif name == "connect":
                self._connect(call, pid, arguments)
            else:
                self._chmod(call, pid, name, arguments)
        except CallRefused as error:
            failure = -error.number
        except OSError as error:
            failure = -(error.errno or errno.EPERM)
        try:
            fcntl.ioctl(self._listener, _SEND, struct.pack(_ANSWER, call, 0, failure, flags))
        except OSError as error:
            if error.errno != errno.ENOENT:  # the process was killed
                raise

    def _check_processes(self) -> None:
        """Limit the number of processes. The kernel's own limit counts per user and ignores root."""
        if self._processes >= self._spec["processes"]:
            self._processes = len(descendants(os.getpid()))
        if self._processes >= self._spec["processes"]:
            raise CallRefused(errno.EAGAIN)
        self._processes += 1

    def _check_signal(self, target: int) -> None:
        """Check the target of a signal, on kernels where Landlock cannot.

        The kernel cannot reuse the target's process id between this check and the call.
        """
        target = ctypes.c_int32(target & 0xFFFFFFFF).value
        if target > 0 and is_descendant(target, os.getpid()):
            return
        if target < -1:
            group = [pid for pid, fields in all_processes() if fields[2] == -target]
            if group and all(is_descendant(pid, os.getpid()) for pid in group):
                return
        raise CallRefused(errno.EPERM)

    def _chmod(self, call: int, pid: int, name: str, arguments: list[int]) -> None:
        """Change the mode of a file for the command, if it may write there.

        Landlock does not restrict chmod: a file's owner may change its mode anywhere.
        """
        place = self._open_place(call, pid, name, arguments)
        try:
            path = os.readlink(f"/proc/self/fd/{place}")
            if path.startswith("/") and not path.startswith("/memfd:") and not self._is_writable(path):
                raise CallRefused(errno.EPERM)
            mode = arguments[1 if name in ("chmod", "fchmod") else 2]
            os.chmod(f"/proc/self/fd/{place}", mode & 0o7777)
        finally:
            os.close(place)

    def _open_place(self, call: int, pid: int, name: str, arguments: list[int]) -> int:
        flags = os.O_PATH | os.O_CLOEXEC
        if name == "fchmod":
            return os.open(f"/proc/{pid}/fd/{ctypes.c_int32(arguments[0] & 0xFFFFFFFF).value}", flags)
        folder, address = _AT_FDCWD, arguments[0]
        if name != "chmod":
            folder, address = ctypes.c_int32(arguments[0] & 0xFFFFFFFF).value, arguments[1]
        path = _read_memory(pid, address, _PATH_BYTES_MAX).partition(b"\0")[0]
        self._check_valid(call)
        if name == "fchmodat2" and arguments[3] & _NOFOLLOW:
            flags |= os.O_NOFOLLOW
        for own in (b"/proc/self/", b"/proc/thread-self/"):
            if path.startswith(own):
                path = b"/proc/%d/" % pid + path[len(own) :]
        base = f"/proc/{pid}/cwd" if folder == _AT_FDCWD else f"/proc/{pid}/fd/{folder}"
        if not path:
            if name == "fchmodat2" and arguments[3] & _EMPTY_PATH:
                return os.open(base, flags & ~os.O_NOFOLLOW)
            raise CallRefused(errno.ENOENT)
        if path.startswith(b"/"):
            return os.open(path, flags)
        around = os.open(base, os.O_PATH | os.O_CLOEXEC)
        try:
            return os.open(path, flags, dir_fd=around)
        finally:
            os.close(around)

    def _is_writable(self, path: str) -> bool:
        return any(path == root or path.startswith(root + "/") for root in self._writable)

    def _connect(self, call: int, pid: int, arguments: list[int]) -> None:
        """Connect the command's socket to the forwarder if it asks for the proxy; refuse anything else."""
        address = _read_memory(pid, arguments[1], min(arguments[2], 128))
        self._check_valid(call)
        proxy = struct.pack("=H", _socket.AF_INET) + struct.pack("!H4B", self._spec["port"], *_LOOPBACK)
        if self._forwarder is None or address[:8] != proxy:
            raise CallRefused(errno.ENETUNREACH)
        process = check(
            self._libc.syscall(ctypes.c_long(_PIDFD_OPEN), ctypes.c_int(leader_of(pid)), ctypes.c_uint(0)),
            "the process",
        )
        try:
            fd = ctypes.c_int(arguments[0] & 0xFFFFFFFF)
            own = check(
                self._libc.syscall(ctypes.c_long(_PIDFD_GETFD), ctypes.c_int(process), fd, ctypes.c_uint(0)),
                "its socket",
            )
        finally:
            os.close(process)
        self._forwarder.connect(own)

    def _check_valid(self, call: int) -> None:
        """Check that the caller still waits, so that what was read belongs to it and not to a reused process
        id."""
        fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", call))


def _read_memory(pid: int, address: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        return os.pread(memory.fileno(), size, address)
