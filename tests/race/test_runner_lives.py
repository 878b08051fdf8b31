"""What goes wrong beside a turn neither ends the runner nor keeps it from ending."""

from typing import Any

import anyio
import pytest

from everturn.domain.errors import WrongState
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.testing import FakeClock, Pause, Say, ScriptedModel
from everturn.testing.harness import open_harness, quiet_settings
from tests.waiting import task_waits_in

pytestmark = pytest.mark.anyio
FOREVER = 1e9


async def test_a09_a_look_for_dead_workers_that_fails_stops_no_turn(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = anyio.Event()

    async def fails(worker: str) -> int:
        tried.set()
        raise OSError(24, "Too many open files")

    settings = quiet_settings(take_over_s=5.0)
    async with open_harness(store, "still here", clock=clock, settings=settings) as h:
        session = await h.new_session()
        monkeypatch.setattr(store.workers, "take_over", fails)
        await clock.jump(5)
        with anyio.fail_after(60):
            await tried.wait()
        turn = await h.settled((await h.send(session)).turn.id)
        assert turn.state is TurnState.COMPLETED


async def test_a09_an_end_that_the_store_refuses_is_retried_and_disturbs_no_other_turn(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = [WrongState("refused"), ValueError("a bug")]
    fail = store.turns.fail

    async def refuses(*args: Any) -> object:
        if errors:
            raise errors.pop(0)
        return await fail(*args)

    monkeypatch.setattr(store.turns, "fail", refuses)
    settings = quiet_settings(store_patience_s=3.0)
    async with open_harness(store, "", "fine", clock=clock, settings=settings) as h:
        broken, whole = await h.new_session(), await h.new_session()
        silent = await h.send(broken)
        await clock.someone_sleeps(3.0)
        assert (await h.settled((await h.send(whole)).turn.id)).state is TurnState.COMPLETED
        await clock.advance(3.0)
        turn = await h.settled(silent.turn.id)
        assert (turn.state, errors) == (TurnState.FAILED, [])
        assert (await h.engine.session(turn.owner, broken.id)).active_turn is None


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_c09_a_lease_that_is_lost_while_the_engine_stops_does_not_keep_it_from_stopping(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for the turns to go, and both must hear of it."""
    is_handing_over, may_go, is_asked = anyio.Event(), anyio.Event(), anyio.Event()
    hand_over = store.turns.hand_over

    async def slowly(*args: Any) -> object:
        is_handing_over.set()
        await may_go.wait()
        return await hand_over(*args)

    async def lost(worker: str) -> bool:
        is_asked.set()
        return False

    model = ScriptedModel([Say("Half"), Pause(FOREVER)], clock=clock)
    settings = quiet_settings(heartbeat_s=4.0, drain_s=30.0)
    async with open_harness(store, model=model, clock=clock, settings=settings) as h:
        session = await h.new_session()
        await h.send(session)
        await h.seen(session, "text.delta")
        monkeypatch.setattr(store.turns, "hand_over", slowly)
        monkeypatch.setattr(store.workers, "heartbeat", lost)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(h.engine.stop, 0.0)
                await is_handing_over.wait()
                await clock.jump(4)
                await is_asked.wait()
                await task_waits_in(h.engine.stop)
                may_go.set()
