"""Other providers, through the pydantic-ai package: ``pydantic-ai:mistral:…``.

The package is imported with the first call. It reads keys from the environment, under the names that the
providers' own packages use. Each call is one request: it never retries and runs no tools.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio.to_thread
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.extras import install_command
from everturn.domain.messages import Call, Reasoning
from everturn.domain.model import (
    Abilities,
    Chunk,
    Finish,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
)
from everturn.domain.model_errors import (
    ModelDropped,
    ModelKeyMissing,
    ModelRefused,
    ModelTimeout,
    ModelTrouble,
    ModelUnknown,
)
from everturn.domain.turns import FinishReason, Usage
from everturn.models import failures
from everturn.models.history import Image, ModelStep, UserStep, arguments_text, history_steps, unique_calls
from everturn.models.keys import redact
from everturn.models.wire import digest, encode

PREFIX = "pydantic-ai:"

_Package = Any  # it is imported when it is first needed, and its types with it
_SENTENCE_CHARS_MAX = 400
_RETURNED = ("id", "signature", "provider_name")  # of reasoning, to the provider that made it
_FINISHES = {
    "stop": FinishReason.STOP,
    "tool_call": FinishReason.CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTERED,
}


class PydanticModel:
    """Implements ``domain.model.Model``. ``model``: the name as pydantic-ai writes it, ``provider:name``."""

    def __init__(self, model: str, clock: Clock, abilities: Abilities | None = None) -> None:
        self._model = model
        self._clock = clock
        self._abilities = abilities or Abilities()

    @property
    def name(self) -> str:
        return PREFIX + self._model

    @property
    def abilities(self) -> Abilities:
        return self._abilities

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        package = await anyio.to_thread.run_sync(_import)
        model = await anyio.to_thread.run_sync(self._find, package)
        async with aclosing(self._chunks(package, model, request)) as chunks:
            yield chunks

    def _find(self, package: _Package) -> _Package:
        """The package's model. Its providers need packages and keys of their own."""
        try:
            return package.models.infer_model(self._model)
        except ImportError as error:
            raise ModelUnknown(f"{self.name} needs another package.", hint=_sentence(error)) from error
        except package.exceptions.UserError as error:
            kind = ModelKeyMissing if "API_KEY" in str(error) else ModelUnknown
            raise kind(f"{self.name} cannot be used.", hint=_sentence(error)) from error

    async def _chunks(
        self, package: _Package, model: _Package, request: ModelRequest
    ) -> AsyncGenerator[Chunk, None]:
        has_begun = False
        try:
            async with (
                model,  # closes its connections at the end
                package.direct.model_request_stream(
                    model,
                    _messages(package, request, self),
                    model_settings=_settings(request, self._abilities),
                    model_request_parameters=_parameters(package, request, self._abilities),
                ) as stream,
            ):
                async for event in stream:
                    if (chunk := _chunk(package, event)) is not None:
                        has_begun = True
                        yield chunk
                yield self._finish(package, stream.get(), request)
        except (ModelTrouble, GeneratorExit):
            raise
        except Exception as error:  # whatever the provider's package raises
            raise self._trouble(package, error, has_begun) from error

    def _finish(self, package: _Package, response: _Package, request: ModelRequest) -> Finish:
        kinds = package.messages
        made = [part for part in response.parts if isinstance(part, kinds.ToolCallPart)]
        if response.finish_reason not in _FINISHES or (response.finish_reason == "tool_call" and not made):
            # Packages accept a stream that merely stops; for us it is an interrupted step.
            raise failures.cut(
                self.name, f"the stream ended with {response.finish_reason or 'no end marker'}"
            )
        calls = [Call(part.tool_call_id, part.tool_name, part.args_as_json_str()) for part in made]
        thoughts = [part for part in response.parts if isinstance(part, kinds.ThinkingPart)]
        reasoning = tuple(
            Reasoning(part.content, opaque=_opaque_of(part), model=self.name)
            for part in thoughts
            if part.content
        )
        salt = digest(encode([len(request.messages), self.name]))
        reason = FinishReason.CALLS if calls else _FINISHES[response.finish_reason]
        return Finish(reason, unique_calls(calls, request, lambda: salt), reasoning, _usage(response))

    def _trouble(self, package: _Package, error: Exception, has_begun: bool) -> ModelTrouble:
        errors = package.exceptions
        if isinstance(error, errors.ModelHTTPError):
            body = error.body if isinstance(error.body, (str, bytes)) else encode(error.body)
            raw = body.encode() if isinstance(body, str) else body
            headers = {key.lower(): value for key, value in (getattr(error, "headers", None) or {}).items()}
            return failures.from_status(
                self.name,
                error.status_code,
                headers,
                raw,
                self._clock.now_ms(),
                lambda text: redact(text, ()),
            )
        if isinstance(error, errors.UserError):
            return ModelRefused(f"{self.name} refused the request.", hint=_sentence(error))
        said = f"{type(error).__name__} {error}".lower()
        if "timeout" in said or "timed out" in said:
            return ModelTimeout(f"{self.name} did not answer in time.")
        when = "in the middle of its answer" if has_begun else "before it answered"
        return ModelDropped(f"The connection to {self.name} broke {when}.", hint=_sentence(error))


def _import() -> _Package:
    try:
        package = importlib.import_module("pydantic_ai")
        for part in ("direct", "exceptions", "messages", "models", "tools"):
            importlib.import_module(f"pydantic_ai.{part}")
    except ImportError as error:
        raise ModelUnknown(
            "Models of pydantic-ai need its package.", hint=f"Install it: {install_command('pydantic-ai')}"
        ) from error
    return package


def _redact(text: str) -> str:
    return redact(text, ())


def _sentence(error: Exception) -> str:
    return _redact(str(error))[:_SENTENCE_CHARS_MAX]


def _arguments(part: _Package) -> str:
    """As the model wrote them."""
    return part.args if isinstance(part.args, str) else part.args_as_json_str()


def _settings(request: ModelRequest, abilities: Abilities) -> dict[str, object]:
    settings: dict[str, object] = {"max_retries": 0}
    if request.output_tokens_max is not None:
        settings["max_tokens"] = request.output_tokens_max
    if request.temperature is not None and abilities.temperature:
        settings["temperature"] = request.temperature
    return settings


def _parameters(package: _Package, request: ModelRequest, abilities: Abilities) -> _Package:
    tools = sorted(request.tools, key=lambda tool: tool.name) if abilities.tools else []
    define = package.tools.ToolDefinition
    return package.models.ModelRequestParameters(
        function_tools=[
            define(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
            for tool in tools
        ]
    )


def _messages(package: _Package, request: ModelRequest, model: PydanticModel) -> list[_Package]:
    kinds = package.messages
    found: list[_Package] = []
    waiting: list[_Package] = [kinds.SystemPromptPart(request.system)] if request.system else []
    for step in history_steps(request, request.messages, sees_images=model.abilities.images):
        if isinstance(step, UserStep):
            waiting.append(kinds.UserPromptPart(_content(kinds, step.parts)))
            continue
        if waiting:
            found.append(kinds.ModelRequest(parts=waiting))
        found.append(kinds.ModelResponse(parts=_write_step(kinds, step, model.name)))
        waiting = [
            kinds.ToolReturnPart(result.name, result.text, tool_call_id=result.call_id)
            for result in step.results
        ]
    if waiting:
        found.append(kinds.ModelRequest(parts=waiting))
    return found


def _content(kinds: _Package, parts: Sequence[str | Image]) -> str | list[_Package]:
    if all(isinstance(part, str) for part in parts):
        return "\n\n".join(str(part) for part in parts)
    return [
        part if isinstance(part, str) else kinds.BinaryContent(part.content, media_type=part.media_type)
        for part in parts
    ]


def _write_step(kinds: _Package, step: ModelStep, name: str) -> list[_Package]:
    # Another model's reasoning is useless to this one, and its signatures are rejected.
    parts: list[_Package] = [
        kinds.ThinkingPart(thought.text, **{key: thought.opaque.get(key) for key in _RETURNED})
        for thought in step.reasoning
        if thought.model == name and isinstance(thought.opaque, dict)
    ]
    if step.text:
        parts.append(kinds.TextPart(step.text))
    parts += [kinds.ToolCallPart(call.name, arguments_text(call), call.id) for call in step.calls]
    return parts


def _opaque_of(part: _Package) -> dict[str, str]:
    """What a provider wants back with its reasoning."""
    return {key: value for key in _RETURNED if (value := getattr(part, key))}


def _chunk(package: _Package, event: _Package) -> Chunk | None:
    kinds = package.messages
    if isinstance(event, kinds.PartStartEvent):
        part, text = event.part, getattr(event.part, "content", "")
        is_text, is_thought = isinstance(part, kinds.TextPart), isinstance(part, kinds.ThinkingPart)
    elif isinstance(event, kinds.PartDeltaEvent):
        part, text = event.delta, getattr(event.delta, "content_delta", "")
        is_text, is_thought = isinstance(part, kinds.TextPartDelta), isinstance(part, kinds.ThinkingPartDelta)
    else:
        return None
    if not text:
        return None
    return TextChunk(text) if is_text else ReasoningChunk(text) if is_thought else None


def _usage(response: _Package) -> Usage:
    usage = response.usage
    found = Usage(
        input_tokens=usage.input_tokens or None,
        output_tokens=usage.output_tokens or None,
        cached_tokens=usage.cache_read_tokens or None,
        reasoning_tokens=usage.details.get("reasoning_tokens"),
    )
    try:
        cost = float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return found  # its price is not known
    return msgspec.structs.replace(found, cost_usd=cost)
