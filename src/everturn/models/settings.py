"""The ``[models]`` table of ``config.toml``.

[models.providers.work]                 # your own server; its models are "work:<name>"
base_url = "https://llm.example/v1"
key_env = "WORK_LLM_KEY"                # or a key stored under the name "work"

[models.settings."openai:gpt-x"]        # corrections to what Everturn finds out
context_tokens = 128000
images = true
efforts = ["low", "high"]               # of reasoning
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from everturn.domain.errors import Invalid
from everturn.domain.json_types import Json, JsonObject

T = TypeVar("T")

_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user's own provider, or other values for a known one."""

    base_url: Annotated[str | None, Meta(description="Address of the API, usually ending in /v1.")] = None
    key_env: Annotated[
        str | None,
        Meta(description="Environment variable with the API key. A key can also be stored."),
    ] = None
    wire: Annotated[
        Literal["openai", "responses", "anthropic", "gemini"] | None,
        Meta(
            description="Protocol: openai (also for compatible servers), responses (OpenAI's newer one), "
            "anthropic or gemini."
        ),
    ] = None
    headers: Annotated[dict[str, str], Meta(description="Extra HTTP headers of every request.")] = {}
    continues_by: Annotated[
        Literal["", "last", "flag", "final"] | None,
        Meta(description="How the provider continues an unfinished answer; an empty text if it cannot."),
    ] = None
    idle_timeout_s: Annotated[
        float | None, Meta(description="Longest silence of the server within a request.")
    ] = None


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts about one model. None: ask the server, or leave it unknown."""

    tools: Annotated[bool | None, Meta(description="The model can call tools.")] = None
    images: Annotated[bool | None, Meta(description="The model accepts images.")] = None
    reasoning: Annotated[
        bool | None,
        Meta(description="The model can reason; true also asks for it where a provider requires that."),
    ] = None
    continues: Annotated[bool | None, Meta(description="The model can continue an unfinished answer.")] = None
    context_tokens: Annotated[int | None, Meta(description="Size of the context window.")] = None
    output_tokens: Annotated[int | None, Meta(description="Longest answer.")] = None
    is_small: Annotated[
        bool | None, Meta(description="A very small model: it gets a short prompt and no tools.")
    ] = None
    efforts: Annotated[
        tuple[Literal["off", "minimal", "low", "medium", "high"], ...] | None,
        Meta(description="The reasoning efforts that one can choose between."),
    ] = None
    temperature: Annotated[bool | None, Meta(description="The model takes a temperature.")] = None
    calls_in_text: Annotated[
        bool,
        Meta(description="Read tool calls from the text, for models that write a call instead of making it."),
    ] = False
    extra: Annotated[JsonObject, Meta(description="Fields added to the body of every request.")] = {}


class ModelsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    providers: dict[str, ProviderSettings] = {}
    settings: dict[str, ModelSettings] = {}


Place = tuple[str, ...]  # a key with its tables


def parse_settings(table: JsonObject, lines: Mapping[Place, int] | None = None) -> ModelsSettings:
    """Check the ``[models]`` table. Raises Invalid, which names the key, and its line if that is known."""
    reader = _Reader(lines or {})
    for name in table:
        if name not in ModelsSettings.__struct_fields__:
            raise reader.wrong(("models", name), "is not a known key")
    providers = reader.tables(table, "providers", ProviderSettings)
    for name, provider in providers.items():
        place = ("models", "providers", name)
        if not _PROVIDER_NAME.fullmatch(name):
            raise reader.wrong(place, "is not a valid name: use lower-case letters, digits, - and _")
        if provider.base_url is not None and not re.match(r"https?://[^/\s]+", provider.base_url):
            raise reader.wrong((*place, "base_url"), "must begin with http:// or https://")
    return ModelsSettings(providers, reader.tables(table, "settings", ModelSettings))


class _Reader:
    def __init__(self, lines: Mapping[Place, int]) -> None:
        self._lines = lines

    def tables(self, table: JsonObject, section: str, kind: type[T]) -> dict[str, T]:
        found = table.get(section, {})
        if not isinstance(found, dict):
            raise self.wrong(("models", section), "must be a table")
        return {name: self._convert(("models", section, name), value, kind) for name, value in found.items()}

    def _convert(self, place: Place, value: Json, kind: type[T]) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            unknown = re.search(r"unknown field `(.+?)`", what)
            if unknown:
                raise self.wrong((*place, unknown[1]), "is not a known key") from error
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
