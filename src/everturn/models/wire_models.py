"""Makes the models of providers that are reached over HTTP."""

from __future__ import annotations

from everturn.domain.clock import Clock
from everturn.domain.model import Abilities, Model
from everturn.domain.secrets import Secret
from everturn.domain.turns import Usage
from everturn.models.anthropic_wire import AnthropicModel
from everturn.models.clients import HttpClients
from everturn.models.gemini_wire import GeminiModel
from everturn.models.history_cache import HistoryCache
from everturn.models.openai_wire import OpenAIModel
from everturn.models.prices import Prices
from everturn.models.providers import Provider
from everturn.models.refusals import Refusals
from everturn.models.responses_wire import ResponsesModel
from everturn.models.settings import ModelSettings
from everturn.models.small_models import TextCalls
from everturn.models.wire import Target


class WireModels:
    def __init__(self, clients: HttpClients, prices: Prices, clock: Clock) -> None:
        self._clients = clients
        self._prices = prices
        self._clock = clock
        self._refusals: dict[str, Refusals] = {}
        self._history_cache = HistoryCache()

    def build(self, target: Target, provider: Provider, settings: ModelSettings) -> Model:
        async def price(model: str, usage: Usage, written_tokens: int) -> float | None:
            if provider.is_local:
                return None
            return await self._prices.cost(provider.base_url, model, usage, written_tokens)

        client = self._clients.of(provider)
        if provider.wire == "anthropic":
            return AnthropicModel(target, client, self._clock, price, self._history_cache)
        if provider.wire == "gemini":
            return GeminiModel(target, client, self._clock, price, self._history_cache)
        refusals = self._refusals.setdefault(target.name, Refusals(self._clock))
        if provider.wire == "responses":
            return ResponsesModel(target, client, self._clock, price, refusals, self._history_cache)
        model = OpenAIModel(target, client, self._clock, price, refusals, self._history_cache)
        return TextCalls(model) if settings.calls_in_text else model

    def forget(self, provider_name: str) -> None:
        """Drop what the provider's models have refused."""
        for name in [one for one in self._refusals if one.startswith(f"{provider_name}:")]:
            del self._refusals[name]


def make_target(
    provider: Provider, model: str, key: Secret | None, settings: ModelSettings, abilities: Abilities
) -> Target:
    return Target(
        f"{provider.name}:{model}",
        model,
        provider.base_url,
        abilities=abilities,
        key=key,
        headers=provider.headers,
        extra={**provider.extra, **settings.extra},
        idle_timeout_s=provider.idle_timeout_s,
        continues_by=(provider.continues_by or "last") if abilities.continues else "",
        tokens_field=provider.tokens_field,
        effort_field=provider.effort_field,
        thinks=bool(settings.reasoning),
        keeps_alive=provider.base_url.startswith("https://"),
    )
