"""The spans of a turn, from its journal: what each worker did, and when.

Pure: the same journal gives the same spans with the same ids. No text of a message, no argument and no result
is in a span.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain import events as ev
from everturn.domain.events import Event
from everturn.domain.messages import Outcome
from everturn.domain.sessions import Session
from everturn.domain.turns import Turn, Usage
from everturn.tracing.ids import span_id

Attribute = str | int | bool
ROOT = "turn"  # the name that the root's id is computed from
LOST = "worker lost"
HANDED_OVER = "handed over"


class Span(msgspec.Struct, frozen=True):
    """A finished span. ``key`` is unique in its turn; ``parent`` is the key of its parent, None for the root.
    Times are milliseconds since 1970. ``error`` empty: it went well."""

    turn_id: str
    key: str
    name: str
    start_ms: float
    end_ms: float
    parent: str | None = ROOT
    attributes: dict[str, Attribute] = {}
    error: str = ""
    first_token_ms: float | None = None
    is_outgoing: bool = False  # a call of another service

    @property
    def id(self) -> int:
        return span_id(self.turn_id, self.key)

    @property
    def parent_id(self) -> int | None:
        return None if self.parent is None else span_id(self.turn_id, self.parent)


def spans_of(session: Session, turn: Turn, journal: Sequence[Event]) -> list[Span]:
    """The spans since the turn was accepted or, if it was interrupted and resumed, since it was resumed."""
    return _Reader(session, turn).read(_newest_life(journal))


def _newest_life(journal: Sequence[Event]) -> Sequence[Event]:
    """What came before an interruption was sent when the turn was interrupted."""
    ends = [place for place, event in enumerate(journal) if event.kind == "turn.interrupted"]
    earlier = [place for place in ends if place < len(journal) - 1]
    return journal[earlier[-1] + 1 :] if earlier else journal


class _Open(msgspec.Struct):
    """A span that has begun."""

    key: str
    name: str
    start_ms: int
    parent: str
    attributes: dict[str, Attribute]
    first_token_ms: int | None = None


class _Reader:
    """Reads one journal from its beginning."""

    def __init__(self, session: Session, turn: Turn) -> None:
        self._session = session
        self._turn = turn
        self._spans: list[Span] = []
        self._open: dict[str, _Open] = {}  # by what ends them: "run", "wait", "model", "call_1"
        self._top = ROOT
        self._accepted_at = turn.created_at
        self._last_at = turn.created_at

    def read(self, journal: Sequence[Event]) -> list[Span]:
        for event in journal:
            self._read(event)
            self._last_at = max(self._last_at, event.at)
        end_ms = max(self._turn.ended_at or self._last_at, self._last_at)
        for what in list(self._open):
            self._end(what, end_ms, error="" if what == "run" else str(self._turn.state))
        self._add_top(journal, end_ms)
        return self._spans

    def _read(self, event: Event) -> None:
        match event.payload:
            case ev.TurnStarted(epoch, worker):
                self._spans.append(self._span("queue", "queue", self._accepted_at, event.at))
                self._begin_run(event.at, epoch, worker, "new")
            case ev.TurnResumed() as resumed:
                self._resume(event.at, resumed)
            case ev.TurnWaiting(asks):
                self._end("run", event.at)
                self._begin("wait", f"wait {event.epoch}", "wait", event.at, {"everturn.asks": len(asks)})
            case ev.StepStarted() as started:
                self._begin_step(event, started)
            case ev.TextDelta() | ev.ReasoningDelta():
                if (step := self._open.get("model")) is not None and step.first_token_ms is None:
                    step.first_token_ms = event.at
            case ev.StepUsage(usage=usage):
                self._add_usage(usage)
            case ev.StepFinished(finish=finish):
                self._end("model", event.at, {"gen_ai.response.finish_reasons": str(finish)})
            case ev.StepAbandoned(reason=reason):
                self._end("model", event.at, error=reason)
            case ev.ToolStarted() as started:
                self._begin_tool(event, started)
            case ev.ToolFinished(call_id, _, outcome):
                self._end(call_id, event.at, error="" if outcome is Outcome.OK else str(outcome))

    def _resume(self, at: int, resumed: ev.TurnResumed) -> None:
        if "run" in self._open:  # no worker said that it leaves: it died, or it handed the turn over
            stopped_at = min(max(resumed.stopped_at or self._last_at, self._last_at), at)
            error = LOST if resumed.reason == "crash" else ""
            self._end("run", stopped_at, error=error)
            for what in list(self._open):
                self._end(what, stopped_at, error=error or HANDED_OVER)
        self._end("wait", at)
        if not self._spans:  # the turn was interrupted before: this trace continues that one
            self._top, self._accepted_at = f"resumed {resumed.epoch}", at
        self._begin_run(at, resumed.epoch, resumed.worker, str(resumed.reason))

    def _begin_run(self, at: int, epoch: int, worker: str, reason: str) -> None:
        attributes: dict[str, Attribute] = {
            "everturn.worker": worker,
            "everturn.epoch": epoch,
            "everturn.reason": reason,
        }
        self._begin("run", f"run {epoch}", "run", at, attributes)

    def _begin_step(self, event: Event, started: ev.StepStarted) -> None:
        provider, _, model = started.model.partition(":")
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "everturn.step": started.step,
            "everturn.attempt": started.attempt,
        }
        self._end("model", event.at, error="superseded")
        key = f"model {event.epoch} {event.number}"
        self._begin("model", key, f"chat {started.model}", event.at, attributes, self._parent())

    def _add_usage(self, usage: Usage) -> None:
        """Usage follows the end of its step in the journal, so it belongs to the span that ended last."""
        if self._spans and self._spans[-1].key.startswith("model "):
            self._spans[-1].attributes.update(_tokens(usage))

    def _begin_tool(self, event: Event, started: ev.ToolStarted) -> None:
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": started.name,
            "gen_ai.tool.call.id": started.call_id,
            "everturn.step": started.step,
            "everturn.attempt": started.attempt,
        }
        key = f"tool {event.epoch} {event.number}"
        name = f"execute_tool {started.name}"
        self._begin(started.call_id, key, name, event.at, attributes, self._parent())

    def _parent(self) -> str:
        run = self._open.get("run")
        return run.key if run is not None else self._top

    def _begin(
        self,
        what: str,
        key: str,
        name: str,
        at: int,
        attributes: dict[str, Attribute],
        parent: str | None = None,
    ) -> None:
        self._open[what] = _Open(key, name, at, parent or self._top, attributes)

    def _end(self, what: str, at: int, more: dict[str, Attribute] | None = None, *, error: str = "") -> None:
        opened = self._open.pop(what, None)
        if opened is not None:
            span = self._span(opened.key, opened.name, opened.start_ms, at, opened.parent)
            attributes = opened.attributes | (more or {})
            self._spans.append(
                msgspec.structs.replace(
                    span,
                    attributes=attributes,
                    error=error,
                    first_token_ms=opened.first_token_ms,
                    is_outgoing=what == "model",
                )
            )

    def _span(self, key: str, name: str, start_ms: int, end_ms: int, parent: str | None = None) -> Span:
        return Span(self._turn.id, key, name, start_ms, max(start_ms, end_ms), parent or self._top)

    def _add_top(self, journal: Sequence[Event], end_ms: int) -> None:
        turn = self._turn
        is_root = self._top == ROOT
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": turn.profile or self._session.profile or "default",
            "gen_ai.conversation.id": turn.session_id,
            "everturn.turn.id": turn.id,
            "everturn.turn.kind": str(turn.kind),
            "everturn.turn.state": str(turn.state),
            **_tokens(turn.usage),
        }
        error = "" if turn.failure is None else turn.failure.code
        parent = None if is_root else ROOT
        name = "turn" if is_root else "turn resumed"
        start_ms = self._accepted_at
        self._spans.append(Span(turn.id, self._top, name, start_ms, end_ms, parent, attributes, error))


def _tokens(usage: Usage) -> dict[str, Attribute]:
    counts = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}
