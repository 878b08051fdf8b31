"""A16: a queued message, a steering message and a pending question are durable like any other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from everturn.domain import events as ev
from everturn.domain.asks import Decision
from everturn.domain.errors import Invalid, Stale, WrongState
from everturn.domain.messages import Attachment
from everturn.domain.turns import TurnState
from everturn.store import Store, open_store
from everturn.testing.acting import (
    CRASHED,
    ME,
    answer,
    append,
    ask,
    claim,
    complete,
    new_session,
    say,
    start,
    wish,
    words,
)

pytestmark = pytest.mark.anyio


async def test_a16_what_waits_is_there_after_the_process_died(store_url: str, data_dir: Path) -> None:
    async with open_store(store_url, data_dir=data_dir) as first:
        await first.workers.register("wrk_dead")
        session, asking = await new_session(first), await new_session(first)
        await start(first, session.id, "runs", "wrk_dead")
        await say(first, session.id, "queued")
        await say(first, session.id, "steered", when_busy="steer")
        held = await start(first, asking.id, "asks", "wrk_dead")
        number = await append(first, held, wish(is_started=False))
        asks = [ask("ask_1", held.turn.id, asking.id)]
        await first.turns.wait(held.turn.id, held.epoch, number + 1, asks, [])
    async with open_store(store_url, data_dir=data_dir) as second:
        await second.workers.register("wrk_two")
        await second.workers.take_over("wrk_two")
        assert [found.id for found in await second.asks.open(ME)] == ["ask_1"]
        resumed = await claim(second, "wrk_two", session.id)
        taken = await second.turns.take_steering(resumed.turn.id, resumed.epoch, 2)
        assert [message.text for message in taken] == ["steered"]
        await complete(second, resumed, await append(second, resumed, answer("done"), 2))
        assert (await claim(second, "wrk_two", session.id)).turn.text == "queued"
        await second.asks.answer(ME, "ask_1", "yes", by="me")
        assert (await claim(second, "wrk_two", asking.id)).reason == "answered"


@pytest.mark.parametrize("how", ["cancel", "fail", "interrupt"])
async def test_a16_steering_that_the_turn_did_not_take_becomes_the_next_turns(store: Store, how: str) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "runs")
    file = await store.files.put(ME, "a.txt", "text/plain", b"a")
    await say(store, session.id, "queued before")
    await say(store, session.id, "first", when_busy="steer")
    await say(store, session.id, "second", when_busy="steer", attachments=(file.id,))
    if how == "cancel":
        await store.turns.cancel(ME, held.turn.id)
    elif how == "fail":
        await store.turns.fail(held.turn.id, held.epoch, CRASHED)
    else:
        await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    queue = await store.turns.queue(ME, session.id)
    assert [turn.text for turn in queue] == ["queued before", "first", "second"]
    while claims := await store.turns.claim("wrk_one"):
        await complete(store, claims[0], await append(store, claims[0], answer("ok")))
    assert await words(store, session.id) == ["runs", "queued before", "ok", "first", "ok", "second", "ok"]


async def test_a16_what_waits_is_taken_back_with_the_stop_and_never_runs(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "runs")
    file = await store.files.put(ME, "a.txt", "text/plain", b"a")
    await say(store, session.id, "queued")
    await say(store, session.id, "steered", when_busy="steer", attachments=(file.id,))
    taken = await store.turns.take_back(ME, held.turn.id, by="me", key="once")
    assert taken.turn.state is TurnState.CANCELLED
    assert [message.text for message in taken.messages] == ["queued", "steered"]
    files = [part.file_id for part in taken.messages[1].parts if isinstance(part, Attachment)]
    assert files == [file.id]
    assert await store.turns.queue(ME, session.id) == []
    assert await store.turns.claim("wrk_one") == []
    assert await words(store, session.id) == ["runs"]


async def test_a16_a_repeated_take_back_returns_the_same_messages_and_takes_no_others(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "runs")
    await say(store, session.id, "steered", when_busy="steer")
    first = await store.turns.take_back(ME, held.turn.id, key="once")
    await say(store, session.id, "said later")
    assert await store.turns.take_back(ME, held.turn.id, key="once") == first
    assert (await claim(store, "wrk_one", session.id)).turn.text == "said later"


async def test_a16_the_queue_can_be_edited_and_thinned_until_its_turn_begins(store: Store) -> None:
    session = await new_session(store)
    await start(store, session.id, "runs")
    one, two = await say(store, session.id, "one"), await say(store, session.id, "two")
    await store.turns.edit_queued(ME, one.turn.id, "one, edited")
    await store.turns.remove_queued(ME, two.turn.id)
    assert [turn.text for turn in await store.turns.queue(ME, session.id)] == ["one, edited"]
    with pytest.raises(WrongState):
        await store.turns.remove_queued(ME, two.turn.id)
    with pytest.raises(WrongState):
        await store.turns.edit_queued(ME, two.turn.id, "back again")


@pytest.mark.parametrize(
    ("moved", "place", "order"),
    [
        ("three", 0, ["three", "one", "two"]),
        ("one", 1, ["two", "one", "three"]),
        ("one", 99, ["two", "three", "one"]),
        ("two", 1, ["one", "two", "three"]),
    ],
)
async def test_a16_a_queued_turn_takes_another_place_and_runs_there(
    store: Store, moved: str, place: int, order: list[str]
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "runs")
    queued = {text: (await say(store, session.id, text)).turn.id for text in ("one", "two", "three")}
    before = await store.sessions.get(ME, session.id)
    await store.turns.edit_queued(ME, queued[moved], place=place, version=before.version)
    assert [turn.text for turn in await store.turns.queue(ME, session.id)] == order
    after = await store.sessions.get(ME, session.id)
    assert after.version == before.version + 1
    assert after.updated_at == before.updated_at, "putting things in order is no activity"
    (told,) = await store.journal.after(ME, session.id, before.position)
    assert (told.kind, told.payload.what) == ("session.changed", "queue")
    await complete(store, held, await append(store, held, answer("ok")))
    ran = []
    while claims := await store.turns.claim("wrk_one"):
        ran.append(claims[0].turn.text)
        await complete(store, claims[0], await append(store, claims[0], answer("ok")))
    assert ran == order


async def test_a16_a_stale_or_late_move_changes_nothing(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "runs")
    one, two = await say(store, session.id, "one"), await say(store, session.id, "two")
    seen = (await store.sessions.get(ME, session.id)).version
    await store.turns.edit_queued(ME, two.turn.id, place=0, version=seen)
    with pytest.raises(Stale):
        await store.turns.edit_queued(ME, one.turn.id, "reworded", place=0, version=seen)
    assert [turn.text for turn in await store.turns.queue(ME, session.id)] == ["two", "one"]
    await complete(store, held, await append(store, held, answer("ok")))
    await claim(store, "wrk_one", session.id)
    with pytest.raises(WrongState):
        await store.turns.edit_queued(ME, two.turn.id, place=1)


async def test_a16_the_order_of_the_queue_outlives_the_process(store_url: str, data_dir: Path) -> None:
    async with open_store(store_url, data_dir=data_dir) as first:
        await first.workers.register("wrk_dead")
        session = await new_session(first)
        await start(first, session.id, "runs", "wrk_dead")
        await say(first, session.id, "one")
        two = await say(first, session.id, "two")
        await first.turns.edit_queued(ME, two.turn.id, "two, reworded", place=0)
        await say(first, session.id, "three")
    async with open_store(store_url, data_dir=data_dir) as second:
        queue = await second.turns.queue(ME, session.id)
        assert [turn.text for turn in queue] == ["two, reworded", "one", "three"]


async def test_a16_what_the_user_changed_about_a_call_is_durable_with_the_answer(
    store_url: str, data_dir: Path
) -> None:
    async with open_store(store_url, data_dir=data_dir) as first:
        await first.workers.register("wrk_dead")
        session = await new_session(first)
        held = await start(first, session.id, "asks", "wrk_dead")
        number = await append(first, held, wish(is_started=False))
        asked = msgspec.structs.replace(
            ask("ask_1", held.turn.id, session.id), topic="approval", choices=("once", "always", "deny")
        )
        await first.turns.wait(held.turn.id, held.epoch, number + 1, [asked], [])
        with pytest.raises(Invalid, match="only be allowed once"):
            await first.asks.answer(ME, "ask_1", "always", by="me", arguments="{}")
        assert (await first.asks.get(ME, "ask_1")).answer is None
        await first.asks.answer(ME, "ask_1", "once", by="ada", arguments='{"n": 2}')
    async with open_store(store_url, data_dir=data_dir) as second:
        again = await second.asks.answer(ME, "ask_1", "once", by="ada", arguments='{"n": 2}')
        assert (again.answer, again.by, again.edited) == ("once", "ada", '{"n": 2}')
        assert again.arguments == asked.arguments, "what was asked stays beside it"
        with pytest.raises(WrongState):
            await second.asks.answer(ME, "ask_1", "once", by="eve", arguments='{"n": 3}')
        with pytest.raises(WrongState):
            await second.asks.answer(ME, "ask_1", "once", by="eve")
        resolved = (await second.journal.after(ME, session.id, 0))[-1]
        assert resolved.payload == ev.ApprovalResolved(
            "ask_1", asked.call_id or "", Decision.ONCE, "ada", '{"n": 2}'
        )
