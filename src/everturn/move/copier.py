"""Copies everything from one side of a move to the other, then compares them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

import msgspec

from everturn.domain.errors import StoreBroken, StoreRefused
from everturn.move.pack_bytes import Blob, PackDigest, carry_pack, read_pack, verify_pack
from everturn.move.sqlite_side import Notes
from everturn.move.tables import Change, MovedTable, Row
from everturn.store.blobs.address import SCHEME

Report = Callable[[str], None]


class Side(Protocol):
    async def count(self, table: MovedTable) -> int: ...
    def rows(self, table: MovedTable) -> AsyncIterator[list[Row]]: ...
    async def add(self, table: MovedTable, rows: list[Row], change: Change) -> None: ...
    async def counters(self) -> dict[str, int]: ...
    async def set_counters(self, at_least: Mapping[str, int]) -> None: ...
    def pack(self, pack: str, path: str) -> AsyncIterator[bytes]: ...
    async def put_pack(self, pack: str, pieces: AsyncIterator[bytes]) -> None: ...
    async def notes(self) -> tuple[Notes, list[str]]: ...
    async def put_notes(self, notes: Notes) -> list[str]: ...


class Mismatch(Exception):
    """The target differs from the source."""


class CopySummary(msgspec.Struct):
    """What was copied and compared. ``not_carried`` lists in sentences what was left out."""

    rows: int = 0
    blobs: int = 0
    bytes: int = 0
    pages: int = 0
    not_carried: list[str] = []


class Copier:
    """Copies a source to a target. ``change_of`` says how to change a table's rows for the target."""

    def __init__(
        self,
        source: Side,
        target: Side,
        tables: list[MovedTable],
        change_of: Callable[[MovedTable], Change],
        report: Report,
    ) -> None:
        self._source = source
        self._target = target
        self._tables = tables
        self._changes = {table.name: change_of(table) for table in tables}
        self._report = report
        self._digests: dict[str, PackDigest] = {}

    async def is_empty(self) -> bool:
        for table in self._tables:
            if await self._target.count(table):
                return False
        return not (await self._target.notes())[0]

    async def copy(self) -> None:
        """Fill the target, which must be empty.

        Rows are written before the bytes that they name, because nothing reads them until the end.
        """
        for table in self._tables:
            done = 0
            async for rows in self._source.rows(table):
                await self._target.add(table, rows, self._changes[table.name])
                done += len(rows)
            if done:
                self._report(f"Copied {table.name}: {done:,} rows")
        await self._target.set_counters(await self._source.counters())
        async for old, new in self._packs():
            self._digests[old[0]] = await carry_pack(self._source, self._target, old, new)
            self._report(f"Copied {old[0]}: {self._digests[old[0]].size:,} bytes")
        notes, _ = await self._source.notes()
        await self._target.put_notes(notes)

    async def compare(self) -> CopySummary:
        """Read both sides again and compare everything. Raises Mismatch."""
        carried = CopySummary()
        for table in self._tables:
            carried.rows += await self._compare_rows(table)
        await self._compare_bytes(carried)
        source, unread = await self._source.notes()
        target, _ = await self._target.notes()
        if _comparable(source) != _comparable(target):
            raise Mismatch("the notes")
        carried.pages = sum(not name.startswith(".") for pages in source.values() for name in pages)
        carried.not_carried += unread
        return carried

    async def _compare_rows(self, table: MovedTable) -> int:
        change, done = self._changes[table.name], 0
        theirs = _rows_of(self._target.rows(table))
        async for ours in _rows_of(self._source.rows(table)):
            if await anext(theirs, None) != change(ours):
                raise Mismatch(f"row {done + 1:,} of {table.name}")
            done += 1
        if await anext(theirs, None) is not None:
            raise Mismatch(f"row {done + 1:,} of {table.name}")
        if done:
            self._report(f"Verified {table.name}: {done:,} rows")
        return done

    async def _compare_bytes(self, carried: CopySummary) -> None:
        blobs = await self._blobs()
        elsewhere: dict[str, int] = {}
        damaged = 0
        async for old, new in self._packs(elsewhere):
            digest = self._digests.get(old[0]) or await read_pack(self._source, old)
            of_pack = blobs.get(old[0], [])
            damaged += len(await verify_pack(self._target, new, digest, of_pack))
            carried.blobs += len(of_pack)
            carried.bytes += digest.size
            self._report(f"Verified {old[0]}: {len(of_pack):,} blobs")
        if damaged:
            carried.not_carried.append(
                f"{damaged:,} blobs were missing or damaged in the source, and are in the target: "
                "'everturn doctor' names them"
            )
        for place, size in elsewhere.items():
            carried.not_carried.append(
                f"{size / 1e6:.1f} MB of files in {place}: they stay there and were not read. Both stores "
                "name them now, and each deletes what it does not need any more: do not go on using both"
            )

    async def _packs(self, elsewhere: dict[str, int] | None = None) -> AsyncIterator[tuple[Row, Row]]:
        """Yield the id and path on both sides of each pack whose bytes are copied.

        ``elsewhere`` receives how many bytes stay in object storage, by location.
        """
        table = next(table for table in self._tables if table.name == "packs")
        number, place, path, size = map(table.columns.index, ("id", "place", "path", "size"))
        packs = [row async for row in _rows_of(self._source.rows(table))]
        for row in packs:
            if row[place].startswith(SCHEME):
                if elsewhere is not None:
                    elsewhere[row[place]] = elsewhere.get(row[place], 0) + row[size]
                continue
            new = self._changes["packs"](row)
            yield (row[number], row[path]), (new[number], new[path])

    async def _blobs(self) -> dict[str, list[Blob]]:
        table = next(table for table in self._tables if table.name == "blobs")
        sha256, size, pack, start = map(table.columns.index, ("sha256", "size", "pack", "start"))
        found: dict[str, list[Blob]] = {}
        async for row in _rows_of(self._source.rows(table)):
            found.setdefault(row[pack], []).append((row[start], row[size], row[sha256]))
        return found


async def carry(copier: Copier) -> tuple[CopySummary, bool]:
    """Copy and verify. If an earlier move filled the target, only verify it; the flag is then True.

    Raises StoreRefused for a target with other data, StoreBroken if something did not arrive.
    """
    was_there = not await copier.is_empty()
    if not was_there:
        await copier.copy()
    try:
        return await copier.compare(), was_there
    except (Mismatch, StoreBroken) as error:
        if was_there:
            raise StoreRefused(
                "The target has data of its own. It was not touched, and nothing was moved.",
                hint=f"Name an empty one. (The first difference: {error}.)",
            ) from error
        raise StoreBroken(
            f"What was copied is not what the source has: {error}. The target was left empty.",
            hint="Run 'everturn doctor' on the source, then move it again.",
        ) from error


async def _rows_of(batches: AsyncIterator[list[Row]]) -> AsyncIterator[Row]:
    async for batch in batches:
        for row in batch:
            yield row


def _comparable(notes: Notes) -> dict[str, dict[str, object]]:
    """Return notes in a comparable form: the lines of a record may come in any order."""
    return {
        owner: {
            name: frozenset(content.split(b"\n")) if name.startswith(".") else content
            for name, content in pages.items()
        }
        for owner, pages in notes.items()
        if pages
    }
