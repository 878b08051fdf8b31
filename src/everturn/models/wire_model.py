"""What the models of both protocols are made of, beside the request itself: see ``wire``."""

from __future__ import annotations

import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import Json
from everturn.domain.model import Abilities
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.turns import FinishReason, Usage
from everturn.models import failures
from everturn.models.history_cache import HistoryCache
from everturn.models.sse import EventTooLong, SseReader
from everturn.models.wire import Price, RequestSender, Target, no_price


class WireModel:
    """One model of a server. Subclasses know its protocol."""

    def __init__(
        self,
        target: Target,
        client: httpx2.AsyncClient,
        clock: Clock,
        price: Price = no_price,
        cache: HistoryCache | None = None,
    ) -> None:
        self._target = target
        self._caller = RequestSender(target, client, clock)
        self._price = price
        self._history_cache = cache or HistoryCache()

    @property
    def name(self) -> str:
        return self._target.name

    @property
    def abilities(self) -> Abilities:
        return self._target.abilities

    async def _price_usage(self, usage: Usage, written_tokens: int = 0) -> Usage:
        """With its cost, unless the server said it, and with what the prompt cache saved. None: not known."""
        cost = await self._price(self._target.model, usage, written_tokens)
        saved: float | None = None
        if cost is not None and (usage.cached_tokens or written_tokens):
            without = msgspec.structs.replace(usage, cached_tokens=0)
            full = await self._price(self._target.model, without, 0)
            saved = None if full is None else full - cost
        known = cost if usage.cost_usd is None else usage.cost_usd
        return msgspec.structs.replace(usage, cost_usd=known, saved_usd=saved)


class AnswerReader:
    """One answer, read event by event. Subclasses assemble it."""

    def __init__(self, caller: RequestSender) -> None:
        self._caller = caller
        self._name = caller.target.name
        self._sse = SseReader()
        self._trouble: ModelTrouble | None = None  # raised after the text before it was yielded
        self.finish: FinishReason | None = None

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that are complete with this piece. Raises ModelDropped for one that has no end."""
        try:
            return self._sse.feed(piece)
        except EventTooLong:
            raise failures.cut(self._name, "an event has no end") from None

    def _note_unreadable(self) -> None:
        self._trouble = failures.cut(self._name, "an event could not be read")

    def _note_error(self, error: Json) -> bool:
        """True if the event reports an error."""
        if error is not None:
            self._trouble = self._caller.trouble(error)
        return error is not None
