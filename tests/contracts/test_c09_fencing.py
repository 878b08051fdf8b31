"""C09: a process that was thought dead and comes back is fenced, finds out, and loses nothing of value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Fenced
from everturn.domain.fold import fold
from everturn.domain.messages import Result, Text
from everturn.domain.store_values import Claim
from everturn.domain.turns import Failure
from everturn.store import Store
from everturn.store.turns.workers import release
from everturn.testing.acting import (
    ME,
    WORKER,
    all_words,
    answer,
    append,
    ask,
    claim,
    complete,
    finished,
    late,
    new_session,
    start,
    transcript,
    wish,
)
from everturn.testing.postgres_proxy import PostgresProxy

pytestmark = pytest.mark.anyio
on_postgresql = pytest.mark.parametrize("store_kind", ["postgresql"])
PATIENCE_S = 60

Act = Callable[[Store, Claim], Awaitable[object]]


async def _complete(store: Store, held: Claim) -> object:
    folded = fold(held.turn.id, await store.journal.of_turn(ME, held.turn.id))
    return await store.turns.complete(held.turn.id, held.epoch, held.number, folded)


ACTS: dict[str, Act] = {
    "append": lambda store, held: append(store, held, [ev.TextDelta(1, "from the dead")]),
    "complete": _complete,
    "fail": lambda store, held: store.turns.fail(held.turn.id, held.epoch, Failure("x", "x")),
    "interrupt": lambda store, held: store.turns.interrupt(held.turn.id, held.epoch, Failure("x", "x")),
    "hand over": lambda store, held: store.turns.hand_over(held.turn.id, held.epoch),
    "wait": lambda store, held: store.turns.wait(
        held.turn.id, held.epoch, held.number + 1, [ask("ask_1", held.turn.id, held.session.id)], []
    ),
}


@pytest.mark.parametrize("is_claimed", [False, True], ids=["released", "claimed by another"])
@pytest.mark.parametrize("name", list(ACTS))
async def test_c09_nothing_of_a_fenced_worker_lands_and_it_finds_out(
    store: Store, name: str, is_claimed: bool
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.database.write(release, WORKER, "crash", False)
    if is_claimed:
        await claim(store, "wrk_two")
    before = await store.journal.after(ME, session.id, 0), await store.turns.get(ME, held.turn.id)
    with pytest.raises(Fenced):
        await ACTS[name](store, held)
    assert await store.turns.find_lost([(held.turn.id, held.epoch)]) == [held.turn.id]
    after = await store.journal.after(ME, session.id, 0), await store.turns.get(ME, held.turn.id)
    assert after == before


async def test_c09_after_a_cancel_by_another_process_the_worker_is_fenced(
    store: Store, open_another: Callable[..., Awaitable[Store]]
) -> None:
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await other.turns.cancel(ME, held.turn.id)
    with pytest.raises(Fenced, match="cancelled"):
        await append(store, held, [ev.TextDelta(1, "x")])


async def test_c09_spooled_text_of_a_resumed_turn_is_shown_and_never_given_to_the_model(
    store: Store,
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.database.write(release, WORKER, "crash", False)
    second = await claim(store, "wrk_two")
    spooled = late(held, 2, [ev.StepStarted(1, "m"), ev.TextDelta(1, "from the dead "), *wish()[2:]])
    await store.journal.deliver_late(held.turn.id, held.epoch, spooled)
    number = await append(store, second, answer("the answer"))
    await complete(store, second, number)
    await store.journal.recover(ME, session.id)
    [_, reply] = await transcript(store, session.id)
    assert reply.text == "the answer"
    assert all_words(reply) == "from the dead the answer"
    for message in await store.transcript.context(ME, session.id):
        for part in message.parts:
            assert not isinstance(part, Text) or part.is_abandoned == ("dead" in part.text)
            assert not isinstance(part, Result)  # the dead worker's wish is no call


async def test_c09_a_late_result_settles_a_call_that_is_still_in_doubt(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, wish())
    await store.database.write(release, WORKER, "crash", False)
    spooled = late(held, number + 1, [finished(text="it did happen")])
    assert await store.journal.deliver_late(held.turn.id, held.epoch, spooled) == 1
    second = await claim(store, "wrk_two")
    folded = fold(held.turn.id, second.journal)
    assert [call.result.text for call in folded.calls if call.result] == ["it did happen"]


@on_postgresql
async def test_c09_a_worker_whose_lease_ran_out_while_it_was_away_comes_back_fenced(
    store: Store, spooling: Store, proxy: PostgresProxy, store_url: str
) -> None:
    """It spools, another machine takes over and completes, it comes back: its events are kept beside the
    journal, it hears Fenced, its heartbeat says lost, and it may register again."""
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    number = await append(spooling, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "first ")])
    proxy.go_away()
    number = await append(spooling, held, [ev.TextDelta(1, "attempt")], number)

    await store.workers.register("wrk_two")
    assert await store.workers.take_over("wrk_two") == 0  # the lease holds
    await expire_lease(store_url, WORKER)
    assert await store.workers.take_over("wrk_two") == 1
    second = await claim(store, "wrk_two")
    ended = await append(store, second, [ev.StepAbandoned(1, "crash"), *answer("second")])
    await complete(store, second, ended)

    proxy.come_back()
    with anyio.fail_after(PATIENCE_S), pytest.raises(Fenced):
        await spooling.journal.wait_delivered(held.turn.id, held.epoch)
    with pytest.raises(Fenced):
        await append(spooling, held, [ev.TextDelta(1, "more")], number)
    assert not await spooling.workers.heartbeat(WORKER)
    await spooling.workers.register(WORKER)
    assert await spooling.workers.heartbeat(WORKER)

    await store.journal.recover(ME, session.id)
    [_, reply] = await transcript(store, session.id)
    assert reply.text == "second"
    assert all_words(reply) == "first attemptsecond"


async def expire_lease(address: str, worker: str) -> None:
    connection = await asyncpg.connect(address)
    await connection.execute("UPDATE workers SET lease_until = 1 WHERE id = $1", worker)
    await connection.close()
