from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.messages import Call, Outcome, Reasoning, Result, Role, Text
from everturn.domain.model import Abilities, ModelRequest
from everturn.domain.model_errors import (
    StreamCut,
)
from everturn.domain.parameters import Effort
from everturn.domain.secrets import Secret
from everturn.domain.turns import Usage
from everturn.models.anthropic_wire import AnthropicModel, generation_of
from everturn.models.wire import Target
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    anthropic_answer,
    anthropic_block,
    anthropic_end,
    anthropic_start,
    anthropic_text,
    sse,
)
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

KEY = "planted-key-0123456789"


@pytest.fixture
def model(server: WireServer, client: httpx2.AsyncClient) -> AnthropicModel:
    return make(server, client)


def make(
    server: WireServer, client: httpx2.AsyncClient, model: str = "claude-sonnet-4-5", **more: Any
) -> AnthropicModel:
    target = Target("anthropic:m", model, server.url, key=Secret(KEY), **more)
    return AnthropicModel(target, client, SystemClock())


async def test_text_and_usage(model: AnthropicModel, server: WireServer) -> None:
    start = anthropic_start(
        input_tokens=5, cache_read_input_tokens=100, cache_creation_input_tokens=20, output_tokens=1
    )
    server.play(
        WireAnswer(
            sse(start, {"type": "ping"}, *anthropic_text(0, "Good ", "day."), *anthropic_end(output_tokens=9))
        )
    )
    chunks = await collect(model, asks())
    assert text_of(chunks) == "Good day."
    # Input counts all that was read: fresh, from the cache, and written to it.
    assert finish_of(chunks).usage == Usage(125, 9, 100)
    sent = server.requests[0]
    assert (sent.path, sent.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert sent.headers["anthropic-version"] == "2023-06-01"


async def test_the_cost_and_what_the_prompt_cache_saved(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    async def price(model: str, usage: Usage, written: int) -> float:
        """A dollar for each token; a tenth of it for one from the cache, a quarter more for one put there."""
        assert model == "claude-sonnet-4-5"
        return (usage.input_tokens or 0) - 0.9 * (usage.cached_tokens or 0) + 0.25 * written

    target = Target("anthropic:m", "claude-sonnet-4-5", server.url)
    model = AnthropicModel(target, client, SystemClock(), price)
    start = anthropic_start(input_tokens=5, cache_read_input_tokens=100, cache_creation_input_tokens=20)
    server.play(WireAnswer(sse(start, *anthropic_text(0, "x"), *anthropic_end())))
    usage = finish_of(await collect(model, asks())).usage
    assert (usage.input_tokens, usage.cost_usd, usage.saved_usd) == (125, 40.0, 85.0)
    first = anthropic_start(input_tokens=5, cache_creation_input_tokens=20)
    server.play(WireAnswer(sse(first, *anthropic_text(0, "x"), *anthropic_end())))
    assert finish_of(await collect(model, asks())).usage.saved_usd == -5.0, "putting it there costs more"
    server.play(WireAnswer(anthropic_answer(["x"])))
    assert finish_of(await collect(model, asks())).usage.saved_usd is None, "nothing to be saved"


async def test_without_a_price_it_is_not_known_what_was_saved(
    model: AnthropicModel, server: WireServer
) -> None:
    start = anthropic_start(input_tokens=5, cache_read_input_tokens=100)
    server.play(WireAnswer(sse(start, *anthropic_text(0, "x"), *anthropic_end())))
    usage = finish_of(await collect(model, asks())).usage
    assert (usage.cached_tokens, usage.cost_usd, usage.saved_usd) == (100, None, None)


async def test_line_endings_comments_and_kinds_of_the_future(
    model: AnthropicModel, server: WireServer
) -> None:
    events = [
        anthropic_start(),
        {"type": "weather", "delta": {"type": "rain"}},
        *anthropic_text(0, "ab"),
        *anthropic_end(),
    ]
    server.play(WireAnswer([b": keep-alive\r\n\r\n", *sse(*events, end=b"\r\n\r\n")]))
    assert text_of(await collect(model, asks())) == "ab"


async def test_parallel_calls_with_split_arguments(model: AnthropicModel, server: WireServer) -> None:
    def piece(text: str) -> dict[str, Any]:
        return {"type": "input_json_delta", "partial_json": text}

    events = [
        anthropic_start(),
        *anthropic_text(0, "Let me."),
        *anthropic_block(
            1,
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
            piece(""),
            piece('{"a"'),
            piece(": 1}"),
        ),
        *anthropic_block(2, {"type": "tool_use", "id": "toolu_2", "name": "write", "input": {}}),
        *anthropic_block(3, {"type": "tool_use", "id": "toolu_3", "name": "add", "input": {"b": 2}}),
        *anthropic_end("tool_use"),
    ]
    server.play(WireAnswer(sse(*events)))
    chunks = await collect(model, asks(tools=TOOLS))
    assert text_of(chunks) == "Let me."
    assert finish_of(chunks).reason == "calls"
    assert finish_of(chunks).calls == (
        Call("toolu_1", "add", '{"a": 1}'),
        Call("toolu_2", "write", "{}"),
        Call("toolu_3", "add", '{"b":2}'),
    )


async def test_thinking_goes_back_with_its_signature(model: AnthropicModel, server: WireServer) -> None:
    events = [
        anthropic_start(),
        *anthropic_block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm "},
            {"type": "thinking_delta", "thinking": "ok"},
            {"type": "signature_delta", "signature": "SIG"},
        ),
        *anthropic_block(1, {"type": "redacted_thinking", "data": "HIDDEN"}),
        *anthropic_text(2, "42"),
        *anthropic_end(),
    ]
    server.play(WireAnswer([b"".join(sse(*events))]))
    chunks = await collect(model, asks())
    assert (thought_of(chunks), text_of(chunks)) == ("hm ok", "42")
    reasoning = finish_of(chunks).reasoning
    assert reasoning == (
        Reasoning("hm ok", opaque={"signature": "SIG"}, model="anthropic:m"),
        Reasoning("", opaque={"data": "HIDDEN"}, model="anthropic:m"),
    )
    after = ModelRequest("", (user("x"), message(Role.ASSISTANT, *reasoning, Text("42")), user("y")))
    assert json.loads(model.body(after))["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm ok", "signature": "SIG"},
        {"type": "redacted_thinking", "data": "HIDDEN"},
        {"type": "text", "text": "42"},
    ]


async def test_servers_that_speak_like_it(model: AnthropicModel, server: WireServer) -> None:
    """Nulls where there is nothing, a thought in the block's beginning, and the other wire's last word."""
    block = {"type": "tool_use", "id": "t1", "name": "add", "input": None, "text": None, "signature": None}
    events = [
        anthropic_start(),
        *anthropic_block(0, {"type": "thinking", "thinking": "hm", "signature": None, "data": None}),
        *anthropic_block(1, {"type": "text", "text": None}, {"type": "text_delta", "text": "ok"}),
        *anthropic_block(2, block),
        *anthropic_end("tool_use"),
        b"[DONE]",
    ]
    server.play(WireAnswer([b"".join(sse(*events))]))
    chunks = await collect(model, asks())
    assert (thought_of(chunks), text_of(chunks)) == ("hm", "ok")
    assert finish_of(chunks).calls == (Call("t1", "add", "{}"),)


@pytest.mark.parametrize(
    ("said", "means"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("refusal", "filtered"), ("stop_sequence", "stop")],
)
async def test_reasons_of_the_end(model: AnthropicModel, server: WireServer, said: str, means: str) -> None:
    server.play(WireAnswer(anthropic_answer(["x"], said)))
    assert finish_of(await collect(model, asks())).reason == means


# --- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail",
    [[], sse({"type": "message_stop"}), [b'data: {"type":"content_bl']],
    ids=["nothing", "stop without reason", "torn event"],
)
async def test_a_stream_without_its_proper_end_is_cut(
    model: AnthropicModel, server: WireServer, tail: list[bytes]
) -> None:
    events = sse(anthropic_start(), *anthropic_text(0, "partial"))
    server.play(WireAnswer([*events, *tail], ending="cut"))
    text, error = await collect_until_trouble(model, asks())
    assert (text, type(error)) == ("partial", StreamCut)


# --- requests --------------------------------------------------------------------------------------


async def test_the_history_as_it_is_sent(server: WireServer, client: httpx2.AsyncClient) -> None:
    model = make(server, client, abilities=Abilities(images=True))
    sent = json.loads(model.body(long_history("anthropic:m")))
    assert [entry["role"] for entry in sent["messages"]] == ["user", "assistant", "user"]
    asked, said, after = (entry["content"] for entry in sent["messages"])
    assert asked[2]["source"] == {"type": "base64", "media_type": "image/png", "data": "UE5H"}
    assert [block["type"] for block in said] == ["thinking", "text", "tool_use", "tool_use"]
    assert said[0]["signature"] == "sig"
    assert said[3]["input"] == {"malformed_arguments": "{broken"}
    # Results come first in the message that follows the calls, what the user says after them.
    assert [block["type"] for block in after] == ["tool_result", "tool_result", "text", "text"]
    assert [block["is_error"] for block in after[:2]] == [False, True]
    assert "foreign" not in json.dumps(sent)
    assert "half an ans" not in json.dumps(sent)


async def test_the_prompt_cache_is_asked_for(model: AnthropicModel) -> None:
    marks = {"type": "ephemeral"}
    sent = json.loads(model.body(long_history("anthropic:m")))
    assert sent["system"][0]["cache_control"] == marks
    assert [message["content"][-1].get("cache_control") for message in sent["messages"]] == [
        marks,
        None,
        marks,
    ]
    assert json.dumps(sent).count("cache_control") == 3  # four are allowed
    bare = json.loads(model.body(ModelRequest("", (user("x"),), TOOLS)))
    assert bare["tools"][-1]["cache_control"] == marks


async def test_ids_of_other_providers_are_made_fit(model: AnthropicModel) -> None:
    request = ModelRequest(
        "",
        (
            user("x"),
            message(Role.ASSISTANT, Call("functions.add:0", "add", "{}")),
            message(Role.TOOL, Result("functions.add:0", "add", "", Outcome.DENIED)),
        ),
    )
    sent = json.loads(model.body(request))["messages"]
    assert sent[1]["content"][0]["id"] == "functions_add_0" == sent[2]["content"][0]["tool_use_id"]
    assert sent[2]["content"][0]["content"]  # empty is refused by the provider


async def test_going_on_from_a_prefix_neither_doubles_nor_loses_the_space(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    model = make(server, client, continues_by="last")
    for texts in (["  two"], [" ", " two"], ["two"]):
        server.play(WireAnswer(anthropic_answer(texts)))
        assert text_of(await collect(model, asks(prefix="One  "))) == "two"
        assert server.requests[-1].json["messages"][-1] == {"role": "assistant", "content": "One"}


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("claude-3-5-haiku-20241022", (3, 5)),
        ("claude-3-haiku-20240307", (3, 0)),
        ("claude-opus-4-20250514", (4, 0)),
        ("claude-opus-4-1-20250805", (4, 1)),
        ("claude-sonnet-4-5", (4, 5)),
        ("claude-opus-4-7", (4, 7)),
        ("claude-sonnet-5", (5, 0)),
        ("minimax-m2", None),
    ],
)
def test_generations(name: str, version: tuple[int, int] | None) -> None:
    assert generation_of(name).version == version


async def test_what_a_generation_refuses_is_not_sent(server: WireServer, client: httpx2.AsyncClient) -> None:
    request = asks(temperature=0.2, json_schema={"type": "object"})
    old = json.loads(make(server, client, "claude-3-haiku-20240307").body(request))
    new = json.loads(make(server, client, "claude-opus-4-7", thinks=True).body(request))
    assert (old["temperature"], old["max_tokens"]) == (0.2, 4096)
    assert "output_config" not in old
    assert "temperature" not in new
    assert new["thinking"]["type"] == "adaptive"
    assert new["output_config"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("name", "effort", "sent"),
    [
        ("claude-sonnet-4-5", Effort.LOW, {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("claude-sonnet-4-5", Effort.HIGH, {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
        ("claude-opus-4-7", Effort.HIGH, {"output_config": {"effort": "high"}}),
        ("claude-sonnet-4-5", Effort.OFF, {}),
    ],
)
async def test_the_effort_of_reasoning(
    server: WireServer, client: httpx2.AsyncClient, name: str, effort: Effort, sent: dict[str, Any]
) -> None:
    body = json.loads(make(server, client, name, thinks=True).body(asks(effort=effort)))
    assert {field: body.get(field) for field in sent} == sent
    assert ("thinking" in body) is (effort is not Effort.OFF)


async def test_what_goes_on_from_a_prefix_does_not_think_again(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    sent = json.loads(make(server, client, continues_by="last").body(asks(prefix="One", effort=Effort.HIGH)))
    assert "thinking" not in sent


async def test_thinking_of_older_generations_has_a_budget_below_the_limit(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    sent = json.loads(make(server, client, thinks=True).body(asks(output_tokens_max=1000, temperature=1)))
    assert sent["thinking"]["budget_tokens"] < sent["max_tokens"]
    assert "temperature" not in sent
