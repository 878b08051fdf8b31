"""Finds models by name (``provider:name``).

The default is the model that the user named; else that of the first provider with a key; else the first model
of a server on this machine; else the pocket model, which can always be downloaded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from types import TracebackType

import anyio

from everturn.domain.clock import Clock
from everturn.domain.model import Model, ProgressChunk
from everturn.domain.model_errors import ModelUnknown
from everturn.domain.turns import Usage
from everturn.models.abilities import KnownAbilities
from everturn.models.catalog import ModelCatalog, ModelState
from everturn.models.clients import HttpClients
from everturn.models.directory import ProviderDirectory
from everturn.models.discovery import Discovery, FoundServer
from everturn.models.keys import Keys
from everturn.models.local import CODER_SPEC, POCKET_SPEC, Fetches, LocalSpec
from everturn.models.local_models import LocalModels
from everturn.models.model_lists import ListedModel, ModelLists
from everturn.models.prices import Prices
from everturn.models.providers import DISCOVERED, Provider
from everturn.models.pydantic_model import PREFIX, PydanticModel
from everturn.models.settings import ModelSettings, ModelsSettings
from everturn.models.trials import ModelTestResult, Trials
from everturn.models.weights import Shelf
from everturn.models.wire_models import WireModels, make_target

_LIST_TIMEOUT_S = 5.0
_QUICK_TIMEOUT_S = 1.0  # the start or a turn waits for it
_CLOSE_TIMEOUT_S = 10.0
_LOCAL: Mapping[str, LocalSpec] = {spec.name: spec for spec in (POCKET_SPEC, CODER_SPEC)}


class ModelRegistry:
    """Implements ``domain.model.Models``. Open it as an async context manager.

    Opening is fast: if nothing is configured, it looks for servers on loopback, which takes milliseconds if
    there are none. Local models start with their first call; closing ends their processes.
    """

    def __init__(
        self,
        settings: ModelsSettings,
        keys: Keys,
        clock: Clock,
        environ: Mapping[str, str],
        shelf: Shelf,
        *,
        default: str | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._environ = environ
        self._named = _canonical(default) if default else None
        self._prices = Prices()
        self._shelf = shelf
        self._directory = ProviderDirectory(settings, keys, environ)
        self._placed: str | None = None  # the model of a server that was named only by its address
        self._discovered: tuple[FoundServer, ...] = ()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> ModelRegistry:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            fetches = Fetches(self._shelf, tasks)
            clients = await stack.enter_async_context(HttpClients())
            places = {name: self._directory.providers[name].root for name in DISCOVERED}
            self._discovery = Discovery(clients.near, places)
            self._lists = ModelLists(clients.of, self._directory.find_key, self._clock)
            self._abilities = KnownAbilities(self._discovery, self._lists, self._prices, self._clock)
            self._catalog = ModelCatalog(self._directory, self._lists, self._prices, fetches)
            self._local = LocalModels(fetches, clients, self._clock, self._environ)
            self._wires = WireModels(clients, self._prices, self._clock)
            self._trials = Trials(self._directory, clients, self._lists, self._clock)
            if self._static_default() is None:
                await self.discover()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await self._local.close()
        # The error is not passed on: the task group would wrap it, and callers catch it by its type.
        await self._stack.aclose()

    # --- Models ------------------------------------------------------------------------------------

    @property
    def default(self) -> str:
        """The model of a turn that names none. Changes when a key is set or a server is found."""
        static = self._static_default()
        if static is not None:
            return static
        if self._placed is not None:
            return self._placed
        for server in self._discovered:
            for model in server.models:
                if model.can_chat:
                    return f"{server.provider}:{model.name}"
        return POCKET_SPEC.name

    def check(self, name: str) -> None:
        """Check the name and the key without a request: the server may be down at the moment.

        Does not need an open registry. Raises ModelUnknown, ModelKeyMissing.
        """
        name = _canonical(name)
        if name not in _LOCAL and not name.startswith(PREFIX):
            self._directory.require_key(self._directory.split(name)[0])

    async def get(self, name: str | None) -> Model:
        """The model of this name, or the default. Raises ModelUnknown, ModelKeyMissing."""
        await self._directory.refresh()  # another server may have stored a key a moment ago
        name = _canonical(name or self.default)
        local = _LOCAL.get(name)
        if local is not None:
            return self._local.get(local)
        if name.startswith(PREFIX):
            return PydanticModel(name.removeprefix(PREFIX), self._clock)
        provider, model = self._directory.split(name)
        if not model:
            model = await self._first_model(provider)
            name = f"{provider.name}:{model}"
        key = self._directory.require_key(provider)
        settings = self._settings.settings.get(name, ModelSettings())
        abilities = await self._abilities.get(provider, model, settings)
        target = make_target(provider, model, key, settings, abilities)
        return self._wires.build(target, provider, settings)

    async def cost(self, name: str, usage: Usage) -> float | None:
        """What a call of this model with this usage costs, in dollars; None: its price is not known."""
        if _canonical(name) in _LOCAL or name.startswith(PREFIX):
            return None  # the package says the cost of each call itself
        provider, model = self._directory.split(name)
        return None if provider.is_local else await self._prices.cost(provider.base_url, model, usage)

    # --- the list of models ------------------------------------------------------------------------

    async def list(self) -> tuple[ModelState, ...]:
        """All models that can be used or could be, one line each."""
        await self._directory.refresh()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.discover, name="discover")
            asked = await self._catalog.ask_providers()
        return self._catalog.arrange(asked, self._discovered, self.default)

    async def discover(self) -> tuple[FoundServer, ...]:
        """Look for Ollama, LM Studio and llama.cpp on this machine, again on every call."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask_placed, name="ask the named server")
            self._discovered = await self._discovery.find()
        return self._discovered

    async def _ask_placed(self) -> None:
        """For an address in the environment (OPENAI_BASE_URL) without a model: take what it serves."""
        self._placed = None
        for provider in self._directory.providers.values():
            if provider.is_placed and provider.name not in DISCOVERED:
                entries = await self._lists.entries(provider, _QUICK_TIMEOUT_S)
                if entries:
                    self._placed = f"{provider.name}:{_first_of(entries)}"
                    return

    async def pull(self, name: str) -> AsyncGenerator[ProgressChunk, None]:
        """Download the weights of ``pocket`` or ``coder``; yields nothing if they are there.

        The download continues if the caller stops listening. Raises ModelUnknown, ModelTrouble.
        """
        spec = _LOCAL.get(_canonical(name))
        if spec is None:
            raise ModelUnknown(
                f"There is nothing to download for {name[:80]!r}.", hint="Possible: pocket, coder."
            )
        async with aclosing(self._local.pull(spec)) as progress:
            async for chunk in progress:
                yield chunk

    # --- tests and keys ----------------------------------------------------------------------------

    async def test(self, name: str | None = None) -> ModelTestResult:
        """Send a short message to a model. Does not raise ModelTrouble: the result says what is wrong."""
        return await self._trials.try_model(lambda: self.get(name))

    async def test_key(self, provider_name: str, key: str | None = None) -> ModelTestResult:
        """Ask the provider whether it accepts a key: the given one, else the stored one."""
        return await self._trials.try_key(self._directory.get(provider_name), key)

    async def test_server(
        self, name: str, base_url: str, key: str | None = None
    ) -> tuple[ModelTestResult, str]:
        """Ask a server of the user's own for its models; return the result and the address that answered.

        Raises Invalid if the address or the name cannot be used.
        """
        return await self._trials.try_server(name, base_url, key)

    def forget(self, provider_name: str) -> None:
        """Drop what is known about a provider: its key or its address has changed."""
        self._lists.forget(provider_name)
        self._abilities.forget(provider_name)
        self._wires.forget(provider_name)

    def server_of(self, provider_name: str) -> str | None:
        """The address of a server that was connected in the settings."""
        return self._directory.server_address(provider_name)

    def key_state(self, provider_name: str) -> str | None:
        """Where the provider's key comes from: environment, file, store, or None."""
        return self._directory.key_source(self._directory.get(provider_name))

    @property
    def provider_names(self) -> tuple[str, ...]:
        return tuple(self._directory.providers)

    # --- making models -----------------------------------------------------------------------------

    def _static_default(self) -> str | None:
        """The default as far as it is known without a request."""
        return self._named if self._named is not None else self._directory.default_model()

    async def _first_model(self, provider: Provider) -> str:
        """The model of a provider that was named without one: its suggestion, or the first it serves."""
        if provider.model:
            return provider.model
        entries = await self._lists.entries(provider, _LIST_TIMEOUT_S)
        if not entries:
            raise ModelUnknown(
                f"{provider.name} lists no models, and the name says none.",
                hint=f"Write {provider.name}:name, or start the server and load a model.",
            )
        return _first_of(entries)


def _first_of(entries: Sequence[ListedModel]) -> str:
    return next((entry.id for entry in entries if entry.can_chat), entries[0].id)


def _canonical(name: str) -> str:
    """``pocket`` and ``coder`` in any of the ways people write them; other names unchanged."""
    name = name.strip()
    short = name.removeprefix("local:").partition(":")[0]
    for spec in _LOCAL.values():
        if short == spec.name.partition(":")[0]:
            return spec.name
    return name
