"""Files of a workspace, opened beneath a handle of its folder.

A path is never checked first and opened later: the kernel resolves it beneath the handle (openat2 with
RESOLVE_BENEATH) and refuses to leave, so a link that is swapped in between leads nowhere. Where the
kernel has no openat2, a walk does the same, one component at a time, never following a link by name.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from everturn.tools.disk_sync import DiskSync, sync_upwards
from everturn.tools.schema import ToolFailed
from everturn.tools.temporary_files import write_name

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_LINKS_MAX = 40
_PIECE_BYTES = 1 << 20


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class OutsideWorkspace(ToolFailed):
    """The path leads out of the workspace."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r} is outside the workspace; only files inside it can be used.")


class FolderHandle:
    """The files beneath one folder. A context manager: it holds the folder's handle."""

    def __init__(
        self,
        root: Path,
        *,
        has_openat2: bool | None = None,
        disk: DiskSync | None = None,
        check: Callable[[str, str], None] = lambda name, real: None,
    ) -> None:
        """``check`` is called before a write with the name that was given and the one without links, taken
        from the folder that was opened: no link can be swapped any more. It raises to refuse."""
        self.root = root
        self._check = check
        self._disk = disk or DiskSync()
        self._fd = open_folder(root)
        self.has_openat2 = _openat2_works(self._fd) if has_openat2 is None else has_openat2

    def __enter__(self) -> FolderHandle:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def name(self, path: str) -> str:
        """The path relative to the workspace, as users and rules see it. Raises OutsideWorkspace."""
        pure = PurePosixPath(path)
        if pure.is_absolute():
            if not pure.is_relative_to(self.root):
                raise OutsideWorkspace(path)
            pure = pure.relative_to(self.root)
        if "\0" in path:
            raise OutsideWorkspace(path)
        return str(pure)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """Open a file or folder; the caller closes it. Raises OutsideWorkspace, OSError."""
        name = self.name(path)
        flags |= os.O_CLOEXEC
        if self.has_openat2:
            return _openat2(self._fd, name, flags, mode, path)
        return self._walk(name, flags, mode, path)

    def read(self, path: str, bytes_max: int) -> bytes:
        """The content of a regular file; one byte more than the limit says that there is more."""
        # NONBLOCK: opening a named pipe must not hang the tool.
        fd = self.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            # Checked first: fdopen refuses a folder, and leaves its handle open.
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(path)
            if not stat.S_ISREG(mode):
                raise ToolFailed(f"{path} is not a regular file.")
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read(bytes_max + 1)
        finally:
            os.close(fd)

    def write(self, path: str, content: bytes | BinaryIO) -> bool:
        """Replace or make a file, whole or not at all; True if it is new. Folders are made as needed.

        On return the file survives a power cut, with the folders that lead to it.
        """
        name = self.name(path)
        with self._folder(str(PurePosixPath(name).parent)) as folder:
            leaf = PurePosixPath(name).name
            if not leaf or leaf == "..":
                raise ToolFailed(f"{path!r} does not name a file.")
            self._check(name, self._real(folder, leaf))
            mode = _mode_of(folder, leaf, path)
            temporary = write_name()
            fd = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode or 0o644, dir_fd=folder
            )
            try:
                with os.fdopen(fd, "wb") as file:
                    if mode is not None:
                        os.fchmod(fd, mode)
                    if isinstance(content, bytes):
                        file.write(content)
                    else:
                        shutil.copyfileobj(content, file, _PIECE_BYTES)
                    file.flush()
                    self._disk.sync(fd)
                os.rename(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(temporary, dir_fd=folder)
                raise
            sync_upwards(self._disk, folder, self._fd)
            return mode is None

    def has(self, path: str) -> bool:
        """True if there is a file, a folder or anything else of this name. A broken link counts too."""
        name = PurePosixPath(self.name(path))
        try:
            with self._folder(str(name.parent), make=False) as folder:
                os.stat(name.name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def remove(self, path: str) -> None:
        name = self.name(path)
        with self._folder(str(PurePosixPath(name).parent), make=False) as folder:
            leaf = PurePosixPath(name).name
            self._check(name, self._real(folder, leaf))
            os.unlink(leaf, dir_fd=folder)
            self._disk.sync(folder)

    def rename(self, path: str, name: str) -> None:
        """Give a file or folder another name in the same folder. Raises OSError, OutsideWorkspace."""
        pure = PurePosixPath(self.name(path))
        with self._folder(str(pure.parent), make=False) as folder:
            os.rename(pure.name, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _real(self, folder: int, leaf: str) -> str:
        """The path of something in an opened folder, relative to the root and without links."""
        at, root = (os.readlink(f"/proc/self/fd/{fd}") for fd in (folder, self._fd))
        return os.path.join(os.path.relpath(at, root), leaf).removeprefix("./")

    @contextmanager
    def _folder(self, path: str, *, make: bool = True) -> Iterator[int]:
        try:
            fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if not make or path in (".", ""):
                raise
            # Another process may have made it first, or it is a link: opening it decides.
            with self._folder(str(PurePosixPath(path).parent)) as parent, suppress(FileExistsError):
                os.mkdir(PurePosixPath(path).name, dir_fd=parent)
            fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    def _walk(self, name: str, flags: int, mode: int, shown: str) -> int:
        """openat2's RESOLVE_BENEATH by hand: a stack of folder handles, links read and not followed."""
        folders = [os.dup(self._fd)]
        rest = [part for part in PurePosixPath(name).parts if part != "."]
        links = 0
        try:
            while rest:
                part = rest.pop(0)
                if part == "..":
                    if len(folders) == 1:
                        raise OutsideWorkspace(shown)
                    os.close(folders.pop())
                    continue
                target = _link_at(folders[-1], part)
                if target is not None:
                    links += 1
                    if links > _LINKS_MAX:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), shown)
                    if target.startswith("/") or (flags & os.O_NOFOLLOW and not rest):
                        raise OutsideWorkspace(shown)
                    rest = [piece for piece in PurePosixPath(target).parts if piece != "."] + rest
                elif rest:
                    step = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                    folders.append(os.open(part, step, dir_fd=folders[-1]))
                else:
                    return _open_leaf(part, flags, mode, folders[-1], shown)
            return os.open(".", flags, mode, dir_fd=folders[-1])
        finally:
            for fd in folders:
                os.close(fd)


def _open_leaf(part: str, flags: int, mode: int, folder: int, shown: str) -> int:
    """Open the last component. If a link took its place after it was looked at, this fails."""
    try:
        return os.open(part, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OutsideWorkspace(shown) from error
        raise


def _link_at(folder: int, part: str) -> str | None:
    try:
        return os.readlink(part, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _mode_of(folder: int, leaf: str, shown: str) -> int | None:
    """The permissions of the file that is about to be replaced; None where there is none."""
    try:
        found = os.stat(leaf, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailed(f"{shown} is not a regular file; nothing was written.")
    return stat.S_IMODE(found.st_mode)


def open_folder(folder: Path) -> int:
    """A handle of a folder, given by its real path; the caller closes it.

    Raises OSError if there is a link on the path: it was put there after the path was resolved, and a
    command that may write to a folder above this one could lead us anywhere with it.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    top, *names = Path(os.path.abspath(folder)).parts
    fd = os.open(top, flags)
    for name in names:
        above = fd
        try:
            fd = os.open(name, flags, dir_fd=above)
        except NotADirectoryError:
            reason = "A link or a file is where a folder was"
            raise OSError(errno.ELOOP, reason, str(folder)) from None
        finally:
            os.close(above)
    return fd


def real_identity(path: Path) -> str:
    """Device and inode of a file or folder, given by its real path. Raises OSError like ``open_folder``."""
    folder = open_folder(path.parent)
    try:
        found = os.stat(path.name or ".", dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(folder)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "A link is where a file or a folder was", str(path))
    return f"{found.st_dev}:{found.st_ino}"


def _openat2(folder: int, name: str, flags: int, mode: int, shown: str) -> int:
    how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    for _ in range(16):
        fd = _syscall(folder, name, how)
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number == errno.EXDEV:
            raise OutsideWorkspace(shown)
        if number != errno.EAGAIN:  # a rename raced with a "..": the kernel asks to try again
            raise OSError(number, os.strerror(number), shown)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), shown)


def _syscall(folder: int, name: str, how: _OpenHow) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(folder),
        ctypes.c_char_p(os.fsencode(name)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    return result


def _openat2_works(folder: int) -> bool:
    """False on old kernels and where a container's filter knows nothing of it."""
    fd = _syscall(folder, ".", _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_BENEATH))
    if fd < 0:
        return False
    os.close(fd)
    return True
