"""What only Gemini's protocol has: signatures at parts, blocked prompts, calls that come whole."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.messages import Call, Outcome, Reasoning, Result, Role, Text
from everturn.domain.model import Abilities, ModelRequest
from everturn.domain.model_errors import ModelOverloaded, ModelRefused, RateLimited
from everturn.domain.parameters import Effort
from everturn.domain.turns import Usage
from everturn.models.gemini_wire import GeminiModel
from everturn.models.wire import Target
from everturn.testing.wires import WireAnswer, WireServer, gemini_answer, gemini_event, refuse, sse
from tests.unit.models.samples import (
    TOOLS,
    asks,
    collect,
    collect_until_trouble,
    finish_of,
    long_history,
    message,
    text_of,
    thought_of,
    user,
)

pytestmark = pytest.mark.anyio

THINKS = Abilities(images=True, efforts=(Effort.OFF, Effort.LOW, Effort.HIGH))


def make(
    server: WireServer, client: httpx2.AsyncClient, model: str = "gemini-2.5-flash", **more: Any
) -> GeminiModel:
    more = {"abilities": THINKS, **more}
    return GeminiModel(Target("google:m", model, server.url, **more), client, SystemClock())


@pytest.fixture
def model(server: WireServer, client: httpx2.AsyncClient) -> GeminiModel:
    return make(server, client)


async def test_usage_with_thoughts_and_what_came_from_the_cache(
    model: GeminiModel, server: WireServer
) -> None:
    usage: dict[str, Any] = {
        "promptTokenCount": 30,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 2,
        "cachedContentTokenCount": 20,
        "totalTokenCount": 37,
    }
    server.play(WireAnswer(gemini_answer(["Hi"], **usage)))
    assert finish_of(await collect(model, asks())).usage == Usage(30, 7, 20, 2)


async def test_signatures_go_back_to_the_parts_that_they_came_with(
    model: GeminiModel, server: WireServer
) -> None:
    events = [
        gemini_event({"text": "Hm.", "thought": True}),
        gemini_event({"text": "I will."}),
        gemini_event({"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "SIG-0"}),
        gemini_event({"functionCall": {"name": "write", "args": {}}}),
        gemini_event({"text": "", "thoughtSignature": "SIG-T"}, finish="STOP"),
    ]
    server.play(WireAnswer(sse(*events)))
    chunks = await collect(model, asks(tools=TOOLS))
    finish = finish_of(chunks)
    assert (thought_of(chunks), text_of(chunks), finish.reason) == ("Hm.", "I will.", "calls")
    # As the journal holds it.
    stored = msgspec.json.decode(msgspec.json.encode(finish.reasoning), type=tuple[Reasoning, ...])
    results = [
        Result(call.id, call.name, "no", outcome)
        for call, outcome in zip(finish.calls, (Outcome.OK, Outcome.ERROR), strict=True)
    ]
    spoken = message(Role.ASSISTANT, *stored, Text("I will."), *finish.calls)
    after = ModelRequest("", (user("x"), spoken, message(Role.TOOL, *results), user("y")))
    sent = json.loads(model.body(after))["contents"]
    assert [content["role"] for content in sent] == ["user", "model", "user", "user"]
    assert sent[1]["parts"] == [
        {"text": "I will.", "thoughtSignature": "SIG-T"},
        {"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "SIG-0"},
        {"functionCall": {"name": "write", "args": {}}},
    ]
    assert [part["functionResponse"] for part in sent[2]["parts"]] == [
        {"name": "add", "response": {"output": "no"}},
        {"name": "write", "response": {"error": "no"}},
    ]


@pytest.mark.parametrize(("name", "is_signed"), [("gemini-3-pro-preview", True), ("gemini-2.5-flash", False)])
async def test_a_call_of_another_model_gets_the_signature_that_stands_for_none(
    server: WireServer, client: httpx2.AsyncClient, name: str, is_signed: bool
) -> None:
    thought = Reasoning("x", opaque={"signatures": {"0": "FOREIGN"}}, model="google:other")
    spoken = message(Role.ASSISTANT, thought, Call("c1", "add", "{}"), Call("c2", "add", "{}"))
    sent = json.loads(make(server, client, name).body(ModelRequest("", (user("x"), spoken))))
    parts = sent["contents"][1]["parts"]
    assert ["thoughtSignature" in part for part in parts] == [is_signed, False]
    assert "FOREIGN" not in json.dumps(sent)


@pytest.mark.parametrize(
    ("said", "means"),
    [("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "filtered"), ("RECITATION", "filtered")],
)
async def test_reasons_of_the_end(model: GeminiModel, server: WireServer, said: str, means: str) -> None:
    server.play(WireAnswer(gemini_answer(["x"], said)))
    assert finish_of(await collect(model, asks())).reason == means


async def test_a_blocked_prompt_is_a_filtered_answer(model: GeminiModel, server: WireServer) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}
    server.play(WireAnswer(sse(blocked)))
    finish = finish_of(await collect(model, asks()))
    assert (finish.reason, finish.usage.input_tokens) == ("filtered", 4)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "OTHER", "A_NEW_ONE"])
async def test_an_end_that_is_a_failure_is_tried_again(
    model: GeminiModel, server: WireServer, reason: str
) -> None:
    server.play(WireAnswer(gemini_answer(["par"], reason)))
    text, error = await collect_until_trouble(model, asks())
    assert (text, type(error)) == ("par", ModelOverloaded)


async def test_the_wait_that_an_error_names(model: GeminiModel, server: WireServer) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}, {"x": 1}]
    error = {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": details}
    server.play(refuse(429, [{"error": error}]))
    _, raised = await collect_until_trouble(model, asks())
    assert isinstance(raised, RateLimited)
    assert raised.retry_after_s == 7.5


async def test_a_wrong_key_is_named_as_such(model: GeminiModel, server: WireServer) -> None:
    said = "API key not valid. Please pass a valid API key."
    server.play(refuse(400, {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}))
    _, raised = await collect_until_trouble(model, asks())
    assert isinstance(raised, ModelRefused)
    assert "API key" in raised.hint


async def test_the_request_as_it_is_sent(model: GeminiModel) -> None:
    request = msgspec.structs.replace(long_history("google:m"), output_tokens_max=9, temperature=0.5)
    sent = json.loads(model.body(request))
    assert sent["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert [content["role"] for content in sent["contents"]] == ["user", "model", "user", "user"]
    assert sent["contents"][0]["parts"][2] == {"inlineData": {"mimeType": "image/png", "data": "UE5H"}}
    (declared,) = sent["tools"]
    assert [tool["name"] for tool in declared["functionDeclarations"]] == ["add", "write"]
    config = sent["generationConfig"]
    assert (config["maxOutputTokens"], config["temperature"]) == (9, 0.5)
    constrained = json.loads(model.body(asks(json_schema={"type": "object"})))["generationConfig"]
    assert constrained["responseMimeType"] == "application/json"


@pytest.mark.parametrize(
    ("name", "effort", "sent"),
    [
        ("gemini-2.5-flash", None, {"includeThoughts": True}),
        ("gemini-2.5-flash", Effort.OFF, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.5-flash", Effort.LOW, {"includeThoughts": True, "thinkingBudget": 1024}),
        ("gemini-3-pro-preview", Effort.HIGH, {"includeThoughts": True, "thinkingLevel": "high"}),
    ],
)
async def test_the_effort_of_reasoning(
    server: WireServer, client: httpx2.AsyncClient, name: str, effort: Effort | None, sent: dict[str, Any]
) -> None:
    body = json.loads(make(server, client, name).body(asks(effort=effort)))
    assert body["generationConfig"]["thinkingConfig"] == sent


async def test_a_model_that_does_not_think_is_not_told_how(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    sent = json.loads(make(server, client, "gemini-2.0-flash", abilities=Abilities()).body(asks()))
    assert "generationConfig" not in sent
