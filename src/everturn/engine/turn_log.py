"""A running turn's journal as its worker sees it: durable first, then known."""

from __future__ import annotations

from everturn.domain import events as ev
from everturn.domain.clock import Clock
from everturn.domain.fold import Fold, Folded
from everturn.domain.messages import Message
from everturn.domain.storing import Claim
from everturn.engine.facts import Facts
from everturn.engine.turn_writer import TurnWriter


class TurnLog:
    """Feeds what is written to the fold and the facts, beginning with what the claim's journal holds.

    Pieces of text are gathered and fed as one, which gives the same fold: the cost of a delta does not
    grow with the text before it.
    """

    def __init__(self, claim: Claim, writer: TurnWriter, clock: Clock) -> None:
        self.writer = writer
        self._clock = clock
        self._fold = Fold(claim.turn.id)
        self.facts = Facts()
        self._pieces: list[str] = []
        self._pieces_of: tuple[bool, int] | None = None
        self.last_sign_at = clock.monotonic()
        for event in sorted(claim.journal, key=lambda event: (event.epoch, event.number)):
            is_superseded = event.is_late and event.epoch < claim.epoch
            self._fold.feed(event, is_superseded=is_superseded)
            if not is_superseded:
                self.facts.take(event.payload, event.at)

    async def append(self, *payloads: ev.Payload) -> None:
        """Make these events, and all before them, durable; then they count."""
        await self.writer.append(*payloads)
        for payload in payloads:
            self._take(payload)

    async def offer(self, payload: ev.Payload) -> None:
        """Hand over an event that nothing depends on yet."""
        await self.writer.offer(payload)
        self._take(payload)

    async def offer_text(self, step: int, text: str) -> None:
        await self.writer.offer_text(step, text)
        self._take_piece(True, step, text)

    async def offer_reasoning(self, step: int, text: str) -> None:
        await self.writer.offer_reasoning(step, text)
        self._take_piece(False, step, text)

    def joined(self, messages: list[Message]) -> None:
        """Take in steering messages that the store has journaled."""
        self.writer.skip_to(self.writer.number + len(messages))
        for message in messages:
            self._take(ev.MessageAdded(message))

    def folded(self, *, is_ended: bool = False) -> Folded:
        self._feed_pieces()
        return self._fold.result(is_ended=is_ended)

    def _take(self, payload: ev.Payload) -> None:
        self._feed_pieces()
        at = self._clock.now_ms()
        self._fold.take(payload, at)
        self.facts.take(payload, at)
        self.last_sign_at = self._clock.monotonic()

    def _take_piece(self, is_text: bool, step: int, text: str) -> None:
        self.last_sign_at = self._clock.monotonic()
        if self._pieces_of == (is_text, step):
            self._pieces.append(text)
            return
        self._feed_pieces()
        # The first piece is fed at once: its time is the time of the first token.
        self._fold.take(_delta(is_text, step, text), self._clock.now_ms())
        self._pieces_of = (is_text, step)

    def _feed_pieces(self) -> None:
        if self._pieces_of is not None and self._pieces:
            self._fold.take(_delta(*self._pieces_of, "".join(self._pieces)), self._clock.now_ms())
        self._pieces = []
        self._pieces_of = None


def _delta(is_text: bool, step: int, text: str) -> ev.Payload:
    return ev.TextDelta(step, text) if is_text else ev.ReasoningDelta(step, text)
