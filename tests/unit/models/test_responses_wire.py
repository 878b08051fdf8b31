"""What only OpenAI's Responses protocol has: items in their order, encrypted reasoning, limits."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.messages import Call, Message, Outcome, Reasoning, Result, Role, Text
from everturn.domain.model import Abilities, ModelRequest, ProgressChunk
from everturn.domain.model_errors import ModelRefused
from everturn.domain.parameters import Effort
from everturn.domain.turns import Usage
from everturn.models.responses_wire import ResponsesModel
from everturn.models.wire import Target
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    refuse,
    responses_answer,
    responses_call,
    responses_end,
    responses_event,
    responses_text,
    sse,
)
from tests.unit.models.samples import (
    TOOLS,
    asks,
    collect,
    finish_of,
    long_history,
    message,
    text_of,
    thought_of,
    user,
)

pytestmark = pytest.mark.anyio

THINKS = Abilities(images=True, reasoning=True, efforts=(Effort.OFF, Effort.LOW, Effort.HIGH))


def make(server: WireServer, client: httpx2.AsyncClient, **more: Any) -> ResponsesModel:
    more = {"abilities": THINKS, **more}
    return ResponsesModel(Target("openai:m", "gpt-5-mini", server.url + "/v1", **more), client, SystemClock())


@pytest.fixture
def model(server: WireServer, client: httpx2.AsyncClient) -> ResponsesModel:
    return make(server, client)


def reasoning_item(index: int, secret: str, *summary: str) -> list[Any]:
    item = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
    whole = {
        **item,
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "encrypted_content": secret,
    }
    events: list[Any] = [responses_event("output_item.added", output_index=index, item=item)]
    for number, text in enumerate(summary):
        place = {"output_index": index, "summary_index": number}
        events.append(responses_event("reasoning_summary_part.added", part={}, **place))
        events.append(responses_event("reasoning_summary_text.delta", delta=text, **place))
    return [*events, responses_event("output_item.done", output_index=index, item=whole)]


async def test_usage_with_what_came_from_the_cache(model: ResponsesModel, server: WireServer) -> None:
    end = responses_end(
        input_tokens=30,
        output_tokens=7,
        input_tokens_details={"cached_tokens": 20},
        output_tokens_details={"reasoning_tokens": 2},
    )
    server.play(WireAnswer(sse(*responses_text("Hi"), end)))
    assert finish_of(await collect(model, asks())).usage == Usage(30, 7, 20, 2)


async def test_nothing_is_kept_at_the_provider(model: ResponsesModel) -> None:
    sent = json.loads(model.body(asks(tools=TOOLS)))
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent["instructions"] == "Be brief."
    assert [tool["name"] for tool in sent["tools"]] == ["add", "write"]


async def test_reasoning_goes_back_in_its_place_among_the_calls(
    model: ResponsesModel, server: WireServer
) -> None:
    events = [
        *reasoning_item(0, "SECRET-1", "First.", "Then."),
        *responses_call(1, "c1", "add", "{}"),
        *reasoning_item(2, "SECRET-2"),
        *responses_call(3, "c2", "write", "{}"),
        responses_end(),
    ]
    server.play(WireAnswer(sse(*events)))
    chunks = await collect(model, asks(tools=TOOLS))
    assert thought_of(chunks) == "First.\n\nThen."
    finish = finish_of(chunks)
    # As the journal holds it.
    stored = msgspec.json.decode(msgspec.json.encode(finish.reasoning), type=tuple[Reasoning, ...])
    results = [Result(call.id, call.name, "done", Outcome.OK) for call in finish.calls]
    after = ModelRequest(
        "",
        (user("x"), message(Role.ASSISTANT, *stored, *finish.calls), message(Role.TOOL, *results)),
    )
    sent = json.loads(model.body(after))["input"]
    assert [item.get("type", item.get("role")) for item in sent] == [
        "user",
        "reasoning",
        "function_call",
        "reasoning",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert sent[1] == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "First.\n\nThen."}],
        "encrypted_content": "SECRET-1",
    }
    assert (sent[3]["encrypted_content"], sent[3]["summary"]) == ("SECRET-2", [])


async def test_reasoning_without_its_secret_is_shown_and_not_sent(
    model: ResponsesModel, server: WireServer
) -> None:
    events = [*reasoning_item(0, "", "Hm."), *responses_text("42", index=1), responses_end()]
    server.play(WireAnswer(sse(*events)))
    chunks = await collect(model, asks())
    assert (thought_of(chunks), text_of(chunks)) == ("Hm.", "42")
    after: tuple[Message, ...] = (
        user("x"),
        message(Role.ASSISTANT, *finish_of(chunks).reasoning, Text("42")),
        user("y"),
    )
    assert "reasoning" not in [item.get("type") for item in _input(model, after)]


def _input(model: ResponsesModel, messages: tuple[Message, ...]) -> list[Any]:
    found: list[Any] = json.loads(model.body(ModelRequest("", messages)))["input"]
    return found


@pytest.mark.parametrize(
    ("said", "means"),
    [("max_output_tokens", "length"), ("content_filter", "filtered"), ("new", "length"), ("", "stop")],
)
async def test_reasons_of_the_end(model: ResponsesModel, server: WireServer, said: str, means: str) -> None:
    server.play(WireAnswer(responses_answer(["x"], said)))
    assert finish_of(await collect(model, asks())).reason == means


async def test_arguments_of_a_call_whose_item_was_not_closed(
    model: ResponsesModel, server: WireServer
) -> None:
    events = responses_call(0, "c1", "add", '{"a":', "1}")[:-1]
    server.play(WireAnswer(sse(*events, responses_end())))
    assert finish_of(await collect(model, asks())).calls == (Call("c1", "add", '{"a":1}'),)


async def test_the_history_as_it_is_sent(model: ResponsesModel) -> None:
    sent = json.loads(model.body(long_history("openai:m")))["input"]
    kinds = [item.get("type", item.get("role")) for item in sent]
    assert kinds == ["user", "assistant", *["function_call"] * 2, *["function_call_output"] * 2, "user"]
    assert [part["type"] for part in sent[0]["content"]] == ["input_text", "input_text", "input_image"]
    assert sent[0]["content"][2]["image_url"] == "data:image/png;base64,UE5H"
    assert sent[2]["arguments"] == '{"a": 1}'
    assert "unknown" in sent[5]["output"]


@pytest.mark.parametrize(("effort", "sent"), [(Effort.OFF, "none"), (Effort.HIGH, "high"), (None, None)])
async def test_the_effort_of_reasoning(
    model: ResponsesModel, effort: Effort | None, sent: str | None
) -> None:
    assert json.loads(model.body(asks(effort=effort)))["reasoning"].get("effort") == sent


async def test_a_model_that_does_not_reason_is_asked_for_no_reasoning(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    sent = json.loads(make(server, client, abilities=Abilities()).body(asks(temperature=0.5)))
    assert not {"reasoning", "include"} & sent.keys()
    assert sent["temperature"] == 0.5
    silent = make(server, client, abilities=Abilities(temperature=False))
    assert "temperature" not in json.loads(silent.body(asks(temperature=0.5)))


async def test_limits_and_schema(model: ResponsesModel) -> None:
    sent = json.loads(model.body(asks(output_tokens_max=9, json_schema={"type": "object"})))
    assert sent["max_output_tokens"] == 9
    assert sent["text"]["format"] == {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}


async def test_an_account_that_may_not_see_summaries_still_gets_its_effort(
    model: ResponsesModel, server: WireServer
) -> None:
    said = "Your organization must be verified to generate reasoning summaries."
    server.play(
        refuse(400, {"error": {"message": said, "param": "reasoning.summary"}}),
        WireAnswer(responses_answer(["one"])),
        WireAnswer(responses_answer(["two"])),
    )
    for _ in range(2):
        await collect(model, asks(effort=Effort.LOW))
    sent = [request.json["reasoning"] for request in server.requests]
    assert sent == [{"summary": "auto", "effort": "low"}, {"effort": "low"}, {"effort": "low"}]


@pytest.mark.parametrize(
    ("said", "field", "notes"),
    [
        ("Encrypted content is not supported with this model.", "include", 0),
        ("Unsupported parameter: 'temperature' is not supported with this model.", "temperature", 1),
        ("tools are not supported by this model", "tools", 1),
    ],
)
async def test_what_the_server_does_not_take_is_left_out(
    model: ResponsesModel, server: WireServer, said: str, field: str, notes: int
) -> None:
    server.play(refuse(400, {"error": {"message": said}}), WireAnswer(responses_answer(["Hi"])))
    chunks = await collect(model, asks(tools=TOOLS, temperature=0.1))
    first, second = (set(request.json) for request in server.requests)
    assert first - second == {field}
    assert len([chunk for chunk in chunks if isinstance(chunk, ProgressChunk)]) == notes


async def test_an_effort_that_the_model_does_not_take_is_an_error(
    model: ResponsesModel, server: WireServer
) -> None:
    said = "Unsupported value: 'reasoning.effort' does not support 'high' with this model."
    server.play(refuse(400, {"error": {"message": said}}))
    with pytest.raises(ModelRefused, match="does not support 'high'"):
        await collect(model, asks(effort=Effort.HIGH))
    assert len(server.requests) == 1
