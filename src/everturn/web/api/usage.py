"""Tokens and money, by model."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain.clock import Clock
from everturn.domain.model import Models
from everturn.domain.store import Upkeep
from everturn.domain.turns import Usage
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_DAY_MS = 86_400_000


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    days: Annotated[int, Meta(ge=1, le=3650)] = 30


class UsageLine(msgspec.Struct, frozen=True):
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    saved_usd: float | None = None  # by the prompt cache


class UsageReport(msgspec.Struct, frozen=True):
    days: int
    total: UsageLine
    models: dict[str, UsageLine]


class UsageApi:
    """``models``: the default one counts for turns that name none."""

    def __init__(self, upkeep: Upkeep, models: Models, clock: Clock) -> None:
        self._upkeep = upkeep
        self._models = models
        self._clock = clock

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/usage",
                run=self.usage,
                summary="Tokens and money of the last days, by model.",
                tag="settings",
                query=UsageQuery,
                answer=UsageReport,
            ),
        ]

    async def usage(self, call: ApiCall[UsageQuery, Nothing]) -> UsageReport:
        since = self._clock.now_ms() - call.query.days * _DAY_MS
        by_model: dict[str, list[Spent]] = {}
        for entry in await self._upkeep.usage(call.owner, since):
            model = entry.model or self._models.default
            by_model.setdefault(model, []).append((entry.usage, entry.purpose == "turn"))
        lines = {model: _line(spent) for model, spent in sorted(by_model.items())}
        return UsageReport(call.query.days, _line([one for all_ in by_model.values() for one in all_]), lines)


Spent = tuple[Usage, bool]  # and whether it was a turn: memory is extracted beside turns


def _line(spent: list[Spent]) -> UsageLine:
    total = Usage()
    for usage, _ in spent:
        total = total.plus(usage)
    return UsageLine(
        sum(is_turn for _, is_turn in spent),
        total.input_tokens or 0,
        total.output_tokens or 0,
        total.cached_tokens or 0,
        total.cost_usd,
        total.saved_usd,
    )
