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
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from everturn.domain.errors import Invalid

T = TypeVar("T")

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


Place = tuple[str, ...]  # a key with its tables


def parse_settings(table: dict[str, Any], lines: Mapping[Place, int] | None = None) -> ModelsSettings:
    """Check the ``[models]`` table. Raises Invalid, which names the key, and its line if that is known."""
    reader = _Reader(lines or {})
    for name in table:
        if name not in ModelsSettings.__struct_fields__:
            raise reader.wrong(("models", name), "is not a key that is known here")
    providers = reader.tables(table, "providers", ProviderSettings)
    for name, provider in providers.items():
        place = ("models", "providers", name)
        if not _PROVIDER_NAME.fullmatch(name):
            raise reader.wrong(place, "is no good name: small letters, digits, - and _")
        if provider.base_url is not None and not re.match(r"https?://[^/\s]+", provider.base_url):
            raise reader.wrong((*place, "base_url"), "must begin with http:// or https://")
    return ModelsSettings(providers, reader.tables(table, "settings", ModelSettings))


class _Reader:
    def __init__(self, lines: Mapping[Place, int]) -> None:
        self._lines = lines

    def tables(self, table: dict[str, Any], section: str, kind: type[T]) -> dict[str, T]:
        found = table.get(section, {})
        if not isinstance(found, dict):
            raise self.wrong(("models", section), "must be a table")
        return {name: self._convert(("models", section, name), value, kind) for name, value in found.items()}

    def _convert(self, place: Place, value: Any, kind: type[T]) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            unknown = re.search(r"unknown field `(.+?)`", what)
            if unknown:
                raise self.wrong((*place, unknown[1]), "is not a key that is known here") from error
            field = re.match(r"\.(\w+)", where)
            raise self.wrong((*place, field[1]) if field else place, f"is wrong: {what.lower()}") from error

    def wrong(self, place: Place, what: str) -> Invalid:
        key = ".".join(place)
        nearest = place
        while nearest and nearest not in self._lines:
            nearest = nearest[:-1]
        line = self._lines.get(nearest)
        where = f"config.toml, line {line}" if line else "config.toml"
        return Invalid(f"{where}: {key} {what}.", hint="Correct it.", key=key, line=line)
