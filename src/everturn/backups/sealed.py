"""Backups as archives: one tar stream, encrypted or not, in parts, with a list of the parts.

Every backup in object storage and every encrypted one in a folder has this form. The list, ``sealed.json``,
is written last. Before a backup counts, it is read back completely: each part is compared by its hash, and
the unpacked stream by the hash of what went in.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import msgspec

from everturn.backups.archive import ArchiveReader, ReadableStream, WritableStream, unpack
from everturn.backups.encryption import Key, Lock
from everturn.backups.watch import BackupWatch, size_of
from everturn.domain.backups import BackupPhase
from everturn.domain.errors import EverturnError, Invalid, NotADatabase, StoreBroken

LIST: Final = "sealed.json"
KEY_FILE: Final = "key.age"
_LIST_MAX: Final = 64 << 20
_KEY_FILE_MAX: Final = 10_000
_PIECE: Final = 1 << 20
_NAMES: Final = re.compile(r"backup\.tar(\.age)?(\.\d{5})?")


class SealedPart(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    sha256: str


class SealedList(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a backup. The list reveals nothing of the contents except their size."""

    version: int = 1
    is_encrypted: bool
    has_key_file: bool = False
    parts: tuple[SealedPart, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


class PartFile(Protocol):
    def write(self, data: bytes, /) -> None: ...

    def finish(self) -> None:
        """Durable on return."""
        ...


class Parts(Protocol):
    """Storage for the parts of one backup. Called from a thread; raises EverturnError and OSError."""

    part_bytes: int  # maximum size of a part

    def begin(self, name: str) -> PartFile: ...
    def read(self, name: str, bytes_max: int) -> Iterator[bytes]: ...


class FolderParts:
    part_bytes = 1 << 62  # files have no size limit

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, name: str) -> PartFile:
        return _NewFile(self._folder / name)

    def read(self, name: str, bytes_max: int) -> Iterator[bytes]:
        with os.fdopen(os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            left = bytes_max
            while left and (piece := file.read(min(left, _PIECE))):
                left -= len(piece)
                yield piece


class _NewFile:
    def __init__(self, path: Path) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(path, flags, 0o600), "wb")

    def write(self, data: bytes, /) -> None:
        self._file.write(data)

    def finish(self) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())


# --- sealing -----------------------------------------------------------------------------------------


def seal(source: Path, parts: Parts, lock: Lock | None, watch: BackupWatch) -> SealedList:
    """Write a backup's folder as parts, read them back, and write their list.

    Raises StoreBroken if the bytes read back differ, and what ``parts`` and ``watch`` raise.
    """
    watch.begin(BackupPhase.WRITING, size_of(source))
    archive = ArchiveReader(source, watch.advance)
    cutter = _Cutter(parts, "backup.tar" if lock is None else "backup.tar.age")
    reader, writer = _Reading(archive), _Writing(cutter)
    try:
        if lock is None:
            _pump(reader, writer)
        else:
            lock.encrypt(reader, writer)
    except Exception:
        # The library reports errors in these callbacks only by their text.
        raise_kept(reader.error, writer.error)
        raise
    key_file = lock.key_file if lock else None
    if key_file is not None:
        _write_whole(parts, KEY_FILE, key_file)
    done = SealedList(
        is_encrypted=lock is not None, has_key_file=key_file is not None, parts=tuple(cutter.finish())
    )
    watch.begin(BackupPhase.CHECKING, done.bytes)
    if _read_back(parts, done, lock, watch) != archive.sha256:
        raise StoreBroken("The backup did not read back as it was written, so it was not kept.")
    _write_whole(parts, LIST, msgspec.json.format(msgspec.json.encode(done)))
    return done


def _read_back(parts: Parts, done: SealedList, lock: Lock | None, watch: BackupWatch) -> str:
    """Return the digest of a backup's contents as read back; empty if it is damaged."""
    digest = _Digest()
    try:
        open_stream(parts, done, lock.key() if lock else None, digest, watch)
    except StoreBroken:
        return ""
    return digest.sha256


def _pump(reader: ReadableStream, writer: WritableStream) -> None:
    while piece := reader.read(_PIECE):
        writer.write(piece)


def _write_whole(parts: Parts, name: str, content: bytes) -> None:
    file = parts.begin(name)
    file.write(content)
    file.finish()


class _Cutter:
    """Splits the written bytes into parts."""

    def __init__(self, parts: Parts, name: str) -> None:
        self._parts = parts
        self._name = name
        self._file: PartFile | None = None
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._current = name
        self._done: list[SealedPart] = []

    def write(self, data: bytes, /) -> int:
        view = memoryview(data)
        while view:
            file = self._file or self._begin()
            piece = bytes(view[: self._parts.part_bytes - self._bytes])
            view = view[len(piece) :]
            file.write(piece)
            self._digest.update(piece)
            self._bytes += len(piece)
            if self._bytes == self._parts.part_bytes:
                self._end()
        return len(data)

    def flush(self) -> None:
        """Do nothing: a part is written when it is full."""

    def finish(self) -> list[SealedPart]:
        self._end()
        return self._done

    def _begin(self) -> PartFile:
        name = self._name if self._parts.part_bytes >= 1 << 62 else f"{self._name}.{len(self._done):05}"
        self._file = file = self._parts.begin(name)
        self._digest, self._bytes, self._current = hashlib.sha256(), 0, name
        return file

    def _end(self) -> None:
        if self._file is not None:
            self._file.finish()
            self._done.append(SealedPart(self._current, self._bytes, self._digest.hexdigest()))
            self._file = None


class _Reading:
    """Keeps the error that reading raised."""

    def __init__(self, source: ReadableStream) -> None:
        self._source = source
        self.error: Exception | None = None

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._source.read(size)
        except Exception as error:
            self.error = error
            raise


class _Writing:
    """Keeps the error that writing raised."""

    def __init__(self, target: WritableStream) -> None:
        self._target = target
        self.error: Exception | None = None

    def write(self, data: bytes, /) -> int:
        try:
            return self._target.write(data)
        except Exception as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._target.flush()


def raise_kept(*errors: Exception | None) -> None:
    for error in errors:
        if error is not None:
            raise error


class _Digest:
    def __init__(self) -> None:
        self._found = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._found.hexdigest()

    def write(self, data: bytes, /) -> int:
        self._found.update(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


# --- opening -----------------------------------------------------------------------------------------


def read_list(parts: Parts) -> SealedList:
    """Raises NotADatabase, FileNotFoundError."""
    try:
        found = msgspec.json.decode(b"".join(parts.read(LIST, _LIST_MAX)), type=SealedList)
    except msgspec.MsgspecError as error:
        raise NotADatabase(f"The list of a backup's parts cannot be read: {error}.") from error
    # The names are untrusted, and we open files by them.
    if found.version != 1 or not all(_NAMES.fullmatch(part.name) for part in found.parts):
        raise NotADatabase(
            "The list of a backup's parts is not one that this version makes. Nothing was restored.",
            hint="Restore it with the version that made it, or a newer one.",
        )
    return found


def read_key_file(parts: Parts) -> bytes:
    return b"".join(parts.read(KEY_FILE, _KEY_FILE_MAX))


def open_stream(
    parts: Parts, found: SealedList, key: Key | None, target: WritableStream, watch: BackupWatch
) -> None:
    """Write the archive of a backup to ``target``.

    Raises StoreBroken for a damaged part, Invalid for a wrong key, and what ``target`` and ``watch`` raise.
    """
    if found.is_encrypted and key is None:
        raise Invalid("The backup is encrypted.", hint="Name the file of your identity: --identity FILE.")
    source, writer = _Reading(_PartsReader(parts, found, watch)), _Writing(target)
    try:
        if key is None:
            _pump(source, writer)
        else:
            key.decrypt(source, writer)
    except Exception:
        raise_kept(source.error, writer.error)
        raise


class _PartsReader:
    """Reads the parts in order and compares each with the list."""

    def __init__(self, parts: Parts, found: SealedList, watch: BackupWatch) -> None:
        self._pieces = self._read_all(parts, found)
        self._watch = watch
        self._pending = b""

    def read(self, size: int = -1, /) -> bytes:
        while not self._pending:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._watch.advance(len(piece))
            self._pending = piece
        given = self._pending if size < 0 else self._pending[:size]
        self._pending = self._pending[len(given) :]
        return given

    def _read_all(self, parts: Parts, found: SealedList) -> Iterator[bytes]:
        for part in found.parts:
            digest, size = hashlib.sha256(), 0
            try:
                for piece in parts.read(part.name, part.bytes + 1):
                    digest.update(piece)
                    size += len(piece)
                    yield piece
            except FileNotFoundError as error:
                raise StoreBroken(f"{part.name} of the backup is missing. Nothing was restored.") from error
            if size != part.bytes or digest.hexdigest() != part.sha256:
                raise StoreBroken(f"{part.name} of the backup is damaged. Nothing was restored.")


def unseal(parts: Parts, found: SealedList, key: Key | None, target: Path, watch: BackupWatch) -> None:
    """Create a folder and unpack a backup into it. Raises what ``open_stream`` and ``unpack`` do.

    Do not use the files before this returns: damage may only show at the very end.
    """
    read, write = os.pipe()
    opening = _Opening(lambda pipe: open_stream(parts, found, key, pipe, watch), os.fdopen(write, "wb"))
    try:
        with os.fdopen(read, "rb") as stream:
            unpack(stream, target)
            while stream.read(_PIECE):
                """What comes after the end of the archive belongs to its last block."""
    except (EverturnError, OSError):
        opening.join()
        raise_kept(opening.error)  # this error made the archive end early
        raise
    opening.join()
    raise_kept(opening.error)


class _Opening:
    """Decrypts on one thread while another unpacks; they exchange one piece at a time."""

    def __init__(self, work: Callable[[BinaryIO], None], pipe: BinaryIO) -> None:
        self.error: Exception | None = None
        self._work = work
        self._pipe = pipe
        self._thread = threading.Thread(target=self._run, name="backup-opening")
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._pipe as pipe:
                self._work(pipe)
        except BrokenPipeError:
            """Unpacking ended with an error of its own."""
        except Exception as error:  # raised again by the thread that unpacks
            self.error = error

    def join(self) -> None:
        self._thread.join()
