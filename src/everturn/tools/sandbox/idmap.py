"""Id-mapped mounts, with which a server that runs as root starts commands as another user.

In such a mount root's files appear to belong to the sandbox's user, and files that this user creates belong
to root on disk. Commands run without root's rights, no file changes its owner, and the server and its
commands share the workspace. This needs Linux 5.12 and a file system that supports it; otherwise ``open`` or
``mount`` raises OSError.
"""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_log = logging.getLogger("everturn.tools")

# Not an account: systemd leaves this range of user ids free, and containers often stop at 65536.
UID = 60600
_OPEN_TREE, _MOUNT_SETATTR = 428, 442  # the same numbers on every machine
_CLONE, _RECURSIVE, _EMPTY_PATH = 1, 0x8000, 0x1000
_IDMAP = 0x00100000
_AT_FDCWD = -100
# Waits in a user namespace of its own until its standard input closes.
_HOLD = (
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) or print('', flush=True) or input())"
)


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "namespace"))


class IdMap:
    """Creates mounts that swap root and ``UID``. It holds a descriptor until ``close``."""

    def __init__(self, namespace: int) -> None:
        self._namespace = namespace

    @classmethod
    def open(cls) -> IdMap:
        """Open the map. Only root may call it. Raises OSError where id mapping is not possible."""
        with subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
        ) as holder:
            try:
                if holder.stdout is None or not holder.stdout.readline():
                    raise OSError("no user namespace could be made")
                for name, last in (("uid_map", _last_id("uid_map")), ("gid_map", _last_id("gid_map"))):
                    Path(f"/proc/{holder.pid}/{name}").write_text(_swap_map(last))
                return cls(os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))
            finally:
                holder.kill()

    def close(self) -> None:
        os.close(self._namespace)

    def mount(self, path: Path) -> int:
        """Return the descriptor of a detached mount of this file or folder; the caller closes it.

        Raises OSError if its file system, or one mounted below it, does not support id mapping.
        """
        place = ctypes.c_char_p(os.fsencode(path))
        mount = _call(
            _OPEN_TREE, ctypes.c_int(_AT_FDCWD), place, ctypes.c_uint(_CLONE | _RECURSIVE | os.O_CLOEXEC)
        )
        try:
            attributes = _Attributes(_IDMAP, 0, 0, self._namespace)
            _call(
                _MOUNT_SETATTR,
                ctypes.c_int(mount),
                ctypes.c_char_p(b""),
                ctypes.c_uint(_EMPTY_PATH | _RECURSIVE),
                ctypes.byref(attributes),
                ctypes.c_size_t(ctypes.sizeof(attributes)),
            )
        except OSError:
            os.close(mount)
            raise
        return mount


class UnmappedFolders:
    """Folders on file systems that cannot map owners. Commands that use one of them run as root.

    Their paths are saved in a file, so that the next start of the server and ``everturn doctor`` report them
    too.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._paths: set[Path] = set()

    def __iter__(self) -> Iterator[Path]:
        return iter(sorted(self._paths))

    def load(self, ids: IdMap | None) -> None:
        """Read the file and try each folder again.

        If the server drops no rights (None), no folder is affected.
        """
        self._paths = set()
        if ids is None or not self._file.exists():
            return
        for line in self._file.read_text().splitlines():
            if os.path.exists(line):
                self.try_folder(Path(line), ids)
        self._save()

    def try_folder(self, path: Path, ids: IdMap) -> None:
        """Try to map this folder, and add it if that fails."""
        try:
            os.close(ids.mount(path))
        except OSError as error:
            self.add(path, error)

    def add(self, path: Path, error: OSError) -> None:
        if path in self._paths or "\n" in str(path):
            return
        _log.warning("what uses %s runs as root, without its capabilities: %s", path, error)
        self._paths.add(path)
        self._save()

    def _save(self) -> None:
        self._file.write_text("".join(f"{path}\n" for path in self))


def _last_id(name: str) -> int:
    """Return the highest id that exists here, in a container often 65535."""
    lines = Path("/proc/self", name).read_text().splitlines()
    return max(int(first) + int(count) for first, _, count in (line.split() for line in lines)) - 1


def _swap_map(last: int) -> str:
    """Map all ids to themselves, but swap root and ``UID``.

    All, because a file whose owner is not in the map could not be written to.
    """
    return f"0 {UID} 1\n1 1 {UID - 1}\n{UID} 0 1\n{UID + 1} {UID + 1} {last - UID}\n"


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
