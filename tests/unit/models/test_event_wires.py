"""What holds for each protocol whose answers are events: faults above all."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx2
import pytest

from everturn.domain.errors import EverturnError
from everturn.domain.messages import Call, Role, Text
from everturn.domain.model import Abilities, Model, ModelRequest, TextChunk
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
from everturn.testing.wires import WireAnswer, WireServer, refuse, sse
from tests.unit.models.dialects import DIALECTS, KEY, Dialect
from tests.unit.models.samples import (
    TOOLS,
    asks,
    collect,
    collect_until_trouble,
    finish_of,
    long_history,
    message,
    text_of,
    user,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


@pytest.fixture
def model(dialect: Dialect, server: WireServer, client: httpx2.AsyncClient) -> Model:
    return dialect.make(server, client)


def bodies(model: Any, *requests: ModelRequest) -> list[Any]:
    return [json.loads(model.body(request)) for request in requests]


async def test_text_at_its_address_with_its_key(dialect: Dialect, model: Model, server: WireServer) -> None:
    server.play(WireAnswer(dialect.answer(["Good ", "day."])))
    chunks = await collect(model, asks())
    assert text_of(chunks) == "Good day."
    assert finish_of(chunks).reason == "stop"
    sent = server.requests[0]
    assert sent.path == dialect.request_path
    name, value = dialect.key_header
    assert sent.headers[name] == value


async def test_each_read_is_given_out_at_once(dialect: Dialect, model: Model, server: WireServer) -> None:
    server.play(WireAnswer([b"".join(sse(*dialect.begun("first")))], ending="hang"))
    async with model.stream(asks()) as chunks:
        with anyio.fail_after(60):
            assert await anext(chunks) == TextChunk("first")


async def test_text_is_whole_however_the_bytes_are_torn(
    dialect: Dialect, model: Model, server: WireServer
) -> None:
    whole = b"".join(dialect.answer(["naïve ", "日本語 ", "👩‍👩‍👧‍👦"]))
    for size in (1, 2, 3, 7, 64):
        server.play(WireAnswer([whole[at : at + size] for at in range(0, len(whole), size)]))
        assert text_of(await collect(model, asks())) == "naïve 日本語 👩‍👩‍👧‍👦"


async def test_line_endings_comments_and_kinds_of_the_future(
    dialect: Dialect, model: Model, server: WireServer
) -> None:
    whole = [piece.replace(b"\n", b"\r\n") for piece in dialect.answer(["ab"])]
    strange = sse({"type": "weather", "delta": {"type": "rain"}, "wind": [1]}, end=b"\r\n\r\n")
    server.play(WireAnswer([b": keep-alive\r\n\r\n", *strange, *whole]))
    assert text_of(await collect(model, asks())) == "ab"


async def test_parallel_calls_with_split_arguments(
    dialect: Dialect, model: Model, server: WireServer
) -> None:
    events = dialect.calls(("c_a", "add", ['{"a":', " 1}"]), ("c_b", "write", ['{"path":"é', '.txt"}']))
    server.play(WireAnswer(sse(*events)))
    finish = finish_of(await collect(model, asks(tools=TOOLS)))
    assert finish.reason == "calls"
    assert [(call.id, call.name) for call in finish.calls] == [("c_a", "add"), ("c_b", "write")]
    assert [json.loads(call.arguments) for call in finish.calls] == [{"a": 1}, {"path": "é.txt"}]


async def test_missing_and_repeated_call_ids_are_made_unique(
    dialect: Dialect, model: Model, server: WireServer
) -> None:
    earlier = ModelRequest("", (user("x"), message(Role.ASSISTANT, Call("c1", "add", "{}"))))
    seen = []
    for request in (asks(), asks(), earlier):
        server.play(WireAnswer(sse(*dialect.calls(("", "add", ["{}"]), ("c1", "add", ["{}"])))))
        seen.append([call.id for call in finish_of(await collect(model, request)).calls])
    assert seen[0] == seen[1], "the same request, the same ids"
    assert seen[0][1] == "c1"
    assert "c1" not in seen[2], "taken in that history"
    assert "" not in seen[0] + seen[2]


# --- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [[], [b"data: [DONE]\n\n"], [b'data: {"type":"content_bl']])
async def test_a_stream_without_its_proper_end_is_cut(
    dialect: Dialect, model: Model, server: WireServer, tail: list[bytes]
) -> None:
    server.play(WireAnswer([*sse(*dialect.begun("partial")), *tail], ending="cut"))
    text, error = await collect_until_trouble(model, asks())
    assert (text, type(error)) == ("partial", StreamCut)


@pytest.mark.parametrize("ending", ["drop", "reset"])
async def test_a_broken_connection(dialect: Dialect, model: Model, server: WireServer, ending: str) -> None:
    server.play(WireAnswer(sse(*dialect.begun("partial")), ending=ending))
    text, error = await collect_until_trouble(model, asks())
    assert isinstance(error, ModelDropped)
    # A reset may discard what the other side has not read yet; a plain close may not.
    assert text in (("partial",) if ending == "drop" else ("partial", ""))


@pytest.mark.parametrize("ending", ["drop", "reset", "hang"])
async def test_after_its_end_an_answer_is_whole_whatever_the_connection_does(
    dialect: Dialect, model: Model, server: WireServer, ending: str
) -> None:
    server.play(WireAnswer([b"".join(dialect.answer(["all"]))], ending=ending))
    assert text_of(await collect(model, asks())) == "all"


async def test_a_whole_answer_leaves_the_connection_for_the_next_step(
    dialect: Dialect, model: Model, server: WireServer
) -> None:
    for _ in range(3):
        server.play(WireAnswer(dialect.answer(["x"])))
        await collect(model, asks())
    assert server.connections == 1


async def test_leaving_early_closes_the_connection(
    dialect: Dialect, model: Model, server: WireServer
) -> None:
    for _ in range(2):
        server.play(WireAnswer([b"".join(sse(*dialect.begun("x")))], ending="hang"))
        async with model.stream(asks()) as chunks:
            async for _chunk in chunks:
                break
    assert server.connections == 2


@pytest.mark.parametrize("garbage", [b"data: {not json}\n\n", b"data: \xff\xfe\n\n", b"data: 7\n\n"])
async def test_garbage_is_a_cut_and_keeps_the_text_before_it(
    dialect: Dialect, model: Model, server: WireServer, garbage: bytes
) -> None:
    server.play(WireAnswer([b"".join(sse(*dialect.begun("before"))) + garbage]))
    text, error = await collect_until_trouble(model, asks())
    assert (text, type(error)) == ("before", StreamCut)


@pytest.mark.parametrize(
    ("kind", "raises"),
    [
        ("overloaded_error", ModelOverloaded),
        ("server_error", ModelOverloaded),
        ("rate_limit_error", RateLimited),
        ("rate_limit_exceeded", RateLimited),
        ("timeout_error", ModelTimeout),
        ("authentication_error", ModelRefused),
        ("invalid_request_error", ModelRefused),
        ("context_length_exceeded", ContextTooLong),
    ],
)
async def test_an_error_in_the_stream_keeps_the_text_before_it(
    dialect: Dialect, model: Model, server: WireServer, kind: str, raises: type[ModelTrouble]
) -> None:
    events = [*dialect.begun("partial"), dialect.error(kind, f"said with {KEY}")]
    server.play(WireAnswer([b"".join(sse(*events))]))
    text, raised = await collect_until_trouble(model, asks())
    assert (text, type(raised)) == ("partial", raises)
    assert KEY not in f"{raised} {raised!r} {vars(raised)}"


async def test_silence_is_a_timeout(dialect: Dialect, server: WireServer, client: httpx2.AsyncClient) -> None:
    server.play(WireAnswer(is_silent=True), WireAnswer(sse(*dialect.begun("par")), ending="hang"))
    model = dialect.make(server, client, idle_timeout_s=0.05)
    assert [type((await collect_until_trouble(model, asks()))[1]) for _ in range(2)] == [ModelTimeout] * 2


@pytest.mark.parametrize(
    ("status", "said", "raises"),
    [
        (429, "slow", RateLimited),
        (503, "away", ModelOverloaded),
        (529, "overloaded", ModelOverloaded),
        (500, "oops", ModelOverloaded),
        (408, "late", ModelTimeout),
        (504, "late", ModelTimeout),
        (401, "bad key", ModelRefused),
        (403, "no", ModelRefused),
        (402, "pay", ModelRefused),
        (404, "models/x is not found for API version v1beta", ModelUnknown),
        (404, "The model 'x' does not exist", ModelUnknown),
        (400, "prompt is too long: 250000 tokens > 200000 maximum", ContextTooLong),
        (400, "The input token count (9) exceeds the maximum number of tokens allowed (8).", ContextTooLong),
        (413, "big", ContextTooLong),
        (400, "Your credit balance is too low", ModelRefused),
        (400, "messages: wrong", ModelRefused),
        (302, "", ModelRefused),
    ],
)
async def test_every_refusal_has_its_name(
    model: Model, server: WireServer, status: int, said: str, raises: type[ModelTrouble]
) -> None:
    server.play(refuse(status, {"error": {"message": f"{said} {KEY}"}}, retry_after="3"))
    _, error = await collect_until_trouble(model, asks())
    assert type(error) is raises
    assert str(status) in str(error)
    assert KEY not in f"{error} {error!r} {vars(error)}"
    assert isinstance(error, ModelTrouble)
    assert error.retry_after_s == (3.0 if error.is_transient else None)


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_what_is_no_stream_is_refused(model: Model, server: WireServer, kind: str) -> None:
    server.play(WireAnswer([b"<html>"], headers={"content-type": kind}))
    _, error = await collect_until_trouble(model, asks())
    assert isinstance(error, ModelRefused)
    assert isinstance(error, EverturnError)
    assert "base_url" in error.hint


# --- requests --------------------------------------------------------------------------------------


async def test_equal_requests_give_equal_bytes(model: Any) -> None:
    one = asks(tools=TOOLS, json_schema={"x": 1, "a": {"c": 2, "b": 3}})
    two = asks(tools=TOOLS[::-1], json_schema={"a": {"b": 3, "c": 2}, "x": 1})
    assert model.body(one) == model.body(two)


async def test_no_tools_for_a_model_without(
    dialect: Dialect, server: WireServer, client: httpx2.AsyncClient
) -> None:
    model = dialect.make(server, client, abilities=Abilities(tools=False))
    (sent,) = bodies(model, asks(tools=TOOLS))
    assert "tools" not in sent


async def test_the_history_tells_neither_foreign_nor_abandoned_thoughts(
    dialect: Dialect, server: WireServer, client: httpx2.AsyncClient
) -> None:
    model = dialect.make(server, client, abilities=Abilities(images=True))
    (sent,) = bodies(model, long_history("fake:m"))
    said = json.dumps(sent)
    assert "foreign" not in said
    assert "half an ans" not in said
    assert "UE5H" in said, "the image"
    assert "malformed_arguments" in said
    (blind,) = bodies(dialect.make(server, client), long_history("fake:m"))
    assert "UE5H" not in json.dumps(blind)
    assert "cat.png" in json.dumps(blind)


async def test_a_history_that_ends_with_the_model_is_given_the_word(model: Any) -> None:
    ended = ModelRequest("", (user("x"), message(Role.ASSISTANT, Text("y"))))
    (sent,) = bodies(model, ended)
    last = (sent.get("messages") or sent.get("input") or sent["contents"])[-1]
    assert last["role"] == "user"


async def test_a_long_history_has_the_same_bytes_from_the_cache(
    dialect: Dialect, server: WireServer, client: httpx2.AsyncClient
) -> None:
    spoken = [
        message(role, Text(f"word {number}")) for number in range(150) for role in (Role.USER, Role.ASSISTANT)
    ]
    first = ModelRequest("", (*spoken[:280], user("now?")))
    later = ModelRequest("", (*spoken, user("now?")))
    warm: Any = dialect.make(server, client)
    warm.body(first)
    cold: Any = dialect.make(server, client)
    assert warm.body(later) == cold.body(later)
