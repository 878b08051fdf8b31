"""A session with its files as one ZIP file, written piece by piece.

    session.json      the session, as its export in JSON
    checkpoints.json  its kept checkpoints
    blobs/SHA256      the bytes of their trees, files and links, each once

Checkpoints whose bytes are missing or damaged are left out, and a file says how many.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import anyio.to_thread
import msgspec

from everturn.domain.blobs import Blobs
from everturn.domain.checkpoints import Checkpoint, SessionCheckpoints
from everturn.domain.errors import BlobDamaged, BlobMissing, TreeUnreadable
from everturn.domain.store import Store
from everturn.domain.trees import EMPTY_TREE, Kind
from everturn.store.sessions.documents import export_document
from everturn.workspace.archive import ZipSink
from everturn.workspace.versions import Versions

SESSION: Final = "session.json"
CHECKPOINTS: Final = "checkpoints.json"
LEFT_OUT: Final = "everturn-left-out.txt"
BLOB: Final = re.compile(r"blobs/([0-9a-f]{64})")
FORMAT: Final = "everturn.files"
VERSION: Final = 1
_PIECE_BYTES_MIN: Final = 64 << 10
_WHOLE_BYTES_MAX: Final = 1 << 20  # what is larger is written in pieces


class ExportedFiles(msgspec.Struct, frozen=True):
    format: str
    version: int
    files: SessionCheckpoints


class SessionArchive:
    """One export."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sink = ZipSink()
        self._zip = zipfile.ZipFile(self._sink, "w")  # type: ignore[call-overload]  # it needs write() and flush()

    async def pieces(self, owner: str, session_id: str) -> AsyncGenerator[bytes, None]:
        """Raises NotFound, Gone, and what reading blobs raises; also after the first pieces."""
        document = await export_document(self._store, owner, session_id)
        made = await self._store.checkpoints.list_kept(owner, session_id)
        last = await self._store.checkpoints.last(owner, session_id)
        turns = {turn.id for turn in document.turns}
        made = [one for one in made if one.turn_id is None or one.turn_id in turns]
        kept, blobs = await Whole(self._store.blobs).select(made)
        files = ExportedFiles(
            FORMAT, VERSION, SessionCheckpoints(tuple(kept), last.id if last in kept else None)
        )
        for name, value in ((SESSION, document), (CHECKPOINTS, files)):
            await anyio.to_thread.run_sync(self._write, name, msgspec.json.encode(value))
        if len(kept) < len(made):
            self._write(LEFT_OUT, f"{len(made) - len(kept)} checkpoint(s) with damaged bytes.\n".encode())
        yield self._sink.take()
        for sha256, size in sorted(blobs.items()):
            async with aclosing(self._blob(sha256, size)) as pieces:
                async for piece in pieces:
                    yield piece
        self._zip.close()
        yield self._sink.take()

    def _write(self, name: str, data: bytes) -> None:
        self._zip.writestr(_info(name, len(data)), data)

    async def _blob(self, sha256: str, size: int) -> AsyncGenerator[bytes, None]:
        name = f"blobs/{sha256}"
        async with aclosing(self._store.blobs.read(sha256)) as chunks:
            if size <= _WHOLE_BYTES_MAX:
                data = b"".join([chunk async for chunk in chunks])
                await anyio.to_thread.run_sync(self._write, name, data)
            else:
                is_huge = size >= zipfile.ZIP64_LIMIT
                with self._zip.open(_info(name, size), "w", force_zip64=is_huge) as member:
                    async for chunk in chunks:
                        await anyio.to_thread.run_sync(member.write, chunk)
                        if piece := self._sink.take(_PIECE_BYTES_MIN):
                            yield piece
        if piece := self._sink.take(_PIECE_BYTES_MIN):
            yield piece


def _info(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o600 << 16
    info.file_size = size
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


class Whole:
    """Finds the checkpoints whose bytes are all stored. Keeps only hashes in memory, no trees."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._versions = Versions(blobs)

    async def select(self, made: Sequence[Checkpoint]) -> tuple[list[Checkpoint], dict[str, int]]:
        """Those checkpoints, and the sizes of all blobs that they name."""
        named, unreadable = await self._names(made)
        found = await self._blobs.find(sorted(named))
        missing = (named - found.keys()) | unreadable
        if not missing:
            return list(made), found
        whole = {"": True, EMPTY_TREE: True}
        kept = []
        for one in made:
            trees = [await self._is_whole(tree, missing, whole) for tree in (one.before, one.tree)]
            if all(trees):
                kept.append(one)
        used, _ = await self._names(kept)
        return kept, {sha256: found[sha256] for sha256 in used}

    async def _names(self, made: Sequence[Checkpoint]) -> tuple[set[str], set[str]]:
        """Every blob that the checkpoints name, and the trees among them that cannot be read."""
        named: set[str] = set()
        unreadable: set[str] = set()
        waiting = [tree for one in made for tree in (one.before, one.tree)]
        while waiting:
            sha256 = waiting.pop()
            if sha256 in named or sha256 in ("", EMPTY_TREE):
                continue
            named.add(sha256)
            try:
                entries = (await self._versions.tree(sha256)).entries
            except (BlobDamaged, BlobMissing, TreeUnreadable):
                unreadable.add(sha256)
                continue
            waiting += [entry.sha256 for entry in entries if entry.kind is Kind.FOLDER]
            named |= {entry.sha256 for entry in entries if entry.kind in (Kind.FILE, Kind.LINK)}
        return named, unreadable

    async def _is_whole(self, tree: str, missing: set[str], known: dict[str, bool]) -> bool:
        if tree in missing:
            return False
        if tree not in known:
            entries = (await self._versions.tree(tree)).entries
            known[tree] = not any(entry.sha256 in missing for entry in entries) and all(
                [
                    await self._is_whole(entry.sha256, missing, known)
                    for entry in entries
                    if entry.kind is Kind.FOLDER
                ]
            )
        return known[tree]
