"""The models that a provider lists, and what its list says about them."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import Json
from everturn.domain.model import Abilities
from everturn.domain.model_errors import ModelKeyMissing
from everturn.domain.secrets import Secret
from everturn.models.anthropic_wire import VERSION
from everturn.models.keys import KeyFound
from everturn.models.providers import Provider
from everturn.models.selection import can_chat

_AGE_MAX_S = 60.0


class Architecture(msgspec.Struct, frozen=True):
    input_modalities: tuple[str, ...] = ()
    output_modalities: tuple[str, ...] = ()


class ListedModel(msgspec.Struct, frozen=True):
    """A model in a provider's list. OpenRouter and vLLM list more than its name."""

    id: str
    context_length: int | None = None
    max_model_len: int | None = None
    architecture: Architecture | None = None
    supported_parameters: tuple[str, ...] | None = None
    type: Json = ""
    capabilities: Json = None

    @property
    def can_chat(self) -> bool:
        kind = self.type if isinstance(self.type, str) else ""
        outputs = self.architecture.output_modalities if self.architecture is not None else ()
        return can_chat(self.id, kind, outputs, self.capabilities)

    def abilities(self, provider: Provider) -> Abilities:
        can = self.supported_parameters
        return Abilities(
            tools=can is None or "tools" in can,
            images=self.architecture is not None and "image" in self.architecture.input_modalities,
            reasoning=can is not None and "reasoning" in can,
            continues=bool(provider.continues_by),
            context_tokens=self.context_length or self.max_model_len,
        )


class _Listed(msgspec.Struct):
    data: list[ListedModel]


class _Kept(msgspec.Struct, frozen=True):
    entries: tuple[ListedModel, ...]
    until: float


class ModelLists:
    """Asks providers for their lists, each at most once a minute."""

    def __init__(
        self,
        client_of: Callable[[Provider], httpx2.AsyncClient],
        find_key: Callable[[Provider], KeyFound | None],
        clock: Clock,
    ) -> None:
        self._client_of = client_of
        self._find_key = find_key
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    async def entries(self, provider: Provider, timeout_s: float) -> tuple[ListedModel, ...]:
        """The models by name; empty if the provider does not answer or its key cannot be used.

        A failure is not cached.
        """
        kept = self._kept.get(provider.name)
        if kept is not None and kept.until > self._clock.monotonic():
            return kept.entries
        try:
            found = self._find_key(provider)
            entries = await self.ask(provider, found.secret if found else None, timeout_s)
        except (ModelKeyMissing, httpx2.HTTPError, httpx2.InvalidURL, msgspec.DecodeError):
            return ()
        if entries:
            self._kept[provider.name] = _Kept(entries, self._clock.monotonic() + _AGE_MAX_S)
        return entries

    async def ask(self, provider: Provider, key: Secret | None, timeout_s: float) -> tuple[ListedModel, ...]:
        """The models by name. Raises HTTPError, InvalidURL, and DecodeError for any other content."""
        path = "/v1/models" if provider.wire == "anthropic" else "/models"
        response = await self._client_of(provider).get(
            provider.base_url + path, headers=auth_headers(provider, key), timeout=timeout_s
        )
        response.raise_for_status()
        listed = msgspec.json.decode(response.content, type=_Listed)
        return tuple(sorted(listed.data, key=lambda entry: entry.id))

    def forget(self, provider_name: str) -> None:
        self._kept.pop(provider_name, None)


def auth_headers(provider: Provider, key: Secret | None) -> dict[str, str]:
    headers = dict(provider.headers)
    if provider.wire == "anthropic":
        headers["anthropic-version"] = VERSION
    if key is not None:
        name, prefix = ("x-api-key", "") if provider.wire == "anthropic" else ("authorization", "Bearer ")
        headers[name] = prefix + key.reveal()
    return headers
