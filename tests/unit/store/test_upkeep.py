"""Upkeep: backups of a store that is being written to, pruning, and what a check says."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import NotFound
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission
from everturn.lab.crash.checks import After
from everturn.store import Store, open_store, sql
from everturn.store.sqlite.connection import open_connection
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import (
    CRASHED,
    ME,
    answer,
    answered,
    append,
    complete,
    interrupted,
    new_session,
    say,
    start,
    transcript,
    words,
)
from tests.blobs import content_of, lose_bytes
from tests.conftest import OpenAnother
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio


async def test_a_backup_of_a_busy_store_is_a_state_that_existed(tmp_path: Path) -> None:
    async with open_store(data_dir=tmp_path / "data") as store:
        session = await new_session(store, "kept")
        file = await store.files.put(ME, "a.txt", "text/plain", b"attached")
        await store.turns.accept(ME, session.id, Submission(text="look", attachments=(file.id,)))
        busy = await new_session(store, "busy")
        held = await start(store, busy.id, "talk")

        async def talk() -> None:
            number = held.number
            while True:
                number = await append(store, held, [ev.TextDelta(1, "bla ")], number)

        async with anyio.create_task_group() as group:
            group.start_soon(talk)
            for count in range(3):
                await store.upkeep.backup(tmp_path / f"backup-{count}")
            group.cancel_scope.cancel()
    for count in range(3):
        async with open_store(data_dir=tmp_path / f"backup-{count}") as copy:
            note = {"what": "accepted", "session": session.id, "text": "look", "key": None, "files": []}
            turn_id = (await copy.turns.queue(ME, session.id))[0].id
            await After(copy, [{**note, "turn": turn_id}]).check()
            assert await content_of(copy, ME, file.id) == b"attached"


async def test_a_backup_is_never_written_over_another(store: Store, tmp_path: Path) -> None:
    await store.upkeep.backup(tmp_path / "backup")
    before = sorted(path.name for path in (tmp_path / "backup").iterdir())
    with pytest.raises(FileExistsError):
        await store.upkeep.backup(tmp_path / "backup")
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == before


async def test_pruning_keeps_the_transcript_and_the_turn_that_can_be_resumed(
    store: Store, clock: FakeClock
) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    held = await interrupted(store, session.id, "b", "half")
    await clock.advance(3600)
    before = await transcript(store, session.id)
    assert await store.upkeep.prune(older_than_ms=1) == 1
    assert await store.upkeep.prune(older_than_ms=1) == 0
    assert await transcript(store, session.id) == before
    await store.turns.resume(ME, held.turn.id)
    (resumed,) = await store.turns.claim("wrk_two")
    assert "text.delta" in [event.kind for event in resumed.journal]


async def test_pruning_takes_so_many_turns_at_a_time(store: Store, clock: FakeClock) -> None:
    session = await new_session(store)
    for count in range(5):
        await answered(store, session.id, f"q{count}", f"a{count}")
    await clock.advance(10)
    assert [await store.upkeep.prune(older_than_ms=1, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert len(await words(store, session.id)) == 10
    assert await store.upkeep.check() == []


async def test_a_file_that_is_gone_is_found_by_the_check(store: Store) -> None:
    file = await store.files.put(ME, "a.txt", "text/plain", b"a")
    await lose_bytes(store, ME, file.id)
    (finding,) = await store.upkeep.check()
    assert (finding.what, finding.is_repairable) == ("file missing", False)
    assert "'a.txt'" in finding.detail
    with pytest.raises(NotFound):
        await store.files.get("eve", file.id)


async def test_turns_are_counted_by_their_state(store: Store) -> None:
    endings = {"completed": 2, "cancelled": 1, "failed": 1, "running": 1, "queued": 1}
    session = await new_session(store)
    for _ in range(endings["completed"]):
        await answered(store, session.id, "hello", "Hi.")
    cancelled = await start(store, session.id, "stop this")
    await store.turns.cancel(ME, cancelled.turn.id)
    failed = await start(store, session.id, "break")
    await store.turns.fail(failed.turn.id, failed.epoch, CRASHED)
    await start(store, session.id, "go on")
    await say(store, session.id, "wait")
    stats = await store.upkeep.stats()
    assert stats["states"] == endings
    assert (stats["turns"], stats["resumed"]) == (sum(endings.values()), 0)


async def test_counting_turns_does_not_read_all_of_them(tmp_path: Path) -> None:
    async with open_store(data_dir=tmp_path) as store:
        connection = open_connection(tmp_path / "everturn.db")
        query = sql.queries("sqlite")["turn_states"]
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
        connection.close()
        assert await store.upkeep.check() == []
    assert not [step for step in plan if step.startswith("SCAN turns") and "USING" not in step]


async def test_a_repair_beside_a_turn_that_ends_leaves_the_list_exact(
    store: Store, open_another: OpenAnother, probe: HoldingProbe, held_up: HeldUp
) -> None:
    """The end is written and not committed when another process begins to count."""
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, answer("done"))
    probe.hold(Moment.END_WRITTEN)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(complete, store, held, number)
            await probe.reached(Moment.END_WRITTEN)
            await held_up.start(group, other, other.upkeep.repair)
            probe.release(Moment.END_WRITTEN)
    assert (await store.sessions.get(ME, session.id)).active_turn is None
    assert await store.upkeep.check() == []
