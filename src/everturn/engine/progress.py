"""What the engine counts about a turn beside its messages: attempts, working time, limits, repeats.

It takes the same events as the fold, in the same order. A running turn feeds them one at a time, a resumed
turn from its journal, so both have the same counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from everturn.domain import events as ev
from everturn.domain.asks import AskTopic, BudgetAnswer, LimitAnswer
from everturn.domain.messages import Role
from everturn.domain.turns import ClaimReason, Usage

CRASH = "crash"  # why an attempt was abandoned whose worker died


def digest_of(name: str, arguments: str) -> str:
    """What an approval holds for: exactly this call."""
    return hashlib.sha256(f"{name}\0{arguments}".encode()).hexdigest()


class TurnProgress:
    def __init__(self) -> None:
        # Resumption: crashes since something finished, and the time that the turn had no worker.
        self.crashes = 0
        self.is_taken_up = False  # after its worker had gone, by a crash or a stop
        self._away_ms = 0
        self._worked_before_ms = 0  # when the user pressed Resume
        # Working time, without waiting and without the time the server was down.
        self._worked_ms = 0
        self.works_since: int | None = None
        self._last_at = 0
        # The open step.
        self.step = 0
        self.attempt = 0
        self.is_attempt_open = False
        self.attempts: dict[str, int] = {}
        self.given_up: set[str] = set()
        self.compactions = 0
        self.trouble: tuple[str, str] | None = None  # reason and message of the last one
        self._open_model = ""
        self.finished_model = ""
        self.call_ids: set[str] = set()
        # Limits and answers.
        self.grants = 0
        self.budgets_reached: set[tuple[str, int]] = set()  # of which periods of which budgets it was told
        self.is_stopped = False
        self.stopped_by = ""
        self.usage = Usage()
        self.steps_finished = 0
        # Repetition.
        self.repeats = 0
        self._last_call: tuple[str, str, str] | None = None
        self._wishes: dict[str, tuple[str, str]] = {}
        self.asked: set[str] = set()  # calls whose question was put to the user

    def take(self, payload: ev.Payload, at: int) -> None:
        handler = _HANDLERS.get(type(payload))
        if handler is not None:
            handler(self, payload, at)
        self._last_at = at

    def age_ms(self, now_ms: int) -> int:
        """How old the turn is, without the time it waited for the user: its working time and the time it had
        no worker. Only the latter is measured by the wall clock, which can be set."""
        return self.worked_ms(now_ms) - self._worked_before_ms + self._away_ms

    def worked_ms(self, now_ms: int) -> int:
        """How long it has worked in all, since it was first claimed."""
        return self._worked_ms + self.works_ms(now_ms)

    def works_ms(self, now_ms: int) -> int:
        """How long it has worked since it was last claimed."""
        return 0 if self.works_since is None else max(0, now_ms - self.works_since)

    # --- the turn ----------------------------------------------------------------------------------

    def _on_turn_started(self, payload: ev.TurnStarted, at: int) -> None:
        self.works_since = at

    def _on_turn_resumed(self, payload: ev.TurnResumed, at: int) -> None:
        stopped_at = payload.stopped_at or self._last_at or at
        self._stop_clock(self.works_ms(stopped_at))
        self.works_since = at
        self.is_taken_up = payload.reason in (ClaimReason.CRASH, ClaimReason.HANDED_OVER)
        if self.is_taken_up:
            self._away_ms += max(0, at - stopped_at)
        if payload.reason == ClaimReason.CRASH:
            self.crashes += 1
        elif payload.reason == ClaimReason.MANUAL:
            # The user wants it: the budget starts anew.
            self.crashes = 0
            self._away_ms = 0
            self._worked_before_ms = self._worked_ms

    def _on_turn_waiting(self, payload: ev.TurnWaiting, at: int) -> None:
        self._stop_clock(self.works_ms(at) if payload.worked_ms is None else payload.worked_ms)

    def _stop_clock(self, worked_ms: int) -> None:
        self._worked_ms += worked_ms
        self.works_since = None

    # --- steps -------------------------------------------------------------------------------------

    def enter(self, step: int) -> None:
        """Begin to count for this step, if it is a new one."""
        if step != self.step:
            self.step = step
            self.attempt = 0
            self.attempts = {}
            self.given_up = set()
            self.compactions = 0
            self.trouble = None

    def _on_step_started(self, payload: ev.StepStarted, at: int) -> None:
        self.enter(payload.step)
        self.attempt = payload.attempt
        self.is_attempt_open = True
        self.attempts[payload.model] = self.attempts.get(payload.model, 0) + 1
        self._open_model = payload.model

    def _on_step_abandoned(self, payload: ev.StepAbandoned, at: int) -> None:
        self.enter(payload.step)
        self.is_attempt_open = False
        model = payload.model or self._open_model
        if payload.reason == CRASH:
            # Our death is not the model's fault: it keeps its attempts.
            self.attempts[model] = max(0, self.attempts.get(model, 0) - 1)
            return
        self.trouble = (payload.reason, payload.message)
        if payload.retry_in_ms is None:
            self.given_up.add(model)

    def _on_step_finished(self, payload: ev.StepFinished, at: int) -> None:
        self.is_attempt_open = False
        self.crashes = 0
        self.steps_finished = payload.step
        self.finished_model = self._open_model
        for call in payload.calls:
            self._wishes[call.id] = (call.name, call.arguments)
            self.call_ids.add(call.id)

    def _on_delegate_ended(self, payload: ev.DelegateEnded, at: int) -> None:
        self.usage = self.usage.plus(payload.usage)  # the limits of a turn hold for its delegates, too

    def _on_step_usage(self, payload: ev.StepUsage, at: int) -> None:
        self.usage = self.usage.plus(payload.usage)

    def _on_message_added(self, payload: ev.MessageAdded, at: int) -> None:
        if payload.message.role is Role.SUMMARY:
            self.compactions += 1
            self.given_up = set()

    # --- calls and answers -------------------------------------------------------------------------

    def _on_tool_finished(self, payload: ev.ToolFinished, at: int) -> None:
        self.crashes = 0
        name, arguments = self._wishes.pop(payload.call_id, (payload.name, ""))
        this = (name, arguments, f"{payload.outcome}\0{payload.text}")
        self.repeats = self.repeats + 1 if this == self._last_call else 1
        self._last_call = this

    def _on_question_asked(self, payload: ev.QuestionAsked, at: int) -> None:
        if payload.call_id is not None:
            self.asked.add(payload.call_id)

    def _on_budget_reached(self, payload: ev.BudgetReached, at: int) -> None:
        self.budgets_reached.add((payload.budget_id, payload.period_start))

    def _on_question_answered(self, payload: ev.QuestionAnswered, at: int) -> None:
        if payload.topic == AskTopic.BUDGET and payload.answer == BudgetAnswer.STOP:
            self.is_stopped = True
            self.stopped_by = payload.by
        if payload.topic not in (AskTopic.LIMIT, AskTopic.REPEAT):
            return
        if payload.answer != LimitAnswer.CONTINUE:
            self.is_stopped = True
            self.stopped_by = payload.by
        elif payload.topic == AskTopic.LIMIT:
            self.grants += 1
        else:
            self.repeats = 0
            self._last_call = None


# ``Any``: each handler takes the payload of its own kind of event.
_Handler = Callable[[TurnProgress, Any, int], None]

_HANDLERS: dict[type, _Handler] = {
    ev.TurnStarted: TurnProgress._on_turn_started,
    ev.TurnResumed: TurnProgress._on_turn_resumed,
    ev.TurnWaiting: TurnProgress._on_turn_waiting,
    ev.StepStarted: TurnProgress._on_step_started,
    ev.StepAbandoned: TurnProgress._on_step_abandoned,
    ev.StepFinished: TurnProgress._on_step_finished,
    ev.StepUsage: TurnProgress._on_step_usage,
    ev.DelegateEnded: TurnProgress._on_delegate_ended,
    ev.MessageAdded: TurnProgress._on_message_added,
    ev.ToolFinished: TurnProgress._on_tool_finished,
    ev.QuestionAsked: TurnProgress._on_question_asked,
    ev.BudgetReached: TurnProgress._on_budget_reached,
    ev.QuestionAnswered: TurnProgress._on_question_answered,
}
