"""What a model can do: asked of its server, looked up in the price list, or guessed from its provider."""

from __future__ import annotations

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.model import Abilities
from everturn.domain.parameters import Effort
from everturn.models.discovery import Discovery
from everturn.models.guesses import guess, with_efforts
from everturn.models.model_lists import ModelLists
from everturn.models.prices import PriceFacts, Prices
from everturn.models.providers import DISCOVERED, Provider
from everturn.models.settings import ModelSettings

_AGE_MAX_S = 60.0
_TIMEOUT_S = 1.0  # a turn waits for it


class _Known(msgspec.Struct, frozen=True):
    abilities: Abilities
    until: float


class KnownAbilities:
    """Abilities by model name, each asked for at most once a minute."""

    def __init__(self, discovery: Discovery, lists: ModelLists, prices: Prices, clock: Clock) -> None:
        self._discovery = discovery
        self._lists = lists
        self._prices = prices
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def get(self, provider: Provider, model: str, settings: ModelSettings) -> Abilities:
        """The abilities of a model; what the settings say wins."""
        known = await self._find(provider, model)
        given = {
            field: value
            for field in known.__struct_fields__
            if (value := getattr(settings, field, None)) is not None
        }
        if settings.efforts is not None:
            given["efforts"] = tuple(map(Effort, settings.efforts))
            given["reasoning"] = bool(settings.efforts) if settings.reasoning is None else settings.reasoning
        if provider.wire == "anthropic" and settings.reasoning:
            given["continues"] = False  # thinking and continuing a prefix exclude each other
        return msgspec.structs.replace(known, **given)

    def forget(self, provider_name: str) -> None:
        for name in [one for one in self._known if one.startswith(f"{provider_name}:")]:
            del self._known[name]

    async def _find(self, provider: Provider, model: str) -> Abilities:
        name = f"{provider.name}:{model}"
        cached = self._known.get(name)
        if cached is not None and cached.until > self._clock.monotonic():
            return cached.abilities
        asked = await self._ask(provider, model)
        abilities = with_efforts(provider, model, asked) if asked else await self._guess(provider, model)
        self._known[name] = _Known(abilities, self._clock.monotonic() + _AGE_MAX_S)
        return abilities

    async def _ask(self, provider: Provider, model: str) -> Abilities | None:
        if provider.name in DISCOVERED:
            return await self._discovery.abilities(provider.name, model)
        if provider.says_abilities:
            entries = await self._lists.entries(provider, _TIMEOUT_S)
            return next((entry.abilities(provider) for entry in entries if entry.id == model), None)
        return None

    async def _guess(self, provider: Provider, model: str) -> Abilities:
        facts = PriceFacts() if provider.is_local else await self._prices.facts(provider.base_url, model)
        return guess(provider, model, facts)
