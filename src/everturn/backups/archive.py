"""A backup's folder as one stream in the tar format, and back.

The stream is generated while it is read, so a backup of any size needs no second copy. An archive is
untrusted: only files, folders and links are unpacked, each into a folder that the archive created itself.
Links are created last, so nothing is ever written through one.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from everturn.domain.errors import Invalid, NotADatabase
from everturn.store.files.copy_tree import DEPTH_MAX

_PIECE = 1 << 20
_BLOCK = 512
_MODE = 0o777
NAMES_MAX = 5_000_000  # members per archive, because each costs memory while unpacking


class ReadableStream(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class WritableStream(Protocol):
    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> None: ...


class ArchiveReader:
    """Reads a folder as a tar stream. ``advance`` is called with the size of each piece and may raise.

    ``sha256`` is the digest of the bytes read so far.
    """

    def __init__(self, folder: Path, advance: Callable[[int], None]) -> None:
        self._pieces = _tar_pieces(folder)
        self._pending = b""
        self._advance = advance
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def read(self, size: int = -1, /) -> bytes:
        while not self._pending:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._advance(len(piece))
            self._pending = piece
        found = self._pending if size < 0 else self._pending[:size]
        self._pending = self._pending[len(found) :]
        self._digest.update(found)
        return found


def _tar_pieces(folder: Path) -> Iterator[bytes]:
    for path in _entries(folder):
        found = path.lstat()
        info = tarfile.TarInfo(str(path.relative_to(folder)))
        info.mode = found.st_mode & _MODE
        info.mtime = int(found.st_mtime)
        if stat.S_ISDIR(found.st_mode):
            info.type = tarfile.DIRTYPE
            yield _header(info)
        elif stat.S_ISLNK(found.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            yield _header(info)
        else:
            info.size = found.st_size
            yield _header(info)
            yield from _content(path, found.st_size)
    yield bytes(2 * _BLOCK)


def _entries(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, each folder before its contents."""
    for entry in sorted(folder.iterdir()):
        yield entry
        # A folder that could not be read when it was copied is empty and kept its restrictive mode.
        if entry.is_dir() and not entry.is_symlink() and os.access(entry, os.R_OK | os.X_OK):
            yield from _entries(entry)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(path: Path, size: int) -> Iterator[bytes]:
    left = size
    # A workspace may contain files that even their owner may not read, but this copy is ours.
    with path.open("rb") as file:
        while left:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise OSError(None, "The file became shorter while it was read", str(path))
            left -= len(piece)
            yield piece
    yield bytes(-size % _BLOCK)


# --- unpacking ---------------------------------------------------------------------------------------


def unpack(stream: IO[bytes], target: Path) -> None:
    """Create a folder and unpack an archive into it.

    Raises Invalid for an entry that no backup has, NotADatabase if the stream is not an archive, OSError.
    """
    target.mkdir(mode=0o700)
    made: set[PurePosixPath] = {PurePosixPath()}
    links: list[tuple[Path, str]] = []
    modes: list[tuple[Path, int]] = []
    count = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                count += 1
                path = _place(member, made)
                if count > NAMES_MAX:
                    raise Invalid("The archive holds too many names. Nothing was restored.")
                if member.isdir():
                    (target / path).mkdir(mode=0o700)
                    made.add(path)
                    modes.append((target / path, member.mode & _MODE))
                elif member.issym():
                    links.append((target / path, member.linkname))
                else:
                    _unpack_file(archive, member, target / path)
                archive.members = []  # type: ignore[attr-defined]  # or every header is kept until the end
    except tarfile.TarError as error:
        raise NotADatabase(
            f"This is not an archive of a backup: {error}. Nothing was restored.",
            hint="Name what 'everturn backup' made.",
        ) from error
    for link, aim in links:
        link.symlink_to(aim)
    for folder, mode in reversed(modes):  # at the end, because nothing can be written to a read-only folder
        folder.chmod(mode)


def _place(member: tarfile.TarInfo, made: set[PurePosixPath]) -> PurePosixPath:
    """Return a member's path relative to the target. Raises Invalid."""
    path = PurePosixPath(member.name)
    # No sparse files: a few bytes could fill the disk.
    is_kind = member.type in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE) and not member.issparse()
    is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    if not is_kind or not is_inside or len(path.parts) > DEPTH_MAX + 2 or path.parent not in made:
        raise Invalid(
            f"The archive holds {member.name[:80]!r}, which no backup does. Nothing was restored.",
            hint="Name what 'everturn backup' made.",
        )
    return path


def _unpack_file(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = archive.extractfile(member)
    if content is None:
        raise NotADatabase(f"{member.name[:80]!r} in the archive has no content. Nothing was restored.")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        while piece := content.read(_PIECE):
            file.write(piece)
    os.utime(target, (member.mtime, member.mtime))
    target.chmod(member.mode & _MODE)
