"""A16: a queued message, a steering message and a pending question are durable like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.errors import WrongState
from everturn.store import Store, open_store
from tests.acting import (
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
