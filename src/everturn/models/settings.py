"""What a person can set about models: the ``[models]`` table of ``config.toml``, checked.

[models.providers.work]                 # a server of one's own; models are then "work:<name>"
base_url = "https://llm.example/v1"
key_env = "WORK_LLM_KEY"                # or a key stored under the name "work"

[models.settings."openai:gpt-x"]        # what is known better than by guessing
context_tokens = 128000
images = true
extra = {reasoning_effort = "low"}      # merged into each request
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from everturn.domain.errors import Invalid

_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider of one's own, or other values for one that is known."""

    base_url: str | None = None
    key_env: str | None = None
    wire: Literal["openai", "anthropic"] | None = None
    headers: dict[str, str] = {}
    continues_by: Literal["", "last", "flag", "final"] | None = None
    idle_timeout_s: float | None = None


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known about one model; what is None is asked of the server, or stays unknown."""

    tools: bool | None = None
    images: bool | None = None
    reasoning: bool | None = None  # also asks for it, where it has to be asked for
    continues: bool | None = None
    context_tokens: int | None = None
    output_tokens: int | None = None
    is_small: bool | None = None
    calls_in_text: bool = False  # for models that write a call instead of making it
    extra: dict[str, Any] = {}


class ModelsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    providers: dict[str, ProviderSettings] = {}
    settings: dict[str, ModelSettings] = {}


def parse_settings(table: dict[str, Any]) -> ModelsSettings:
    """Check the ``[models]`` table. Raises Invalid, which names the key."""
    try:
        settings = msgspec.convert(table, ModelsSettings)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        key = "models" + where.rstrip("`").replace("[...]", "")
        raise Invalid(f"config.toml: {key}: {what}.", hint="Correct it.", key=key) from error
    for name, provider in settings.providers.items():
        key = f"models.providers.{name}"
        if not _PROVIDER_NAME.fullmatch(name):
            raise Invalid(
                f"config.toml: {key}: a provider's name has small letters, digits, - and _.", key=key
            )
        if provider.base_url is not None and not re.match(r"https?://[^/\s]+", provider.base_url):
            raise Invalid(f"config.toml: {key}.base_url: it must begin with http:// or https://.", key=key)
    return settings
