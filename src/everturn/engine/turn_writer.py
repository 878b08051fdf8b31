"""Numbers a turn's events and writes them to the journal in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from everturn.domain import events as ev
from everturn.domain.clock import Clock
from everturn.domain.errors import Retry, Stopped
from everturn.domain.events import Payload
from everturn.domain.store import Journal
from everturn.domain.turns import WriterPosition

_EVENT_BYTES = 100  # what an event weighs beside its text, for the bound


class WriterClosed(Stopped):
    """The turn's writer has ended and writes nothing more."""

    code = "writer_closed"


class WriterLimits(msgspec.Struct, frozen=True):
    outstanding_bytes_max: int  # offered and not in the journal yet; with more, callers wait
    retry_s: float  # between two attempts while the store cannot take a batch


class TurnWriter:
    """The one writer of a running turn.

    At most one batch is under way. What is offered meanwhile waits, and adjacent deltas of one kind are
    merged into one event before they get a number. A batch that is sent again keeps its numbers, so an answer
    that was lost on the way adds nothing twice.

    ``run`` must be running for anything to be written. While the store cannot take a batch (``Retry``: it
    is away, its disk is full) the batch is sent again and again, and callers that offer more wait. When it is
    refused for good (``Fenced``, a broken store), ``run`` calls ``on_failure`` and returns, and every later
    ``offer``, ``append`` and ``quiet`` raises that error.
    """

    def __init__(
        self,
        journal: Journal,
        position: WriterPosition,
        *,
        clock: Clock,
        limits: WriterLimits,
        on_failure: Callable[[], None],
        on_durable: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._turn_id = position.turn_id
        self._epoch = position.epoch
        self._number = position.number  # the last number that was given
        self._clock = clock
        self._bytes_max = limits.outstanding_bytes_max
        self._retry_s = limits.retry_s
        self._on_failure = on_failure
        self._on_durable = on_durable
        self._waiting: list[Payload] = []
        self._tail: list[str] = []  # pieces of the delta that waits last
        self._tail_kind: type[ev.TextDelta] | type[ev.ReasoningDelta] | None = None
        self._tail_step = 0
        self._bytes = 0
        self._is_busy = False  # something waits or is under way
        self._failure: Exception | None = None
        # One event per state instead of a future per delta: streaming creates nothing per token here.
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_quiet = asyncio.Event()
        self._has_room.set()
        self._is_quiet.set()

    @property
    def number(self) -> int:
        """The number of the last event. Only meaningful when quiet."""
        return self._number

    def skip_to(self, number: int) -> None:
        """Continue after events that the store itself has numbered. Only when quiet."""
        self._number = number

    @property
    def is_full(self) -> bool:
        """True if an offer would have to wait for the store."""
        return not self._has_room.is_set()

    async def offer_text(self, step: int, text: str) -> None:
        """Queue a piece of text. Waits only while the queue is full."""
        self._offer_delta(ev.TextDelta, step, text)
        if not self._has_room.is_set():
            await self._room()

    async def offer_reasoning(self, step: int, text: str) -> None:
        self._offer_delta(ev.ReasoningDelta, step, text)
        if not self._has_room.is_set():
            await self._room()

    async def offer(self, payload: Payload) -> None:
        """Queue one event. Waits only while the queue is full."""
        self._offer(payload)
        if not self._has_room.is_set():
            await self._room()

    async def append(self, *payloads: Payload) -> None:
        """Write these events and all before them, and wait until they are in the journal."""
        for payload in payloads:
            self._offer(payload)
        await self.quiet()

    async def quiet(self) -> None:
        """Wait until everything offered so far is in the journal. Raises what stopped the writer.

        While the database is away, events are durable only in the spool. A caller that is about to act on
        them waits here until they are delivered. Raises Fenced if another worker has the turn.
        """
        await self._is_quiet.wait()
        self._raise_failure()
        await self._journal.wait_delivered(self._turn_id, self._epoch)

    async def retry(self, write: Callable[[WriterPosition], Awaitable[None]]) -> None:
        """Have the store write what follows the last event, again and again while it cannot. Only when quiet;
        ``write`` must change nothing if it is repeated."""
        while True:
            try:
                await write(WriterPosition(self._turn_id, self._epoch, self._number))
                break
            except Retry:
                await self._clock.sleep(self._retry_s)
        self._on_durable()

    @property
    def failure(self) -> Exception | None:
        """The error that stopped the writer, if one did."""
        return self._failure

    async def run(self) -> None:
        """Write until cancelled. If cancelled, a batch under way is either wholly written or not."""
        try:
            while True:
                await self._has_work.wait()
                await self._send(self._take_batch())
                if not self._waiting and self._tail_kind is None:
                    self._is_busy = False
                    self._has_work.clear()
                    self._is_quiet.set()
        except Exception as error:
            self._failure = error
            self._on_failure()
        finally:
            # Wake the callers that wait, or they would wait forever.
            self._failure = self._failure or WriterClosed(f"The writer of turn {self._turn_id} has ended.")
            self._is_quiet.set()
            self._has_room.set()

    def _offer(self, payload: Payload) -> None:
        self._raise_failure()
        self._close_tail()
        self._waiting.append(payload)
        text = getattr(payload, "text", "")
        self._count_waiting(len(text))

    def _offer_delta(self, kind: type[ev.TextDelta] | type[ev.ReasoningDelta], step: int, text: str) -> None:
        if self._failure is not None:
            self._raise_failure()
        if kind is not self._tail_kind or step != self._tail_step:
            self._close_tail()
            self._tail_kind = kind
            self._tail_step = step
        self._tail.append(text)
        self._count_waiting(len(text))

    def _count_waiting(self, size: int) -> None:
        self._bytes += size + _EVENT_BYTES
        if self._bytes > self._bytes_max:
            self._has_room.clear()
        if not self._is_busy:
            self._is_busy = True
            self._is_quiet.clear()
            self._has_work.set()

    def _close_tail(self) -> None:
        if self._tail_kind is not None:
            self._waiting.append(self._tail_kind(self._tail_step, "".join(self._tail)))
            self._tail_kind = None
            self._tail = []

    def _take_batch(self) -> list[Payload]:
        self._close_tail()
        batch, self._waiting = self._waiting, []
        self._bytes = 0
        self._has_room.set()
        return batch

    async def _send(self, batch: list[Payload]) -> None:
        first = self._number + 1
        # Number the events before sending: a batch whose outcome is unknown must keep its numbers.
        self._number += len(batch)
        while True:
            try:
                await self._journal.append(self._turn_id, self._epoch, first, batch)
            except Retry:
                await self._clock.sleep(self._retry_s)
            else:
                break
        self._on_durable()

    async def _room(self) -> None:
        await self._has_room.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
