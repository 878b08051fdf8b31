"""Files: uploads and artifacts. A row says whose a file is and what it is called; its bytes are a blob."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

from everturn.domain.errors import BlobDamaged, BlobMissing, FileMissing, FileUnreadable, NotFound
from everturn.domain.probe import Moment
from everturn.domain.store_values import File, FileKind
from everturn.domain.words import read_word
from everturn.store.blobs.blobs import StoredBlobs
from everturn.store.blobs.collector import GRACE_MS, WAIT_MS
from everturn.store.scripts.common import lock_session
from everturn.store.scripts.queries.files import (
    FILE,
    FILES_HASHES,
    FILES_OF_SESSION,
    FILES_UNUSED,
    FileColumns,
)
from everturn.store.scripts.script import Database, Script, Tx, q

NAME_CHARS_MAX = 255
_BATCH = 1_000


class Files:
    def __init__(self, db: Database, blobs: StoredBlobs) -> None:
        self._db = db
        self._blobs = blobs
        blobs.add_roots(self._hashes)

    async def put(
        self,
        owner: str,
        name: str,
        media_type: str,
        content: bytes | Path,
        *,
        kind: FileKind = FileKind.UPLOAD,
        session_id: str | None = None,
    ) -> File:
        name = name.replace("/", "_").replace("\0", "_").strip()[-NAME_CHARS_MAX:] or "file"
        kind = read_word(FileKind, kind, "kind")
        blob = await self._blobs.put(content)
        await self._db.probe.reach(Moment.FILE_SYNCED, blob.sha256)
        file = File(
            id=self._db.ids.file(),
            owner=owner,
            name=name,
            media_type=media_type,
            size=blob.size,
            sha256=blob.sha256,
            created_at=self._db.clock.now_ms(),
            kind=kind,
            session_id=session_id,
        )
        await self._db.write(_put, file)
        return file

    async def get(self, owner: str, file_id: str) -> File:
        return await self._db.read(_get, owner, file_id)

    async def list_uploads(self, owner: str, session_id: str, *, limit: int = 200) -> list[File]:
        return await self._db.read(_list_uploads, owner, session_id, limit)

    async def read(self, file: File, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        what = f"The file {file.name[:100]!r} ({file.id})"
        async with aclosing(self._blobs.read(file.sha256, start, end)) as pieces:
            try:
                async for piece in pieces:
                    yield piece
            except BlobMissing as error:
                raise FileMissing(f"{what} has no bytes in the store.") from error
            except BlobDamaged as error:
                raise FileMissing(f"{what} is not whole: {error.why}.") from error
            except FileUnreadable as error:
                raise FileUnreadable(f"{what} cannot be read: {error.facts.get('why', error)}.") from error

    async def sweep(self, *, grace_ms: int = GRACE_MS, wait_ms: int = WAIT_MS) -> int:
        """Delete uploads that no session refers to any more, except fresh ones, which may still be on their
        way; then collect bytes that nothing names. Returns how many uploads were deleted."""
        before = self._db.clock.now_ms() - grace_ms
        count = 0
        if await self._db.read(_has_unused, before):  # guard: a03 always
            count = await self._db.write(_sweep, before)
            await self._db.probe.reach(Moment.SWEEP_COMMITTED)
        if (await self._blobs.collect(grace_ms=grace_ms, wait_ms=wait_ms)).deleted:
            await self._db.probe.reach(Moment.SWEPT)
        return count

    async def _hashes(self) -> AsyncIterator[Sequence[str]]:
        after = ""
        while found := await self._db.read(_hashes_after, after):
            yield found
            after = found[-1]


def _file(row: FileColumns) -> File:
    return File(
        id=row.id,
        owner=row.owner,
        name=row.name,
        media_type=row.media_type,
        size=row.size,
        sha256=row.sha256,
        created_at=row.created_at,
        kind=FileKind(row.kind),
    )


def _put(tx: Tx, file: File) -> Script[None]:
    yield q(
        "file_insert",
        file.id,
        file.owner,
        file.kind,
        file.name,
        file.media_type,
        file.size,
        file.sha256,
        file.created_at,
    )
    if file.session_id is not None:
        session = yield from lock_session(tx, file.owner, file.session_id)
        yield q("file_use", file.id, session.no)


def _get(tx: Tx, owner: str, file_id: str) -> Script[File]:
    row = yield from FILE.first(file_id, owner)
    if row is None:
        raise NotFound("file", file_id)
    return _file(row)


def _list_uploads(tx: Tx, owner: str, session_id: str, limit: int) -> Script[list[File]]:
    rows = yield from FILES_OF_SESSION.all(session_id, owner, FileKind.UPLOAD.value, limit)
    return [_file(row) for row in rows]


def _has_unused(tx: Tx, before: int) -> Script[bool]:
    return bool((yield q("files_unused", before, 1)))


def _hashes_after(tx: Tx, after: str) -> Script[list[str]]:
    return (yield from FILES_HASHES.all(after, _BATCH))


def _sweep(tx: Tx, before: int) -> Script[int]:
    count = 0
    for file_id in (yield from FILES_UNUSED.all(before, 200)):
        if tx.dialect == "postgresql":
            # Waits for a message that is just being attached to; deleting would take its use along.
            yield q("file_lock", file_id)
        if not (yield q("file_used", file_id)):
            yield q("file_delete", file_id)
            count += 1
    return count
