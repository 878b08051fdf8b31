"""The pictures of tools' results reach the models that can see, in the form that each protocol takes."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.messages import Call, Message, Outcome, Result, Role, Text
from everturn.domain.model import Abilities, ModelRequest
from everturn.domain.secrets import Secret
from everturn.models.anthropic_wire import AnthropicModel
from everturn.models.gemini_wire import GeminiModel
from everturn.models.history_cache import MESSAGES_MIN
from everturn.models.openai_wire import OpenAIModel
from everturn.models.responses_wire import ResponsesModel
from everturn.models.wire import Target
from everturn.testing.wires import WireServer
from tests.unit.models.samples import message, user

pytestmark = pytest.mark.anyio
DISPLAY = {"kind": "images", "items": [{"id": "fil_1", "name": "plot.png", "media": "image/png", "size": 3}]}


def history(outcome: Outcome = Outcome.OK) -> tuple[Message, ...]:
    return (
        user("Draw."),
        message(Role.ASSISTANT, Call("c1", "python", "{}"), Call("c2", "python", "{}")),
        message(
            Role.TOOL, Result("c1", "python", "drawn", outcome, display=DISPLAY), Result("c2", "python", "2")
        ),
    )


def sent(
    kind: type[Any],
    server: WireServer,
    client: httpx2.AsyncClient,
    *,
    images: bool = True,
    name: str = "m",
    **more: Any,
) -> Any:
    target = Target("fake:m", name, server.url, key=Secret("k"), abilities=Abilities(images=images))
    messages = more.pop("messages", history())
    request = ModelRequest("", messages, files={"fil_1": b"PNG"}, **more)
    return json.loads(kind(target, client, SystemClock()).body(request))


async def test_anthropic_has_it_in_the_result(server: WireServer, client: httpx2.AsyncClient) -> None:
    [first, second] = sent(AnthropicModel, server, client)["messages"][-1]["content"]
    assert [part["type"] for part in first["content"]] == ["text", "image"]
    assert first["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "UE5H"}
    assert second["content"] == "2"
    failed = sent(AnthropicModel, server, client, messages=history(Outcome.ERROR))
    assert failed["messages"][-1]["content"][0]["content"] == "drawn"  # errors hold text only


async def test_responses_has_it_in_the_output(server: WireServer, client: httpx2.AsyncClient) -> None:
    [first, second] = [
        item
        for item in sent(ResponsesModel, server, client)["input"]
        if item.get("type") == "function_call_output"
    ]
    assert [part["type"] for part in first["output"]] == ["input_text", "input_image"]
    assert first["output"][1]["image_url"] == "data:image/png;base64,UE5H"
    assert second["output"] == "2"


async def test_gemini_has_it_beside_the_results(server: WireServer, client: httpx2.AsyncClient) -> None:
    parts = sent(GeminiModel, server, client)["contents"][-1]["parts"]
    assert [next(iter(part)) for part in parts] == [
        "functionResponse",
        "functionResponse",
        "text",
        "inlineData",
    ]
    assert parts[3]["inlineData"] == {"mimeType": "image/png", "data": "UE5H"}


async def test_the_chat_format_has_it_in_a_message_after_all_results(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    messages = sent(OpenAIModel, server, client)["messages"]
    assert [entry["role"] for entry in messages[-3:]] == ["tool", "tool", "user"]
    text, image = messages[-1]["content"]
    assert "not instruction" in text["text"]
    assert image["image_url"]["url"] == "data:image/png;base64,UE5H"
    other = sent(OpenAIModel, server, client, name="mistral-large")["messages"]
    assert other[-1]["role"] == "tool"  # it wants its own answer after a result


@pytest.mark.parametrize("kind", [AnthropicModel, ResponsesModel, GeminiModel, OpenAIModel])
async def test_a_blind_model_has_the_text(
    kind: type[Any], server: WireServer, client: httpx2.AsyncClient
) -> None:
    words = json.dumps(sent(kind, server, client, images=False))
    assert "UE5H" not in words
    assert "drawn" in words


@pytest.mark.parametrize("kind", [AnthropicModel, ResponsesModel, GeminiModel, OpenAIModel])
async def test_a_long_history_is_the_same_from_the_cache(
    kind: type[Any], server: WireServer, client: httpx2.AsyncClient
) -> None:
    """What is sent of a picture changes with what else is attached, so it is never in the cached part."""
    old = tuple(m for n in range(MESSAGES_MIN) for m in (user(f"{n}"), message(Role.ASSISTANT, Text("yes"))))
    messages = (*old, *history(), message(Role.ASSISTANT, Text("There.")), user("And?"))
    target = Target("fake:m", "m", server.url, key=Secret("k"), abilities=Abilities(images=True))
    model = kind(target, client, SystemClock())
    seen, unseen = (ModelRequest("", messages, files=files) for files in ({"fil_1": b"PNG"}, {}))
    assert model.body(seen) == model.body(seen)
    assert b"UE5H" in model.body(seen)
    assert b"UE5H" not in model.body(unseen)
    assert b"UE5H" in model.body(seen)
