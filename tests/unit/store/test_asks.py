"""Asks: the first answer holds, from any client, and expiry never takes one back."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.probe import Moment
from everturn.domain.store_values import Claim
from everturn.store import Store
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import ME, append, ask, claim, new_session, start, wish

pytestmark = pytest.mark.anyio


async def waiting(store: Store, *ask_ids: str, expires_at: int | None = None) -> Claim:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, wish(is_started=False))
    asks = [ask(ident, held.turn.id, session.id, expires_at=expires_at) for ident in ask_ids]
    await store.turns.wait(held.turn.id, held.epoch, number + 1, asks, [])
    return held


async def test_a_turn_becomes_claimable_when_its_last_ask_is_answered(store: Store) -> None:
    held = await waiting(store, "ask_1", "ask_2")
    await store.asks.answer(ME, "ask_1", "yes", by="me")
    assert await store.turns.claim("wrk_two") == []
    await store.asks.answer(ME, "ask_2", "no", by="me")
    resumed = await claim(store, "wrk_two")
    assert (resumed.turn.id, resumed.reason, resumed.turn.attempts) == (held.turn.id, "answered", 0)
    assert [e.kind for e in resumed.journal][-3:] == [
        "question.answered",
        "question.answered",
        "turn.resumed",
    ]


async def test_two_answers_at_once_leave_one(store: Store, probe: HoldingProbe) -> None:
    await waiting(store, "ask_1")
    outcomes: list[str] = []

    async def reply(text: str) -> None:
        try:
            outcomes.append(str((await store.asks.answer(ME, "ask_1", text, by=text)).answer))
        except WrongState as error:
            outcomes.append(error.code)

    async with anyio.create_task_group() as group:
        group.start_soon(reply, "yes")
        group.start_soon(reply, "no")
    assert "wrong_state" in outcomes
    assert (await store.asks.get(ME, "ask_1")).answer in outcomes


async def test_an_answer_that_comes_while_expiry_is_under_way_is_kept_and_stops_nothing(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    """Expiry has looked, and is held after the first of two; the user answers the second."""
    await waiting(store, "ask_1", expires_at=clock.now_ms() + 1)
    await waiting(store, "ask_2", expires_at=clock.now_ms() + 1)
    await clock.advance(1)
    expired: list[int] = []

    async def expire() -> None:
        expired.append(await store.asks.expire(clock.now_ms()))

    probe.hold(Moment.ANSWER_COMMITTED)
    async with anyio.create_task_group() as group:
        group.start_soon(expire)
        await probe.reached(Moment.ANSWER_COMMITTED)
        await store.asks.answer(ME, "ask_2", "just in time", by="me")
        probe.release(Moment.ANSWER_COMMITTED)
    assert expired == [1]
    assert (await store.asks.get(ME, "ask_1")).answer == "expired"
    assert (await store.asks.get(ME, "ask_2")).answer == "just in time"


async def test_an_ask_of_an_ended_turn_is_closed(store: Store) -> None:
    held = await waiting(store, "ask_1")
    await store.turns.cancel(ME, held.turn.id)
    assert await store.asks.open(ME) == []
    with pytest.raises(WrongState):
        await store.asks.answer(ME, "ask_1", "yes", by="me")


@pytest.mark.parametrize("text", ["", "  ", "x" * 64_001])
async def test_an_answer_that_says_nothing_or_too_much_is_refused(store: Store, text: str) -> None:
    await waiting(store, "ask_1")
    with pytest.raises(Invalid):
        await store.asks.answer(ME, "ask_1", text, by="me")
    assert (await store.asks.get(ME, "ask_1")).answer is None


async def test_an_ask_of_another_owner_cannot_be_answered(store: Store) -> None:
    await waiting(store, "ask_1")
    with pytest.raises(NotFound):
        await store.asks.answer("eve", "ask_1", "yes", by="eve")
    assert [found.id for found in await store.asks.open(ME)] == ["ask_1"]
    assert await store.asks.open("eve") == []
