"""Parameters of a message, its session and its profile: what a model is called with, also after a crash."""

from __future__ import annotations

import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Invalid
from everturn.domain.model import Abilities
from everturn.domain.model_errors import ModelRefused
from everturn.domain.parameters import Effort, Parameters
from everturn.domain.sessions import Session, SessionPatch
from everturn.domain.store_values import Request, RetriedTurn, Submission
from everturn.engine.settings import TurnProfile
from everturn.store import Store
from everturn.testing import ScriptedModel
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness, quiet_settings
from everturn.testing.models import ModelFails, ScriptedModels

pytestmark = pytest.mark.anyio

THINKS = Abilities(efforts=(Effort.OFF, Effort.LOW, Effort.HIGH), output_tokens=8_000)
WARM = Parameters(Effort.HIGH, 0.5, 900)


def scripted(*script: object, name: str = "scripted:one", abilities: Abilities = THINKS) -> ScriptedModel:
    return ScriptedModel(*script, name=name, abilities=abilities)  # type: ignore[arg-type]


async def used(h: Harness, session: Session) -> list[Parameters | None]:
    payloads = [event.payload for event in await h.events(session)]
    return [payload.parameters for payload in payloads if isinstance(payload, ev.StepStarted)]


async def test_a_message_is_answered_with_its_parameters_and_the_journal_has_them(store: Store) -> None:
    async with open_harness(store, model=scripted("Hi")) as h:
        session = await h.new_session()
        turn = await h.run(session, parameters=WARM)
        (request,) = h.model.requests
        assert (request.effort, request.temperature, request.output_tokens_max) == (Effort.HIGH, 0.5, 900)
        assert turn.parameters == WARM
        assert await used(h, session) == [WARM]
        accepted = (await h.events(session))[0].payload
        assert isinstance(accepted, ev.TurnAccepted)
        assert accepted.parameters == WARM


async def test_without_parameters_nothing_is_journaled_and_the_limit_is_the_models(store: Store) -> None:
    async with open_harness(store, model=scripted("Hi")) as h:
        session = await h.new_session()
        await h.run(session)
        assert h.model.requests[0].output_tokens_max == 8_000
        assert not [event for event in await h.events(session) if b"parameters" in event.data]


async def test_the_message_comes_before_the_session_and_the_session_before_the_profile(store: Store) -> None:
    profile = TurnProfile("plain", parameters=Parameters(Effort.OFF, 0.1, 700))
    settings = quiet_settings(profiles={"plain": profile})
    async with open_harness(store, model=scripted("Hi"), settings=settings) as h:
        session = await h.new_session(profile="plain")
        patch = SessionPatch(parameters=Parameters(effort=Effort.LOW, temperature=0.2))
        await h.engine.change_session(OWNER, session.id, patch)
        await h.run(session, parameters=Parameters(effort=Effort.HIGH))
        assert await used(h, session) == [Parameters(Effort.HIGH, 0.2, 700)]


async def test_the_output_limit_of_the_model_holds(store: Store) -> None:
    async with open_harness(store, model=scripted("Hi")) as h:
        await h.run(await h.new_session(), parameters=Parameters(output_tokens_max=9_000))
        assert h.model.requests[0].output_tokens_max == 8_000


async def test_a_turn_that_is_taken_over_keeps_its_parameters_though_the_session_has_others(
    store: Store,
) -> None:
    async with crashing_harness(store, model=scripted([ModelFails(ModelRefused("no"))])) as h:
        session = await h.new_session()
        await h.engine.change_session(OWNER, session.id, SessionPatch(parameters=WARM))
        accepted = await store.turns.accept(OWNER, session.id, Submission(text="hello"))
        await h.engine.change_session(OWNER, session.id, SessionPatch(parameters=None))
    async with open_harness(store, model=scripted("Hi")) as h:
        await h.settled(accepted.turn.id)
        assert await used(h, session) == [WARM]
        assert (await h.engine.session(OWNER, session.id)).parameters is None


async def test_a_retry_has_the_parameters_of_the_answer_unless_it_is_given_others(store: Store) -> None:
    async with open_harness(store, model=scripted("a", "b", "c")) as h:
        session = await h.new_session()
        await h.run(session, parameters=WARM)
        await h.engine.change_session(OWNER, session.id, SessionPatch(parameters=Parameters(Effort.OFF)))
        again = await h.engine.retry(OWNER, session.id, RetriedTurn(), Request(key="again"))
        await h.settled(again.turn.id)
        cooler = RetriedTurn(parameters=Parameters(temperature=0.1))
        other = await h.engine.retry(OWNER, session.id, cooler, Request(key="cooler"))
        await h.settled(other.turn.id)
        assert await used(h, session) == [WARM, WARM, Parameters(Effort.HIGH, 0.1, 900)]


async def test_a_branch_keeps_them(store: Store) -> None:
    async with open_harness(store, model=scripted("Hi")) as h:
        session = await h.new_session()
        turn = await h.run(session, parameters=WARM)
        await h.engine.change_session(OWNER, session.id, SessionPatch(parameters=WARM))
        copy = await h.engine.branch(OWNER, session.id, turn.id, Request(key="b"))
        assert copy.parameters == WARM
        assert (await store.turns.get(OWNER, copy.head or "")).parameters == WARM


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Parameters(effort=Effort.MEDIUM), "does not take reasoning effort medium"),
        (Parameters(temperature=0.3), "does not take a temperature"),
        (Parameters(temperature=3.0), "temperature is 3"),
        (Parameters(effort=Effort("colossal")), "no reasoning effort 'colossal'"),
        (Parameters(output_tokens_max=0), "output limit is 0"),
    ],
)
async def test_what_the_model_does_not_take_is_refused_and_nothing_is_stored(
    store: Store, given: Parameters, said: str
) -> None:
    abilities = Abilities(efforts=(Effort.LOW,), temperature=False)
    async with open_harness(store, model=scripted("Hi", abilities=abilities)) as h:
        session = await h.new_session()
        for act in (
            h.send(session, parameters=given),
            h.engine.change_session(OWNER, session.id, SessionPatch(parameters=given)),
        ):
            with pytest.raises(Invalid, match=said):
                await act
        assert not await h.events(session)


async def test_a_fallback_answers_without_what_it_does_not_take_and_says_so(store: Store) -> None:
    first = scripted([ModelFails(ModelRefused("no"))])
    second = scripted("Hi", name="scripted:two", abilities=Abilities(temperature=False))
    settings = quiet_settings(fallback_models=("scripted:two",))
    models = ScriptedModels(first, second)
    async with open_harness(store, model=first, models=models, settings=settings) as h:
        session = await h.new_session()
        await h.run(session, parameters=WARM)
        assert await used(h, session) == [WARM, Parameters(output_tokens_max=900)]
        assert second.requests[0].effort is None
        said = [event.data.decode() for event in await h.events(session) if event.kind == "progress"]
        assert len(said) == 1
        assert "does not take reasoning effort high or a temperature" in said[0]
