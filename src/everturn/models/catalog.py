"""The list of models that can be used, or could be after a download or with a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio
import msgspec

from everturn.domain.model import Abilities
from everturn.domain.model_errors import ModelKeyMissing, ModelTrouble
from everturn.models.directory import ProviderDirectory
from everturn.models.discovery import FoundServer
from everturn.models.guesses import guess, with_efforts
from everturn.models.local import CODER_SPEC, POCKET_SPEC, Fetches, LocalSpec, check_runtime
from everturn.models.model_lists import ListedModel, ModelLists
from everturn.models.prices import PriceFacts, Prices
from everturn.models.providers import DISCOVERED, Provider
from everturn.models.selection import suggest_model

_TIMEOUT_S = 5.0


class ModelState(msgspec.Struct, frozen=True):
    """One line of the list. ``state``: ready | needs_key | not_fetched | fetching | no_runtime."""

    name: str
    provider: str
    state: str
    abilities: Abilities | None = None
    prices: PriceFacts = PriceFacts()
    is_default: bool = False
    size: int | None = None  # bytes to download
    key_source: str | None = None  # environment | file
    note: str = ""
    can_chat: bool = True  # False: for embeddings, speech, images
    is_suggested: bool = False  # the model of its provider to start with


class ModelCatalog:
    def __init__(
        self, directory: ProviderDirectory, lists: ModelLists, prices: Prices, fetches: Fetches
    ) -> None:
        self._directory = directory
        self._lists = lists
        self._prices = prices
        self._fetches = fetches

    async def ask_providers(self) -> dict[str, tuple[ModelState, ...]]:
        """The models of every provider that is not discovered, all asked at once.

        A provider without a key is listed with the model that a key would give. One that does not answer says
        so in its note.
        """
        lines: dict[str, tuple[ModelState, ...]] = {}

        async def ask(provider: Provider) -> None:
            lines[provider.name] = await self._list_provider(provider)

        async with anyio.create_task_group() as tasks:
            for provider in self._directory.providers.values():
                if provider.name not in DISCOVERED:
                    tasks.start_soon(ask, provider, name=f"list {provider.name}")
        return lines

    def arrange(
        self, asked: Mapping[str, tuple[ModelState, ...]], discovered: Sequence[FoundServer], default: str
    ) -> tuple[ModelState, ...]:
        """All models in the order of their providers, the local ones last."""
        lines = {**asked, **{server.provider: _list_found(server) for server in discovered}}
        states = [state for name in self._directory.providers for state in lines.get(name, ())]
        states += [self._list_local(spec) for spec in (POCKET_SPEC, CODER_SPEC)]
        return tuple(msgspec.structs.replace(s, is_default=True) if s.name == default else s for s in states)

    async def _list_provider(self, provider: Provider) -> tuple[ModelState, ...]:
        if not provider.base_url:
            return ()
        try:
            found = self._directory.find_key(provider)
        except ModelKeyMissing as error:
            return (_without_key(provider, error.message),)
        source = found.source if found else None
        if found is None and provider.needs_key:
            note = f"Set {provider.key_variables[0]} or store a key." if provider.key_variables else ""
            return (_without_key(provider, note),)
        entries = await self._lists.entries(provider, _TIMEOUT_S)
        if not entries and provider.is_local and not provider.is_placed:
            return ()
        if not entries:
            name = f"{provider.name}:{provider.model}"
            return (ModelState(name, provider.name, "ready", key_source=source, note="It lists no models."),)
        return await self._list_entries(provider, entries, source)

    async def _list_entries(
        self, provider: Provider, entries: Sequence[ListedModel], key_source: str | None
    ) -> tuple[ModelState, ...]:
        names = [entry.id for entry in entries]
        facts = {} if provider.is_local else await self._prices.facts_of(provider.base_url, names)
        first = suggest_model([entry.id for entry in entries if entry.can_chat], provider.model)
        return tuple(
            ModelState(
                f"{provider.name}:{entry.id}",
                provider.name,
                "ready",
                _abilities(provider, entry, facts.get(entry.id, PriceFacts())),
                facts.get(entry.id, PriceFacts()),
                key_source=key_source,
                can_chat=entry.can_chat,
                is_suggested=entry.id == first,
            )
            for entry in entries
        )

    def _list_local(self, spec: LocalSpec) -> ModelState:
        state, note = "ready", spec.weights.title
        try:
            check_runtime(spec.name)
        except ModelTrouble as error:
            state, note = "no_runtime", error.hint
        else:
            if self._fetches.is_running(spec.weights):
                state = "fetching"
            elif not self._fetches.has(spec.weights):
                state = "not_fetched"
        provider = spec.name.partition(":")[0]
        return ModelState(spec.name, provider, state, spec.abilities, size=spec.weights.size, note=note)


def _abilities(provider: Provider, entry: ListedModel, facts: PriceFacts) -> Abilities | None:
    """None: its server would have to be asked for each model."""
    if provider.says_abilities:
        return with_efforts(provider, entry.id, entry.abilities(provider))
    return None if provider.is_local else guess(provider, entry.id, facts)


def _without_key(provider: Provider, note: str) -> ModelState:
    name = f"{provider.name}:{provider.model}" if provider.model else f"{provider.name}:"
    return ModelState(name, provider.name, "needs_key", note=note)


def _list_found(server: FoundServer) -> tuple[ModelState, ...]:
    first = suggest_model([model.name for model in server.models if model.can_chat])
    return tuple(
        ModelState(
            f"{server.provider}:{model.name}",
            server.provider,
            "ready",
            model.abilities,
            can_chat=model.can_chat,
            is_suggested=model.name == first,
        )
        for model in server.models
    )
