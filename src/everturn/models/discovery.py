"""Model servers on this machine: Ollama, LM Studio and llama.cpp, found where they usually listen.

Another program may use the same port, so a server is accepted only if it answers in the expected format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.model import Abilities
from everturn.models.selection import can_chat

T = TypeVar("T")
# A port on this machine accepts or refuses at once. The limits are for other machines, and long enough for a
# busy machine: a server that is not found changes the default model.
_CONNECT_TIMEOUT_S = 3.0
_ANSWER_TIMEOUT_S = 10.0
_OLLAMA_CONTEXT_TOKENS = 4096  # what it uses unless told otherwise, whatever the model could


class FoundModel(msgspec.Struct, frozen=True):
    name: str  # as the server knows it
    abilities: Abilities | None = None  # None: the server does not say
    can_chat: bool = True


class FoundServer(msgspec.Struct, frozen=True):
    provider: str
    base_url: str
    models: tuple[FoundModel, ...]


class Discovery:
    """Asks local servers. ``addresses``: provider name to root address."""

    def __init__(self, client: httpx2.AsyncClient, addresses: Mapping[str, str]) -> None:
        self._client = client
        self._addresses = addresses

    async def find(self) -> tuple[FoundServer, ...]:
        """The servers that answer, all asked at once."""
        found: dict[str, FoundServer] = {}

        async def look(provider: str) -> None:
            server = await self.look(provider)
            if server is not None:
                found[provider] = server

        async with anyio.create_task_group() as tasks:
            for provider in self._addresses:
                tasks.start_soon(look, provider, name=f"look for {provider}")
        return tuple(found[provider] for provider in self._addresses if provider in found)

    async def look(self, provider: str) -> FoundServer | None:
        """One server with its models, or None if it is not there."""
        root = self._addresses[provider].rstrip("/")
        if not await _accepts(root):
            return None
        try:
            models = await _LOOKS[provider](self, root)
        except (msgspec.ValidationError, msgspec.DecodeError, httpx2.HTTPError):
            return None  # another program listens there, or none does
        return FoundServer(provider, root + "/v1", models)

    async def abilities(self, provider: str, model: str) -> Abilities | None:
        """What the server says about a model; None if it says nothing."""
        server = await self.look(provider)
        known = {found.name: found.abilities for found in server.models} if server else {}
        if provider == "ollama":
            return await self._ollama_abilities(model) if model in known else None
        return known.get(model)

    async def _get(self, address: str, kind: type[T]) -> T:
        response = await self._client.get(address, timeout=_ANSWER_TIMEOUT_S)
        response.raise_for_status()
        return msgspec.json.decode(response.content, type=kind)

    # --- Ollama ------------------------------------------------------------------------------------

    async def _ollama(self, root: str) -> tuple[FoundModel, ...]:
        listed = await self._get(root + "/api/tags", _OllamaTags)
        return tuple(
            FoundModel(model.name, can_chat=can_chat(f"{model.name} {model.details.family}"))
            for model in listed.models
        )

    async def _ollama_abilities(self, model: str) -> Abilities | None:
        root = self._addresses["ollama"].rstrip("/")
        try:
            response = await self._client.post(
                root + "/api/show", json={"model": model}, timeout=_ANSWER_TIMEOUT_S
            )
            response.raise_for_status()
            shown = msgspec.json.decode(response.content, type=_OllamaShow)
            running = await self._get(root + "/api/ps", _OllamaRunning)
        except (msgspec.ValidationError, msgspec.DecodeError, httpx2.HTTPError):
            return None
        can = shown.capabilities
        return Abilities(
            tools=can is None or "tools" in can,
            images=can is not None and "vision" in can,
            reasoning=can is not None and "thinking" in can,
            context_tokens=_ollama_context(model, shown, running),
        )

    # --- LM Studio ---------------------------------------------------------------------------------

    async def _lmstudio(self, root: str) -> tuple[FoundModel, ...]:
        listed = await self._get(root + "/api/v0/models", _LmStudioModels)
        return tuple(
            FoundModel(
                model.id,
                Abilities(
                    tools=model.capabilities is None or "tool_use" in model.capabilities,
                    images=model.type == "vlm",
                    context_tokens=model.loaded_context_length or model.max_context_length,
                ),
            )
            for model in listed.data
            if model.type in ("llm", "vlm")
        )

    # --- llama.cpp ---------------------------------------------------------------------------------

    async def _llamacpp(self, root: str) -> tuple[FoundModel, ...]:
        props = await self._get(root + "/props", _LlamaProps)
        listed = await self._get(root + "/v1/models", _OpenAiModels)
        caps = props.chat_template_caps or {}
        abilities = Abilities(
            tools=caps.get("supports_tools", True),
            images=bool(props.modalities and props.modalities.vision),
            continues=True,
            context_tokens=props.default_generation_settings.n_ctx,
        )
        return tuple(FoundModel(model.id, abilities, can_chat(model.id)) for model in listed.data)


_LOOKS = {"ollama": Discovery._ollama, "lmstudio": Discovery._lmstudio, "llamacpp": Discovery._llamacpp}


class _OllamaDetails(msgspec.Struct):
    family: str = ""


class _OllamaTag(msgspec.Struct):
    name: str
    details: _OllamaDetails = msgspec.field(default_factory=_OllamaDetails)


class _OllamaTags(msgspec.Struct):
    models: list[_OllamaTag]


class _OllamaShow(msgspec.Struct):
    capabilities: list[str] | None = None
    parameters: str = ""
    model_info: JsonObject = {}


class _OllamaProcess(msgspec.Struct):
    name: str = ""
    context_length: int | None = None


class _OllamaRunning(msgspec.Struct):
    models: list[_OllamaProcess] = []


class _LmStudioModel(msgspec.Struct):
    id: str
    type: str
    max_context_length: int | None = None
    loaded_context_length: int | None = None
    capabilities: list[str] | None = None


class _LmStudioModels(msgspec.Struct):
    data: list[_LmStudioModel]


class _LlamaSettings(msgspec.Struct):
    n_ctx: int


class _LlamaModalities(msgspec.Struct):
    vision: bool = False


class _LlamaProps(msgspec.Struct):
    default_generation_settings: _LlamaSettings
    modalities: _LlamaModalities | None = None
    chat_template_caps: dict[str, bool] | None = None


class _OpenAiModel(msgspec.Struct):
    id: str


class _OpenAiModels(msgspec.Struct):
    data: list[_OpenAiModel]


def _ollama_context(model: str, shown: _OllamaShow, running: _OllamaRunning) -> int:
    """The context window that Ollama really uses: it truncates longer prompts silently."""
    for process in running.models:
        if process.name == model and process.context_length:
            return process.context_length
    told = re.search(r"^num_ctx\s+(\d+)", shown.parameters, re.MULTILINE)
    window = int(told[1]) if told else _OLLAMA_CONTEXT_TOKENS
    trained = [v for k, v in shown.model_info.items() if k.endswith(".context_length") and isinstance(v, int)]
    return min([window, *trained])


async def _accepts(root: str) -> bool:
    place = urlsplit(root)
    port = place.port or (443 if place.scheme == "https" else 80)
    try:
        with anyio.fail_after(_CONNECT_TIMEOUT_S):
            stream = await anyio.connect_tcp(place.hostname or "127.0.0.1", port)
    except (OSError, TimeoutError):
        return False
    await stream.aclose()
    return True
