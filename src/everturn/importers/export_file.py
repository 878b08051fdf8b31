"""An exported file: JSON, or a ZIP file with JSON and attachments. It may come from anywhere."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import msgspec

from everturn.domain.errors import BadImport
from everturn.domain.json_types import JsonObject
from everturn.importers import texts
from everturn.importers.values import Conversation, ForeignFile, Unreadable
from everturn.workspace.session_import import DIRECTORY_BYTES_MAX, directory_bytes

JSON_BYTES_MAX: Final = 2_000_000_000
MEMBERS_MAX: Final = 200_000
RATIO_MAX: Final = 200  # a member compressed more tightly counts as a bomb
FREE_BYTES: Final = 10_000_000  # up to this size, the ratio does not matter
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error)


class Reader(NamedTuple):
    """How the conversations of one system are read. ``file_name``: what the JSON files in an archive begin
    with; large exports are divided. ``ids``: the members of which one names the conversation."""

    file_name: str
    ids: tuple[str, ...]
    read: Callable[[JsonObject, ExportFile], Conversation]


class ExportFile:
    """Open until ``close``. ``name``: what the user calls it. Raises BadImport if it cannot be read."""

    def __init__(self, path: Path, name: str = "") -> None:
        self._path = path
        self._name = name or path.name
        self._archive = _open_archive(path, self._name)
        self._by_id: dict[str, zipfile.ZipInfo] = {}
        for info in [] if self._archive is None else self._archive.infolist():
            self._by_id.setdefault(PurePosixPath(info.filename).name, info)

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()

    def items(self, name: str) -> Iterator[msgspec.Raw]:
        """The conversations: members of a JSON list, or the one object that the file is. ``name``: what the
        JSON files in an archive begin with."""
        for data in self._documents(name):
            if data.lstrip()[:1] == b"{":
                yield msgspec.Raw(data)
            else:
                yield from self._items_of(data)

    def _items_of(self, data: bytes) -> list[msgspec.Raw]:
        try:
            return texts.items_of(data)
        except BadImport as error:
            raise BadImport(f"{self._name} cannot be read: {error.message} Nothing was imported.") from error

    def _documents(self, name: str) -> Iterator[bytes]:
        if self._archive is None:
            size = self._path.stat().st_size
            if size > JSON_BYTES_MAX:
                raise BadImport(f"{self._name} is larger than {JSON_BYTES_MAX // 10**9} GB.")
            yield self._path.read_bytes()
            return
        found = [
            info
            for info in self._archive.infolist()
            if (last := PurePosixPath(info.filename).name).startswith(name) and last.endswith(".json")
        ]
        if not found:
            raise BadImport(f"{self._name} holds no {name}*.json. Nothing was imported.")
        # All are held at once, so many small ones count like a large one.
        _refuse_bomb(self._name, found, JSON_BYTES_MAX)
        for info in sorted(found, key=lambda one: one.filename):
            yield self._read(info, JSON_BYTES_MAX)

    def file(self, file_id: str, name: str) -> ForeignFile:
        """An attachment: the member whose name begins with its id."""
        info = None if self._archive is None else self._find(file_id)
        if info is None:
            return ForeignFile(name)
        last = PurePosixPath(info.filename).name
        shown = name if PurePosixPath(name).suffix else name + PurePosixPath(last).suffix
        return ForeignFile(shown, lambda: self._read(info, FREE_BYTES * 10))

    def _find(self, file_id: str) -> zipfile.ZipInfo | None:
        if not file_id:
            return None
        names = (
            name for name in self._by_id if name == file_id or name.startswith((f"{file_id}-", f"{file_id}."))
        )
        return next((self._by_id[name] for name in names), None)

    def _read(self, info: zipfile.ZipInfo, bytes_max: int) -> bytes:
        _refuse_bomb(info.filename[:80], [info], bytes_max)
        if self._archive is None:
            raise BadImport(f"{info.filename[:80]} is in no archive.")
        try:
            return self._archive.read(info)
        except _DAMAGE as error:
            raise BadImport(f"{info.filename[:80]} is damaged: {error}.") from error

    def read(self, raw: msgspec.Raw, reader: Reader) -> Conversation | Unreadable:
        """The conversation, or why it cannot be read. The others are imported all the same."""
        try:
            data = texts.decode(raw)
        except BadImport as error:
            return Unreadable("", self._name, error.message)
        if not isinstance(data, dict):
            return Unreadable("", self._name, "It is not a conversation.")
        name = next((str(data[key]) for key in reader.ids if data.get(key)), "")
        try:
            found = reader.read(data, self)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return Unreadable(name, texts.title_of(data.get("title")), f"It has an unknown form ({error!r}).")
        return found if found.messages else Unreadable(found.id, found.title, "It has no messages.")


def _refuse_bomb(name: str, members: Sequence[zipfile.ZipInfo], bytes_max: int) -> None:
    """``members``: those that are unpacked together."""
    size, packed = sum(one.file_size for one in members), sum(one.compress_size for one in members)
    if size > bytes_max or (size > FREE_BYTES and size > RATIO_MAX * max(1, packed)):
        raise BadImport(f"{name} is too large ({size:,} bytes unpacked). Nothing was imported.")


def _open_archive(path: Path, name: str) -> zipfile.ZipFile | None:
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return None
    try:
        with path.open("rb") as file:
            size = directory_bytes(file, path.stat().st_size) or 0
        if size > DIRECTORY_BYTES_MAX:
            raise BadImport(f"{name} has too many members. Nothing was imported.")
        archive = zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise BadImport(f"{name} is damaged or cut off: {error}. Nothing was imported.") from error
    if len(archive.infolist()) > MEMBERS_MAX:
        archive.close()
        raise BadImport(f"{name} has more than {MEMBERS_MAX:,} members. Nothing was imported.")
    return archive
