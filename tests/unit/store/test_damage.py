"""A damaged journal row is reported with a code and blocks no other turn."""

from __future__ import annotations

import apsw
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import JournalCorrupt
from everturn.store import Store
from everturn.testing.acting import (
    CRASHED,
    ME,
    answered,
    append,
    claim,
    interrupted,
    new_session,
    say,
    start,
    words,
)

pytestmark = pytest.mark.anyio


async def damage(url: str, position: int, session_id: str) -> None:
    """Change one letter of an event on disk."""
    change = (
        "UPDATE events SET data = {} WHERE position = {} AND session_no = "
        f"(SELECT session_no FROM sessions WHERE id = '{session_id}')"
    )
    if url.startswith("sqlite://"):
        database = apsw.Connection(url.removeprefix("sqlite://"))
        database.execute(change.format("CAST(replace(CAST(data AS TEXT), 'good', 'evil') AS BLOB)", position))
        database.close()
        return
    connection = await asyncpg.connect(url)
    text = "convert_to(replace(convert_from(data, 'UTF8'), 'good', 'evil'), 'UTF8')"
    await connection.execute(change.format(text, position))
    await connection.close()


async def damaged_turn(store: Store, url: str) -> tuple[str, str]:
    """A running turn with one damaged row between two good ones: (session, turn)."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    deltas = [ev.TextDelta(1, text) for text in ("one ", "good ", "three")]
    await append(store, held, [ev.StepStarted(1, "m"), *deltas])
    await damage(url, 5, session.id)
    return session.id, held.turn.id


async def test_a_damaged_row_is_reported_to_its_readers_and_to_the_doctor(
    store: Store, store_url: str
) -> None:
    session_id, turn_id = await damaged_turn(store, store_url)
    with pytest.raises(JournalCorrupt) as refused:
        await store.journal.of_turn(ME, turn_id)
    assert refused.value.hint
    assert "Event 5" in refused.value.message
    before = await store.journal.after(ME, session_id, 0)
    assert [event.position for event in before] == [1, 2, 3, 4], "what lies before it is given"
    with pytest.raises(JournalCorrupt):
        await store.journal.after(ME, session_id, 4)
    assert [event.position for event in await store.journal.after(ME, session_id, 5)] == [6]
    (finding,) = await store.upkeep.check()
    assert (finding.what, finding.is_repairable) == ("journal row damaged", False)


@pytest.mark.parametrize("how", ["cancel", "fail", "interrupt"])
async def test_a_turn_with_a_damaged_row_can_still_be_ended_with_the_rest(
    store: Store, store_url: str, how: str
) -> None:
    session_id, turn_id = await damaged_turn(store, store_url)
    if how == "cancel":
        await store.turns.cancel(ME, turn_id)
    elif how == "fail":
        await store.turns.fail(turn_id, None, CRASHED)
    else:
        await store.turns.interrupt(turn_id, None, CRASHED)
    assert await words(store, session_id) == ["hello", "one three"]
    await answered(store, session_id, "go on", "gladly")
    assert await words(store, session_id) == ["hello", "one three", "go on", "gladly"]


async def test_a_damaged_turn_that_cannot_be_resumed_fails_and_blocks_no_other(
    store: Store, store_url: str
) -> None:
    session_id, turn_id = await damaged_turn(store, store_url)
    await store.workers.register("wrk_one")
    await store.workers.unregister("wrk_one")
    other = await new_session(store)
    await say(store, other.id, "me too")
    held = await claim(store, "wrk_two")  # the same claim ends the damaged turn and continues with the next
    assert held.turn.session_id == other.id
    turn = await store.turns.get(ME, turn_id)
    assert turn.state == "failed"
    assert turn.failure is not None
    assert turn.failure.code == "journal_corrupt"
    assert turn.failure.hint
    assert await words(store, session_id) == ["hello", "one three"]
    assert (await store.sessions.get(ME, session_id)).active_turn is None


async def test_an_interrupted_turn_with_damage_keeps_its_messages_when_resumed(
    store: Store, store_url: str
) -> None:
    session = await new_session(store)
    held = await interrupted(store, session.id, "hello", "so far so good")
    await damage(store_url, 4, session.id)
    await store.turns.resume(ME, held.turn.id)
    assert await store.turns.claim("wrk_two") == []
    turn = await store.turns.get(ME, held.turn.id)
    assert (turn.state, turn.is_ready) == ("interrupted", False)
    assert await words(store, session.id) == ["hello", "so far so good"]
