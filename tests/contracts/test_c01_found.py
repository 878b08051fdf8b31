"""C01: a turn whose process died is found without a request, and a living one is never taken over."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.store import Store, open_store
from everturn.testing.acting import ME, claim, new_session, start
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio


async def test_c01_two_survivors_that_look_at_once_release_a_dead_worker_s_turns_once(
    store: Store, open_another: OpenAnother, store_url: str, data_dir: Path
) -> None:
    other = await open_another()
    sessions = [await new_session(store) for _ in range(3)]
    async with open_store(store_url, data_dir=data_dir) as dies:
        await dies.workers.register("wrk_dead")
        for session in sessions:
            await start(dies, session.id, "hello", "wrk_dead")
    await store.workers.register("wrk_one")
    await other.workers.register("wrk_two")
    released: list[int] = []

    async def look(through: Store, worker: str) -> None:
        released.append(await through.workers.take_over(worker))

    async with anyio.create_task_group() as group:
        group.start_soon(look, store, "wrk_one")
        group.start_soon(look, other, "wrk_two")
    assert sum(released) == 3
    claims = [*await store.turns.claim("wrk_one", limit=9), *await other.turns.claim("wrk_two", limit=9)]
    assert sorted(held.turn.session_id for held in claims) == sorted(session.id for session in sessions)
    assert {held.turn.attempts for held in claims} == {1}


async def test_c01_a_released_turn_says_when_its_worker_was_last_alive(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.workers.register("wrk_one")
    await store.workers.unregister("wrk_one")
    resumed = await claim(store, "wrk_two")
    assert resumed.stopped_at == held.journal[-1].at
    (event,) = [event for event in resumed.journal if event.kind == "turn.resumed"]
    assert event.payload.stopped_at == resumed.stopped_at
    assert (await store.turns.get(ME, held.turn.id)).epoch == 2
