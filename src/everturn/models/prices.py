"""Prices and context windows from the genai-prices package, if it is installed.

The data is inside its wheel and its updater stays off, so nothing is downloaded. It is imported on first use,
in a thread: that takes half a second and 20 MB, which a server with only local models never needs. Unknown
values are None, never 0.
"""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from everturn.domain.turns import Usage

# ``Any``: the package is loaded when it is first needed, and its types with it.
_Data = Any


class PriceFacts(msgspec.Struct, frozen=True):
    """What is publicly known about a model. Prices are dollars per million tokens."""

    context_tokens: int | None = None
    input_usd: float | None = None
    output_usd: float | None = None


class Prices:
    def __init__(self, package: str = "genai_prices") -> None:
        self._package = package
        self._lock = anyio.Lock()
        self._snapshot: _Data = None
        self._module: _Data = None
        self._is_loaded = False

    async def cost(self, base_url: str, model: str, usage: Usage, written_tokens: int = 0) -> float | None:
        """The cost of a call in dollars; None if the model or the usage is unknown."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        found = await self._find(base_url, model)
        if found is None:
            return None
        provider, info = found
        counted = self._module.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_tokens or 0,
            cache_write_tokens=written_tokens,
        )
        now = datetime.datetime.now(tz=datetime.UTC)
        try:
            return float(info.calc_price(counted, provider, genai_request_timestamp=now).total_price)
        except (ValueError, LookupError):
            return None  # the package rejects the figures: the cost is unknown

    async def facts(self, base_url: str, model: str) -> PriceFacts:
        return (await self.facts_of(base_url, [model]))[model]

    async def facts_of(self, base_url: str, models: Sequence[str]) -> dict[str, PriceFacts]:
        """Facts about many models, in a thread: hundreds of them take a while."""
        await self._load()
        return await anyio.to_thread.run_sync(
            lambda: {model: _facts(self._lookup(base_url, model)) for model in models}
        )

    async def _find(self, base_url: str, model: str) -> tuple[_Data, _Data] | None:
        await self._load()
        return self._lookup(base_url, model)

    def _lookup(self, base_url: str, model: str) -> tuple[_Data, _Data] | None:
        if self._snapshot is None:
            return None
        try:
            found: tuple[_Data, _Data] = self._snapshot.find_provider_model(model, None, None, base_url)
        except LookupError:
            return None
        return found

    async def _load(self) -> None:
        async with self._lock:
            if not self._is_loaded:
                self._is_loaded = True
                self._module, self._snapshot = await anyio.to_thread.run_sync(_import, self._package)


def _import(package: str) -> tuple[_Data, _Data]:
    try:
        module = importlib.import_module(package)
        snapshots = importlib.import_module(f"{package}.data_snapshot")
    except ImportError:
        return None, None
    return module, snapshots.get_snapshot()


def _facts(found: tuple[_Data, _Data] | None) -> PriceFacts:
    if found is None:
        return PriceFacts()
    prices = found[1].get_prices(datetime.datetime.now(tz=datetime.UTC))
    window = getattr(found[1], "context_window", None)
    return PriceFacts(window, _per_million(prices, "input"), _per_million(prices, "output"))


def _per_million(prices: _Data, side: str) -> float | None:
    price = getattr(prices, f"{side}_mtok", None)
    base = getattr(price, "base", price)  # where the price has steps, the first
    return None if base is None else float(base)
