from __future__ import annotations

import json
from typing import Any

import anyio
import httpx2
import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.errors import EverturnError
from everturn.domain.messages import Call, Reasoning, Role, Text
from everturn.domain.model import Abilities, ModelRequest, ProgressChunk, TextChunk
from everturn.domain.model_errors import (
    ContextTooLong,
    ModelDropped,
    ModelOverloaded,
    ModelRefused,
    ModelTimeout,
    ModelTrouble,
    ModelUnknown,
    RateLimited,
    StreamCut,
)
from everturn.domain.parameters import Effort
from everturn.domain.secrets import Secret
from everturn.domain.turns import Usage
from everturn.models.openai_wire import OpenAIModel
from everturn.models.wire import Target
from everturn.testing import FakeClock
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    openai_answer,
    openai_call,
    openai_delta,
    openai_usage,
    refuse,
    sse,
)
from tests.unit.models.samples import (
    TOOLS,
    asks,
    called,
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
def model(server: WireServer, client: httpx2.AsyncClient) -> OpenAIModel:
    return make(server, client)


def make(server: WireServer, client: httpx2.AsyncClient, **more: Any) -> OpenAIModel:
    target = Target("fake:m", "m", server.url + "/v1", key=Secret(KEY), **more)
    return OpenAIModel(target, client, SystemClock())


async def test_text_and_usage(model: OpenAIModel, server: WireServer) -> None:
    usage: dict[str, Any] = {
        "prompt_tokens": 30,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    server.play(WireAnswer(openai_answer(["Good ", "day."], **usage)))
    chunks = await collect(model, asks())
    assert text_of(chunks) == "Good day."
    assert finish_of(chunks).reason == "stop"
    assert finish_of(chunks).usage == Usage(30, 7, 20, 2)
    sent = server.requests[0]
    assert (sent.path, sent.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert sent.json["stream_options"] == {"include_usage": True}


async def test_each_read_is_given_out_at_once(server: WireServer, client: httpx2.AsyncClient) -> None:
    server.play(WireAnswer(sse(openai_delta(content="first")), ending="hang"))
    async with make(server, client).stream(asks()) as chunks:
        with anyio.fail_after(60):
            assert await anext(chunks) == TextChunk("first")


async def test_text_is_whole_however_the_bytes_are_torn(model: OpenAIModel, server: WireServer) -> None:
    whole = b"".join(openai_answer(["naïve ", "日本語 ", "👩‍👩‍👧‍👦"]))
    for size in (1, 2, 3, 7, 64):
        server.play(WireAnswer([whole[at : at + size] for at in range(0, len(whole), size)]))
        assert text_of(await collect(model, asks())) == "naïve 日本語 👩‍👩‍👧‍👦"


async def test_line_endings_and_comments(model: OpenAIModel, server: WireServer) -> None:
    events = sse(openai_delta(content="a"), openai_delta("stop", content="b"), b"[DONE]", end=b"\r\n\r\n")
    server.play(WireAnswer([b": OPENROUTER PROCESSING\r\n\r\n", *events]))
    assert text_of(await collect(model, asks())) == "ab"


async def test_parallel_calls_with_split_arguments(model: OpenAIModel, server: WireServer) -> None:
    events = sse(
        openai_call(0, "", "call_a", "add"),
        openai_call(1, "", "call_b", "write"),
        openai_call(0, '{"a":'),
        openai_call(1, '{"path":"é'),
        openai_call(0, " 1}"),
        openai_call(1, '.txt"}'),
        openai_delta("tool_calls"),
        b"[DONE]",
    )
    server.play(WireAnswer(events))
    finish = finish_of(await collect(model, asks(tools=TOOLS)))
    assert finish.reason == "calls"
    assert finish.calls == (Call("call_a", "add", '{"a": 1}'), Call("call_b", "write", '{"path":"é.txt"}'))


@pytest.mark.parametrize("index", [0, None], ids=["all numbered 0", "not numbered"])
async def test_calls_of_servers_that_do_not_count(
    model: OpenAIModel, server: WireServer, index: int | None
) -> None:
    events = sse(
        openai_call(index, '{"a":1', "x1", "add"),
        openai_call(index, "}"),
        openai_call(index, '{"a":2}', "x2", "add"),
        openai_delta("stop"),
    )
    server.play(WireAnswer(events))
    finish = finish_of(await collect(model, asks()))
    assert finish.calls == (Call("x1", "add", '{"a":1}'), Call("x2", "add", '{"a":2}'))
    assert finish.reason == "calls"  # whatever the server calls it


@pytest.mark.parametrize("index", [0, None], ids=["all numbered 0", "not numbered"])
async def test_calls_without_number_or_id(model: OpenAIModel, server: WireServer, index: int | None) -> None:
    events = sse(
        openai_call(index, '{"a":1}', name="add"),
        openai_call(index, '{"a":', name="add"),
        openai_call(index, "2}"),
        openai_delta("tool_calls"),
    )
    server.play(WireAnswer(events))
    calls = finish_of(await collect(model, asks())).calls
    assert [call.arguments for call in calls] == ['{"a":1}', '{"a":2}']
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize("index", [0, None], ids=["numbered", "not numbered"])
async def test_a_name_that_is_said_again_at_the_end_is_no_second_call(
    model: OpenAIModel, server: WireServer, index: int | None
) -> None:
    events = sse(
        openai_call(index, '{"a":1', "x1", "add"),
        openai_call(index, "}"),
        openai_call(index, "", name="add"),
        openai_delta("tool_calls"),
    )
    server.play(WireAnswer(events))
    assert finish_of(await collect(model, asks())).calls == (Call("x1", "add", '{"a":1}'),)


@pytest.mark.parametrize("name", ["add", None], ids=["named again", "without a name"])
async def test_an_empty_object_that_comes_before_the_arguments_is_none_of_them(
    model: OpenAIModel, server: WireServer, name: str | None
) -> None:
    events = sse(
        openai_call(0, "{}", "x1", "add"),
        openai_call(0, '{"a":', name=name),
        openai_call(0, "1}"),
        openai_delta("tool_calls"),
    )
    server.play(WireAnswer(events))
    assert finish_of(await collect(model, asks())).calls == (Call("x1", "add", '{"a":1}'),)


@pytest.mark.parametrize("arguments", ["", "{}"])
@pytest.mark.parametrize("index", [0, None], ids=["all numbered 0", "not numbered"])
async def test_calls_of_two_tools_without_arguments_are_two(
    model: OpenAIModel, server: WireServer, index: int | None, arguments: str
) -> None:
    events = sse(
        *(openai_call(index, arguments, name=name) for name in ("add", "write")), openai_delta("stop")
    )
    server.play(WireAnswer(events))
    calls = finish_of(await collect(model, asks())).calls
    assert [(call.name, call.arguments) for call in calls] == [("add", "{}"), ("write", "{}")]


async def test_a_name_and_an_id_that_every_piece_repeats(model: OpenAIModel, server: WireServer) -> None:
    pieces = [openai_call(0, piece, "x1", "add") for piece in ("", '{"a":', "1}")]
    pieces[0]["choices"][0]["delta"]["tool_calls"][0]["id"] = "x1"
    server.play(WireAnswer(sse(*pieces, openai_delta("tool_calls"))))
    assert finish_of(await collect(model, asks())).calls == (Call("x1", "add", '{"a":1}'),)


async def test_an_id_that_is_a_number(model: OpenAIModel, server: WireServer) -> None:
    event = openai_call(0, "{}", "x", "add")
    event["choices"][0]["delta"]["tool_calls"][0]["id"] = 7
    server.play(WireAnswer(sse(event, openai_delta("tool_calls"))))
    assert finish_of(await collect(model, asks())).calls == (Call("7", "add", "{}"),)


async def test_missing_and_repeated_call_ids_are_made_unique(model: OpenAIModel, server: WireServer) -> None:
    request = asks(tools=TOOLS)
    earlier = ModelRequest("", (user("x"), message(Role.ASSISTANT, Call("call_0", "add", "{}"))))
    seen = []
    for asked in (request, request, earlier):
        server.play(
            WireAnswer(
                sse(
                    openai_call(0, "", name="add"),
                    openai_call(1, "{}", "call_0", "add"),
                    openai_delta("stop"),
                )
            )
        )
        seen.append([call.id for call in finish_of(await collect(model, asked)).calls])
    assert seen[0] == seen[1]  # the same request, the same ids
    assert seen[0][1] == "call_0"
    assert "call_0" not in seen[2]  # taken in that history
    assert len(set(seen[2])) == 2
    assert "" not in seen[0] + seen[2]


async def test_arguments_that_come_as_an_object(model: OpenAIModel, server: WireServer) -> None:
    event = openai_delta(
        "tool_calls", tool_calls=[{"id": "c", "function": {"name": "add", "arguments": {"b": 1}}}]
    )
    server.play(WireAnswer(sse(event, b"[DONE]")))
    assert finish_of(await collect(model, asks())).calls == (Call("c", "add", '{"b":1}'),)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_apart_and_in_order(
    model: OpenAIModel, server: WireServer, field: str
) -> None:
    server.play(
        WireAnswer(
            [
                b"".join(
                    sse(
                        openai_delta(**{field: "hm "}),
                        openai_delta(**{field: "ok"}),
                        openai_delta(content="42"),
                        openai_delta("stop"),
                    )
                )
            ]
        )
    )
    chunks = await collect(model, asks())
    assert (thought_of(chunks), text_of(chunks)) == ("hm ok", "42")
    assert [type(chunk).__name__ for chunk in chunks][-2:] == ["TextChunk", "Finish"]
    assert finish_of(chunks).reasoning == (Reasoning("hm ok", opaque={"field": field}, model="fake:m"),)


async def test_reasoning_details_are_joined_and_go_back(model: OpenAIModel, server: WireServer) -> None:
    pieces = [
        {"type": "reasoning.text", "index": 0, "text": "think "},
        {"type": "reasoning.text", "index": 0, "text": "hard", "signature": "s1"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]
    events = [openai_delta(reasoning=piece.get("text", ""), reasoning_details=[piece]) for piece in pieces]
    server.play(WireAnswer(sse(*events, openai_delta("stop", content="so"))))
    (thought,) = finish_of(await collect(model, asks())).reasoning
    details = thought.opaque["details"]
    assert details[0] == {"type": "reasoning.text", "index": 0, "text": "think hard", "signature": "s1"}
    assert details[1]["data"] == "xyz"
    after = ModelRequest("", (user("x"), message(Role.ASSISTANT, thought, Text("so")), user("y")))
    assert json.loads(model.body(after))["messages"][1]["reasoning_details"] == details


async def test_typed_content_parts(model: OpenAIModel, server: WireServer) -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
    ]
    server.play(WireAnswer(sse(openai_delta("stop", content=content))))
    chunks = await collect(model, asks())
    assert (thought_of(chunks), text_of(chunks)) == ("hm", "yes")


async def test_a_server_that_does_not_stream(model: OpenAIModel, server: WireServer) -> None:
    value = {
        "choices": [{"message": {"content": "Whole."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4},
    }
    server.play(refuse(200, value))
    chunks = await collect(model, asks())
    assert text_of(chunks) == "Whole."
    assert finish_of(chunks).usage.input_tokens == 4


@pytest.mark.parametrize(
    ("said", "means"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "filtered"), ("eos_token", "stop")],
)
async def test_reasons_of_the_end(model: OpenAIModel, server: WireServer, said: str, means: str) -> None:
    server.play(WireAnswer(openai_answer(["x"], said)))
    assert finish_of(await collect(model, asks())).reason == means


# --- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail",
    [
        [],
        [b"data: [DONE]\n\n"],
        sse(openai_usage(prompt_tokens=1), b"[DONE]"),
        [b'data: {"choices":[{"delta":{"con'],
    ],
    ids=["nothing", "done without finish", "usage without finish", "torn event"],
)
async def test_a_stream_without_its_proper_end_is_cut(
    model: OpenAIModel, server: WireServer, tail: list[bytes]
) -> None:
    server.play(WireAnswer([*sse(openai_delta(content="partial")), *tail], ending="cut"))
    text, error = await collect_until_trouble(model, asks())
    assert text == "partial"
    assert isinstance(error, StreamCut)


@pytest.mark.parametrize("ending", ["drop", "reset"])
async def test_a_broken_connection_keeps_the_text(
    model: OpenAIModel, server: WireServer, ending: str
) -> None:
    server.play(WireAnswer(sse(openai_delta(content="partial")), ending=ending))
    text, error = await collect_until_trouble(model, asks())
    assert isinstance(error, ModelDropped)
    assert error.is_transient
    # A reset may discard what the other side has not read yet; a plain close may not.
    assert text in (("partial",) if ending == "drop" else ("partial", ""))


@pytest.mark.parametrize("ending", ["drop", "reset", "hang"])
async def test_after_its_finish_an_answer_is_whole_whatever_the_connection_does(
    model: OpenAIModel, server: WireServer, ending: str
) -> None:
    server.play(WireAnswer([b"".join(sse(openai_delta("stop", content="all"), b"[DONE]"))], ending=ending))
    chunks = await collect(model, asks())
    assert text_of(chunks) == "all"
    assert finish_of(chunks).reason == "stop"


async def test_garbage_is_a_cut_and_keeps_the_text_before_it(model: OpenAIModel, server: WireServer) -> None:
    for garbage in (b"data: {not json}\n\n", b"data: \xff\xfe\n\n", b'data: {"choices": 7}\n\n'):
        server.play(WireAnswer([sse(openai_delta(content="before"))[0] + garbage]))
        text, error = await collect_until_trouble(model, asks())
        assert (text, type(error)) == ("before", StreamCut)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "Overloaded", "type": "server_error"}, ModelOverloaded),
        ({"message": "upstream", "code": 502}, ModelOverloaded),
        ({"message": "slow down", "code": 429}, RateLimited),
        ({"message": "no such key", "code": "401"}, ModelRefused),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, RateLimited),
        ({"message": "the request exceeds the available context size"}, ContextTooLong),
        ("something", ModelOverloaded),
    ],
)
async def test_an_error_in_the_middle_of_the_stream(
    model: OpenAIModel, server: WireServer, error: Any, kind: type[ModelTrouble]
) -> None:
    server.play(WireAnswer([b"".join(sse(openai_delta(content="partial"), {"error": error}))]))
    text, raised = await collect_until_trouble(model, asks())
    assert (text, type(raised)) == ("partial", kind)


async def test_a_finish_that_is_an_error(model: OpenAIModel, server: WireServer) -> None:
    server.play(WireAnswer(sse(openai_delta("error", content="par"), b"[DONE]")))
    text, raised = await collect_until_trouble(model, asks())
    assert (text, type(raised)) == ("par", ModelOverloaded)


async def test_a_finish_that_says_why_it_is_an_error(model: OpenAIModel, server: WireServer) -> None:
    event = openai_delta("error", content="half")
    event["choices"][0]["error"] = {"code": 429, "message": "the provider behind it is busy"}
    server.play(WireAnswer(sse(event)))
    text, error = await collect_until_trouble(model, asks())
    assert text == "half"
    assert isinstance(error, RateLimited)
    assert "behind it is busy" in str(error)


async def test_a_failure_that_is_the_event_itself(model: OpenAIModel, server: WireServer) -> None:
    failure = {"object": "error", "message": "maximum context length is 4096 tokens", "code": 400}
    server.play(WireAnswer(sse(failure, b"[DONE]")))
    with pytest.raises(ContextTooLong):
        await collect(model, asks())


async def test_a_failure_in_a_field_of_its_own(model: OpenAIModel, server: WireServer) -> None:
    failure = b'error: {"code":400,"message":"the request exceeds the available context size"}\n\n'
    server.play(WireAnswer([failure, b"data: [DONE]\n\n"]))
    with pytest.raises(ContextTooLong):
        await collect(model, asks())


async def test_an_empty_finish_is_ignored(model: OpenAIModel, server: WireServer) -> None:
    events = sse(openai_delta("", content="Good "), openai_delta("", content="day."), openai_delta("stop"))
    server.play(WireAnswer([b"data:\n\n", *events]))
    chunks = await collect(model, asks())
    assert (text_of(chunks), finish_of(chunks).reason) == ("Good day.", "stop")
    server.play(WireAnswer(sse(openai_delta("", content="Good "))))
    assert isinstance((await collect_until_trouble(model, asks()))[1], StreamCut)


async def test_what_follows_a_finish_belongs_to_the_answer(model: OpenAIModel, server: WireServer) -> None:
    events = sse(
        openai_delta("stop", content="Good "),
        openai_delta("stop", content="day."),
        openai_call(0, "{}", "c1", "add"),
        openai_usage(prompt_tokens=3, completion_tokens=2),
        b"[DONE]",
    )
    server.play(WireAnswer(events))
    chunks = await collect(model, asks())
    assert text_of(chunks) == "Good day."
    assert finish_of(chunks).calls == (Call("c1", "add", "{}"),)
    assert finish_of(chunks).usage == Usage(3, 2)


@pytest.mark.parametrize("is_in_one_read", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        openai_delta("stop", content="day"),
        openai_delta(content="day"),
        openai_call(0, '{"a":', "c1", "add"),
        openai_call(0, "", "c1", "add"),
    ],
    ids=["finish in every event", "text", "call", "name of a call"],
)
async def test_a_stream_that_continues_after_a_finish_can_be_cut(
    model: OpenAIModel, server: WireServer, more: Any, is_in_one_read: bool
) -> None:
    events = sse(openai_delta("stop", content="Good "), more)
    pieces = [b"".join(events)] if is_in_one_read else events
    said = "Good " if "tool_calls" in more["choices"][0]["delta"] else "Good day"
    server.play(WireAnswer(pieces, ending="drop"))
    text, error = await collect_until_trouble(model, asks())
    assert (text, type(error)) == (said, ModelDropped)
    server.play(WireAnswer([*pieces, *sse({"error": {"message": "busy", "code": 503}})]))
    text, error = await collect_until_trouble(model, asks())
    assert (text, type(error)) == (said, ModelOverloaded)
    server.play(WireAnswer([*pieces, b'data: {"choices":[{"delta":{"con']))
    text, error = await collect_until_trouble(model, asks())
    assert (text, type(error)) == (said, StreamCut)
    server.play(WireAnswer([*pieces, b"data: [DONE]\n\n"], ending="drop"))
    assert text_of(await collect(model, asks())) == said


async def test_a_stream_that_continues_after_a_finish_and_falls_silent_is_a_timeout(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    events = sse(openai_delta("stop", content="Good "), openai_delta(content="day"))
    server.play(WireAnswer([b"".join(events)], ending="hang"))
    text, error = await collect_until_trouble(make(server, client, idle_timeout_s=2.0), asks())
    assert (text, type(error)) == ("Good day", ModelTimeout)


@pytest.mark.parametrize(
    "tail", [{"error": {"message": "busy"}}, openai_delta(content="")], ids=["error", "nothing said"]
)
async def test_what_goes_wrong_after_the_end_costs_nothing(
    model: OpenAIModel, server: WireServer, tail: Any
) -> None:
    server.play(WireAnswer([*sse(openai_delta("stop", content="all"), tail), b"data: {torn"], ending="drop"))
    assert text_of(await collect(model, asks())) == "all"


async def test_figures_that_cannot_be_read_do_not_cost_the_answer(
    model: OpenAIModel, server: WireServer
) -> None:
    server.play(WireAnswer(openai_answer(["Hi"], prompt_tokens="7", completion_tokens=2)))
    assert finish_of(await collect(model, asks())).usage == Usage(7, 2)
    server.play(WireAnswer(openai_answer(["Hi"], prompt_tokens={"text": 7}, completion_tokens=2)))
    chunks = await collect(model, asks())
    assert (text_of(chunks), finish_of(chunks).usage) == ("Hi", Usage())


async def test_no_first_byte_is_a_timeout(server: WireServer, client: httpx2.AsyncClient) -> None:
    server.play(WireAnswer(is_silent=True))
    text, error = await collect_until_trouble(make(server, client, idle_timeout_s=0.05), asks())
    assert (text, type(error)) == ("", ModelTimeout)


async def test_silence_in_the_middle_is_a_timeout(server: WireServer, client: httpx2.AsyncClient) -> None:
    server.play(WireAnswer(sse(openai_delta(content="partial")), ending="hang"))
    text, error = await collect_until_trouble(make(server, client, idle_timeout_s=2.0), asks())
    assert (text, type(error)) == ("partial", ModelTimeout)


async def test_a_closed_port_is_a_network_error(client: httpx2.AsyncClient) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    await listener.aclose()
    model = OpenAIModel(Target("fake:m", "m", f"http://127.0.0.1:{port}"), client, SystemClock())
    _, error = await collect_until_trouble(model, asks())
    assert isinstance(error, ModelDropped)
    assert error.hint


@pytest.mark.parametrize("address", ["ftp://x/v1", "http://", "no address"])
async def test_an_invalid_address(client: httpx2.AsyncClient, address: str) -> None:
    _, error = await collect_until_trouble(
        OpenAIModel(Target("fake:m", "m", address), client, SystemClock()), asks()
    )
    assert isinstance(error, ModelTrouble)


async def test_a_server_that_sends_its_callers_elsewhere(model: OpenAIModel, server: WireServer) -> None:
    server.play(refuse(307, {}, location="https://elsewhere.example/v1"))
    with pytest.raises(ModelRefused) as raised:
        await collect(model, asks())
    assert "base_url" in raised.value.hint


async def test_a_web_page_is_refused(model: OpenAIModel, server: WireServer) -> None:
    server.play(WireAnswer([b"<html>"], headers={"content-type": "text/html"}))
    _, error = await collect_until_trouble(model, asks())
    assert isinstance(error, ModelRefused)
    assert "base_url" in error.hint


async def test_leaving_early_closes_the_connection(model: OpenAIModel, server: WireServer) -> None:
    for _ in range(2):
        server.play(WireAnswer(sse(openai_delta(content="x")), ending="hang"))
        async with model.stream(asks()) as chunks:
            async for _chunk in chunks:
                break
    assert server.connections == 2


async def test_a_whole_answer_leaves_the_connection_for_the_next_step(
    model: OpenAIModel, server: WireServer
) -> None:
    for _ in range(3):
        server.play(WireAnswer(openai_answer(["x"])))
        await collect(model, asks())
    assert server.connections == 1


@pytest.mark.parametrize(
    ("status", "value", "kind"),
    [
        (429, {"error": {"message": "slow"}}, RateLimited),
        (
            429,
            {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}},
            ModelRefused,
        ),
        (503, {"error": {"message": "Loading model", "type": "unavailable_error"}}, ModelOverloaded),
        (529, {"error": {"message": "Overloaded"}}, ModelOverloaded),
        (500, {"error": {"message": "oops"}}, ModelOverloaded),
        (502, "<html>bad gateway</html>", ModelOverloaded),
        (504, {}, ModelTimeout),
        (408, {}, ModelTimeout),
        (401, {"error": {"message": "bad key"}}, ModelRefused),
        (403, {"error": "forbidden"}, ModelRefused),
        (402, {"error": {"message": "Insufficient credits"}}, ModelRefused),
        (404, {"error": {"message": 'model "m" not found, try pulling it first'}}, ModelUnknown),
        (404, {"detail": "Not Found"}, ModelRefused),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, ContextTooLong),
        (400, {"error": {"type": "exceed_context_size_error", "message": "n_ctx"}}, ContextTooLong),
        (
            400,
            {"object": "error", "message": "This model's maximum context length is 4096 tokens"},
            ContextTooLong,
        ),
        (400, {"error": {"message": "Prompt exceeds max length"}}, ContextTooLong),
        (400, {"error": {"message": "Your request exceeded model token limit: 8192"}}, ContextTooLong),
        (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4097"}, ContextTooLong),
        (413, {"error": {"message": "large"}}, ContextTooLong),
        (400, {"error": {"message": "bad tool schema"}}, ModelRefused),
        (302, {}, ModelRefused),
    ],
)
async def test_every_refusal_has_its_name(
    model: OpenAIModel, server: WireServer, status: int, value: Any, kind: type[ModelTrouble]
) -> None:
    server.play(refuse(status, value))
    _, error = await collect_until_trouble(model, asks())
    assert type(error) is kind
    assert str(status) in str(error)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "99999999"}, 30 * 24 * 3600.0),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({}, None),
    ],
)
async def test_retry_after(
    model: OpenAIModel, server: WireServer, headers: dict[str, str], wait: float | None
) -> None:
    server.play(refuse(429, {"error": {"message": "slow"}}, **headers))
    _, error = await collect_until_trouble(model, asks())
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == wait


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        ("7", "wait 7 seconds"),
        ("600", "wait 10 minutes"),
        ("86400", "wait 24 hours"),
        ("0", ""),
        ("soon", ""),
    ],
)
async def test_the_wait_that_the_provider_asks_for_is_reported(
    model: OpenAIModel, server: WireServer, wait: str, words: str
) -> None:
    server.play(refuse(429, {"error": {"message": "slow"}}, retry_after=wait))
    _, error = await collect_until_trouble(model, asks())
    assert isinstance(error, EverturnError)
    assert words in error.hint if words else not error.hint


async def test_retry_after_as_a_date(server: WireServer, client: httpx2.AsyncClient) -> None:
    class Fixed(SystemClock):
        def now_ms(self) -> int:
            return 1_000_000_000_000  # Sun, 09 Sep 2001 01:46:40 GMT

    model = OpenAIModel(Target("fake:m", "m", server.url), client, Fixed())
    server.play(refuse(503, {}, retry_after="Sun, 09 Sep 2001 01:47:10 GMT"))
    _, error = await collect_until_trouble(model, asks())
    assert isinstance(error, ModelOverloaded)
    assert error.retry_after_s == 30.0


async def test_no_error_ever_shows_the_key(model: OpenAIModel, server: WireServer) -> None:
    echo = f"Incorrect API key provided: {KEY} or sk-proj-abc***********xyz9. Bearer {KEY}"
    server.play(
        refuse(401, {"error": {"message": echo}}),
        refuse(500, echo),
        WireAnswer(sse({"error": {"message": echo}})),
    )
    for _ in range(3):
        _, error = await collect_until_trouble(model, asks())
        shown = f"{error} {error!r} {vars(error)} {error.__cause__!r}"
        assert KEY not in shown
        assert "sk-proj" not in shown
        assert "[key]" in shown


# --- requests --------------------------------------------------------------------------------------


async def test_the_history_as_it_is_sent(server: WireServer, client: httpx2.AsyncClient) -> None:
    model = make(server, client, abilities=Abilities(images=True))
    sent = json.loads(model.body(long_history("fake:m")))
    roles = [entry["role"] for entry in sent["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    asked = sent["messages"][1]["content"]
    assert [part["type"] for part in asked] == ["text", "text", "image_url"]
    assert asked[2]["image_url"]["url"] == "data:image/png;base64,UE5H"
    said = sent["messages"][2]
    assert said["content"] == "I will."
    assert said["reasoning_content"] == "mine"
    assert "reasoning" not in said  # the other model's
    assert said["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert json.loads(said["tool_calls"][1]["function"]["arguments"]) == {"malformed_arguments": "{broken"}
    assert sent["messages"][3]["content"] == "3"
    assert "unknown" in sent["messages"][4]["content"]  # c2 has no result in the transcript
    assert sent["messages"][5]["content"] == "And?\n\nWell?"
    assert "half an ans" not in json.dumps(sent)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["add", "write"]


async def test_a_blind_model_gets_a_note_for_the_image(model: OpenAIModel) -> None:
    sent = json.loads(model.body(long_history("fake:m")))
    assert "cat.png" in sent["messages"][1]["content"]
    assert "UE5H" not in json.dumps(sent)


async def test_equal_requests_give_equal_bytes(model: OpenAIModel) -> None:
    one = asks(tools=TOOLS, files={"a": b"1", "b": b"2"}, json_schema={"x": 1, "a": {"c": 2, "b": 3}})
    two = asks(tools=TOOLS, files={"b": b"2", "a": b"1"}, json_schema={"a": {"b": 3, "c": 2}, "x": 1})
    assert one == two
    assert model.body(one) == model.body(two)
    shuffled = asks(tools=TOOLS[::-1], json_schema=one.json_schema)
    assert model.body(shuffled) == model.body(asks(tools=TOOLS, json_schema=one.json_schema))


async def test_a_longer_history_only_appends(model: OpenAIModel) -> None:
    short = long_history("fake:m")
    longer = ModelRequest(
        short.system,
        (*short.messages, message(Role.ASSISTANT, Text("Done.")), user("Next")),
        short.tools,
        files=short.files,
    )
    before, after = json.loads(model.body(short)), json.loads(model.body(longer))
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert after["tools"] == before["tools"]


@pytest.mark.parametrize(
    ("by", "extra", "last"),
    [
        ("last", {}, {"role": "assistant", "content": "The ans"}),
        ("flag", {}, {"role": "assistant", "content": "The ans", "prefix": True}),
        (
            "final",
            {"continue_final_message": True, "add_generation_prompt": False},
            {"role": "assistant", "content": "The ans"},
        ),
        ("", {}, {"role": "user", "content": "Hello"}),
    ],
)
async def test_going_on_from_a_prefix(
    server: WireServer, client: httpx2.AsyncClient, by: str, extra: dict[str, Any], last: dict[str, Any]
) -> None:
    sent = json.loads(make(server, client, continues_by=by).body(asks(prefix="The ans")))
    assert sent["messages"][-1] == last
    assert {key: sent[key] for key in extra} == extra


async def test_a_history_that_ends_with_the_model_is_given_the_word(model: OpenAIModel) -> None:
    ended = ModelRequest("", (user("x"), message(Role.ASSISTANT, Text("y"))))
    assert json.loads(model.body(ended))["messages"][-1]["role"] == "user"


@pytest.mark.parametrize(
    ("name", "given", "sent"),
    [
        ("gpt-x", "toolu_01A09q90qw90lq917835lq9", "toolu_01A09q90qw90lq917835lq9"),
        ("gpt-x", "chatcmpl-tool-0123456789abcdef0123456789abcdef", "call_"),
        ("Ministral-8B", "toolu_01A09q90qw90lq917835lq9", ""),
        ("open-mixtral-8x7b", "abcDEF123", "abcDEF123"),
    ],
)
async def test_ids_of_other_providers_are_made_fit(
    server: WireServer, client: httpx2.AsyncClient, name: str, given: str, sent: str
) -> None:
    model = OpenAIModel(Target("fake:m", name, server.url), client, SystemClock())
    history = (user("x"), message(Role.ASSISTANT, Call(given, "add", "{}")), user("y"))
    said, answered = json.loads(model.body(ModelRequest("", history)))["messages"][1:3]
    ident = said["tool_calls"][0]["id"]
    assert answered["tool_call_id"] == ident
    assert ident.startswith(sent)
    assert len(ident) == 9 if "al-8" in name else len(ident) <= 40


@pytest.mark.parametrize(
    ("status", "complaint", "field"),
    [
        (400, "registry.ollama.ai/library/x does not support tools", "tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice to be set', "tools"),
        (404, "No endpoints found that support tool use.", "tools"),
        (500, "tools param requires --jinja flag", "tools"),
        (400, "Unsupported value: 'temperature' does not support 0.0 with this model.", "temperature"),
        (422, "stream_options: Extra inputs are not permitted", "stream_options"),
        (400, "response_format is not supported by this model", "response_format"),
    ],
)
async def test_what_a_server_does_not_take_is_left_out(
    model: OpenAIModel, server: WireServer, status: int, complaint: str, field: str
) -> None:
    server.play(refuse(status, {"error": {"message": complaint}}), WireAnswer(openai_answer(["Hi"])))
    chunks = await collect(model, asks(tools=TOOLS, temperature=0.0, json_schema={"type": "object"}))
    first, second = (set(request.json) for request in server.requests)
    assert first - second == {field}
    assert text_of(chunks) == "Hi"
    notes = [chunk.label for chunk in chunks if isinstance(chunk, ProgressChunk)]
    assert len(notes) == (field in ("tools", "temperature"))  # what was asked for is reported


async def test_what_a_server_does_not_take_is_not_sent_to_it_again_for_a_while(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    clock = FakeClock()
    model = OpenAIModel(Target("fake:m", "m", server.url), client, clock)
    request = asks(tools=TOOLS, temperature=0.0)
    server.play(
        refuse(400, {"error": {"message": "m does not support tools"}}),
        refuse(400, {"error": {"message": "temperature is not supported"}}),
        WireAnswer(openai_answer(["one"])),
        WireAnswer(openai_answer(["two"])),
        WireAnswer(openai_answer(["three"])),
    )
    for _ in range(2):
        chunks = await collect(model, request)
        assert [chunk for chunk in chunks if isinstance(chunk, ProgressChunk)]  # reported each time
    assert [sorted({"tools", "temperature"} & set(one.json)) for one in server.requests] == [
        ["temperature", "tools"],
        ["temperature"],
        [],
        [],
    ]
    await clock.advance(3600)
    await collect(model, request)
    assert {"tools", "temperature"} <= set(server.requests[-1].json)  # it may be set up otherwise by now


async def test_a_model_whose_name_speaks_of_tools(server: WireServer, client: httpx2.AsyncClient) -> None:
    name = "groq-8b-tool-use"
    model = OpenAIModel(Target(f"groq:{name}", name, server.url), client, SystemClock())
    complaint = f"temperature is not supported by {name}"
    server.play(refuse(400, {"error": {"message": complaint}}), WireAnswer(openai_answer(["Hi"])))
    await collect(model, asks(tools=TOOLS, temperature=0.0))
    assert "tools" in server.requests[1].json
    server.play(refuse(400, {"error": {"message": f"{name}: logprobs are not supported"}}))
    with pytest.raises(ModelRefused):
        await collect(model, asks(tools=TOOLS))


@pytest.mark.parametrize(
    "complaint",
    [
        "tools.12.custom.input_schema: this model does not support oneOf at the top level",
        "tools[1].function: 'strict' is not permitted",
        "Function tools with reasoning_effort are not supported for this model.",
        "The tool 'add' is not supported",
        "Tools: the keyword oneOf is not supported in a schema",
    ],
)
async def test_a_complaint_about_one_tool_or_another_field_costs_no_tools(
    server: WireServer, client: httpx2.AsyncClient, complaint: str
) -> None:
    model = make(server, client, extra={"reasoning_effort": "low"})
    server.play(refuse(400, {"error": {"message": complaint}}))
    with pytest.raises(ModelRefused) as raised:
        await collect(model, asks(tools=TOOLS))
    assert complaint in raised.value.message
    assert len(server.requests) == 1


async def test_tools_of_the_servers_own_can_be_refused_too(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    model = make(server, client, extra={"tools": [{"type": "web_search"}]})
    server.play(
        refuse(400, {"error": {"message": "tools are not supported"}}), WireAnswer(openai_answer(["Hi"]))
    )
    assert text_of(await collect(model, asks())) == "Hi"


async def test_a_turn_that_has_called_keeps_its_tools_or_fails(
    model: OpenAIModel, server: WireServer
) -> None:
    refusal = refuse(400, {"error": {"message": "this model does not support tools"}})
    before = (user("Add."), *called("{}", "3"))
    steered = msgspec.structs.replace(user("Quickly."), is_steering=True)
    for messages in (before, (*before, steered)):
        server.play(refusal)
        with pytest.raises(ModelRefused, match="does not support tools"):
            await collect(model, ModelRequest("", messages, TOOLS))
    server.play(refusal, WireAnswer(openai_answer(["Hi"])))
    assert text_of(await collect(model, ModelRequest("", (*before, user("Thanks.")), TOOLS))) == "Hi"
    server.play(refusal)
    with pytest.raises(ModelRefused):  # also where it is known already
        await collect(model, ModelRequest("", before, TOOLS))


async def test_the_limit_under_the_name_that_the_server_wants(model: OpenAIModel, server: WireServer) -> None:
    complaint = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    server.play(refuse(400, {"error": {"message": complaint}}), WireAnswer(openai_answer(["Hi"])))
    await collect(model, asks(output_tokens_max=9))
    assert server.requests[1].json["max_completion_tokens"] == 9
    assert "max_tokens" not in server.requests[1].json


async def test_a_refusal_of_something_else_stays_one(model: OpenAIModel, server: WireServer) -> None:
    server.play(refuse(400, {"error": {"message": "tools: the schema of 'add' is not valid"}}))
    with pytest.raises(ModelRefused):
        await collect(model, asks(tools=TOOLS))
    server.play(refuse(400, {"error": {"message": "this model does not support tools"}}))
    with pytest.raises(ModelRefused):
        await collect(model, asks())  # there were none
    assert len(server.requests) == 2


async def test_limits_and_settings(server: WireServer, client: httpx2.AsyncClient) -> None:
    model = make(server, client, tokens_field="max_completion_tokens", extra={"reasoning_effort": "low"})
    sent = json.loads(model.body(asks(output_tokens_max=9, temperature=0.5, json_schema={"type": "object"})))
    assert sent["max_completion_tokens"] == 9
    assert sent["temperature"] == 0.5
    assert sent["reasoning_effort"] == "low"
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}


@pytest.mark.parametrize(
    ("field", "effort", "sent"),
    [
        ("reasoning_effort", Effort.LOW, "low"),
        ("reasoning_effort", Effort.OFF, "none"),
        ("reasoning", Effort.HIGH, {"effort": "high"}),
        ("reasoning", Effort.OFF, {"enabled": False}),
    ],
)
async def test_the_effort_of_reasoning(
    server: WireServer, client: httpx2.AsyncClient, field: str, effort: Effort, sent: Any
) -> None:
    body = json.loads(make(server, client, effort_field=field).body(asks(effort=effort)))
    assert body[field] == sent
    assert field not in json.loads(make(server, client, effort_field=field).body(asks()))


async def test_no_tools_for_a_model_without(server: WireServer, client: httpx2.AsyncClient) -> None:
    model = make(server, client, abilities=Abilities(tools=False))
    assert "tools" not in json.loads(model.body(asks(tools=TOOLS)))
