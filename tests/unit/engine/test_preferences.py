"""A user's preferences hold from their next turn on, and only for their own turns."""

import pytest

from everturn.domain.model_errors import ModelKeyMissing, ModelRefused
from everturn.domain.store_values import Request, RetriedTurn
from everturn.domain.turns import TurnState
from everturn.engine import EngineSettings, Preferences, read_preferences, write_preferences
from everturn.testing.harness import OWNER, open_harness, quiet_settings
from everturn.testing.models import CallTool, ScriptedModel, ScriptedModels
from everturn.testing.tools import FakeTool

pytestmark = pytest.mark.anyio


def test_what_is_not_preferred_is_as_the_settings_say():
    settings = EngineSettings(steps_max=7, fallback_models=("a:b",))
    assert Preferences(model="x:y", profile="careful").over(settings) is settings
    changed = Preferences(steps_max=3, fallback_models=()).over(settings)
    assert (changed.steps_max, changed.fallback_models, changed.minutes_max) == (3, (), settings.minutes_max)


async def test_they_are_read_as_they_were_written_and_those_of_others_are_not(store):
    written = Preferences(title_model="a:b", fallback_models=("c:d",), cost_usd_max=0.5)
    await write_preferences(store.records, OWNER, written)
    assert await read_preferences(store.records, OWNER) == written
    assert await read_preferences(store.records, "bob") == Preferences()


async def test_a_limit_raised_while_a_turn_waits_at_it_applies_when_it_continues(store, clock):
    script = [[CallTool("look", {"n": n})] for n in range(5)]
    await write_preferences(store.records, OWNER, Preferences(steps_max=2))
    async with open_harness(
        store, *script, "done", tools=[FakeTool("look")], clock=clock, settings=quiet_settings()
    ) as h:
        session = await h.new_session()
        assert (await h.run(session)).state is TurnState.WAITING
        assert "2 steps" in (await h.ask(session)).text
        await write_preferences(store.records, OWNER, Preferences(steps_max=10))
        assert (await h.answer(session, "continue")).state is TurnState.COMPLETED


async def test_the_preferred_chain_stands_in_when_the_first_model_cannot(store, clock):
    first = ScriptedModel(then=ModelRefused("no credit"), name="a:first", clock=clock)
    second = ScriptedModel("from the second", name="b:second", clock=clock)
    await write_preferences(store.records, OWNER, Preferences(fallback_models=("b:second",)))
    async with open_harness(store, model=first, models=ScriptedModels(first, second), clock=clock) as h:
        session = await h.new_session()
        assert (await h.run(session)).state is TurnState.COMPLETED
        assert (await h.messages(session))[-1].model == "b:second"


@pytest.mark.parametrize("is_usable", [True, False])
async def test_the_preferred_model_makes_the_title_and_else_the_one_that_answered(store, clock, is_usable):
    answers = ScriptedModel("An answer.", "A title by the first", name="a:first", clock=clock)
    names = ScriptedModel("A title by the second", name="b:second", clock=clock)
    troubles = {} if is_usable else {"b:second": ModelKeyMissing("There is no key for b.")}
    await write_preferences(store.records, OWNER, Preferences(title_model="b:second"))
    async with open_harness(
        store,
        model=answers,
        models=ScriptedModels(answers, names, troubles=troubles),
        clock=clock,
        settings=quiet_settings(makes_titles=True),
    ) as h:
        session = await h.new_session()
        await h.run(session)
        await h.seen(session, "session.changed")
        title = (await h.store.sessions.get(OWNER, session.id)).title
        assert title == ("A title by the second" if is_usable else "A title by the first")


async def test_the_preferred_model_answers_what_names_none(store, clock):
    """However the turn was sent: the command line asks the engine, and no page stands between."""
    first = ScriptedModel("from the first", name="a:first", clock=clock)
    second = ScriptedModel("from the second", name="b:second", clock=clock)
    await write_preferences(store.records, OWNER, Preferences(model="b:second"))
    async with open_harness(store, model=first, models=ScriptedModels(first, second), clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        await h.run(session, model="a:first")
        answers = [message for message in await h.messages(session) if message.model]
        assert [message.model for message in answers] == ["b:second", "a:first"]


async def test_a_message_is_asked_again_of_another_model(store, clock):
    first = ScriptedModel(then=ModelRefused("no credit"), name="a:first", clock=clock)
    second = ScriptedModel("from the second", name="b:second", clock=clock)
    async with open_harness(store, model=first, models=ScriptedModels(first, second), clock=clock) as h:
        session = await h.new_session()
        failed = await h.run(session, model="a:first")
        assert failed.state is TurnState.FAILED
        again = await h.engine.retry(OWNER, session.id, RetriedTurn(failed.id, model="b:second"), Request())
        assert (await h.settled(again.turn.id)).state is TurnState.COMPLETED
        assert (await h.messages(session))[-1].model == "b:second"
