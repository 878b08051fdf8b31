"""Upkeep: check, repair, prune, back up, count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from everturn.domain.errors import StorageAway
from everturn.domain.json_types import JsonObject
from everturn.domain.probe import Moment
from everturn.domain.store_values import Finding, UsageEntry
from everturn.store.blobs.blobs import StoredBlobs
from everturn.store.checkpoints import Checkpoints
from everturn.store.files.disk import Disk, report_errors, sync_tree
from everturn.store.scripts.common import refresh
from everturn.store.scripts.queries.events import EVENTS_SCAN
from everturn.store.scripts.queries.files import BLOBS_DAMAGED, FILES_ALL, FilePlace
from everturn.store.scripts.queries.messages import INDEX_MISSING, INDEX_STATE
from everturn.store.scripts.queries.sessions import SESSION_BY_NO, SESSIONS_ALL, TITLES_ALL
from everturn.store.scripts.queries.turns import (
    EVENTS_OTHER_KIND,
    TURN_LAST_POSITION,
    TURN_STATES,
    TURNS_TO_PRUNE,
    PrunableTurn,
)
from everturn.store.scripts.queries.upkeep import LISTS_DIFFER, ORPHANS, TAILS_BEHIND, TOTALS, USAGE_ROWS
from everturn.store.scripts.rows import crc_of, damaged_event, known_kinds, session_of, usage_of
from everturn.store.scripts.script import Database, IndexBroken, Script, Tx, q
from everturn.store.sessions.search import Search, index_more
from everturn.store.sessions.titles import put_title, renew_title_index, title_text_of_row
from everturn.store.turn_files import thin_checkpoints

SCAN_EVENTS = 5_000
_LISTED_MAX = 100  # damaged blobs


class Upkeep:
    """``copy_database`` makes a consistent copy of the database at a path and checks it by opening it."""

    def __init__(
        self,
        db: Database,
        blobs: StoredBlobs,
        checkpoints: Checkpoints,
        disk: Disk,
        search: Search,
        copy_database: Callable[[Path], Awaitable[None]],
    ) -> None:
        self._db = db
        self._blobs = blobs
        self._checkpoints = checkpoints
        self._disk = disk
        self._search = search
        self._copy_database = copy_database
        # Turns that only a newer version prunes. Without them, each look would begin with a write.
        self._newer_turns: frozenset[int] = frozenset()

    async def check(self) -> list[Finding]:
        found = await self._db.read(_check)
        found += await self._check_journal()
        found += await self._db.write(_check_index)
        found += await self._db.write(_check_titles)
        found += await self._check_files()
        found += await self._check_versions()
        return found

    async def repair(self) -> list[Finding]:
        """Rebuild the session list and the search index. Damage to the data itself is only reported."""
        before = await self.check()
        await self._db.write(_repair)
        await self._search.rebuild()
        after = {(finding.what, finding.detail) for finding in await self.check()}
        return [Finding(f.what, f.detail, f.is_repairable, (f.what, f.detail) not in after) for f in before]

    async def prune(self, *, older_than_ms: int, limit: int = 200) -> int:
        before = self._db.clock.now_ms() - older_than_ms
        if not await self._db.read(_prunable, before, self._newer_turns):  # guard: a03
            return 0
        count, newer = await self._db.write(_prune, before, limit, self._newer_turns)
        self._newer_turns |= newer
        return count

    async def backup(self, target: Path) -> Path:
        """Database in one read transaction, then the bytes it names, which no worker deletes meanwhile."""
        async with self._blobs.hold():
            await asyncio.to_thread(target.mkdir, mode=0o700, parents=True, exist_ok=False)
            await self._copy_database(target)
            await self._blobs.copy_to(target)
            with report_errors(target):
                await asyncio.to_thread(sync_tree, self._disk, target)
        return target

    async def stats(self) -> JsonObject:
        return await self._db.read(_stats)

    async def usage(self, owner: str, since_ms: int) -> list[UsageEntry]:
        return await self._db.read(_usage, owner, since_ms)

    async def _check_journal(self) -> list[Finding]:
        found: list[Finding] = []
        session_no, position = 0, 0
        while True:
            rows, broken = await self._db.read(_scan, session_no, position)
            found += broken
            if rows is None:
                return found
            session_no, position = rows

    async def _check_files(self) -> list[Finding]:
        found = []
        for file in await self._db.read(_files_named):
            try:
                is_whole = file.damaged_at is None and await self._blobs.has_pack(file)
            except StorageAway as error:
                found.append(Finding("storage away", error.message))
                break
            if not is_whole:
                detail = f"{file.name!r} ({file.id}) is named by a row but its bytes are not whole"
                found.append(Finding("file missing", detail))
        return found

    async def _check_versions(self) -> list[Finding]:
        """Damage to the stored versions of workspaces, as far as trees and earlier reads show it."""
        found = [
            Finding("bytes damaged", f"the blob {sha256}; storing the same file again repairs it")
            for sha256 in await self._db.read(_find_damaged)
        ]
        try:
            damaged = await self._checkpoints.find_damaged()
        except StorageAway as error:
            return [*found, Finding("storage away", error.message)]
        for tree in damaged:
            detail = f"a folder of the checkpoint {tree.checkpoint_id}: {tree.why}"
            found.append(Finding("version damaged", f"{detail} What it can name is kept"))
        return found


def _check(tx: Tx) -> Script[list[Finding]]:
    found = [
        Finding("list differs", f"the list row of session {session_id} is not what its turns say", True)
        for session_id in (yield from LISTS_DIFFER.all())
    ]
    for session_id in (yield from TAILS_BEHIND.all()):
        found.append(Finding("position behind", f"session {session_id} has events after its position", True))
    for orphans in (yield from ORPHANS.all()):
        if orphans.count:
            what = f"{orphans.what}s"
            found.append(Finding(f"orphan {what}", f"{orphans.count} {what} belong to nothing", False))
    return found


def _check_index(tx: Tx) -> Script[list[Finding]]:
    if tx.dialect == "postgresql":
        return (yield from _check_words())
    try:
        # The check compares with the messages, so what is only not indexed yet must be in it first.
        while (yield from index_more(tx, SCAN_EVENTS)):
            pass
        yield q("index_check")
    except IndexBroken as error:
        return [Finding("search index broken", str(error), True)]
    return []


def _check_titles(tx: Tx) -> Script[list[Finding]]:
    found = [
        Finding("title not searched", f"session {row.id} is not found by its title and tags", True)
        for row in (yield from TITLES_ALL.all())
        if row.text != title_text_of_row(row.title, row.tags)
    ]
    if tx.dialect != "postgresql":
        try:
            yield q("index_titles_check")
        except IndexBroken as error:
            found.append(Finding("title index broken", str(error), True))
    return found


def _check_words() -> Script[list[Finding]]:
    found = []
    if not (yield from INDEX_STATE.only()):
        found.append(Finding("search index broken", "the index is missing or not valid", True))
    missing = yield from INDEX_MISSING.only()
    if missing:
        found.append(Finding("search index broken", f"{missing} messages are not in it", True))
    return found


def _scan(tx: Tx, session_no: int, position: int) -> Script[tuple[tuple[int, int] | None, list[Finding]]]:
    events = yield from EVENTS_SCAN.all(session_no, position, SCAN_EVENTS)
    found = [
        Finding(
            "journal row damaged", damaged_event(event.position, f"number {event.session_no}").message, False
        )
        for event in events
        if crc_of(event.data) != event.crc
    ]
    return ((events[-1].session_no, events[-1].position) if events else None), found


def _find_damaged(tx: Tx) -> Script[list[str]]:
    return (yield from BLOBS_DAMAGED.all(_LISTED_MAX))


def _files_named(tx: Tx) -> Script[list[FilePlace]]:
    return (yield from FILES_ALL.all())


def _repair(tx: Tx) -> Script[None]:
    yield q("tail_missing")
    for session in (yield from SESSIONS_ALL.all()):
        # First, because it takes the session's lock: what is counted after it is what is there.
        yield q("tail_repair", session.session_no)
        yield q("session_recount", session.session_no)
        row = yield from SESSION_BY_NO.first(session.session_no)
        if row is not None:
            yield from refresh(tx, session_of(row))
    yield from _repair_titles(tx)


def _repair_titles(tx: Tx) -> Script[None]:
    if tx.dialect != "postgresql":
        yield from renew_title_index()  # first: what is taken out must be in it
    for row in (yield from TITLES_ALL.all()):
        wanted = title_text_of_row(row.title, row.tags)
        if row.text != wanted:
            yield from put_title(tx, row.session_no, wanted)


def _prunable(tx: Tx, before: int, newer: frozenset[int]) -> Script[bool]:
    return bool((yield from _to_prune(before, 1, newer)))


def _to_prune(before: int, limit: int, newer: frozenset[int]) -> Script[list[PrunableTurn]]:
    rows = yield from TURNS_TO_PRUNE.all(before, limit + len(newer))
    return [turn for turn in rows if turn.turn_no not in newer][:limit]


def _prune(
    tx: Tx, before: int, limit: int, known_newer: frozenset[int]
) -> Script[tuple[int, frozenset[int]]]:
    """Delete the events of ended turns whose messages hold everything that is worth keeping, and all but
    the last of their checkpoints. Return how many turns there were, and those for a newer version (G04)."""
    turns = yield from _to_prune(before, limit, known_newer)
    if tx.dialect == "postgresql":
        # Looked at again under the locks: late events that came meanwhile would be pruned before they are
        # threaded in, and the next read would fold an empty journal over the answer.
        locked = sorted({turn.session_no for turn in turns})
        for session_no in locked:
            yield q("session_lock_no", session_no)
        again = yield from _to_prune(before, limit, known_newer)
        turns = [turn for turn in again if turn.session_no in locked]
    count, newer = 0, set()
    for turn in turns:
        last = yield from TURN_LAST_POSITION.only(turn.session_no, turn.first_position, turn.turn_no)
        if last is not None:
            place = (turn.session_no, turn.first_position, last, turn.turn_no)
            if (yield from EVENTS_OTHER_KIND.first(*place, known_kinds(tx.dialect))):  # guard: g04
                newer.add(turn.turn_no)  # a newer version knows what of it is worth keeping
                continue
            yield q("events_prune", turn.session_no, turn.first_position, last, turn.turn_no)
            yield q("session_pruned", turn.session_no, last)
        yield q("turn_pruned", turn.turn_no)
        yield from thin_checkpoints(turn.turn_no)  # guard: e04
        yield q("writers_delete", turn.turn_no)
        count += 1
    tx.probe.pass_by(Moment.PRUNED)
    return count, frozenset(newer)


def _stats(tx: Tx) -> Script[JsonObject]:
    totals = yield from TOTALS.only()
    states = {row.state: row.count for row in (yield from TURN_STATES.all())}
    if completed := totals.turns - sum(states.values()):
        states["completed"] = completed
    return {
        "sessions": totals.sessions,
        "turns": totals.turns,
        "messages": totals.messages,
        "asks": totals.asks,
        "resumed": totals.resumed,
        "states": states,
    }


def _usage(tx: Tx, owner: str, since_ms: int) -> Script[list[UsageEntry]]:
    rows = yield from USAGE_ROWS.all(owner, since_ms)
    return [UsageEntry(row.model, usage_of(row.usage), row.at, row.purpose) for row in rows]
