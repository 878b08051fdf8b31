"""What a turn does next: a pure decision based on its folded journal.

A new turn, a running one between two steps, one whose asks were answered and one whose worker died are all
decided here. There is no separate path for recovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

import msgspec

from everturn.domain.asks import EXPIRED, AskTopic, Decision, DoubtAnswer, LimitAnswer
from everturn.domain.delegates import shorten
from everturn.domain.errors import Remedy
from everturn.domain.fold import CallState, Folded
from everturn.domain.messages import Outcome, Role, Text
from everturn.domain.model import Abilities
from everturn.domain.tool import CALL_FOUND_TOOL, CallAnswer, ToolSpec
from everturn.domain.turns import Failure, FinishReason, TurnState
from everturn.engine.progress import TurnProgress, digest_of
from everturn.engine.settings import EngineSettings


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model for this step."""

    step: int


class AbandonAttempt(msgspec.Struct, frozen=True):
    """The worker died during this model call: record that before anything else."""

    step: int


class RunCalls(msgspec.Struct, frozen=True):
    """These tool calls of the last step have no result yet."""

    calls: tuple[CallState, ...]


class AskWhether(msgspec.Struct, frozen=True):
    """A limit was reached: ask the user whether to continue."""

    topic: AskTopic
    text: str
    choices: tuple[LimitAnswer, ...] = tuple(LimitAnswer)


class Complete(msgspec.Struct, frozen=True):
    """The model has answered and asks for no more tools."""


class Stop(msgspec.Struct, frozen=True):
    """The user was asked at a limit and stopped the turn."""

    by: str


class Fail(msgspec.Struct, frozen=True):
    failure: Failure


NextMove = Union[CallModel, AbandonAttempt, RunCalls, AskWhether, Complete, Stop, Fail]


def check_resumption(progress: TurnProgress, now_ms: int, settings: EngineSettings) -> Failure | None:
    """Why a claimed turn may not be resumed again; None if it may. The claim is already counted.

    Of crashes and age only; budgets of money are in ``spending``.
    """
    if progress.crashes > settings.resume_attempts_max:  # guard: c02
        return Failure("resume_attempts", _describe_attempts(settings), "Press Resume to try again.")
    if progress.is_taken_up and progress.age_ms(now_ms) > settings.resume_age_max_s * 1000:  # guard: c02
        hours = settings.resume_age_max_s / 3600
        return Failure(
            "resume_age", f"The turn began more than {hours:g} hours ago.", "Press Resume to go on with it."
        )
    return None


def _describe_attempts(settings: EngineSettings) -> str:
    times = settings.resume_attempts_max
    if times == 0:
        return "The server stopped during the turn, and turns are not resumed by themselves here."
    return f"The turn was resumed {'once' if times == 1 else f'{times} times'} without finishing a step."


def next_move(folded: Folded, progress: TurnProgress, now_ms: int, settings: EngineSettings) -> NextMove:
    """Decide what the turn does next."""
    if progress.is_stopped:
        return Stop(progress.stopped_by)
    if progress.is_attempt_open:  # guard: c02
        return AbandonAttempt(progress.step)
    if folded.open_step is not None and folded.open_step.step > folded.steps:
        return CallModel(folded.open_step.step)
    missing = tuple(call for call in folded.calls if call.result is None)
    if missing:
        return RunCalls(missing)
    if folded.steps and not folded.calls and not _has_new_word(folded):
        if not _answers(folded):  # guard: a10
            return Fail(_empty_answer(folded))
        return Complete()
    question = _limit_reached(progress, now_ms, settings) or _repeats(progress, settings)
    return question or CallModel(folded.steps + 1)


def _has_new_word(folded: Folded) -> bool:
    """True if the user sent a message after the model's last step."""
    return bool(folded.messages) and folded.messages[-1].role is Role.USER


def _answers(folded: Folded) -> bool:
    """True if the model has answered with text: tool calls alone are no answer."""
    return any(
        isinstance(part, Text) and not part.is_abandoned and part.text.strip()
        for message in folded.messages
        if message.role is Role.ASSISTANT
        for part in message.parts
    )


def _empty_answer(folded: Folded) -> Failure:
    model = folded.models[-1] if folded.models else "The model"
    if folded.finish == FinishReason.FILTERED:
        return Failure("model_filtered", f"{model} withheld its answer.", "Say it differently, then retry.")
    return Failure(
        "model_silent",
        f"{model} returned an empty answer.",
        "Retry, or choose another model.",
        Remedy.CHOOSE_MODEL,
    )


def _limit_reached(progress: TurnProgress, now_ms: int, settings: EngineSettings) -> AskWhether | None:
    """Each "continue" grants the whole allowance once more."""
    shares = progress.grants + 1
    minutes = progress.worked_ms(now_ms) / 60_000
    tokens = (progress.usage.input_tokens or 0) + (progress.usage.output_tokens or 0)
    cost = progress.usage.cost_usd or 0.0
    said = ""
    if progress.steps_finished >= settings.steps_max * shares:
        said = _plural(progress.steps_finished, "step")
    elif minutes >= settings.minutes_max * shares:
        said = _plural(round(minutes), "minute")
    elif settings.tokens_max is not None and tokens >= settings.tokens_max * shares:
        said = f"{tokens:,} tokens"
    elif settings.cost_usd_max is not None and cost >= settings.cost_usd_max * shares:
        said = f"{cost:.2f} USD"
    return AskWhether(AskTopic.LIMIT, f"This turn has used {said}. Shall it go on?") if said else None


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _repeats(progress: TurnProgress, settings: EngineSettings) -> AskWhether | None:
    if progress.repeats < settings.repeats_max:
        return None
    times = progress.repeats
    return AskWhether(AskTopic.REPEAT, f"The same call gave the same result {times} times. Shall it go on?")


# --- one call -----------------------------------------------------------------------------------------


class RunCall(msgspec.Struct, frozen=True):
    """Run it. ``attempt`` counts from 1; ``is_approved``: the user has allowed exactly this call. ``answer``:
    it has run before, asked for this and waits for it."""

    attempt: int
    is_approved: bool = False
    answer: CallAnswer | None = None


_REPORTS_CHARS_MAX = 96_000  # of all delegates of a call; delegate_result has each in full
_REPORT_CHARS_MIN = 1_000


class GiveResult(msgspec.Struct, frozen=True):
    """Give it this result without running it."""

    outcome: Outcome
    text: str
    is_untrusted: bool = False


class AskDoubt(msgspec.Struct, frozen=True):
    """It started, whether it took effect is not known, and only the user can say what to do."""

    text: str


class Judge(msgspec.Struct, frozen=True):
    """It has not started: the policy decides."""


CallMove = Union[RunCall, GiveResult, AskDoubt, Judge]


def next_for_call(state: CallState, spec: ToolSpec | None) -> CallMove:
    """Decide what to do about one tool call without a result."""
    if state.started_at is not None and state.decision in (Decision.DENY, Decision.EXPIRED):  # guard: c02
        # It was asked about under other terms before its next run.
        return GiveResult(
            Outcome.DENIED,
            "The user did not allow this call to run again. What its first run did is not known.",
        )
    if state.answer is not None and spec is not None and spec.goes_on:
        given = CallAnswer(state.answered, state.answer)
        return RunCall(state.attempt + 1, is_approved=True, answer=given)
    if state.answer is not None:
        return _from_answer(state.answer)
    if state.reports:
        return _from_reports(state)
    if state.started_at is None:  # guard: c02
        return _from_decision(state)
    if spec is not None and (spec.is_safe_to_repeat or spec.takes_key or spec.reads_only):
        return RunCall(state.attempt + 1, is_approved=True)
    if state.doubt is not None:  # guard: c02
        return _from_doubt(state)
    return AskDoubt(
        f"{_name_of(state)} was running when the server stopped. It may or may not have finished."
    )


def _name_of(state: CallState) -> str:
    """The tool that ran, for people."""
    if state.call.name != CALL_FOUND_TOOL:
        return state.call.name
    try:
        found = msgspec.json.decode(state.arguments)
    except msgspec.DecodeError:
        return state.call.name
    named = found.get("name") if isinstance(found, dict) else None
    return named if isinstance(named, str) and named else state.call.name


def _from_answer(answer: str) -> CallMove:
    if answer == EXPIRED:
        return GiveResult(Outcome.ERROR, "The user did not answer in time.")
    return GiveResult(Outcome.OK, answer)


def _from_reports(state: CallState) -> CallMove:
    """All delegates of the call have ended: the turn is claimed only then."""
    reports = [state.reports[delegate_id] for delegate_id in sorted(state.reports)]
    is_done = any(report.state == TurnState.COMPLETED for report in reports)
    share = max(_REPORT_CHARS_MIN, _REPORTS_CHARS_MAX // len(reports))
    return GiveResult(
        Outcome.OK if is_done else Outcome.ERROR,
        "\n\n".join(shorten(report.text, share) for report in reports),
        is_untrusted=any(report.is_untrusted for report in reports),
    )


def _from_decision(state: CallState) -> CallMove:
    """An approval holds for one call: its id and the digest of its arguments."""
    is_for_this = state.digest == digest_of(state.call.name, state.call.arguments)
    if state.decision is None:
        return Judge()
    if not is_for_this:  # guard: c02
        return Judge()
    if state.decision == Decision.EXPIRED:
        return GiveResult(Outcome.DENIED, "This call was not approved in time. It was not run.")
    if state.decision == Decision.DENY:
        return GiveResult(Outcome.DENIED, "The user did not allow this call. It was not run.")
    return RunCall(1, is_approved=True)


def _from_doubt(state: CallState) -> CallMove:
    if state.doubt in (DoubtAnswer.RUN_AGAIN, DoubtAnswer.GO_BACK_AND_RUN):
        return RunCall(state.attempt + 1, is_approved=True)
    if state.doubt == DoubtAnswer.TAKE_AS_DONE:
        return GiveResult(Outcome.OK, "The user says that this call took effect. Its output is not known.")
    if state.doubt == DoubtAnswer.NOT_RUN:
        return GiveResult(
            Outcome.CANCELLED,
            "The server stopped while this call ran, and the user wants it treated as not run. Effects "
            "outside the workspace may remain.",
        )
    if state.doubt == DoubtAnswer.CHECK:
        return GiveResult(
            Outcome.UNKNOWN,
            "Outcome unknown: the call started and the server stopped before it reported back. "
            "Check whether it took effect before you do it again.",
        )
    return GiveResult(Outcome.UNKNOWN, "Outcome unknown: the call started and never reported back.")


# --- one model call -----------------------------------------------------------------------------------


def continues(folded: Folded, abilities: Abilities) -> bool:
    """True if the model can continue its partial answer."""
    return abilities.continues and folded.open_step is not None and bool(folded.open_step.open_text)


def choose_model(chain: Sequence[str], progress: TurnProgress, attempts_max: int) -> str | None:
    """The first model of the chain that has attempts left in this step; None when all are spent.

    A turn stays with the model that finished its last step. Otherwise each step would again spend retries on
    a model that is known to be unavailable.
    """
    start = chain.index(progress.finished_model) if progress.finished_model in chain else 0
    for name in [*chain[start:], *chain[:start]]:
        if name not in progress.given_up and progress.attempts.get(name, 0) < attempts_max:
            return name
    return None
