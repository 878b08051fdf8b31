"""Models of other providers through pydantic-ai: its real package and Groq's, against a local server."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.model import Abilities
from everturn.domain.model_errors import (
    ModelDropped,
    ModelKeyMissing,
    ModelRefused,
    ModelUnknown,
    RateLimited,
    StreamCut,
)
from everturn.domain.turns import FinishReason
from everturn.models.pydantic_model import PydanticModel
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    openai_answer,
    openai_call,
    openai_delta,
    refuse,
    sse,
)
from tests.unit.models.samples import (
    TOOLS,
    asks,
    collect,
    collect_until_trouble,
    finish_of,
    long_history,
    text_of,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def model(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> PydanticModel:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-test-000000000000")
    monkeypatch.setenv("GROQ_BASE_URL", server.url)
    return PydanticModel("groq:llama-3.3-70b-versatile", SystemClock())


def whole(pieces: list[bytes]) -> list[bytes]:
    """With the fields that Groq's package requires of each event."""
    more = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "llama"}
    return [
        b"data: " + json.dumps({**more, **json.loads(piece[6:])}).encode() + b"\n\n"
        if piece.startswith(b"data: {")
        else piece
        for piece in pieces
    ]


def last_body(server: WireServer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(server.requests[-1].body)
    return found


async def test_an_answer_arrives_in_pieces_with_its_usage(model: PydanticModel, server: WireServer) -> None:
    server.play(WireAnswer(whole(openai_answer(["Hel", "lo"], prompt_tokens=9, completion_tokens=2))))
    chunks = await collect(model, asks(output_tokens_max=50, temperature=0.5))
    assert text_of(chunks) == "Hello"
    assert len(chunks) > 2
    finish = finish_of(chunks)
    assert (finish.reason, finish.calls) == (FinishReason.STOP, ())
    body = last_body(server)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]
    assert body["temperature"] == 0.5
    assert 50 in (body.get("max_tokens"), body.get("max_completion_tokens"))


async def test_calls_of_tools_come_with_their_ids(model: PydanticModel, server: WireServer) -> None:
    pieces = [
        openai_call(0, '{"a"', "call_x", "add"),
        openai_call(0, ": 1}"),
        openai_delta("tool_calls"),
    ]
    server.play(WireAnswer([*whole(sse(*pieces)), b"data: [DONE]\n\n"]))
    finish = finish_of(await collect(model, asks(tools=TOOLS)))
    assert finish.reason == FinishReason.CALLS
    (call,) = finish.calls
    assert (call.id, call.name, json.loads(call.arguments)) == ("call_x", "add", {"a": 1})
    assert sorted(tool["function"]["name"] for tool in last_body(server)["tools"]) == ["add", "write"]


async def test_an_end_with_calls_that_did_not_arrive_is_an_interrupted_step(
    model: PydanticModel, server: WireServer
) -> None:
    server.play(WireAnswer([*whole(sse(openai_delta("tool_calls"))), b"data: [DONE]\n\n"]))
    _, error = await collect_until_trouble(model, asks(tools=TOOLS))
    assert isinstance(error, StreamCut)


async def test_the_history_is_whole_and_holds_nothing_that_was_abandoned(server: WireServer) -> None:
    model = PydanticModel("groq:llama-3.3-70b-versatile", SystemClock(), Abilities(images=True))
    server.play(WireAnswer(whole(openai_answer(["Yes"]))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROQ_API_KEY", "gsk-test-000000000000")
        patch.setenv("GROQ_BASE_URL", server.url)
        await collect(model, long_history(model.name))
    body = last_body(server)
    assert "half an ans" not in json.dumps(body)
    roles = [one["role"] for one in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    answered = [one["tool_call_id"] for one in body["messages"] if one["role"] == "tool"]
    assert answered == [call["id"] for call in body["messages"][2]["tool_calls"]] == ["c1", "c2"]


async def test_a_stream_that_merely_stops_is_an_interrupted_step(
    model: PydanticModel, server: WireServer
) -> None:
    server.play(WireAnswer(whole(sse(openai_delta(content="Half an")))))
    text, error = await collect_until_trouble(model, asks())
    assert text == "Half an"
    assert isinstance(error, StreamCut)


async def test_a_connection_that_breaks_is_dropped(model: PydanticModel, server: WireServer) -> None:
    server.play(WireAnswer(whole(sse(openai_delta(content="Half an"))), ending="reset"))
    text, error = await collect_until_trouble(model, asks())
    assert text in ("", "Half an")
    assert isinstance(error, ModelDropped)


async def test_refusals_keep_their_meaning_and_are_not_repeated(
    model: PydanticModel, server: WireServer
) -> None:
    server.play(refuse(429, {"error": {"message": "slow down"}}, **{"retry-after": "7"}))
    _, error = await collect_until_trouble(model, asks())
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 7
    server.play(refuse(401, {"error": {"message": "bad key"}}))
    _, error = await collect_until_trouble(model, asks())
    assert isinstance(error, ModelRefused)
    assert len(server.requests) == 2


async def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    for name, kind, words in (
        ("groq:x", ModelKeyMissing, "GROQ_API_KEY"),
        ("nobody:x", ModelUnknown, "nobody"),
    ):
        _, error = await collect_until_trouble(PydanticModel(name, SystemClock()), asks())
        assert isinstance(error, kind)
        assert words in (error.hint or "")
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    _, error = await collect_until_trouble(PydanticModel("groq:x", SystemClock()), asks())
    assert isinstance(error, ModelUnknown)
    assert "everturn[pydantic-ai]" in (error.hint or "")
