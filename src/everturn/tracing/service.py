"""Gathers what there is to trace and sends it in the background, so that no turn waits for a collector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import anyio.to_thread
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, Gone, NotFound
from everturn.domain.store import Store
from everturn.domain.turn_traces import SentPart, TurnTraces
from everturn.domain.turns import ENDED, Turn
from everturn.tracing.otlp import OtlpExporter
from everturn.tracing.settings import TraceSettings
from everturn.tracing.spans import Attribute, Span, spans_of

_log = logging.getLogger("everturn.traces")


class Exporter(Protocol):
    def export(self, spans: Sequence[Span]) -> bool:
        """Send the spans; blocks. True if they were taken."""
        ...

    def close(self) -> None: ...


@asynccontextmanager
async def open_traces(settings: TraceSettings, store: Store, clock: Clock) -> AsyncIterator[TurnTraces]:
    """Traces as the settings say, sent while this is entered. Raises Invalid if the extra is missing.

    Enter it before the engine: what the engine's last turns leave is sent when this is left.
    """
    if not settings.endpoint:
        yield TurnTraces()
        return
    exporter = await anyio.to_thread.run_sync(OtlpExporter, settings)
    traces = JournalTraces(settings, store, clock, exporter)
    sending = asyncio.create_task(traces.run(), name="traces")
    try:
        yield traces
    finally:
        traces.stop()
        with anyio.move_on_after(settings.stop_s, shield=True):
            await asyncio.wait([sending])
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        exporter.close()


class JournalTraces(TurnTraces):
    """Reads the journals of turns that have ended and sends their spans, with those that it was told."""

    def __init__(self, settings: TraceSettings, store: Store, clock: Clock, exporter: Exporter) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._exporter = exporter
        self._left: dict[str, str] = {}  # turns to look at, and their owners
        self._told: list[Span] = []
        self._dropped = 0
        self._has_some = anyio.Event()
        self._trouble = ""
        self._pause = anyio.CancelScope()  # of the time in which spans are gathered
        self._is_stopping = False

    def turn_accepted(self, turn: Turn, took_s: float) -> None:
        self._tell(self._span(turn.id, "accept", "accept", took_s))

    def turn_left(self, owner: str, turn_id: str) -> None:
        if self._has_room():
            self._left[turn_id] = owner
            self._has_some.set()

    def part_sent(self, part: SentPart, took_s: float) -> None:
        attributes: dict[str, Attribute] = {
            "everturn.account": part.account,
            "everturn.part": part.part_id,
            "everturn.attempt": part.attempt,
        }
        key = f"deliver {part.part_id} {part.attempt}"
        span = self._span(part.turn_id, key, f"deliver {part.platform}", took_s)
        self._tell(msgspec.structs.replace(span, attributes=attributes, error=part.error, is_outgoing=True))

    def _span(self, turn_id: str, key: str, name: str, took_s: float) -> Span:
        end_ms = self._clock.now_ms()
        return Span(turn_id, key, name, end_ms - took_s * 1000, end_ms)

    def _tell(self, span: Span) -> None:
        if self._has_room():
            self._told.append(span)
            self._has_some.set()

    def _has_room(self) -> bool:
        has_room = len(self._told) + len(self._left) < self._settings.waiting_max
        self._dropped += not has_room
        return has_room

    async def run(self) -> None:
        """Send until ``stop`` was called and nothing is left."""
        while not self._is_stopping or self._left or self._told:
            await self._has_some.wait()
            if not self._is_stopping:
                with anyio.CancelScope() as self._pause:
                    await self._clock.sleep(self._settings.batch_s)
            await self._send()

    def stop(self) -> None:
        """Send what is left without waiting for more."""
        self._is_stopping = True
        self._has_some.set()
        self._pause.cancel()

    async def _send(self) -> None:
        left, spans = self._left, self._told
        self._left, self._told, self._has_some = {}, [], anyio.Event()
        try:
            for turn_id, owner in left.items():
                spans += await self._of_turn(owner, turn_id)
            taken = not spans or await anyio.to_thread.run_sync(
                self._exporter.export, spans, abandon_on_cancel=True
            )
            trouble = "" if taken else "the collector did not take them"
        except EverturnError as error:
            trouble = error.message
        except Exception as error:  # of the exporter's own code: traces must never end the server
            trouble = f"{type(error).__name__}: {error}"
        self._report(trouble, len(spans))

    async def _of_turn(self, owner: str, turn_id: str) -> list[Span]:
        """The turn's spans if it has ended; otherwise the worker that runs it next sends them."""
        try:
            turn = await self._store.turns.get(owner, turn_id)
            if turn.state not in ENDED:
                return []
            session = await self._store.sessions.get(owner, turn.session_id)
            return spans_of(session, turn, await self._store.journal.of_turn(owner, turn_id))
        except (NotFound, Gone):
            return []  # it was deleted meanwhile, and so it should be

    def _report(self, trouble: str, count: int) -> None:
        """Log each trouble once, and that it is over."""
        if trouble and trouble != self._trouble:
            _log.warning("%d spans were not sent to %s: %s", count, self._settings.endpoint, trouble)
        elif self._trouble and not trouble:
            _log.info("traces are sent to %s again", self._settings.endpoint)
        if self._dropped:
            _log.warning("%d entries of traces were dropped: too many were waiting", self._dropped)
            self._dropped = 0
        self._trouble = trouble
