"""Imports a session with its files from a ZIP file that can come from anywhere.

Everything is checked before a row names it: the members of the ZIP file and how large they become, the hash
of each blob, and the trees, whose names must lead nowhere else. No row names bytes that were stored for a
refused archive, so the next collections free them.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from everturn.domain.blobs import Blob
from everturn.domain.checkpoints import LISTED_MAX, Checkpoint, SessionCheckpoints
from everturn.domain.errors import BadImport, TreeUnreadable
from everturn.domain.ids import check_id
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.domain.trees import EMPTY_TREE, MODE_BITS, Entry, Kind, Tree
from everturn.store.sessions.documents import Document, import_document
from everturn.workspace.session_archive import (
    BLOB,
    CHECKPOINTS,
    FORMAT,
    LEFT_OUT,
    SESSION,
    VERSION,
    ExportedFiles,
)
from everturn.workspace.versions import Versions

T = TypeVar("T")

DIRECTORY_BYTES_MAX: Final = 32 << 20  # about 200,000 members
JSON_BYTES_MAX: Final = 300_000_000
UNPACKED_RATIO_MAX: Final = 100  # an archive that is packed more tightly counts as a bomb
UNPACKED_BYTES_FREE: Final = 10_000_000  # up to this size, the ratio does not matter
TREE_ENTRIES_MAX: Final = 500_000  # of one checkpoint
TREE_BYTES_MAX: Final = 50_000_000_000  # that restoring one checkpoint writes
DEPTH_MAX: Final = 200
_NUMBER_MAX: Final = 1 << 53
_NAME_BYTES_MAX: Final = 255
_LINK_BYTES_MAX: Final = 4096
_PATH_CHARS_MAX: Final = 20_000
_CALL_CHARS_MAX: Final = 200
_HINT: Final = "Export the session again, with its files."


class OpenArchive:
    """The checked members of a ZIP file."""

    def __init__(self, archive: zipfile.ZipFile, document: Document, files: SessionCheckpoints) -> None:
        self._archive = archive
        self.document = document
        self.files = files
        members = [(BLOB.fullmatch(info.filename), info.file_size) for info in archive.infolist()]
        self.blobs = {found[1]: size for found, size in members if found}

    def open(self, sha256: str) -> BinaryIO:
        return self._archive.open(f"blobs/{sha256}")  # type: ignore[return-value]  # reads and closes

    def close(self) -> None:
        self._archive.close()


def open_archive(path: Path) -> OpenArchive:
    """Raises BadImport."""
    with _report_damage():
        size = path.stat().st_size
        with path.open("rb") as file:
            found = directory_bytes(file, size)
        if found is None:
            raise _bad("it is not a ZIP file, or cut off")
        if found > DIRECTORY_BYTES_MAX:
            raise _bad("it has too many members")
        archive = zipfile.ZipFile(path)
    try:
        with _report_damage():
            _check_members(archive.infolist(), size)
            document = _decode(archive, SESSION, Document)
            exported = _decode(archive, CHECKPOINTS, ExportedFiles)
        if (exported.format, exported.version) != (FORMAT, VERSION):
            raise _bad(f"its files are {exported.format[:40]!r} version {exported.version}")
        files = exported.files
        _check_checkpoints(files, {turn.id for turn in document.turns})
        return OpenArchive(archive, document, files)
    except BaseException:
        archive.close()
        raise


async def import_archive(
    store: Store,
    owner: str,
    archive: OpenArchive,
    document: Document,
    described: Callable[[str, bytes], tuple[str, str]],
) -> Session:
    """Import an opened archive whole or not at all. ``document``: that of the archive, changed as the caller
    needs. Raises BadImport, and what storing bytes raises."""
    names = sorted(archive.blobs)
    with _report_damage():
        stored = await store.blobs.put_many([_source(archive, sha256) for sha256 in names])
    for sha256, blob in zip(names, stored, strict=True):
        if blob != Blob(sha256, archive.blobs[sha256]):
            raise _bad(f"the bytes of {sha256[:12]}… are not what their name says")
    await _Trees(Versions(store.blobs), archive.blobs).check(archive.files.checkpoints)
    return await import_document(store, owner, document, described, archive.files)


def _source(archive: OpenArchive, sha256: str) -> Callable[[], BinaryIO]:
    return lambda: archive.open(sha256)


# --- the ZIP file -----------------------------------------------------------------------------------------


def _bad(why: str) -> BadImport:
    return BadImport(f"The archive cannot be imported: {why}. Nothing was imported.", hint=_HINT)


@contextmanager
def _report_damage() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error) as error:
        raise _bad(f"it is damaged or cut off ({error})") from error
    except (NotImplementedError, RuntimeError, UnicodeError) as error:
        raise _bad(f"it is packed in an unusual way ({error})") from error


def directory_bytes(file: BinaryIO, size: int) -> int | None:
    """The size of the table of members, which is read into memory as a whole; None if there is none."""
    file.seek(max(0, size - 66_000))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0:
        return None
    (found,) = struct.unpack_from("<I", tail, at + 12)
    if at >= 76 and tail[at - 20 : at - 16] == b"PK\x06\x07":
        (found,) = struct.unpack_from("<Q", tail, at - 76 + 40)  # a ZIP file of more than 4 GB
    return int(found)


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise _bad("a member is in it twice")
    for member in members:
        if member.filename not in (SESSION, CHECKPOINTS, LEFT_OUT) and not BLOB.fullmatch(member.filename):
            raise _bad(f"it holds {member.filename[:80]!r}, which is not part of an exported session")
    if sum(member.compress_size for member in members) > size:
        raise _bad("its members overlap")
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(UNPACKED_BYTES_FREE, UNPACKED_RATIO_MAX * size):
        raise _bad(f"{size:,} bytes would become {unpacked:,}")


def _decode(archive: zipfile.ZipFile, name: str, kind: type[T]) -> T:
    if name not in archive.NameToInfo:
        raise _bad(f"{name} is missing")
    if archive.getinfo(name).file_size > JSON_BYTES_MAX:
        raise _bad(f"{name} is too large")
    try:
        return msgspec.json.decode(archive.read(name), type=kind)
    except msgspec.DecodeError as error:
        raise _bad(f"{name} cannot be read: {error}") from error


def _check_checkpoints(files: SessionCheckpoints, turns: set[str]) -> None:
    made = files.checkpoints
    names = {check_id(one.id, "chk") for one in made}
    if len(names) < len(made):
        raise _bad("two checkpoints have the same id")
    if files.current is not None and files.current not in names:
        raise _bad("the workspace holds a checkpoint that is not in it")
    for one in made:
        if one.turn_id is not None and one.turn_id not in turns:
            raise _bad("a checkpoint belongs to a turn that is not in it")
        if not (0 <= one.epoch < 1 << 31 and 0 <= one.created_at < _NUMBER_MAX):
            raise _bad("a number of a checkpoint is out of range")
        if not one.cause.is_known:
            raise _bad("a checkpoint has a cause that this version does not know")
        call = one.call_id or ""
        if not call.isprintable() or len(call) > _CALL_CHARS_MAX:
            raise _bad("the id of a call is not one")
        _check_listed(one)


def _check_listed(made: Checkpoint) -> None:
    listed = made.changes
    paths = [item.path for item in listed.changed] + [item.path for item in listed.left_out]
    numbers = [listed.changed_total, listed.left_out_total, *(item.size for item in listed.changed)]
    if (
        max(len(listed.changed), len(listed.left_out)) > LISTED_MAX
        or max(map(len, paths), default=0) > _PATH_CHARS_MAX
    ):
        raise _bad("a checkpoint lists too much")
    words = [item.what for item in listed.changed] + [item.reason for item in listed.left_out]
    if not all(word.is_known for word in words):
        raise _bad("a checkpoint lists a change that this version does not know")
    if not all(0 <= number < _NUMBER_MAX for number in numbers):
        raise _bad("a number of a checkpoint is out of range")


# --- trees ------------------------------------------------------------------------------------------------


class _Total(msgspec.Struct, frozen=True):
    """What restoring a tree writes. A small archive can name one folder in itself a million times over."""

    entries: int = 0
    size: int = 0
    depth: int = 0


class _Trees:
    """Checks trees. ``blobs``: sizes of the blobs in the archive. A tree may name no others: other bytes in
    the store may belong to another user."""

    def __init__(self, versions: Versions, blobs: Mapping[str, int]) -> None:
        self._versions = versions
        self._blobs = blobs
        self._totals = {"": _Total(), EMPTY_TREE: _Total()}

    async def check(self, made: tuple[Checkpoint, ...]) -> None:
        for one in made:
            for tree in (one.before, one.tree):
                await self._check(tree, 0)

    async def _check(self, sha256: str, depth: int) -> _Total:
        known = self._totals.get(sha256)
        if known is not None:
            return known
        if depth > DEPTH_MAX:
            raise _bad("folders are nested too deeply")
        if sha256 not in self._blobs:
            raise _bad(f"the folder {sha256[:12]!r} is not in it")
        try:
            tree = await self._versions.tree(sha256)
        except TreeUnreadable as error:
            raise _bad(error.message.rstrip(".")) from error
        total = await self._total(tree, depth)
        if total.entries > TREE_ENTRIES_MAX or total.size > TREE_BYTES_MAX or total.depth > DEPTH_MAX:
            raise _bad("a checkpoint holds too many files, too deep or too large")
        self._totals[sha256] = total
        return total

    async def _total(self, tree: Tree, depth: int) -> _Total:
        entries = size = inner_depth = 0
        names = [entry.name for entry in tree.entries]
        if names != sorted(set(names)) or not 0 <= tree.unlisted < _NUMBER_MAX:
            raise _bad("the entries of a folder are not in their order")
        for entry in tree.entries:
            self._check_entry(entry)
            inner = (
                await self._check(entry.sha256, depth + 1)
                if entry.kind is Kind.FOLDER
                else _Total(0, entry.size)
            )
            entries += inner.entries + 1
            size += inner.size
            inner_depth = max(inner_depth, inner.depth)
        return _Total(entries, size, inner_depth + 1)

    def _check_entry(self, entry: Entry) -> None:
        name = entry.name
        if name in (b"", b".", b"..") or b"/" in name or b"\0" in name or len(name) > _NAME_BYTES_MAX:
            raise _bad(f"{name[:80]!r} is not the name of a file")
        if entry.mode & ~MODE_BITS or not 0 <= entry.size < _NUMBER_MAX:
            raise _bad(f"mode or size of {name[:80]!r} are out of range")
        if entry.kind in (Kind.FILE, Kind.LINK) and self._blobs.get(entry.sha256) != entry.size:
            raise _bad(f"the bytes of {name[:80]!r} are not in it")
        if entry.kind is Kind.LINK and entry.size > _LINK_BYTES_MAX:
            raise _bad(f"the link {name[:80]!r} is too long")
