"""Reads office files, which are ZIP archives of XML, within size limits.

XML is read as a stream and never held as a tree, so memory use does not depend on the size of the document.
Entities are refused: office files do not need them, and they can expand without bound.
"""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO
from xml.parsers import expat

UNPACKED_BYTES_MAX = 256 * 1024 * 1024
MEMBERS_MAX = 20_000
_PIECE_BYTES = 1 << 16
_ENCRYPTED = 0x1
Start = Callable[[str, Mapping[str, str]], None]
End = Callable[[str], None]


class PackedUnreadable(Exception):
    """The document cannot be read; the message says why and what to do."""


class PackedDocument:
    """A ZIP file with a limit on the total unpacked size of its members."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise PackedUnreadable(_describe_damage(error)) from error
        self._left = UNPACKED_BYTES_MAX
        infos = self._zip.infolist()
        if len(infos) > MEMBERS_MAX:
            raise PackedUnreadable(f"It holds {len(infos):,} files; more than {MEMBERS_MAX:,} are not read.")
        self._names = {info.filename.lower(): info for info in infos}

    def has(self, name: str) -> bool:
        return name.lower() in self._names

    def read(self, name: str) -> bytes:
        pieces: list[bytes] = []
        self.pieces(name, pieces.append)
        return b"".join(pieces)

    def pieces(self, name: str, take: Callable[[bytes], object]) -> None:
        """Unpack a member piece by piece. Raises PackedUnreadable."""
        info = self._names.get(name.lower())
        if info is None:
            raise PackedUnreadable(
                f"It is damaged: {name!r} is missing in it. Open it in its program and save it again."
            )
        if info.flag_bits & _ENCRYPTED:
            raise PackedUnreadable("It is encrypted. Save it without a password, then attach it again.")
        try:
            with self._zip.open(info) as member:
                self._copy(member, take)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            raise PackedUnreadable(_describe_damage(error)) from error

    def _copy(self, member: IO[bytes], take: Callable[[bytes], object]) -> None:
        # The size stated in the ZIP file may be false, so count the bytes that come out.
        while piece := member.read(_PIECE_BYTES):
            self._left -= len(piece)
            if self._left < 0:
                raise PackedUnreadable(
                    f"It unpacks to more than {UNPACKED_BYTES_MAX // 1024**2} MiB, so it was stopped. It "
                    "may be a ZIP bomb. If you trust it, save only the part that is needed."
                )
            take(piece)

    def xml(
        self, name: str, start: Start, end: End = lambda tag: None, text: End = lambda words: None
    ) -> None:
        """Read a member as XML, with namespaces removed from tags and attributes. Raises PackedUnreadable."""
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True

        def starts(tag: str, attributes: Mapping[str, str]) -> None:
            start(local(tag), {local(key): value for key, value in attributes.items()})

        def refuse(*_: object) -> None:
            raise PackedUnreadable(
                "It defines XML entities, which no office program writes. It was not read."
            )

        parser.StartElementHandler = starts
        parser.EndElementHandler = lambda tag: end(local(tag))
        parser.CharacterDataHandler = text
        parser.EntityDeclHandler = refuse
        try:
            self.pieces(name, lambda piece: parser.Parse(piece, False))
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise PackedUnreadable(_describe_damage(error)) from error

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the members that a member refers to: by id, the kind and the name."""
        folder, leaf = posixpath.split(name)
        listed = f"{folder}/_rels/{leaf}.rels" if folder else f"_rels/{leaf}.rels"
        found: dict[str, tuple[str, str]] = {}
        if not self.has(listed):
            return found

        def start(tag: str, attributes: Mapping[str, str]) -> None:
            if tag == "Relationship" and attributes.get("TargetMode") != "External":
                target = attributes.get("Target", "")
                path = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
                kind = attributes.get("Type", "").rsplit("/", 1)[-1]
                found[attributes.get("Id", "")] = (kind, posixpath.normpath(path))

        self.xml(listed, start)
        return found

    def main(self, fallback: str) -> str:
        """Return the name of the member that holds the document itself."""
        named = (path for kind, path in self.relations("").values() if kind == "officeDocument")
        found = next(named, fallback)
        return found if self.has(found) else fallback


def local(name: str) -> str:
    return name.rsplit("}", 1)[-1]


def _describe_damage(error: Exception) -> str:
    return f"It is damaged or not what its name says ({error}). Open it in its program and save it again."
