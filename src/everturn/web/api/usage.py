"""Tokens and money, by model."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain.clock import Clock
from everturn.domain.model import Models
from everturn.domain.store import Upkeep
from everturn.domain.timezones import find_zone
from everturn.domain.turns import Usage
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_DAY_MS = 86_400_000


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``timezone``: in which days begin."""

    days: Annotated[int, Meta(ge=1, le=3650)] = 30
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"


class UsageLine(msgspec.Struct, frozen=True):
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    saved_usd: float | None = None  # by the prompt cache


class UsageDay(msgspec.Struct, frozen=True):
    """``day``: as 2026-03-14."""

    day: str
    models: dict[str, UsageLine]


class UsageReport(msgspec.Struct, frozen=True):
    """``by_day``: the days on which something was used, oldest first."""

    days: int
    total: UsageLine
    models: dict[str, UsageLine]
    by_day: tuple[UsageDay, ...]


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
                summary="Tokens and money of the last days, by model and by day.",
                tag="settings",
                query=UsageQuery,
                answer=UsageReport,
            ),
        ]

    async def usage(self, call: ApiCall[UsageQuery, Nothing]) -> UsageReport:
        zone = find_zone(call.query.timezone)
        since = self._clock.now_ms() - call.query.days * _DAY_MS
        by_day: dict[str, ByModel] = {}
        by_model: ByModel = {}
        for entry in await self._upkeep.usage(call.owner, since):
            model = entry.model or self._models.default
            spent = (entry.usage, entry.purpose == "turn")
            by_model.setdefault(model, []).append(spent)
            day = datetime.fromtimestamp(entry.at / 1000, zone).date().isoformat()
            by_day.setdefault(day, {}).setdefault(model, []).append(spent)
        return UsageReport(
            call.query.days,
            _line([one for all_ in by_model.values() for one in all_]),
            _lines(by_model),
            tuple(UsageDay(day, _lines(spent)) for day, spent in sorted(by_day.items())),
        )


Spent = tuple[Usage, bool]  # and whether it was a turn: memory is extracted beside turns
ByModel = dict[str, list[Spent]]


def _lines(by_model: ByModel) -> dict[str, UsageLine]:
    return {model: _line(spent) for model, spent in sorted(by_model.items())}


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
