"""The known providers, and how each differs from the plain protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.json_types import JsonObject
from everturn.models.settings import ModelsSettings, ProviderSettings


class Provider(msgspec.Struct, frozen=True):
    name: str
    base_url: str
    wire: str = "openai"
    key_variables: tuple[str, ...] = ()
    url_variables: tuple[str, ...] = ()
    needs_key: bool = True
    key_path: str = "/models"  # requested to test a key
    model: str = ""  # the one to take where only a key is known
    images: bool = False
    continues_by: str = ""
    tokens_field: str = "max_tokens"
    effort_field: str = "reasoning_effort"
    headers: dict[str, str] = {}
    extra: JsonObject = {}
    idle_timeout_s: float = 180.0
    is_local: bool = False  # runs on the user's own machine: no price
    says_abilities: bool = False  # its list of models says what they can do
    is_placed: bool = False  # its address comes from the environment

    @property
    def title(self) -> str:
        """The name as the provider writes it."""
        return _TITLES.get(self.name, self.name)

    @property
    def root(self) -> str:
        """The address without the version, where a server's own endpoints are."""
        return self.base_url.rstrip("/").removesuffix("/v1")


_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": "Anthropic",
        "openai": "OpenAI",
        "google": "Google",
        "openrouter": "OpenRouter",
        "ollama": "Ollama",
        "lmstudio": "LM Studio",
        "llamacpp": "llama.cpp",
        "vllm": "vLLM",
    }
)

# In the order in which a key makes one of them the default.
PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        provider.name: provider
        for provider in (
            Provider(
                "anthropic",
                "https://api.anthropic.com",
                wire="anthropic",
                key_variables=("ANTHROPIC_API_KEY",),
                url_variables=("ANTHROPIC_BASE_URL",),
                key_path="/v1/models",
                model="claude-sonnet-4-5",
                images=True,
            ),
            Provider(
                "openai",
                "https://api.openai.com/v1",
                wire="responses",
                key_variables=("OPENAI_API_KEY",),
                url_variables=("OPENAI_BASE_URL",),
                model="gpt-5-mini",
                images=True,
                tokens_field="max_completion_tokens",
            ),
            Provider(
                "google",
                "https://generativelanguage.googleapis.com/v1beta",
                wire="gemini",
                key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
                url_variables=("GEMINI_BASE_URL",),
                model="gemini-2.5-flash",
                images=True,
                says_abilities=True,
            ),
            Provider(
                "openrouter",
                "https://openrouter.ai/api/v1",
                key_variables=("OPENROUTER_API_KEY",),
                url_variables=("OPENROUTER_BASE_URL",),
                key_path="/key",  # its list of models is public and would take any key
                model="openrouter/auto",
                extra={"usage": {"include": True}},
                effort_field="reasoning",
                says_abilities=True,
            ),
            Provider(
                "ollama",
                "http://127.0.0.1:11434/v1",
                url_variables=("OLLAMA_BASE_URL",),
                needs_key=False,
                idle_timeout_s=600.0,
                is_local=True,
            ),
            Provider(
                "lmstudio",
                "http://127.0.0.1:1234/v1",
                url_variables=("LMSTUDIO_BASE_URL",),
                needs_key=False,
                idle_timeout_s=600.0,
                is_local=True,
            ),
            Provider(
                "llamacpp",
                "http://127.0.0.1:8080/v1",
                key_variables=("LLAMA_API_KEY",),
                url_variables=("LLAMACPP_BASE_URL",),
                needs_key=False,
                continues_by="last",
                idle_timeout_s=600.0,
                is_local=True,
            ),
            Provider(
                "vllm",
                "http://127.0.0.1:8000/v1",
                key_variables=("VLLM_API_KEY",),
                url_variables=("VLLM_BASE_URL",),
                needs_key=False,
                continues_by="final",
                idle_timeout_s=600.0,
                is_local=True,
                says_abilities=True,
            ),
        )
    }
)
DISCOVERED = ("ollama", "lmstudio", "llamacpp")


def resolve(settings: ModelsSettings, environ: Mapping[str, str]) -> dict[str, Provider]:
    """All providers: the known ones, changed by environment and configuration, and configured ones."""
    providers = {name: _apply_environ(provider, environ) for name, provider in PROVIDERS.items()}
    for name, given in settings.providers.items():
        providers[name] = _apply_settings(name, providers.get(name), given)
    return providers


def own_server(name: str, base_url: str) -> Provider:
    """A server that was connected in the settings. It becomes the default if nothing else is configured."""
    return Provider(name, base_url, needs_key=False, is_placed=True, is_local=True, idle_timeout_s=600.0)


def check_address(text: str) -> str:
    """The address of a server without its last slash. Raises Invalid."""
    text = text.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    wrong = ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        wrong = "it must begin with http:// or https:// and name a server"
    elif parts.username is not None or parts.password is not None:
        wrong = "a name and password do not belong in it; give the key by itself"
    elif parts.query or parts.fragment:
        wrong = "it must end with the path"
    elif port == 0 or not re.fullmatch(r"[!-~]{1,500}", text):
        wrong = "it has a port or characters that no address has"
    if wrong:
        shown = "What was given" if "@" in text else repr(text[:100])  # a password is not repeated
        raise Invalid(
            f"{shown} is not the address of a server: {wrong}.",
            hint="For example http://127.0.0.1:8000/v1",
        )
    return text


def _apply_environ(provider: Provider, environ: Mapping[str, str]) -> Provider:
    for variable in provider.url_variables:
        address = environ.get(variable, "").strip()
        if address:
            # Another server behind the same variable speaks the plain wire and may want no key.
            return msgspec.structs.replace(
                provider,
                wire="openai" if provider.wire == "responses" else provider.wire,
                base_url=address.rstrip("/"),
                needs_key=False,
                model="",
                tokens_field="max_tokens",
                is_placed=True,
            )
    return provider


def _apply_settings(name: str, known: Provider | None, given: ProviderSettings) -> Provider:
    base = known or Provider(name, given.base_url or "", needs_key=given.key_env is not None)
    changes: JsonObject = {"headers": {**base.headers, **given.headers}}
    if given.base_url is not None:
        wire = "openai" if base.wire == "responses" else base.wire
        changes |= {
            "base_url": given.base_url.rstrip("/"),
            "model": "",
            "tokens_field": "max_tokens",
            "wire": wire,
        }
    if given.key_env is not None:
        changes["key_variables"] = (given.key_env,)
    for field in ("wire", "continues_by", "idle_timeout_s"):
        value = getattr(given, field)
        if value is not None:
            changes[field] = value
    return msgspec.structs.replace(base, **changes)
