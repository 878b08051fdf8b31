"""C05: late events take their place, and every trace of the pending state goes."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.messages import Result
from everturn.domain.turns import Recovery
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import (
    CRASHED,
    ME,
    WORKER,
    append,
    finished,
    late,
    new_session,
    start,
    transcript,
    wish,
    words,
)
from everturn.testing.postgres_proxy import PostgresProxy

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


async def test_c05_late_output_is_threaded_in_at_its_place_and_the_notice_says_recovered(
    store: Store, clock: FakeClock
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, wish())
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    # Another message was asked and answered meanwhile: what is late belongs above it.
    second = await start(store, session.id, "still there?")
    await append(store, second, [ev.StepStarted(1, "m"), ev.TextDelta(1, "yes")])
    spooled = [finished(text="late result"), ev.StepStarted(2, "m"), ev.TextDelta(2, "All done.")]
    await store.journal.deliver_late(held.turn.id, held.epoch, late(held, number + 1, spooled))
    version = (await store.sessions.get(ME, session.id)).version

    assert await store.journal.recover(ME, session.id)

    messages = await transcript(store, session.id)
    assert [message.turn_id for message in messages[:4]] == [held.turn.id] * 4
    assert [part.text for part in messages[2].parts if isinstance(part, Result)] == ["late result"]
    assert messages[3].text == "All done."
    assert all(message.is_recovered for message in messages[1:4])
    assert messages[4].text == "still there?"
    turn = await store.turns.get(ME, held.turn.id)
    assert turn.recovery is Recovery.RECOVERED
    assert turn.recovered_at == clock.now_ms()
    now = await store.sessions.get(ME, session.id)
    assert now.version > version
    assert now.messages == 5
    # No trace is left: the next read finds nothing to do, and the list is what its turns say.
    assert not await store.journal.recover(ME, session.id)
    assert await store.upkeep.check() == []


async def test_c05_late_output_can_be_searched_and_the_old_partial_text_cannot_twice(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "partial ")])
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    await store.search.index()
    await store.journal.deliver_late(
        held.turn.id, held.epoch, late(held, number + 1, [ev.TextDelta(1, "answer")])
    )
    await store.journal.recover(ME, session.id)
    await store.search.index()
    assert len(await store.search.find(ME, "partial")) == 1
    assert len(await store.search.find(ME, "answer")) == 1


async def test_c05_readers_of_the_stream_hear_of_it(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    position = (await store.sessions.get(ME, session.id)).position
    spooled = late(held, 2, [ev.StepStarted(1, "m"), ev.TextDelta(1, "late")])
    await store.journal.deliver_late(held.turn.id, held.epoch, spooled)
    await store.journal.recover(ME, session.id)
    events = await store.journal.after(ME, session.id, position)
    assert [event.kind for event in events] == ["step.started", "text.delta", "session.changed"]
    assert [event.is_late for event in events] == [True, True, False]


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_c05_a_spool_that_comes_after_the_interruption_completes_the_turn(
    store: Store, spooling: Store, proxy: PostgresProxy
) -> None:
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    number = await append(spooling, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "one ")])
    proxy.go_away()
    await append(spooling, held, [ev.TextDelta(1, "two "), ev.TextDelta(1, "three")], number)
    turn = await store.turns.interrupt(held.turn.id, None, CRASHED)
    assert turn.recovery is Recovery.PENDING
    assert await words(store, session.id) == ["hello", "one "]
    proxy.come_back()
    with anyio.fail_after(PATIENCE_S), pytest.raises(Exception, match="interrupted"):
        await spooling.journal.wait_delivered(held.turn.id, held.epoch)
    assert await store.journal.recover(ME, session.id)
    assert await words(store, session.id) == ["hello", "one two three"]
    assert (await store.turns.get(ME, held.turn.id)).recovery is Recovery.RECOVERED
