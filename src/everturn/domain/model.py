"""The contract of a language model: a request goes in, chunks come out, ``Finish`` ends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Union

import msgspec

from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Call, Message, Reasoning
from everturn.domain.parameters import Effort
from everturn.domain.turns import FinishReason, Usage


class ToolSchema(msgspec.Struct, frozen=True):
    """What the model is told about a tool."""

    name: str
    description: str
    parameters: JsonObject  # JSON schema of the arguments


def properties_of(schema: Mapping[str, Json]) -> Mapping[str, Json]:
    """The schema of each argument. Empty if a server sent something other than an object."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def required_of(schema: Mapping[str, Json]) -> list[str]:
    """The names of the required arguments. What is not a list of names, as in ``"required": "path"``, is
    ignored: the tool itself checks its arguments."""
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


class Abilities(msgspec.Struct, frozen=True):
    """What a model can do. ``None``: not known."""

    tools: bool = True
    images: bool = False
    reasoning: bool = False
    continues: bool = False  # can continue a partial answer of its own
    context_tokens: int | None = None
    output_tokens: int | None = None
    is_small: bool = False  # a pocket model: tiny prompt, no tools
    is_brief: bool = False  # a small model with tools: the short form of a prompt that has one
    efforts: tuple[Effort, ...] = ()  # of reasoning, among which one can choose
    temperature: bool = True  # takes one


class ModelRequest(msgspec.Struct, frozen=True):
    """Everything a model call depends on. Equal requests give equal bytes on the wire."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    prefix: str = ""  # the answer so far, for a model that can continue it
    files: dict[str, bytes] = {}  # contents of attachments the model is to see, by file id
    output_tokens_max: int | None = None
    json_schema: JsonObject | None = None  # constrain the answer, where the model can
    temperature: float | None = None
    effort: Effort | None = None  # of reasoning; one of the model's ``efforts``
    grammar: str = ""  # constrain the answer by a grammar (GBNF), where the server reads one


class TextChunk(msgspec.Struct, frozen=True):
    text: str


class ReasoningChunk(msgspec.Struct, frozen=True):
    text: str


class ProgressChunk(msgspec.Struct, frozen=True):
    """The model is being made ready, e.g. fetched."""

    label: str
    done: int = 0
    total: int | None = None


class Finish(msgspec.Struct, frozen=True):
    """The proper end. A stream without it raises StreamCut."""

    reason: FinishReason
    calls: tuple[Call, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    usage: Usage = Usage()


Chunk = Union[TextChunk, ReasoningChunk, ProgressChunk, Finish]


class Model(Protocol):
    """One model of one provider. Translates; never retries, never stores."""

    @property
    def name(self) -> str:
        """``provider:name``."""
        ...

    @property
    def abilities(self) -> Abilities: ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """Call the model. Leaving the context ends the call and its connection.

        Raises ModelTrouble, from entering or from iterating.
        """
        ...


class Models(Protocol):
    """Finds a model by name."""

    @property
    def default(self) -> str: ...

    async def get(self, name: str | None) -> Model:
        """The model of this name, or the default. Raises ModelUnknown, ModelKeyMissing."""
        ...

    async def cost(self, name: str, usage: Usage) -> float | None:
        """What a call of this model with this usage costs, in dollars; None: its price is not known."""
        ...
