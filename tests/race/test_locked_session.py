"""A claim passes over a session that another transaction is writing, and comes back to it at once."""

from __future__ import annotations

import asyncpg
import pytest

from everturn.domain.store_values import Submission
from everturn.engine.runner import Runner
from everturn.store import Store
from everturn.testing import FakeClock, ScriptedModel
from everturn.testing.harness import OWNER, open_harness
from tests.waiting import task_ended, task_waits_in

pytestmark = pytest.mark.anyio


@pytest.fixture
def store_kind() -> str:
    """SQLite has one writer: there a claim waits for its place and locks no session."""
    return "postgresql"


async def test_a_turn_whose_session_was_locked_runs_when_the_lock_is_gone_without_a_poll(
    store: Store, clock: FakeClock, postgres_url: str
) -> None:
    writer = await asyncpg.connect(postgres_url)
    async with open_harness(store, clock=clock, model=ScriptedModel(clock=clock, then="fine")) as h:
        session, other = await h.new_session(), await h.new_session()
        # Accepted by another worker: nothing nudges the engine yet.
        accepted = await store.turns.accept(OWNER, session.id, Submission(text="wait"))
        async with writer.transaction():
            await writer.execute(
                "SELECT 1 FROM tails WHERE session_no = (SELECT session_no FROM sessions WHERE id = $1)"
                " FOR UPDATE",
                session.id,
            )
            # One claim looks at both sessions.
            turn = await h.run(other, "now")
            assert turn.state == "completed"
            await task_ended(f"turn {turn.id}")
            await task_waits_in(Runner._wait_nudge)  # after the last claim under this lock
            assert (await h.turn(accepted.turn.id)).state == "queued"
        assert (await h.settled(accepted.turn.id)).state == "completed"
    await writer.close()


async def test_a_claim_that_passes_over_a_locked_session_takes_no_more_turns_than_were_asked_for(
    store: Store, postgres_url: str
) -> None:
    writer = await asyncpg.connect(postgres_url)
    await store.workers.register("wrk_a")
    turns = []
    for number in range(8):
        session = await store.sessions.create(OWNER)
        turns.append((await store.turns.accept(OWNER, session.id, Submission(text=f"{number}"))).turn)
    async with writer.transaction():
        await writer.execute(
            "SELECT 1 FROM tails WHERE session_no = (SELECT session_no FROM sessions WHERE id = $1) FOR UPDATE",
            turns[0].session_id,
        )
        claims = await store.turns.claim("wrk_a", limit=3)
    assert [claim.turn.id for claim in claims] == [turn.id for turn in turns[1:4]]
    await writer.close()
