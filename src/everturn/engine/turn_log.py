"""A running turn's journal as its worker sees it: events count once they are durable."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.domain import events as ev
from everturn.domain.budgets import Budgets, Settled
from everturn.domain.clock import Clock
from everturn.domain.fold import Fold, Folded, in_order
from everturn.domain.messages import Message
from everturn.domain.store_values import Claim
from everturn.engine.progress import TurnProgress
from everturn.engine.turn_writer import TurnWriter


class TurnLog:
    """Writes a turn's events and feeds them to its fold and its progress.

    Both begin with the events of the claim's journal.
    """

    def __init__(self, claim: Claim, writer: TurnWriter, clock: Clock) -> None:
        self.writer = writer
        self._clock = clock
        self._fold = Fold(claim.turn.id)
        self.progress = TurnProgress()
        self._opened_at = self.last_sign_at = clock.monotonic()
        self._opened_ms = clock.now_ms()
        for event, is_superseded in in_order(claim.journal, claimed_epoch=claim.epoch):
            self._fold.feed(event, is_superseded=is_superseded)
            payload = event.payload
            if not is_superseded and not isinstance(payload, ev.Unknown):
                self.progress.take(payload, event.at)
        # The claim is the newest event. Use its time: the wall clock may have been set since.
        self._opened_ms = self.progress.works_since or self._opened_ms

    def now_ms(self) -> int:
        """The time by which a turn's work is measured: the wall clock at the claim, and the monotonic clock
        since then. Setting the wall clock neither uses up minutes nor ages the turn."""
        return self._opened_ms + round((self._clock.monotonic() - self._opened_at) * 1000)

    async def append(self, *payloads: ev.Payload) -> None:
        """Make these events, and all before them, durable; then they count."""
        await self.writer.append(*payloads)
        for payload in payloads:
            self._take(payload)

    async def append_settled(
        self, budgets: Budgets, settled: Sequence[Settled], *payloads: ev.Payload
    ) -> None:
        """Like ``append``, in one transaction with what the budgets count."""
        await self.writer.quiet()
        await self.writer.retry(lambda at: budgets.append_settled(at, settled, payloads))
        self.writer.skip_to(self.writer.number + len(payloads))
        for payload in payloads:
            self._take(payload)

    async def offer(self, payload: ev.Payload) -> None:
        """Write an event without waiting until it is durable, where nothing depends on it yet."""
        await self.writer.offer(payload)
        self._take(payload)

    # The progress counts no deltas.

    async def offer_text(self, step: int, text: str) -> None:
        await self.writer.offer_text(step, text)
        self._fold.take_text(step, text, self._clock.now_ms())
        self.last_sign_at = self._clock.monotonic()

    async def offer_reasoning(self, step: int, text: str) -> None:
        await self.writer.offer_reasoning(step, text)
        self._fold.take(ev.ReasoningDelta(step, text), self._clock.now_ms())
        self.last_sign_at = self._clock.monotonic()

    def add_steering(self, messages: list[Message]) -> None:
        """Add steering messages that the store has written to the journal."""
        self.writer.skip_to(self.writer.number + len(messages))
        for message in messages:
            self._take(ev.MessageAdded(message))

    def fold(self, *, is_ended: bool = False) -> Folded:
        return self._fold.result(is_ended=is_ended)

    def _take(self, payload: ev.Payload) -> None:
        at = self._clock.now_ms()
        self._fold.take(payload, at)
        self.progress.take(payload, self.now_ms())
        self.last_sign_at = self._clock.monotonic()
