"""Files: uploads and artifacts, by hash in the data folder, owned by rows in the database."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everturn.domain.errors import NotFound
from everturn.domain.probe import Moment
from everturn.domain.store_values import File, FileKind
from everturn.domain.words import read_word
from everturn.store.files.disk import INCOMING, Disk, hashed_path, put_file, report_errors, sync_tree
from everturn.store.scripts.common import lock_session
from everturn.store.scripts.queries import FILE, FILES_UNUSED, RECORDS, FileColumns
from everturn.store.scripts.script import Database, Script, Tx, q

NAME_CHARS_MAX = 255
UNUSED_GRACE_MS = 24 * 3600 * 1000
_SWEPT = ("", "swept")  # owner and kind of the records that name hashes to delete


class Files:
    def __init__(self, db: Database, folder: Path, disk: Disk) -> None:
        self._db = db
        self._folder = folder
        self._disk = disk
        self._pauses = 0  # uploads and backups under way: nothing is swept meanwhile
        self._sweeping = asyncio.Lock()  # held by a sweep under way: nothing comes in meanwhile

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
        # Without the pause a sweep could find the last older row of the same bytes unused, and delete
        # them after they were synced here and before the new row names them.
        async with self.pause_sweeping():
            sha256, size = await asyncio.to_thread(put_file, self._disk, self._folder, content)
            await self._db.probe.reach(Moment.FILE_SYNCED, sha256)
            file = File(
                id=self._db.ids.file(),
                owner=owner,
                name=name,
                media_type=media_type,
                size=size,
                sha256=sha256,
                created_at=self._db.clock.now_ms(),
                kind=kind,
                session_id=session_id,
            )
            await self._db.write(_put, file)
            if not hashed_path(self._folder, sha256).exists():
                # Another process's sweep came in between; from now on the row protects the bytes.
                await asyncio.to_thread(put_file, self._disk, self._folder, content)
        return file

    async def get(self, owner: str, file_id: str) -> File:
        return await self._db.read(_get, owner, file_id)

    async def path(self, owner: str, file_id: str) -> Path:
        file = await self.get(owner, file_id)
        return hashed_path(self._folder, file.sha256)

    async def sweep(self, *, grace_ms: int = UNUSED_GRACE_MS) -> int:
        """Delete uploads that no session refers to any more; fresh ones may still be on their way."""
        if self._pauses or self._sweeping.locked():
            return 0
        before = self._db.clock.now_ms() - grace_ms
        async with self._sweeping:
            await self._delete_leftovers(before)
            if await self._db.read(_unused, before):  # guard: a03 always
                await self._db.write(_sweep, before)
                await self._db.probe.reach(Moment.SWEEP_COMMITTED)
            # Also those of a sweep that was killed. Only what this database named: another one may keep its
            # files in the same folder.
            hashes = await self._db.read(_swept)
            if not hashes:
                return 0
            for sha256 in hashes:
                await self._remove(sha256)
            await self._db.probe.reach(Moment.SWEPT)
            await self._db.write(_removed, hashes)
        return len(hashes)

    async def _remove(self, sha256: str) -> None:
        """Delete the bytes that no row names. Another process may be adding such a row at this moment: so the
        bytes are moved aside first, and moved back if it has. A process that adds one later finds the bytes
        missing and stores them again."""
        path = hashed_path(self._folder, sha256)
        aside = self._folder / f"{INCOMING}{sha256}-{self._db.ids.file()}"
        try:
            path.rename(aside)
        except FileNotFoundError:
            return
        is_named = True  # unless the store says otherwise
        try:
            is_named = await self._db.read(_is_named, sha256)
        finally:
            if is_named:
                aside.rename(path)
            else:
                aside.unlink()

    async def _delete_leftovers(self, before: int) -> None:
        """Delete what is left of an upload or a sweep that was killed. Bytes that were put aside come
        back if a row names them."""
        for path in await asyncio.to_thread(self._leftovers, before):
            sha256 = path.name.removeprefix(INCOMING).partition("-")[0]
            is_named = await self._db.read(_is_named, sha256)
            with contextlib.suppress(FileNotFoundError):  # another process sweeps too
                if is_named:
                    path.rename(hashed_path(self._folder, sha256))
                else:
                    path.unlink()

    def _leftovers(self, before: int) -> list[Path]:
        found = []
        for path in self._folder.glob(f"{INCOMING}*"):
            with contextlib.suppress(FileNotFoundError):  # not left over: it has its name now
                if path.stat().st_ctime * 1000 < before:
                    found.append(path)
        return found

    async def copy_to(self, target: Path) -> None:
        """Copy every file into a backup's folder, and make the whole folder durable."""
        await asyncio.to_thread(self._copy_to, target)

    def _copy_to(self, target: Path) -> None:
        with report_errors(target):
            if self._folder.exists():
                # What is only coming in has no row yet, and its name goes away at any moment.
                is_coming_in = shutil.ignore_patterns(f"{INCOMING}*")
                shutil.copytree(self._folder, target / self._folder.name, ignore=is_coming_in)
            sync_tree(self._disk, target)

    @asynccontextmanager
    async def pause_sweeping(self) -> AsyncIterator[None]:
        """Wait for the end of a sweep under way; none begins before this is left."""
        async with self._sweeping:
            self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1


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


def _unused(tx: Tx, before: int) -> Script[bool]:
    return bool((yield q("files_unused", before, 1)))


def _is_named(tx: Tx, sha256: str) -> Script[bool]:
    return bool((yield q("hash_used", sha256)))


def _sweep(tx: Tx, before: int) -> Script[None]:
    """Remove rows first; a file is deleted only after no row names its hash. Until it is, a record names it,
    which a process that is killed in between leaves to the next sweep."""
    for file in (yield from FILES_UNUSED.all(before, 200)):
        if tx.dialect == "postgresql":
            # Waits for a message that is just being attached to; deleting would take its use along.
            yield q("file_lock", file.id)
        if (yield q("file_used", file.id)):
            continue
        yield q("file_delete", file.id)
        if not (yield q("hash_used", file.sha256)):
            yield q("record_put", *_SWEPT, file.sha256, "true", tx.now)


def _swept(tx: Tx) -> Script[list[str]]:
    owner, kind = _SWEPT
    return [record.name for record in (yield from RECORDS.all(owner, kind))]


def _removed(tx: Tx, hashes: list[str]) -> Script[None]:
    for sha256 in hashes:
        yield q("record_delete", *_SWEPT, sha256)
