"""How the protocols whose answers are events say the same things, for tests that each of them has to pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from everturn.domain.clock import SystemClock
from everturn.domain.model import Model
from everturn.domain.secrets import Secret
from everturn.models.anthropic_wire import AnthropicModel
from everturn.models.gemini_wire import GeminiModel
from everturn.models.responses_wire import ResponsesModel
from everturn.models.wire import Target
from everturn.testing.wires import (
    WireServer,
    anthropic_answer,
    anthropic_end,
    anthropic_start,
    anthropic_text,
    gemini_answer,
    gemini_event,
    responses_answer,
    responses_call,
    responses_end,
    responses_event,
    responses_text,
)

KEY = "planted-key-0123456789"
Event = dict[str, Any]


def _anthropic_calls(*calls: tuple[str, str, Sequence[str]]) -> list[Event]:
    events: list[Event] = [anthropic_start()]
    for index, (ident, name, pieces) in enumerate(calls):
        block = {"type": "tool_use", "id": ident, "name": name, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        for piece in pieces:
            delta = {"type": "input_json_delta", "partial_json": piece}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
    return [*events, *anthropic_end("tool_use")]


def _responses_calls(*calls: tuple[str, str, Sequence[str]]) -> list[Event]:
    found = [responses_call(index, ident, name, *pieces) for index, (ident, name, pieces) in enumerate(calls)]
    return [*(event for events in found for event in events), responses_end()]


def _gemini_calls(*calls: tuple[str, str, Sequence[str]]) -> list[Event]:
    parts = [
        {"functionCall": {"id": ident, "name": name, "args": json.loads("".join(pieces) or "{}")}}
        for ident, name, pieces in calls
    ]
    return [gemini_event(*parts), gemini_event(finish="STOP")]


@dataclass(frozen=True)
class Dialect:
    """``begun``: an answer with these words and no end. ``error``: an error event with a type and a message."""

    name: str
    model: type[Any]
    path: str  # behind the server's address
    request_path: str
    key_header: tuple[str, str]
    answer: Callable[[Sequence[str]], list[bytes]]
    begun: Callable[[str], list[Event]]
    calls: Callable[..., list[Event]]
    error: Callable[[str, str], Event]
    default_model: str

    def make(self, server: WireServer, client: httpx2.AsyncClient, model: str = "", **more: Any) -> Model:
        target = Target(
            "fake:m", model or self.default_model, server.url + self.path, key=Secret(KEY), **more
        )
        made: Model = self.model(target, client, SystemClock())
        return made


DIALECTS = (
    Dialect(
        "anthropic",
        AnthropicModel,
        "",
        "/v1/messages",
        ("x-api-key", KEY),
        anthropic_answer,
        lambda text: [anthropic_start(), *anthropic_text(0, text)],
        _anthropic_calls,
        lambda kind, said: {"type": "error", "error": {"type": kind, "message": said}},
        "claude-sonnet-4-5",
    ),
    Dialect(
        "responses",
        ResponsesModel,
        "/v1",
        "/v1/responses",
        ("authorization", f"Bearer {KEY}"),
        responses_answer,
        lambda text: responses_text(text),
        _responses_calls,
        lambda kind, said: responses_event("failed", response={"error": {"code": kind, "message": said}}),
        "gpt-5-mini",
    ),
    Dialect(
        "gemini",
        GeminiModel,
        "/v1beta",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        ("x-goog-api-key", KEY),
        gemini_answer,
        lambda text: [gemini_event({"text": text})],
        _gemini_calls,
        lambda kind, said: {"error": {"type": kind, "message": said}},
        "gemini-2.5-flash",
    ),
)
