"""The body of a request in OpenAI's format: transcript, tools and settings."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from functools import partial

from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Call, Message, Role
from everturn.domain.model import ModelRequest, ToolSchema
from everturn.domain.parameters import Effort
from everturn.models.history import PICTURES, Image, ModelStep, UserStep, arguments_text, history_steps
from everturn.models.history_cache import HistoryCache
from everturn.models.wire import Target, digest

_ID_CHARS_MAX = 40
_MISTRAL = re.compile(r"(?:mi|mini|code|dev|magi)stral|(?:mi|pi|vo)xtral", re.IGNORECASE)
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")


def fields_of(request: ModelRequest, target: Target, cache: HistoryCache) -> JsonObject:
    """The fields of the request's body."""
    body: JsonObject = {
        "model": target.model,
        "messages": _messages(request, target, cache),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools and target.abilities.tools:
        body["tools"] = [_tool(tool) for tool in sorted(request.tools, key=lambda tool: tool.name)]
    if request.output_tokens_max is not None:
        body[target.tokens_field] = request.output_tokens_max
    if request.temperature is not None and target.abilities.temperature:
        body["temperature"] = request.temperature
    if request.effort is not None:
        body |= _effort(request.effort, target)
    if request.json_schema is not None:
        form = {"name": "answer", "schema": request.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if request.grammar:
        body["grammar"] = request.grammar
    if request.prefix and target.continues_by == "final":
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return {**target.extra, **body}


def _effort(effort: Effort, target: Target) -> JsonObject:
    if target.effort_field == "reasoning":  # OpenRouter's
        is_off = effort is Effort.OFF
        return {"reasoning": {"enabled": False} if is_off else {"effort": effort.value}}
    return {target.effort_field: "none" if effort is Effort.OFF else effort.value}


def _messages(request: ModelRequest, target: Target, cache: HistoryCache) -> list[Json]:
    messages: list[Json] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    kept, rest = cache.split(target, request.messages, partial(_write_all, request, target, is_end=False))
    messages += [*kept, *_write_all(request, target, rest)]
    if request.prefix and target.continues_by:
        last: JsonObject = {"role": "assistant", "content": request.prefix}
        messages.append({**last, "prefix": True} if target.continues_by == "flag" else last)
    return messages


def _write_all(
    request: ModelRequest, target: Target, spoken: Sequence[Message], *, is_end: bool = True
) -> list[JsonObject]:
    messages: list[JsonObject] = []
    for step in history_steps(request, spoken, sees_images=target.abilities.images, is_end=is_end):
        if isinstance(step, UserStep):
            messages.append({"role": "user", "content": _content(step.parts)})
        else:
            messages.append(_assistant(step, target))
            messages += [
                {"role": "tool", "tool_call_id": _wire_id(result.call_id, target), "content": result.text}
                for result in step.results
            ]
            if step.pictures and not _MISTRAL.search(target.model):  # Mistral wants its answer there
                pictures = [picture for found in step.pictures.values() for picture in found]
                messages.append({"role": "user", "content": _content((PICTURES, *pictures))})
    return messages


def _content(parts: tuple[str | Image, ...]) -> str | list[JsonObject]:
    """A plain string if there is only text: small servers accept nothing else."""
    if all(isinstance(part, str) for part in parts):
        return "\n\n".join(str(part) for part in parts)
    return [{"type": "text", "text": part} if isinstance(part, str) else _image(part) for part in parts]


def _image(image: Image) -> JsonObject:
    data = base64.b64encode(image.content).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}


def _assistant(said: ModelStep, target: Target) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": said.text or None}
    if said.calls:
        message["tool_calls"] = [
            {
                "id": _wire_id(call.id, target),
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in said.calls
        ]
    for thought in said.reasoning:
        # Another model's reasoning is useless to this one, and its signatures are rejected.
        if thought.model != target.name or not isinstance(thought.opaque, dict):
            continue
        if thought.opaque.get("details"):
            message["reasoning_details"] = thought.opaque["details"]
        elif said.calls and thought.opaque.get("field") and thought.text:
            # Sent back only with calls, where the model continues the same thought.
            message[str(thought.opaque["field"])] = thought.text
    return message


def _wire_id(call_id: str, target: Target) -> str:
    """The call id in a form that this model accepts.

    Another provider may have made it: OpenAI rejects more than 40 characters, Mistral's templates everything
    but nine letters and digits. A model's own id stays: some models read it.
    """
    if _MISTRAL.search(target.model):
        return call_id if _MISTRAL_ID.fullmatch(call_id) else digest(call_id.encode())[:9]
    return short_id(call_id)


def short_id(call_id: str) -> str:
    return call_id if len(call_id) <= _ID_CHARS_MAX else "call_" + digest(call_id.encode())


def has_called(request: ModelRequest) -> bool:
    """Whether the turn of this request has made calls."""
    for message in reversed(request.messages):
        if message.role is Role.USER and not message.is_steering:
            return False
        if any(isinstance(part, Call) for part in message.parts):
            return True
    return False


def without(fields: JsonObject, refused: str) -> JsonObject:
    rest = {name: value for name, value in fields.items() if name != refused}
    if refused == "max_tokens":
        rest["max_completion_tokens"] = fields[refused]
    return rest


def _tool(tool: ToolSchema) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
