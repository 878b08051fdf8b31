"""C10: a reader that comes back with its last event id gets exactly the events after it, or one snapshot."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.store_values import Claim
from everturn.store import Store, open_store
from everturn.store.journal.hub import BACKLOG_EVENTS_MAX
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answered, append, new_session, positions, start
from tests.conftest import OpenAnother
from tests.waiting import reader_waits

pytestmark = pytest.mark.anyio


async def test_c10_across_a_restart_there_is_no_gap_and_no_repeat(store_url: str, data_dir: Path) -> None:
    seen: list[int] = []
    async with open_store(store_url, data_dir=data_dir) as first:
        session = await new_session(first)
        held = await start(first, session.id, "hello")
        number = await append(first, held, [ev.TextDelta(1, str(n)) for n in range(10)])
        async for events in first.journal.follow(ME, session.id, 0):
            seen += [event.position for event in events][:7]
            break  # the reader got seven of them when the server died
    async with open_store(store_url, data_dir=data_dir) as second:
        await append(second, held, [ev.TextDelta(1, "after the restart")], number)
        stream = second.journal.follow(ME, session.id, seen[-1])
        while len(seen) < 13:
            seen += [event.position for event in await anext(stream)]
        await stream.aclose()
    assert seen == list(range(1, 14))


@pytest.mark.parametrize("more", [100, 500])
async def test_c10_a_reader_that_lags_behind_everything_loses_nothing(store: Store, more: int) -> None:
    """Its backlog overflows, with the last batch or before it, and is dropped: it goes back to the journal."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    stream = store.journal.follow(ME, session.id, 0)
    seen = [event.position for event in await anext(stream)]
    many = BACKLOG_EVENTS_MAX + more
    async with anyio.create_task_group() as group:
        group.start_soon(_read_once, stream, seen)
        await reader_waits()
        number = await append(store, held, [ev.TextDelta(1, "a")])
    await _append_many(store, held, number, many)
    with anyio.fail_after(60):
        while len(seen) < many + 3:
            await _read_once(stream, seen)
    await stream.aclose()
    assert seen == list(range(1, many + 4)) == await positions(store, session.id)


async def test_c10_events_of_another_process_are_not_skipped(
    store: Store, open_another: OpenAnother, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process publishes a later event before it has noticed the other's."""
    monkeypatch.setattr("everturn.store.sqlite.writer.OTHERS_POLL_S", 3_600.0)
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    stream = store.journal.follow(ME, session.id, 0)
    seen = [event.position for event in await anext(stream)]
    async with anyio.create_task_group() as group:
        group.start_soon(_read_once, stream, seen)
        await reader_waits()
        number = await append(other, held, [ev.TextDelta(1, "theirs")])
        await append(store, held, [ev.TextDelta(1, "ours")], number)
    with anyio.fail_after(60):
        while seen[-1] < 4:
            await _read_once(stream, seen)
    await stream.aclose()
    assert seen == [1, 2, 3, 4] == await positions(store, session.id)


async def _read_once(stream: object, seen: list[int]) -> None:
    seen.extend(event.position for event in await anext(stream))  # type: ignore[call-overload]  # a stream of events


async def _append_many(store: Store, held: Claim, number: int, count: int) -> None:
    for start_at in range(0, count, 100):
        payloads = [ev.TextDelta(1, "x") for _ in range(min(100, count - start_at))]
        number = await append(store, held, payloads, number)


async def test_c10_where_events_were_pruned_one_snapshot_names_its_position(
    store: Store, clock: FakeClock
) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    await answered(store, session.id, "b", "B")
    await clock.advance(3600)
    await answered(store, session.id, "c", "C")
    assert await store.upkeep.prune(older_than_ms=60_000) == 2
    events = await store.journal.after(ME, session.id, 3)
    (snapshot,) = events
    assert snapshot.kind == "snapshot"
    assert snapshot.payload.position == snapshot.position
    following = await store.journal.after(ME, session.id, snapshot.position)
    assert [event.position for event in following] == list(range(snapshot.position + 1, 19))
    assert following[0].kind == "turn.accepted"
    assert len(await store.journal.of_turn(ME, following[0].turn_id or "")) == 6


async def test_c10_a_cursor_from_beyond_the_end_gets_a_snapshot_and_misses_nothing(store: Store) -> None:
    """Its events were lost when a backup was restored; those that take their positions are others."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    position = (await store.sessions.get(ME, session.id)).position
    stream = store.journal.follow(ME, session.id, position + 5)
    with anyio.fail_after(60):
        (snapshot,) = await anext(stream)
        assert (snapshot.kind, snapshot.position) == ("snapshot", position)
        await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "a")])
        following = await anext(stream)
    await stream.aclose()
    assert following[0].position == position + 1
