"""Models that follow a script: each call plays the next answer, and is recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, Union

import anyio.lowlevel
import msgspec

from everturn.domain import messages
from everturn.domain.clock import Clock, SystemClock
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Reasoning
from everturn.domain.model import (
    Abilities,
    Chunk,
    Finish,
    Model,
    ModelRequest,
    ProgressChunk,
    ReasoningChunk,
    TextChunk,
)
from everturn.domain.model_errors import ModelRefused, ModelTrouble, ModelUnknown, StreamCut
from everturn.domain.turns import FinishReason, Usage


class _Event(Protocol):
    """An event of asyncio or anyio."""

    async def wait(self) -> object: ...


class Say(msgspec.Struct, frozen=True):
    """Text, in pieces of ``size`` characters (0: in one piece)."""

    text: str
    size: int = 0


class Chunks(msgspec.Struct, frozen=True):
    """The same piece of text, many times."""

    text: str
    count: int


class Think(msgspec.Struct, frozen=True):
    """Reasoning; with ``opaque``, a block that the provider expects back."""

    text: str
    opaque: Json = None


class CallTool(msgspec.Struct, frozen=True):
    """A tool call. Arguments given as a string are sent unchanged, even if they are not JSON."""

    name: str
    arguments: Union[JsonObject, str] = {}
    id: str = ""


class Pause(msgspec.Struct, frozen=True):
    """No output for this long, by the clock."""

    seconds: float


class Wait(msgspec.Struct, frozen=True):
    """No output until the event is set."""

    event: _Event


class ModelFails(msgspec.Struct, frozen=True):
    """Fail here: before the stream opens if it is the first step of an answer, else inside it."""

    error: BaseException
    opens: bool = False  # the stream opens first, then fails


class Cut(msgspec.Struct, frozen=True):
    """The stream ends here without its end marker."""


class Preparing(msgspec.Struct, frozen=True):
    label: str
    done: int = 0
    total: int | None = None


class End(msgspec.Struct, frozen=True):
    """An explicit end, instead of the one that follows from the steps."""

    reason: FinishReason
    usage: Usage = Usage()


ScriptStep = Union[Say, Chunks, Think, CallTool, Pause, Wait, ModelFails, Cut, Preparing, End]
Answer = Union[str, ModelTrouble, ScriptStep, Sequence[ScriptStep]]


class ScriptedModel:
    """Plays one answer per call. At the end of the script, ``then`` is played, or the call is refused.

    ``requests`` holds all requests. If several turns share the model, its answers go to them in the order of
    their calls.
    """

    def __init__(
        self,
        *script: Answer,
        name: str = "scripted:one",
        abilities: Abilities | None = None,
        clock: Clock | None = None,
        usage: Usage | None = None,
        then: Answer | None = None,
    ) -> None:
        self._script = list(script)
        self._name = name
        self._abilities = Abilities() if abilities is None else abilities
        self._clock = SystemClock() if clock is None else clock
        self._usage = Usage(input_tokens=10, output_tokens=5) if usage is None else usage
        self._then = then
        self._calls = 0
        self.requests: list[ModelRequest] = []
        self.open_streams = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def abilities(self) -> Abilities:
        return self._abilities

    def add(self, *script: Answer) -> None:
        self._script.extend(script)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        self.requests.append(request)
        steps = self._next_answer()
        if steps and isinstance(steps[0], ModelFails) and not steps[0].opens:
            raise steps[0].error
        self.open_streams += 1
        try:
            yield self._play(steps)
        finally:
            self.open_streams -= 1

    def _next_answer(self) -> list[ScriptStep]:
        if self._script:
            return _steps(self._script.pop(0))
        if self._then is not None:
            return _steps(self._then)
        raise ModelRefused(f"The script of {self._name} is over after {len(self.requests) - 1} calls.")

    async def _play(self, steps: Sequence[ScriptStep]) -> AsyncIterator[Chunk]:
        calls: list[messages.Call] = []
        reasoning: list[Reasoning] = []
        end: End | None = None
        for step in steps:
            match step:
                case Say(text, size):
                    for start in range(0, len(text), size or len(text) or 1):
                        yield TextChunk(text[start : start + (size or len(text))])
                case Chunks(text, count):
                    for _ in range(count):
                        yield TextChunk(text)
                case Think(text, opaque):
                    yield ReasoningChunk(text)
                    if opaque is not None:
                        reasoning.append(Reasoning(text, opaque=opaque, model=self._name))
                case CallTool():
                    calls.append(self._call(step))
                case Pause(seconds):
                    await self._clock.sleep(seconds)
                case Wait(event):
                    await event.wait()
                case ModelFails(error):
                    raise error
                case Cut():
                    raise StreamCut(f"The stream of {self._name} ended without its end marker.")
                case Preparing(label, done, total):
                    yield ProgressChunk(label, done, total)
                case End():
                    end = step
        reason = end.reason if end else (FinishReason.CALLS if calls else FinishReason.STOP)
        usage = end.usage if end and end.usage != Usage() else self._usage
        yield Finish(reason, tuple(calls), tuple(reasoning), usage)

    def _call(self, step: CallTool) -> messages.Call:
        self._calls += 1
        arguments = step.arguments if isinstance(step.arguments, str) else json.dumps(step.arguments)
        return messages.Call(step.id or f"call_{self._calls}", step.name, arguments)


class ScriptedModels:
    """Finds scripted models by name; the first is the default. ``prices``: dollars per token of input and of
    output, by name."""

    def __init__(
        self,
        *models: Model,
        troubles: Mapping[str, ModelTrouble] | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._models = {model.name: model for model in models}
        self._troubles = dict(troubles or {})
        self._default = models[0].name if models else "scripted:none"
        self._prices = dict(prices or {})

    @property
    def default(self) -> str:
        return self._default

    async def get(self, name: str | None) -> Model:
        await anyio.lowlevel.checkpoint()
        wanted = name or self._default
        if wanted in self._troubles:
            raise self._troubles[wanted]
        if wanted not in self._models:
            raise ModelUnknown(f"There is no model {wanted}.", hint="Choose one of the list.")
        return self._models[wanted]

    async def cost(self, name: str, usage: Usage) -> float | None:
        await anyio.lowlevel.checkpoint()
        if name not in self._prices:
            return None
        per_input, per_output = self._prices[name]
        return (usage.input_tokens or 0) * per_input + (usage.output_tokens or 0) * per_output


def _steps(answer: Answer) -> list[ScriptStep]:
    if isinstance(answer, str):
        return [Say(answer)]
    if isinstance(answer, ModelTrouble):
        return [ModelFails(answer)]
    if isinstance(answer, (list, tuple)):
        return list(answer)
    return [answer]  # type: ignore[list-item]  # what is left is one step
