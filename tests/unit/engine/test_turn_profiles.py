"""What a profile sets for its turns, and what its owner wants of every agent."""

from __future__ import annotations

import pytest

from everturn.domain.asks import AskTopic, BudgetAnswer
from everturn.domain.budgets import BudgetKey, BudgetScope, Unit, make_limit
from everturn.domain.model import Abilities
from everturn.domain.parameters import Effort, Parameters
from everturn.domain.probe import Moment
from everturn.domain.sessions import NewSession, SessionPatch
from everturn.domain.turns import TurnState, Usage
from everturn.engine import Preferences, write_preferences
from everturn.engine.settings import TurnProfile
from everturn.store import Store
from everturn.testing import HoldingProbe, ScriptedModel
from everturn.testing.clock import FakeClock
from everturn.testing.harness import OWNER, crashing_harness, open_harness
from everturn.testing.memory import RecordingProvider
from tests.contracts.memory_acting import NAME, memory_over

pytestmark = pytest.mark.anyio


class Book:
    """The profiles of now, as a server reads them before each turn."""

    def __init__(self, *profiles: TurnProfile) -> None:
        self.now = {one.name: one for one in (TurnProfile("default", "You help."), *profiles)}

    async def read(self) -> dict[str, TurnProfile]:
        return dict(self.now)

    def put(self, profile: TurnProfile) -> None:
        self.now[profile.name] = profile


def model(*script: str) -> ScriptedModel:
    """Each call may answer with 100 tokens and reports that it has used 60 and 40."""
    abilities = Abilities(output_tokens=100, efforts=(Effort.LOW, Effort.HIGH))
    return ScriptedModel(*script, abilities=abilities, usage=Usage(60, 40), then="answer")


async def test_parameters_of_a_profile_are_used_and_follow_its_changes(store: Store) -> None:
    book = Book(TurnProfile("writer", "You write.", parameters=Parameters(Effort.HIGH, 0.3, 90)))
    async with open_harness(store, model=model(), profiles=book.read) as h:
        session = await h.new_session(profile="writer")
        await h.run(session)
        book.put(TurnProfile("writer", "You write.", parameters=Parameters(Effort.LOW)))
        await h.run(session)
        asked = [(one.effort, one.temperature, one.output_tokens_max) for one in h.model.requests]
        assert asked == [(Effort.HIGH, 0.3, 90), (Effort.LOW, None, 100)]
        assert {one.system for one in h.model.requests} == {"You write."}, "they do not change the prefix"


async def test_a_session_of_a_profile_without_memory_recalls_and_leaves_nothing(store: Store) -> None:
    provider = RecordingProvider(NAME, recalls="The user has a cat.")
    book = Book(TurnProfile("blank", "You forget.", memory=False))
    memory = memory_over(store, FakeClock(), opened=[provider])
    async with open_harness(store, model=model(), memory=memory, profiles=book.read) as h:
        await h.run(await h.new_session(profile="blank"), "my secret")
        (request,) = h.model.requests
        assert "cat" not in request.system + "".join(message.text for message in request.messages)
        await h.run(await h.new_session(), "my name")
        assert "cat" in h.model.requests[1].system + h.model.requests[1].messages[0].text
    assert provider.words == ["my name"]


async def test_each_session_of_a_profile_has_its_budget_and_asks_when_it_is_used_up(store: Store) -> None:
    book = Book(TurnProfile("thrifty", "You save.", budget_tokens=180))
    async with open_harness(store, model=model(), profiles=book.read) as h:
        first = await h.new_session(profile="thrifty")
        assert (await h.run(first)).state is TurnState.COMPLETED
        assert (await h.run(first)).state is TurnState.WAITING
        ask = await h.ask(first)
        assert ask.topic is AskTopic.BUDGET
        assert "The session's budget of 180 tokens" in ask.text
        assert len(h.model.requests) == 1, "the model is not called past the budget"
        second = await h.new_session(profile="thrifty")
        assert (await h.run(second)).state is TurnState.COMPLETED, "each session has its own"
        assert (await h.answer(first, BudgetAnswer.RAISE)).state is TurnState.COMPLETED
        assert (await h.run(await h.new_session())).state is TurnState.COMPLETED


async def test_a_budget_that_its_owner_set_comes_before_the_profiles(store: Store) -> None:
    book = Book(TurnProfile("thrifty", "You save.", budget_tokens=5))
    async with open_harness(store, model=model(), profiles=book.read) as h:
        session = await h.new_session(profile="thrifty")
        key = BudgetKey(BudgetScope.SESSION, Unit.TOKENS, session.id)
        await h.engine.put_budget(OWNER, make_limit(key, 100_000, "UTC"))
        assert (await h.run(session)).state is TurnState.COMPLETED


async def test_a_budget_that_a_profile_has_no_more_stops_nothing(store: Store) -> None:
    book = Book(TurnProfile("thrifty", "You save.", budget_tokens=200))
    async with open_harness(store, model=model(), profiles=book.read) as h:
        session = await h.new_session(profile="thrifty")
        await h.run(session)
        book.put(TurnProfile("thrifty", "You save."))
        assert (await h.run(session)).state is TurnState.COMPLETED
        book.put(TurnProfile("thrifty", "You save.", budget_tokens=200))
        assert (await h.run(session)).state is TurnState.WAITING, "what was spent is known again"


async def test_a_turn_of_a_removed_profile_fails_and_no_other_profile_takes_its_place(store: Store) -> None:
    book = Book(TurnProfile("local", "You stay here.", model="scripted:local"))
    async with open_harness(store, model=model(), profiles=book.read) as h:
        session = await h.new_session(profile="local")
        del book.now["local"]
        turn = await h.run(session, "private words")
        assert turn.state is TurnState.FAILED
        assert turn.failure is not None
        assert (turn.failure.code, turn.failure.message) == (
            "profile_missing",
            "There is no profile 'local'.",
        )
        assert "default" in turn.failure.hint
        assert h.model.requests == [], "nothing was sent to another model"
        await h.engine.change_session(OWNER, session.id, SessionPatch(profile=None))
        assert (await h.run(session)).state is TurnState.COMPLETED


async def test_a_turn_that_has_worked_is_kept_until_its_session_has_a_profile_again(store: Store) -> None:
    book = Book(TurnProfile("writer", "You write."))
    probe = HoldingProbe()
    async with crashing_harness(store, model=model("begun"), profiles=book.read, probe=probe) as h:
        session = await h.engine.create_session(OWNER, NewSession(profile="writer"))
        probe.hold(Moment.MODEL_CALLED)
        accepted = await h.send(session)
        await probe.reached(Moment.MODEL_CALLED)
    del book.now["writer"]
    async with open_harness(store, model=model(), profiles=book.read) as h:
        turn = await h.settled(accepted.turn.id)
        assert turn.state is TurnState.INTERRUPTED
        assert turn.failure is not None
        assert turn.failure.code == "profile_missing"
        book.put(TurnProfile("writer", "You write."))
        await h.engine.resume(OWNER, turn.id)
        await h.seen(session, "turn.completed")


async def test_instructions_stand_after_the_prompt_of_every_profile(store: Store) -> None:
    book = Book(TurnProfile("writer", "You write."))
    async with open_harness(store, model=model(), profiles=book.read) as h:
        await write_preferences(store.records, OWNER, Preferences(instructions="  Answer in Latin.\n"))
        for profile in (None, "writer"):
            await h.run(await h.new_session(profile=profile))
        said = "Instructions of the user, for all conversations:\nAnswer in Latin."
        assert [one.system for one in h.model.requests] == [f"You help.\n\n{said}", f"You write.\n\n{said}"]


async def test_instructions_leave_the_prefix_as_it_is_until_they_change(store: Store) -> None:
    async with open_harness(store, model=model(), profiles=Book().read) as h:
        session = await h.new_session()
        await write_preferences(store.records, OWNER, Preferences(instructions="Be kind."))
        await h.run(session)
        await write_preferences(store.records, OWNER, Preferences(instructions="Be kind.", steps_max=7))
        await h.run(session)
        await write_preferences(store.records, OWNER, Preferences(instructions="Be brief."))
        await h.run(session)
        first, second, third = (one.system for one in h.model.requests)
        assert first == second != third
        assert third.endswith("Be brief.")


async def test_a_small_model_is_told_the_instructions_too(store: Store) -> None:
    small = ScriptedModel("hi", abilities=Abilities(is_small=True))
    async with open_harness(store, model=small) as h:
        await write_preferences(store.records, OWNER, Preferences(instructions="Answer in Latin."))
        await h.run(await h.new_session())
        assert small.requests[0].system.endswith("\nAnswer in Latin.")
