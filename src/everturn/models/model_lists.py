"""The models that a provider lists, and what its list says about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import Json
from everturn.domain.model import Abilities
from everturn.domain.model_errors import ModelKeyMissing
from everturn.domain.parameters import Effort
from everturn.domain.secrets import Secret
from everturn.models.anthropic_wire import VERSION
from everturn.models.keys import KeyFound
from everturn.models.providers import Provider
from everturn.models.selection import can_chat

_AGE_MAX_S = 60.0
# Where the protocols differ from OpenAI's. Google's list has pages; one of this size holds it all.
_PATHS: Mapping[str, str] = {"anthropic": "/v1/models", "gemini": "/models?pageSize=1000"}
_KEY_HEADERS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("x-api-key", ""),
    "gemini": ("x-goog-api-key", ""),
}
_USUAL_EFFORTS = (Effort.LOW, Effort.MEDIUM, Effort.HIGH)


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
    output_token_limit: int | None = None
    methods: tuple[str, ...] | None = None  # what Google's list says it can be asked for

    @property
    def can_chat(self) -> bool:
        if self.methods is not None and "generateContent" not in self.methods:
            return False
        kind = self.type if isinstance(self.type, str) else ""
        outputs = self.architecture.output_modalities if self.architecture is not None else ()
        return can_chat(self.id, kind, outputs, self.capabilities)

    def abilities(self, provider: Provider) -> Abilities:
        can = self.supported_parameters
        return Abilities(
            tools=can is None or "tools" in can,
            images=provider.images
            if self.architecture is None
            else "image" in self.architecture.input_modalities,
            reasoning=can is not None and "reasoning" in can,
            continues=bool(provider.continues_by),
            context_tokens=self.context_length or self.max_model_len,
            output_tokens=self.output_token_limit,
            efforts=_USUAL_EFFORTS if can is not None and "reasoning" in can else (),
            temperature=can is None or "temperature" in can,
        )


class _Listed(msgspec.Struct):
    data: list[ListedModel]


class _GoogleModel(msgspec.Struct, rename="camel"):
    name: str
    input_token_limit: int | None = None
    output_token_limit: int | None = None
    supported_generation_methods: tuple[str, ...] | None = None


class _GoogleListed(msgspec.Struct):
    models: list[_GoogleModel]


def _read(provider: Provider, content: bytes) -> list[ListedModel]:
    if provider.wire != "gemini":
        return msgspec.json.decode(content, type=_Listed).data
    return [
        ListedModel(
            model.name.removeprefix("models/"),
            model.input_token_limit,
            output_token_limit=model.output_token_limit,
            methods=model.supported_generation_methods,
        )
        for model in msgspec.json.decode(content, type=_GoogleListed).models
    ]


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
        path = _PATHS.get(provider.wire, "/models")
        response = await self._client_of(provider).get(
            provider.base_url + path, headers=auth_headers(provider, key), timeout=timeout_s
        )
        response.raise_for_status()
        return tuple(sorted(_read(provider, response.content), key=lambda entry: entry.id))

    def forget(self, provider_name: str) -> None:
        self._kept.pop(provider_name, None)


def auth_headers(provider: Provider, key: Secret | None) -> dict[str, str]:
    headers = dict(provider.headers)
    if provider.wire == "anthropic":
        headers["anthropic-version"] = VERSION
    if key is not None:
        name, prefix = _KEY_HEADERS.get(provider.wire, ("authorization", "Bearer "))
        headers[name] = prefix + key.reveal()
    return headers
