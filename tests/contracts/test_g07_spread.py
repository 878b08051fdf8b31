"""G07: work spreads over the workers, and a draining worker takes nothing new. On both stores: two servers share a SQLite file too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.errors import Overloaded
from everturn.domain.probe import Moment
from everturn.domain.sessions import SessionPatch
from everturn.domain.turns import TurnState
from everturn.store import Store, open_store
from everturn.store.postgres.database import CONNECTIONS_MAX
from everturn.testing import HoldingProbe
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness, quiet_settings
from everturn.testing.models import Answer, Say, Wait
from tests.conftest import OpenAnother
from tests.waiting import until

pytestmark = pytest.mark.anyio
_AT_ONCE = 3  # turns that one worker runs


class Fleet:
    """Workers on one database whose models answer when they are let."""

    def __init__(self, open_another: OpenAnother, stack: AsyncExitStack) -> None:
        self.may_end = anyio.Event()
        self._open_another = open_another
        self._stack = stack

    async def join(self, store: Store | None = None) -> Harness:
        return await self._stack.enter_async_context(
            open_harness(store or await self._open_another(), *self._script(), **_settings())
        )

    @asynccontextmanager
    async def joined_for_now(self) -> AsyncIterator[Harness]:
        """A worker that dies at the end of the context, as by kill -9."""
        async with crashing_harness(await self._open_another(), *self._script(), **_settings()) as worker:
            yield worker

    def _script(self) -> list[Answer]:
        return [[Wait(self.may_end), Say("done")] for _ in range(20)]

    async def send(self, through: Harness, count: int) -> list[str]:
        """Ids of turns, each in a session of its own."""
        turns = []
        for _ in range(count):
            session = await through.new_session()
            turns.append((await through.send(session)).turn.id)
        return turns

    async def runs(self, *counts: tuple[Harness, int]) -> None:
        """Wait until each worker runs so many turns."""

        await until(
            f"the workers run {[count for _, count in counts]} turns",
            lambda: all(worker.engine.status()["running"] == count for worker, count in counts),
        )

    async def ended(self, turns: list[str], through: Harness) -> None:
        async def so() -> bool:
            return all([(await through.turn(one)).state is TurnState.COMPLETED for one in turns])

        await until("every turn is completed", so)


def _count_tasks(name: str) -> int:
    return sum(task.get_name() == name for task in asyncio.all_tasks())


def _settings() -> dict[str, Any]:
    """The real clock, because the models may think as long as the workers need."""
    often = {"poll_s": 0.25, "take_over_s": 1.0}
    return {"clock": SystemClock(), "settings": quiet_settings(server_turns_max=_AT_ONCE, **often)}


@pytest.fixture
async def fleet(anyio_backend: str, open_another: OpenAnother) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        yield Fleet(open_another, stack)


async def test_g07_what_one_worker_has_no_room_for_is_run_by_another(fleet: Fleet, store: Store) -> None:
    """Every message enters through the first worker, which is full after three."""
    first, second = await fleet.join(store), await fleet.join()
    turns = await fleet.send(first, 2 * _AT_ONCE + 1)
    await fleet.runs((first, _AT_ONCE), (second, _AT_ONCE))
    states = [(await first.turn(one)).state for one in turns]
    assert states.count(TurnState.QUEUED) == 1  # both are full: it waits, and is not lost
    fleet.may_end.set()
    await fleet.ended(turns, first)


async def test_g07_a_worker_that_joins_takes_what_waits(fleet: Fleet, store: Store) -> None:
    first = await fleet.join(store)
    turns = await fleet.send(first, 2 * _AT_ONCE)
    await fleet.runs((first, _AT_ONCE))
    second = await fleet.join()
    await fleet.runs((first, _AT_ONCE), (second, _AT_ONCE))
    fleet.may_end.set()
    await fleet.ended(turns, second)


async def test_g07_the_turns_of_dead_workers_are_shared_by_those_that_have_room(
    fleet: Fleet, store: Store
) -> None:
    async with fleet.joined_for_now() as first, fleet.joined_for_now() as second:
        turns = await fleet.send(first, 2 * _AT_ONCE)
        await fleet.runs((first, _AT_ONCE), (second, _AT_ONCE))
    third, fourth = await fleet.join(store), await fleet.join()
    await fleet.runs((third, _AT_ONCE), (fourth, _AT_ONCE))
    fleet.may_end.set()
    await fleet.ended(turns, third)


async def test_g07_a_draining_worker_takes_nothing_new(fleet: Fleet, store: Store) -> None:
    """It ends what it runs. A message sent to it is refused, one that waits is left to the others."""
    first, second = await fleet.join(store), await fleet.join()
    running = await fleet.send(first, 1)
    await fleet.runs((first, 1), (second, 0))
    await until(
        "its model is asked", lambda: first.model.requests
    )  # between two steps it would be handed over
    session = await first.new_session()
    async with anyio.create_task_group() as group:
        group.start_soon(first.engine.stop, 3_600.0)
        # A claim that was under way may still take a turn that arrived meanwhile.
        await until("the first worker claims no more", lambda: _count_tasks("claims") == 1)
        with pytest.raises(Overloaded):
            await first.send(session)
        with pytest.raises(Overloaded):
            await first.new_session()
        turns = await fleet.send(second, _AT_ONCE + 1)
        await fleet.runs((first, 1), (second, _AT_ONCE))
        states = [(await second.turn(one)).state for one in turns]
        assert states.count(TurnState.QUEUED) == 1  # for the draining one has room, and leaves it
        fleet.may_end.set()
    await fleet.ended(running + turns, second)
    workers = {
        event.payload.worker
        for one in turns
        for event in await second.store.journal.of_turn(OWNER, one)
        if event.kind in ("turn.started", "turn.resumed")
    }
    assert workers == {second.engine.worker}


async def test_g07_a_worker_whose_connections_are_all_busy_still_renews_its_lease(
    postgres_url: str, tmp_path: Path, probe: HoldingProbe
) -> None:
    """Otherwise a busy worker would lose its turns to others, which makes those busier."""
    async with open_store(postgres_url, data_dir=tmp_path, probe=probe) as store:
        await store.workers.register("wrk_one")
        sessions = [await store.sessions.create(OWNER) for _ in range(CONNECTIONS_MAX + 5)]
        before = probe.passings(Moment.BATCH_WRITTEN)
        for _ in range(CONNECTIONS_MAX + 1):
            probe.hold(Moment.BATCH_WRITTEN)
        async with anyio.create_task_group() as group:
            for session in sessions:
                group.start_soon(store.sessions.change, OWNER, session.id, SessionPatch(title="new"))
            await until(
                "every connection is busy",
                lambda: probe.passings(Moment.BATCH_WRITTEN) == before + CONNECTIONS_MAX,
            )
            group.start_soon(store.workers.heartbeat, "wrk_one")
            await until(
                "the lease is renewed on another connection",
                lambda: probe.passings(Moment.BATCH_WRITTEN) == before + CONNECTIONS_MAX + 1,
            )
            probe.release_all()
