"""An approval holds under the terms that it was given under: where the call runs, and what it installs."""

import pytest

from everturn.domain.messages import Outcome, Result
from everturn.domain.tool import Ruling, Verdict
from everturn.domain.turns import TurnState
from everturn.testing import CallTool, FakeTool
from everturn.testing.harness import OWNER, open_harness

pytestmark = pytest.mark.anyio


class Ground:
    """Judges a call as the toolbox does where the sandbox comes and goes."""

    def __init__(self, *terms: str) -> None:
        self.terms = terms

    def __call__(self, call, spec):
        reason = "it runs without a sandbox" if self.terms else "it reaches example.com"
        return Ruling(Verdict.ASK, reason, label="fetch", terms=self.terms)


def opened(store, clock, ground, tool):
    return open_harness(
        store, [CallTool("fetch", {})], "Done.", tools=[tool], rules={"fetch": ground}, clock=clock
    )


async def answer(h, session, decision="once", **more):
    ask = await h.ask(session)
    await h.engine.answer(OWNER, ask.id, decision, by="ada", **more)


async def test_c02_an_approval_of_a_call_in_the_sandbox_is_none_outside(store, clock):
    fetch, ground = FakeTool("fetch"), Ground()
    async with opened(store, clock, ground, fetch) as h:
        session = await h.new_session()
        turn = await h.run(session)
        ground.terms = ("outside",)
        await answer(h, session)
        assert (await h.settled(turn.id)).state is TurnState.WAITING
        assert not fetch.calls
        assert (await h.ask(session)).text.startswith("it runs without a sandbox")
        await answer(h, session)
        assert (await h.settled(turn.id)).state is TurnState.COMPLETED
        assert len(fetch.calls) == 1


async def test_a_no_to_the_second_question_counts(store, clock):
    fetch, ground = FakeTool("fetch"), Ground()
    async with opened(store, clock, ground, fetch) as h:
        session = await h.new_session()
        turn = await h.run(session)
        ground.terms = ("outside",)
        await answer(h, session)
        await h.settled(turn.id)
        await answer(h, session, "deny")
        assert (await h.settled(turn.id)).state is TurnState.COMPLETED
        assert not fetch.calls
        (told,) = [p for m in await h.messages(session) for p in m.parts if isinstance(p, Result)]
        assert told.outcome is Outcome.DENIED


async def test_an_approval_for_more_holds_for_less(store, clock):
    fetch, ground = FakeTool("fetch"), Ground("outside")
    async with opened(store, clock, ground, fetch) as h:
        session = await h.new_session()
        turn = await h.run(session)
        ground.terms = ()
        await answer(h, session)
        assert (await h.settled(turn.id)).state is TurnState.COMPLETED
        assert len(fetch.calls) == 1
