"""The decision over a folded journal: the same for fresh, answered and resumed turns."""

import msgspec
import pytest

from everturn.domain import events as ev
from everturn.domain.fold import Fold
from everturn.domain.messages import Call, Message, Outcome, Role, Text
from everturn.domain.model import Abilities, ToolSchema
from everturn.domain.tool import CALL_FOUND_TOOL, ToolSpec
from everturn.domain.turns import Usage
from everturn.engine.progress import TurnProgress, digest_of
from everturn.engine.resume import (
    AbandonAttempt,
    AskDoubt,
    AskWhether,
    CallModel,
    Complete,
    Fail,
    GiveResult,
    Judge,
    RunCall,
    RunCalls,
    Stop,
    check_resumption,
    choose_model,
    continues,
    next_for_call,
    next_move,
)
from everturn.engine.settings import EngineSettings

SETTINGS = EngineSettings()
LOOK = Call("c1", "look", '{"at":1}')


def told(*payloads, step_ms=1000):
    """Fold and progress after these events, one second apart."""
    fold, progress = Fold("trn_01jxt21q000zwpqvg0vhza8ktm"), TurnProgress()
    at = 0
    for payload in (ev.TurnStarted(1, "w"), *payloads):
        fold.take(payload, at)
        progress.take(payload, at)
        at += step_ms
    return fold.result(), progress, at


def move(*payloads, settings=SETTINGS):
    folded, progress, now = told(*payloads)
    return next_move(folded, progress, now, settings)


def step(number, *calls, text="ok", finish=None):
    return (
        ev.StepStarted(number, "m"),
        *((ev.TextDelta(number, text),) if text else ()),
        ev.StepFinished(number, finish or ("calls" if calls else "stop"), calls),
    )


def finished(call, text="seen"):
    return ev.ToolFinished(call.id, call.name, Outcome.OK, text)


def steering(text="wait"):
    return ev.MessageAdded(Message("", "", Role.USER, (Text(text),), 0, is_steering=True))


def test_a_fresh_turn_calls_the_model():
    assert move() == CallModel(1)


def test_a_finished_step_without_wishes_completes():
    assert move(*step(1)) == Complete()


def test_a_step_with_wishes_runs_those_without_a_result():
    other = Call("c2", "look", "{}")
    after = move(*step(1, LOOK, other), finished(LOOK))
    assert isinstance(after, RunCalls)
    assert [state.call for state in after.calls] == [other]


def test_when_all_have_results_the_model_is_called_again():
    assert move(*step(1, LOOK), finished(LOOK)) == CallModel(2)


def test_an_open_attempt_is_abandoned_first_and_then_made_again():
    open_attempt = (ev.StepStarted(1, "m"), ev.TextDelta(1, "hal"))
    assert move(*open_attempt) == AbandonAttempt(1)
    assert move(*open_attempt, ev.StepAbandoned(1, "crash", model="m")) == CallModel(1)


def test_words_after_the_last_step_are_answered():
    assert move(*step(1), steering()) == CallModel(2)


@pytest.mark.parametrize(
    "events", [step(1, text=""), (*step(1, LOOK, text=""), finished(LOOK), *step(2, text=" "))]
)
def test_no_words_at_all_fail(events):
    after = move(*events)
    assert isinstance(after, Fail)
    assert after.failure.code == "model_silent"


def test_a_stop_at_a_limit_ends_the_turn():
    answered = ev.QuestionAnswered("ask", "stop", "ada", "limit")
    assert move(*step(1, LOOK), finished(LOOK), answered) == Stop("ada")


def test_steps_minutes_tokens_and_cost_ask():
    many = [
        event
        for n in range(1, 4)
        for event in (
            *step(n, Call(f"c{n}", "look", str(n))),
            ev.ToolFinished(f"c{n}", "look", Outcome.OK, str(n)),
            ev.StepUsage(n, "m", Usage(100, 10, cost_usd=1.0)),
        )
    ]
    for limits, said in (
        ({"steps_max": 3}, "3 steps"),
        ({"minutes_max": 0.1}, "0 minutes"),
        ({"tokens_max": 330}, "330 tokens"),
        ({"cost_usd_max": 3.0}, "3.00 USD"),
    ):
        after = move(*many, settings=EngineSettings(**limits))
        assert isinstance(after, AskWhether), limits
        assert said in after.text
        granted = (*many, ev.QuestionAnswered("ask", "continue", "ada", "limit"))
        more = {name: value * 2 for name, value in limits.items()}
        assert move(*granted, settings=EngineSettings(**limits)) == move(
            *many, settings=EngineSettings(**more)
        )


def test_three_equal_calls_in_a_row_ask_and_a_different_one_starts_again():
    def look(n, text="same", arguments="{}"):
        call = Call(f"c{n}", "look", arguments)
        return (*step(n, call), finished(call, text))

    twice = (*look(1), *look(2))
    assert move(*twice) == CallModel(3)
    assert isinstance(move(*twice, *look(3)), AskWhether)
    assert move(*twice, *look(3, text="other")) == CallModel(4)
    assert move(*twice, *look(3, arguments='{"x":1}')) == CallModel(4)
    went_on = (*twice, *look(3), ev.QuestionAnswered("ask", "continue", "ada", "repeat"))
    assert move(*went_on) == CallModel(4)
    assert move(*went_on, *look(4), *look(5)) == CallModel(6)


# --- budget -------------------------------------------------------------------------------------------


def crash():
    return ev.TurnResumed(2, "w", "crash")


@pytest.mark.parametrize(("most", "words"), [(0, "not resumed by themselves"), (1, "once"), (2, "2 times")])
def test_a_turn_says_how_often_it_was_resumed(most, words):
    _, progress, now = told(*[crash()] * (most + 1))
    settings = msgspec.structs.replace(SETTINGS, resume_attempts_max=most)
    assert words in check_resumption(progress, now, settings).message


def test_attempts_are_counted_since_the_last_finished_step():
    _, progress, now = told(*[crash()] * 10)
    assert check_resumption(progress, now, SETTINGS) is None
    _, progress, now = told(*[crash()] * 11)
    assert check_resumption(progress, now, SETTINGS).code == "resume_attempts"
    _, progress, now = told(*[crash()] * 10, *step(1, LOOK), *[crash()] * 10)
    assert check_resumption(progress, now, SETTINGS) is None
    _, progress, now = told(*step(1, LOOK), *[crash()] * 10, finished(LOOK), crash())
    assert progress.crashes == 1


def test_hand_overs_and_answers_cost_no_attempt():
    others = [ev.TurnResumed(2, "w", reason) for reason in ("handed_over", "answered")]
    _, progress, now = told(*others * 20)
    assert progress.crashes == 0
    assert check_resumption(progress, now, SETTINGS) is None


DAY = 24 * 3600 * 1000


def test_age_does_not_count_waiting():
    _, progress, now = told(ev.TurnWaiting(("a",)))
    assert progress.age_ms(now + 2 * DAY) <= 2000
    progress.take(ev.TurnResumed(2, "w", "answered"), now + 2 * DAY)
    assert progress.age_ms(now + 2 * DAY) <= 2000


@pytest.mark.parametrize("reason", ["crash", "handed_over"])
def test_age_counts_work_and_the_time_without_a_worker(reason):
    _, progress, now = told(ev.StepStarted(1, "m"))
    progress.take(ev.TurnResumed(2, "w", reason, stopped_at=now), now + DAY - 10_000)
    assert check_resumption(progress, now + DAY - 10_000, SETTINGS) is None
    progress.take(ev.TurnResumed(3, "w", reason, stopped_at=now + DAY - 10_000), now + DAY + 10_000)
    assert check_resumption(progress, now + DAY + 10_000, SETTINGS).code == "resume_age"


def test_a_turn_that_never_lost_its_worker_has_no_age_to_exceed():
    _, progress, now = told(ev.TurnWaiting(("a",), worked_ms=3 * DAY))
    progress.take(ev.TurnResumed(2, "w", "answered"), now)
    assert check_resumption(progress, now, SETTINGS) is None


def test_measured_work_counts_and_not_what_the_wall_clock_says():
    progress = TurnProgress()
    progress.take(ev.TurnStarted(1, "w"), 0)
    progress.take(ev.TurnWaiting(("a",), worked_ms=1000), DAY)
    assert progress.worked_ms(2 * DAY) == 1000
    progress.take(ev.TurnResumed(2, "w", "crash", stopped_at=DAY), DAY + 5000)
    assert progress.age_ms(DAY + 5000) == 6000


def test_pressing_resume_starts_the_budget_again():
    day = 24 * 3600 * 1000
    _, progress, now = told(*[crash()] * 11)
    progress.take(ev.TurnResumed(3, "w", "manual"), now + 2 * day)
    assert check_resumption(progress, now + 2 * day, SETTINGS) is None


def test_working_time_leaves_out_waiting_and_the_time_the_server_was_down():
    progress = TurnProgress()
    for at, payload in (
        (0, ev.TurnStarted(1, "w")),
        (1000, ev.TurnWaiting(("a",))),
        (5000, ev.TurnResumed(2, "w", "answered")),
        (7000, ev.StepStarted(1, "m")),
        (90_000, ev.TurnResumed(3, "w", "crash", stopped_at=8000)),
    ):
        progress.take(payload, at)
    assert progress.worked_ms(91_000) == 1000 + 3000 + 1000


# --- one call -----------------------------------------------------------------------------------------


def spec(**more):
    return ToolSpec(ToolSchema("look", "", {}), **more)


def state_after(*payloads):
    folded, _, _ = told(*step(1, LOOK), *payloads)
    return folded.calls[0]


STARTED = ev.ToolStarted(1, "c1", "look", LOOK.arguments)


DIGEST = digest_of("look", LOOK.arguments)


def requested(digest=DIGEST):
    return ev.ApprovalRequested("ask", "c1", "look", LOOK.arguments, digest, "why")


def test_a_call_that_never_started_is_judged():
    assert next_for_call(state_after(), spec()) == Judge()


def test_c02_an_approval_holds_for_its_digest_only():
    allowed = ev.ApprovalResolved("ask", "c1", "once", "ada")
    assert next_for_call(state_after(requested(), allowed), spec()) == RunCall(1, is_approved=True)
    other = requested(digest_of("look", "{}"))
    assert next_for_call(state_after(other, allowed), spec()) == Judge()


@pytest.mark.parametrize("decision", ["deny", "expired"])
def test_a_denied_or_expired_approval_settles_the_call(decision):
    resolved = ev.ApprovalResolved("ask", "c1", decision, "ada")
    after = next_for_call(state_after(requested(), resolved), spec())
    assert isinstance(after, GiveResult)
    assert after.outcome == "denied"


@pytest.mark.parametrize("ability", ["is_safe_to_repeat", "takes_key", "reads_only"])
def test_a_call_that_is_denied_before_its_next_run_does_not_run(ability):
    answered = ev.QuestionAnswered("ask", "run again", "ada", "doubt", "c1")
    denied = ev.ApprovalResolved("ask", "c1", "deny", "ada")
    told_more = ev.QuestionAnswered("ask", "blue", "ada", "question", "c1")
    for able in ({}, {ability: True}, {"goes_on": True}):
        after = next_for_call(state_after(STARTED, answered, told_more, requested(), denied), spec(**able))
        assert isinstance(after, GiveResult)
        assert after.outcome == "denied"


def test_a_second_question_ends_what_the_first_answer_allowed():
    allowed = ev.ApprovalResolved("ask", "c1", "once", "ada", '{"at": 2}')
    state = state_after(requested(), allowed, requested())
    assert (state.decision, state.edited) == (None, None)


@pytest.mark.parametrize("ability", ["is_safe_to_repeat", "takes_key"])
def test_a_call_in_doubt_is_rerun_only_if_that_is_safe(ability):
    assert next_for_call(state_after(STARTED), spec(**{ability: True})) == RunCall(2, is_approved=True)
    assert isinstance(next_for_call(state_after(STARTED), spec()), AskDoubt)
    assert isinstance(next_for_call(state_after(STARTED), None), AskDoubt)


def test_a_call_of_a_found_tool_is_in_doubt_under_its_own_name():
    state = state_after(STARTED)
    state.call = Call(state.call.id, CALL_FOUND_TOOL, '{"name": "home__lights", "arguments": {}}')
    asked = next_for_call(state, spec())
    assert isinstance(asked, AskDoubt)
    assert asked.text.startswith("home__lights was running")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("run again", RunCall(2, is_approved=True)),
        ("take it as done", "ok"),
        ("check", "unknown"),
        ("expired", "unknown"),
    ],
)
def test_the_answer_to_a_doubt_decides(answer, expected):
    answered = ev.QuestionAnswered("ask", answer, "ada", "doubt", "c1")
    after = next_for_call(state_after(STARTED, answered), spec())
    assert after == expected if isinstance(expected, msgspec.Struct) else after.outcome == expected


@pytest.mark.parametrize(("answer", "outcome"), [("blue", "ok"), ("expired", "error")])
def test_the_answer_to_a_tools_question_is_its_result(answer, outcome):
    answered = ev.QuestionAnswered("ask", answer, "ada", "question", "c1")
    assert next_for_call(state_after(STARTED, answered), spec()).outcome == outcome


# --- models -------------------------------------------------------------------------------------------


def test_only_text_can_be_continued():
    can = Abilities(continues=True)
    folded, _, _ = told(ev.StepStarted(1, "m"), ev.TextDelta(1, "hal"))
    assert continues(folded, can)
    assert not continues(folded, Abilities())
    folded, _, _ = told(ev.StepStarted(1, "m"), ev.ReasoningDelta(1, "hm"))
    assert not continues(folded, can)


def test_the_chain_is_walked_when_attempts_are_spent():
    chain = ["a", "b"]
    _, progress, _ = told(ev.StepStarted(1, "a"), ev.StepAbandoned(1, "dropped", retry_in_ms=1, model="a"))
    assert choose_model(chain, progress, 2) == "a"
    progress.take(ev.StepStarted(1, "a", 2), 0)
    progress.take(ev.StepAbandoned(1, "dropped", model="a"), 0)
    assert choose_model(chain, progress, 2) == "b"
    progress.take(ev.StepStarted(1, "b", 3), 0)
    progress.take(ev.StepAbandoned(1, "refused", model="b"), 0)
    assert choose_model(chain, progress, 2) is None


def test_a_crash_is_not_the_models_fault():
    _, progress, _ = told(ev.StepStarted(1, "a"), ev.StepAbandoned(1, "crash", model="a"))
    assert progress.attempts["a"] == 0
    assert choose_model(["a"], progress, 1) == "a"


def test_a_turn_stays_with_the_model_that_works():
    _, progress, _ = told(ev.StepStarted(1, "b"), ev.StepFinished(1, "calls", (LOOK,)))
    progress.enter(2)
    assert choose_model(["a", "b"], progress, 2) == "b"
