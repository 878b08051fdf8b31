"""Prepares the process, then executes bubblewrap in it. Standard library only, no site packages.

Usage: launch.py LIMITS KEYCTL UID COUNT FD ... PROGRAM [ARGUMENT ...]

LIMITS are comma-separated pairs KIND=MOST for setrlimit(2). KEYCTL is the number of keyctl(2) on this
machine, 0 if unknown. Bubblewrap gets its own session keyring, because otherwise the sandbox could read the
server's. With UID 0 nothing else is done. With another UID the caller is root: the mounts in the given
descriptors are attached below /sys, in a mount namespace of this process alone, and bubblewrap runs as UID.
Its environment holds nothing except the mark of a job.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import stat
import sys

MARK = "EVERTURN_CALL"  # the variable that names the call or the job of a process
_NICE = 10
_JOIN_SESSION_KEYRING = 1
_CLONE_NEWNS = 0x20000
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV = 0x4000, 0x40000, 2, 4
_MOVE_MOUNT, _FROM_DESCRIPTOR, _AT_FDCWD = 429, 4, -100
# Mounted over in this process's namespace. The folder always exists, and bubblewrap needs nothing in it.
_PLACE = "/sys"


def place(index: int) -> str:
    """Return where the mount with this index is attached."""
    return f"{_PLACE}/{index}"


def main() -> None:
    keyctl, uid, count = (int(word) for word in sys.argv[2:5])
    mounts = [int(word) for word in sys.argv[5 : 5 + count]]
    command = sys.argv[5 + count :]
    _limit(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if keyctl:
        _join_new_keyring(libc, keyctl)
    if uid:
        _attach(libc, mounts)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    mark = {MARK: os.environ[MARK]} if MARK in os.environ else {}
    os.execve(command[0], command, mark)  # noqa: S606 - becoming the command is the purpose


def _limit(words: str) -> None:
    """Set the limits and a lower priority, so that the server can always end the command."""
    os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    for word in words.split(","):
        kind, most = map(int, word.split("="))
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _join_new_keyring(libc: ctypes.CDLL, keyctl: int) -> None:
    if libc.syscall(ctypes.c_long(keyctl), ctypes.c_long(_JOIN_SESSION_KEYRING), None) >= 0:
        return
    # If keys cannot be used at all, there is nothing to read. A full quota is no reason to refuse to run:
    # the filter refuses keyctl inside the sandbox.
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM, errno.EDQUOT):
        raise _error("a new session keyring")


def _attach(libc: ctypes.CDLL, mounts: list[int]) -> None:
    if libc.unshare(_CLONE_NEWNS):
        raise _error("a mount namespace")
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None):
        raise _error("private mounts")
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    if libc.mount(b"tmpfs", _PLACE.encode(), b"tmpfs", flags, b"mode=0755,size=1m"):
        raise _error("a place for mounts")
    for index, descriptor in enumerate(mounts):
        target = place(index)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        if libc.syscall(
            ctypes.c_long(_MOVE_MOUNT),
            ctypes.c_int(descriptor),
            ctypes.c_char_p(b""),
            ctypes.c_int(_AT_FDCWD),
            ctypes.c_char_p(target.encode()),
            ctypes.c_uint(_FROM_DESCRIPTOR),
        ):
            raise _error(f"mount {index}")
        os.close(descriptor)  # otherwise the command would inherit it


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
