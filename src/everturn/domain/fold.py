"""The one fold that turns a turn's journal into messages, usage and a timeline.

Completion, resumption, replay and recovery all call it, so they cannot disagree. It is a pure function
of the events: feeding the same events again, or the same events delivered late, gives the same result.

Events are taken in the order in which they happened, (epoch, number); ``in_order`` sorts them and decides
which are superseded. A superseded event belongs to an abandoned attempt: its text is shown and never given
to a model, and only its ``tool.finished`` counts, for a call that has no other result.

Payloads that this version cannot read are passed over, and ``has_unknown`` says that there were some: the
result can be shown, but only a newer version makes the whole one (G04).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from everturn.domain import events as ev
from everturn.domain.asks import AskTopic, Decision, platform_of
from everturn.domain.checkpoints import FilesInDoubt
from everturn.domain.ids import message_id
from everturn.domain.messages import (
    AnyPart,
    Call,
    Message,
    Outcome,
    Reasoning,
    Result,
    Role,
    Text,
)
from everturn.domain.turns import Bar, BarKind, BarState, ClaimReason, FinishReason, Usage

UNKNOWN_TEXT = "Outcome unknown: the call started and never reported back. It may have taken effect."
OUTPUT_BYTES_MAX = 262_144  # kept of the live output of a call that never reports back
NOT_RUN_TEXT = "Not run: the turn ended before this call started."


class Printed(msgspec.Struct):
    """The live output of one attempt of a call. Beyond the limit, the end is kept."""

    pieces: deque[bytes] = msgspec.field(default_factory=deque)
    size: int = 0

    def add(self, text: str) -> None:
        piece = text.encode("utf-8", "replace")
        self.pieces.append(piece)
        self.size += len(piece)
        while self.size - len(self.pieces[0]) >= OUTPUT_BYTES_MAX:
            self.size -= len(self.pieces.popleft())

    @property
    def text(self) -> str | None:
        """The output so far; None if there is none."""
        return b"".join(self.pieces)[-OUTPUT_BYTES_MAX:].decode("utf-8", "ignore") or None


class CallState(msgspec.Struct):
    """What the journal knows about one tool call that the model asked for."""

    call: Call
    step: int
    wished_at: int
    started_at: int | None = None
    attempt: int = 0
    digest: str = ""
    terms: tuple[str, ...] = ()  # under which it was asked about
    decision: Decision | None = None  # the answer to its approval
    decided_in: str = ""
    edited: str | None = None  # the arguments that the user put in place of the model's
    answer: str | None = None  # the answer to its question, until it is run again with it
    answered: AskTopic = AskTopic.QUESTION  # what that question was about
    doubt: str | None = None  # the answer to "outcome unknown"; "run again" allows one run
    files: FilesInDoubt | None = None  # what that question showed of its files
    reports: dict[str, ev.DelegateEnded] = {}  # of the delegates that it waited for
    result: Result | None = None
    finished_at: int | None = None
    printed: Printed = msgspec.field(default_factory=Printed)

    @property
    def arguments(self) -> str:
        """The arguments it runs with: the model's, unless the user changed them."""
        return self.call.arguments if self.edited is None else self.edited

    @property
    def is_in_doubt(self) -> bool:
        return self.started_at is not None and self.result is None


class StepState(msgspec.Struct):
    """One model call: the parts of its attempts in order, and its tool calls once it has ended."""

    step: int
    model: str = ""
    attempt: int = 0
    calls: list[str] = msgspec.field(default_factory=list)
    finish: FinishReason | None = None
    started_at: int = 0
    first_part_of_attempt: int = 0
    _parts: list[AnyPart] = msgspec.field(default_factory=list)
    # Deltas that continue the newest part. They are joined when the parts are read: joining each as it comes
    # would copy the whole text for every delta.
    _tail: list[str] = msgspec.field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.finish is not None

    @property
    def parts(self) -> list[AnyPart]:
        if self._tail:
            last = self._parts[-1]
            assert isinstance(last, (Text, Reasoning))  # noqa: S101 - only these have deltas
            self._parts[-1] = msgspec.structs.replace(last, text=last.text + "".join(self._tail))
            self._tail.clear()
        return self._parts

    @property
    def open_text(self) -> str:
        """The text of the attempt that is still open."""
        return "".join(
            part.text
            for part in self.parts[self.first_part_of_attempt :]
            if isinstance(part, Text) and not part.is_abandoned
        )

    def add(self, part: Text | Reasoning) -> None:
        """Add a delta, to the newest part if it continues that one."""
        last = self._parts[-1] if len(self._parts) > self.first_part_of_attempt else None
        if isinstance(last, type(part)) and last.is_abandoned == part.is_abandoned:
            self._tail.append(part.text)
        else:
            self.parts.append(part)

    def extend(self, text: str) -> None:
        """Add a delta that is known to continue the newest part."""
        self._tail.append(text)


class Folded(msgspec.Struct, frozen=True):
    messages: tuple[Message, ...]
    usage: Usage
    timeline: tuple[Bar, ...]
    steps: int  # the last step that finished
    open_step: StepState | None
    calls: tuple[CallState, ...]  # of the last finished step, in the model's order
    finish: FinishReason | None  # of that step
    models: tuple[str, ...]


class Fold:
    """Feed events in (epoch, number) order, then ask for the result, as often as wanted."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._items: list[StepState | Message] = []
        self._steps: dict[int, StepState] = {}
        self._calls: dict[str, CallState] = {}
        self._bars: list[Bar] = []
        self._open_bars: dict[str, int] = {}
        self._usage = Usage()
        self._late_results: dict[str, tuple[ev.ToolFinished, ev.Event]] = {}
        self._last_at = 0
        self._streaming: StepState | None = None  # whose newest part the next text continues
        self.has_unknown = False

    def feed(self, event: ev.Event, *, is_superseded: bool = False) -> None:
        """Take one event. ``is_superseded``: as ``in_order`` decides."""
        payload = event.payload
        self._streaming = None
        if isinstance(payload, ev.Unknown):
            self.has_unknown = True
            return
        if is_superseded and isinstance(payload, ev.ToolFinished):
            # What a later worker did about the call takes precedence: this counts only if it did nothing.
            self._late_results.setdefault(payload.call_id, (payload, event))  # guard: c09
            return
        if is_superseded:
            if isinstance(payload, (ev.TextDelta, ev.ReasoningDelta)):
                self._add_abandoned(payload, event)
            return
        handler = _HANDLERS.get(type(payload))
        if handler is not None:
            handler(self, payload, event)
        self._last_at = event.at

    def take(self, payload: ev.Payload, at: int) -> None:
        """Take one event of the worker that runs the turn, before it has its stored form."""
        self._streaming = None
        handler = _HANDLERS.get(type(payload))
        if handler is not None:
            handler(self, payload, ev.Event("", 0, None, "", at, b""))
        self._last_at = at

    def take_text(self, step: int, text: str, at: int) -> None:
        """``take`` for a piece of text. Creates nothing where it continues the one before: most events of a
        server are these."""
        streaming = self._streaming
        if streaming is not None and streaming.step == step:
            streaming.extend(text)
            self._last_at = at
        else:
            self.take(ev.TextDelta(step, text), at)
            self._streaming = self._steps[step]

    def result(self, *, is_ended: bool = False, is_recovered: bool = False) -> Folded:
        """The turn so far. ``is_ended``: calls without a result get the one that is true of them."""
        for payload, event in self._late_results.values():
            self._on_tool_finished(payload, event)
        finished = [step for step in self._steps.values() if step.is_finished]
        last = max(finished, key=lambda step: step.step, default=None)
        open_steps = [step for step in self._steps.values() if not step.is_finished and step.attempt]
        return Folded(
            messages=tuple(self._messages(is_ended, is_recovered)),
            usage=self._usage,
            timeline=tuple(self._bars),
            steps=last.step if last else 0,
            open_step=max(open_steps, key=lambda step: step.step, default=None),
            calls=tuple(self._calls[call_id] for call_id in last.calls) if last else (),
            finish=last.finish if last else None,
            models=tuple(dict.fromkeys(step.model for step in self._steps.values() if step.model)),
        )

    # --- steps -------------------------------------------------------------------------------------

    def _step(self, number: int, at: int) -> StepState:
        step = self._steps.get(number)
        if step is None:
            step = StepState(step=number, started_at=at)
            self._steps[number] = step
            self._items.append(step)
        return step

    def _on_step_started(self, payload: ev.StepStarted, event: ev.Event) -> None:
        step = self._step(payload.step, event.at)
        if not step.attempt:
            step.started_at = event.at
        step.attempt = payload.attempt
        step.model = payload.model
        self._open_bar(
            f"step:{payload.step}",
            Bar(BarKind.MODEL, payload.model, event.at, state=BarState.RUNNING, step=payload.step),
        )

    def _on_text(self, payload: ev.TextDelta, event: ev.Event) -> None:
        step = self._step(payload.step, event.at)
        step.add(Text(payload.text))
        self._first_token(payload.step, event.at)

    def _on_reasoning(self, payload: ev.ReasoningDelta, event: ev.Event) -> None:
        step = self._step(payload.step, event.at)
        step.add(Reasoning(payload.text, model=step.model))
        self._first_token(payload.step, event.at)
        self._end_thinking(payload.step, event.at)

    def _add_abandoned(self, payload: ev.TextDelta | ev.ReasoningDelta, event: ev.Event) -> None:
        step = self._step(payload.step, event.at)
        is_text = isinstance(payload, ev.TextDelta)
        step.add(Text(payload.text, True) if is_text else Reasoning(payload.text, True))

    def _on_step_abandoned(self, payload: ev.StepAbandoned, event: ev.Event) -> None:
        step = self._step(payload.step, event.at)
        self._close_bar(f"step:{payload.step}", event.at, BarState.ABANDONED)
        if payload.continues:
            _cut(step)
            return
        for index in range(step.first_part_of_attempt, len(step.parts)):
            part = step.parts[index]
            if isinstance(part, (Text, Reasoning)):
                step.parts[index] = msgspec.structs.replace(part, is_abandoned=True)  # guard: c02
        step.first_part_of_attempt = len(step.parts)

    def _on_step_finished(self, payload: ev.StepFinished, event: ev.Event) -> None:
        step = self._step(payload.step, event.at)
        step.finish = payload.finish
        if payload.reasoning:
            _sign(step, payload.reasoning)
        for call in payload.calls:
            step.calls.append(call.id)
            self._calls[call.id] = CallState(call, payload.step, event.at)
        self._close_bar(f"step:{payload.step}", event.at, BarState.DONE, finish=payload.finish)

    def _on_step_usage(self, payload: ev.StepUsage, event: ev.Event) -> None:
        self._usage = self._usage.plus(payload.usage)
        for index in range(len(self._bars) - 1, -1, -1):
            if self._bars[index].step == payload.step and self._bars[index].kind == BarKind.MODEL:
                self._bars[index] = msgspec.structs.replace(
                    self._bars[index], usage=payload.usage, missed_cache=payload.missed_cache
                )
                return

    # --- calls -------------------------------------------------------------------------------------

    def _on_tool_started(self, payload: ev.ToolStarted, event: ev.Event) -> None:
        call = self._calls.get(payload.call_id)
        if call is None:
            return
        call.started_at = event.at
        call.attempt = payload.attempt
        # This run uses them up: if it is cut off too, the user is asked again.
        call.doubt = call.answer = None
        call.printed = Printed()
        bar = Bar(
            BarKind.TOOL,
            payload.label or payload.name,
            event.at,
            state=BarState.RUNNING,
            step=payload.step,
            call_id=payload.call_id,
        )
        self._open_bar(payload.call_id, bar)

    def _on_tool_output(self, payload: ev.ToolOutput, event: ev.Event) -> None:
        call = self._calls.get(payload.call_id)
        if call is not None and call.result is None:
            call.printed.add(payload.text)  # guard: a02

    def _on_tool_finished(self, payload: ev.ToolFinished, event: ev.Event) -> None:
        call = self._calls.get(payload.call_id)
        if call is None or call.result is not None:
            return
        duration = None if call.started_at is None else max(0, event.at - call.started_at)
        call.finished_at = event.at
        call.result = Result(
            call_id=payload.call_id,
            name=payload.name,
            text=payload.text,
            outcome=payload.outcome,
            artifact=payload.artifact,
            display=payload.display,
            duration_ms=duration,
            is_untrusted=payload.is_untrusted,
            arguments=call.edited,
            decision=call.decision,
            decided_in=call.decided_in,
            # A result that was given for a call in doubt is not the call's own, and has none of its output.
            output=call.printed.text if call.doubt or payload.outcome is Outcome.UNKNOWN else None,
            not_kept=payload.not_kept,
        )
        call.printed = Printed()
        states = {Outcome.OK: BarState.DONE, Outcome.UNKNOWN: BarState.UNKNOWN}
        self._close_bar(payload.call_id, event.at, states.get(payload.outcome, BarState.FAILED))

    def _on_approval_requested(self, payload: ev.ApprovalRequested, event: ev.Event) -> None:
        call = self._calls.get(payload.call_id)
        if call is not None:
            call.digest, call.terms = payload.digest, payload.terms
            call.decision = call.edited = None  # an earlier answer was given under other terms
        self._open_bar(
            payload.ask_id,
            Bar(BarKind.WAIT, "Approval", event.at, state=BarState.RUNNING, call_id=payload.call_id),
        )

    def _on_approval_resolved(self, payload: ev.ApprovalResolved, event: ev.Event) -> None:
        call = self._calls.get(payload.call_id)
        if call is not None:
            call.decision = payload.decision
            call.decided_in = platform_of(payload.by)
            call.edited = payload.arguments
        self._close_bar(payload.ask_id, event.at, BarState.DONE)

    def _on_question_asked(self, payload: ev.QuestionAsked, event: ev.Event) -> None:
        # A question about a call is shown with the call, and its text may be long: the first line asks.
        is_on_call = payload.call_id in self._calls
        if payload.files is not None and payload.call_id in self._calls:
            self._calls[payload.call_id].files = payload.files
        bar = Bar(
            BarKind.WAIT,
            "Question",
            event.at,
            state=BarState.RUNNING,
            call_id=payload.call_id,
            question="" if is_on_call else payload.text.partition("\n")[0],
        )
        self._open_bar(payload.ask_id, bar)

    def _on_question_answered(self, payload: ev.QuestionAnswered, event: ev.Event) -> None:
        index = self._open_bars.get(payload.ask_id)
        if index is not None and self._bars[index].question:
            self._bars[index] = msgspec.structs.replace(self._bars[index], answer=payload.answer)
        self._close_bar(payload.ask_id, event.at, BarState.DONE)
        call = self._calls.get(payload.call_id or "")
        if call is None:
            return
        if payload.topic == AskTopic.DOUBT:
            call.doubt = payload.answer
        elif payload.topic in (AskTopic.QUESTION, AskTopic.SIGN_IN):
            call.answer, call.answered = payload.answer, payload.topic

    def _on_delegate_ended(self, payload: ev.DelegateEnded, event: ev.Event) -> None:
        call = self._calls.get(payload.call_id)
        if call is not None:
            call.reports = {**call.reports, payload.delegate_id: payload}

    # --- the turn ----------------------------------------------------------------------------------

    def _on_turn_resumed(self, payload: ev.TurnResumed, event: ev.Event) -> None:
        if payload.reason == ClaimReason.ANSWERED:
            return
        if payload.reason == ClaimReason.MANUAL:
            # It was interrupted while it waited, perhaps before all of them had ended: it waits again.
            for call in self._calls.values():
                call.reports = {}  # guard: e09
        stopped = payload.stopped_at or self._last_at or event.at
        for key in list(self._open_bars):
            is_call = key in self._calls
            self._close_bar(key, stopped, BarState.UNKNOWN if is_call else BarState.ABANDONED)
        self._bars.append(Bar(BarKind.DOWN, payload.reason, stopped, event.at))

    def _on_turn_ended(self, payload: ev.Payload, event: ev.Event) -> None:
        for key in list(self._open_bars):
            self._close_bar(key, event.at, BarState.UNKNOWN if key in self._calls else BarState.ABANDONED)

    def _on_message_added(self, payload: ev.MessageAdded, event: ev.Event) -> None:
        self._items.append(payload.message)

    # --- bars --------------------------------------------------------------------------------------

    def _open_bar(self, key: str, bar: Bar) -> None:
        self._open_bars[key] = len(self._bars)
        self._bars.append(bar)

    def _close_bar(self, key: str, at: int, state: BarState, finish: FinishReason | None = None) -> None:
        index = self._open_bars.pop(key, None)
        if index is not None:
            cut = finish if finish is not None and finish in _CUT_SHORT else ""
            self._bars[index] = msgspec.structs.replace(self._bars[index], end_at=at, state=state, finish=cut)

    def _first_token(self, step: int, at: int) -> None:
        index = self._open_bars.get(f"step:{step}")
        if index is not None and self._bars[index].first_token_at is None:
            self._bars[index] = msgspec.structs.replace(self._bars[index], first_token_at=at)

    def _end_thinking(self, step: int, at: int) -> None:
        index = self._open_bars.get(f"step:{step}")
        if index is not None:
            self._bars[index] = msgspec.structs.replace(self._bars[index], thought_until=at)

    # --- messages ----------------------------------------------------------------------------------

    def _messages(self, is_ended: bool, is_recovered: bool) -> Iterable[Message]:
        ordinal = 1  # 0 is the user's message, written when the turn was accepted
        for item in self._items:
            if isinstance(item, Message):
                yield msgspec.structs.replace(
                    item, id=message_id(self._turn_id, ordinal), turn_id=self._turn_id, ordinal=ordinal
                )
                ordinal += 1
                continue
            for role, parts in self._step_messages(item, is_ended):
                yield Message(
                    id=message_id(self._turn_id, ordinal),
                    turn_id=self._turn_id,
                    role=role,
                    parts=tuple(parts),
                    created_at=item.started_at,
                    ordinal=ordinal,
                    is_recovered=is_recovered,
                    model=item.model,
                )
                ordinal += 1

    def _step_messages(self, step: StepState, is_ended: bool) -> Iterable[tuple[Role, list[AnyPart]]]:
        calls = [self._calls[call_id] for call_id in step.calls]
        said: list[AnyPart] = [*step.parts, *(state.call for state in calls)]
        if said:
            yield Role.ASSISTANT, said
        results: list[AnyPart] = []
        for state in calls:
            if state.result is not None:
                results.append(state.result)
            elif is_ended:  # guard: c11
                results.append(_missing_result(state))
        if results:
            yield Role.TOOL, results


def fold(
    turn_id: str, journal: Iterable[ev.Event], *, is_ended: bool = False, is_recovered: bool = False
) -> Folded:
    """Fold a whole journal, whose events may have been delivered in any order. Linear in its size."""
    return fold_journal(turn_id, journal).result(is_ended=is_ended, is_recovered=is_recovered)


def fold_journal(turn_id: str, journal: Iterable[ev.Event]) -> Fold:
    """A fold that has taken a whole journal, and can take the events that follow it."""
    result = Fold(turn_id)
    for event, is_superseded in in_order(journal):
        result.feed(event, is_superseded=is_superseded)
    return result


def in_order(journal: Iterable[ev.Event], *, claimed_epoch: int = 0) -> Iterator[tuple[ev.Event, bool]]:
    """Yield a turn's events in the order in which they happened, each with whether it is superseded.

    An event is superseded if it was delivered late and a worker of a later epoch continued the turn. A
    worker has continued the turn once the journal holds work of its epoch. A worker that claimed the turn
    in order to run it passes its ``claimed_epoch``: it is about to continue. A worker that took the turn
    only to interrupt it has not continued it, so late events still complete what the journal holds.

    An event that was delivered twice counts once, as the one that came in time.
    """
    by_place = {(e.epoch, e.number): e for e in sorted(journal, key=lambda e: e.is_late, reverse=True)}
    ordered = [by_place[place] for place in sorted(by_place)]
    worked = (e.epoch for e in ordered if e.kind in _WORK and not e.is_late)
    continued_in = max(claimed_epoch, *worked, 0)
    for event in ordered:
        yield event, event.is_late and event.epoch < continued_in


def _cut(step: StepState) -> None:
    """Record where the text stopped and was continued, so that a reload shows the same break."""
    last = step.parts[-1] if len(step.parts) > step.first_part_of_attempt else None
    if isinstance(last, Text) and not last.is_abandoned:
        step.parts[-1] = msgspec.structs.replace(last, cuts=(*last.cuts, len(last.text)))


def _sign(step: StepState, blocks: tuple[Reasoning, ...]) -> None:
    """Put the provider's own reasoning blocks, which it wants back, in place of the streamed text."""
    kept = step.parts[: step.first_part_of_attempt]
    said = [part for part in step.parts[step.first_part_of_attempt :] if not isinstance(part, Reasoning)]
    step.parts[:] = [*kept, *blocks, *said]


def _missing_result(state: CallState) -> Result:
    if state.started_at is None:
        text, outcome = NOT_RUN_TEXT, Outcome.CANCELLED
    else:
        text, outcome = UNKNOWN_TEXT, Outcome.UNKNOWN
    return Result(
        state.call.id,
        state.call.name,
        text,
        outcome,
        arguments=state.edited,
        decision=state.decision,
        decided_in=state.decided_in,
        output=state.printed.text,
    )


_CUT_SHORT = frozenset({FinishReason.LENGTH, FinishReason.FILTERED})
# Events that only a worker that continues the turn writes.
_WORK = frozenset({"step.started", "step.abandoned", "tool.started", "tool.finished"})

# ``Any``: each handler takes the payload of its own kind of event.
_Handler = Callable[[Fold, Any, ev.Event], None]

_HANDLERS: dict[type[ev.Payload], _Handler] = {
    ev.StepStarted: Fold._on_step_started,
    ev.TextDelta: Fold._on_text,
    ev.ReasoningDelta: Fold._on_reasoning,
    ev.StepAbandoned: Fold._on_step_abandoned,
    ev.StepFinished: Fold._on_step_finished,
    ev.StepUsage: Fold._on_step_usage,
    ev.ToolStarted: Fold._on_tool_started,
    ev.ToolOutput: Fold._on_tool_output,
    ev.ToolFinished: Fold._on_tool_finished,
    ev.ApprovalRequested: Fold._on_approval_requested,
    ev.ApprovalResolved: Fold._on_approval_resolved,
    ev.QuestionAsked: Fold._on_question_asked,
    ev.QuestionAnswered: Fold._on_question_answered,
    ev.DelegateEnded: Fold._on_delegate_ended,
    ev.TurnResumed: Fold._on_turn_resumed,
    ev.TurnCompleted: Fold._on_turn_ended,
    ev.TurnCancelled: Fold._on_turn_ended,
    ev.TurnFailed: Fold._on_turn_ended,
    ev.TurnInterrupted: Fold._on_turn_ended,
    ev.MessageAdded: Fold._on_message_added,
}

# What the fold takes in. The other kinds change no message and no bar.
FOLDED_KINDS = frozenset(str(payload.__struct_config__.tag) for payload in _HANDLERS)
