"""Reads the journal of a run of Hermes WebUI as events of a turn, so that the ordinary fold recovers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from everturn.domain import events as ev
from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Call, Outcome
from everturn.domain.turns import FinishReason
from everturn.importers import texts

_BYTES_MAX: Final = 200_000_000
_NO_OUTPUT: Final = "The journal does not hold its output."

Timed = tuple[ev.Payload, int]


def read_journal(path: Path, at: int) -> tuple[tuple[Timed, ...], int]:
    """The events, and how many lines are damaged: a line that was cut off swallows the one after it."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _BYTES_MAX:
        return (), 0
    run = _Run(at)
    events: list[Timed] = []
    damaged = 0
    for line in path.read_bytes().splitlines():
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            damaged += 1
            continue
        if isinstance(entry, dict):
            events += run.take(entry)
    return tuple(events), damaged


class _Run:
    """Hermes says when a tool starts and ends, but not where a model call does: text after a tool begins the
    next one."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._step = 0
        self._is_open = False
        self._calls = 0
        self._running: list[Call] = []

    def take(self, entry: JsonObject) -> Iterator[Timed]:
        self._at = max(self._at, texts.ms_of(entry.get("created_at"), self._at))
        payload = entry.get("payload")
        payload = payload if isinstance(payload, dict) else {}
        kind = entry.get("event") or entry.get("type")
        if kind in ("token", "reasoning"):
            text = payload.get("text") or payload.get("delta")
            if isinstance(text, str) and text:
                yield from self._say(texts.plain(text), is_reasoning=kind == "reasoning")
        elif kind == "tool":
            yield from self._start(payload)
        elif kind == "tool_complete":
            yield from self._finish(payload)

    def _say(self, text: str, *, is_reasoning: bool) -> Iterator[Timed]:
        yield from self._open()
        make = ev.ReasoningDelta if is_reasoning else ev.TextDelta
        yield make(self._step, text), self._at

    def _open(self) -> Iterator[Timed]:
        if not self._is_open:
            self._step += 1
            self._is_open = True
            yield ev.StepStarted(self._step, ""), self._at

    def _start(self, payload: JsonObject) -> Iterator[Timed]:
        yield from self._open()
        self._is_open = False
        self._calls += 1
        name = str(payload.get("name") or "tool")
        arguments = msgspec.json.encode(payload.get("args") or {}).decode()
        call = Call(f"run-{self._calls}", name, arguments)
        self._running.append(call)
        yield ev.StepFinished(self._step, FinishReason.CALLS, (call,)), self._at
        label = str(payload.get("preview") or name)
        yield ev.ToolStarted(self._step, call.id, name, arguments, label), self._at

    def _finish(self, payload: JsonObject) -> Iterator[Timed]:
        """The oldest call of that name: the journal names no ids."""
        name = payload.get("name")
        call = next((one for one in self._running if one.name == name), None)
        if call is None:
            return
        self._running.remove(call)
        outcome = Outcome.ERROR if payload.get("is_error") is True else Outcome.OK
        given = payload.get("result") or payload.get("snippet")
        text = texts.plain(given) if isinstance(given, str) else _NO_OUTPUT
        yield ev.ToolFinished(call.id, call.name, outcome, text, is_untrusted=True), self._at
