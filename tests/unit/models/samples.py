"""Requests and helpers that the tests of both wires use."""

from __future__ import annotations

from typing import Any

from everturn.domain.messages import (
    AnyPart,
    Attachment,
    Call,
    Message,
    Outcome,
    Reasoning,
    Result,
    Role,
    Summary,
    Text,
)
from everturn.domain.model import (
    Chunk,
    Finish,
    Model,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
)

TOOLS = (
    ToolSchema("write", "Write a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSchema("add", "Add numbers.", {"properties": {"b": {}, "a": {}}, "type": "object"}),
)


def message(role: Role, *parts: AnyPart) -> Message:
    return Message("msg_1", "trn_1", role, parts, 0)


def user(text: str) -> Message:
    return message(Role.USER, Text(text))


def called(
    arguments: str, result: str, name: str = "add", outcome: Outcome = Outcome.OK
) -> tuple[Message, Message]:
    call = Call("c1", name, arguments)
    return message(Role.ASSISTANT, call), message(Role.TOOL, Result("c1", name, result, outcome))


def asks(text: str = "Hello", **more: Any) -> ModelRequest:
    return ModelRequest("Be brief.", (user(text),), **more)


def long_history(model: str) -> ModelRequest:
    """Everything a transcript can hold, including what the model must not be given."""
    return ModelRequest(
        "Be brief.",
        (
            message(Role.SUMMARY, Summary("They met.", covers="msg_0")),
            message(Role.USER, Text("Look."), Attachment("fil_1", "cat.png", "image/png", 3)),
            message(
                Role.ASSISTANT,
                Text("half an ans", is_abandoned=True),
                Reasoning("mine", opaque={"signature": "sig", "field": "reasoning_content"}, model=model),
                Reasoning("foreign", opaque={"signature": "no", "field": "reasoning"}, model="other:x"),
                Text("I will."),
                Call("c1", "add", '{"a": 1}'),
                Call("c2", "add", "{broken"),
            ),
            message(Role.TOOL, Result("c1", "add", "3")),
            user("And?"),
            user("Well?"),
        ),
        tools=TOOLS,
        files={"fil_1": b"PNG"},
    )


async def collect(model: Model, request: ModelRequest) -> list[Chunk]:
    async with model.stream(request) as chunks:
        return [chunk async for chunk in chunks]


async def collect_until_trouble(model: Model, request: ModelRequest) -> tuple[str, Exception]:
    """The text that came, and what ended it."""
    text = ""
    try:
        async with model.stream(request) as chunks:
            async for chunk in chunks:
                assert not isinstance(chunk, Finish), "a broken stream must not look finished"
                text += getattr(chunk, "text", "")
    except Exception as error:
        return text, error
    raise AssertionError("the stream ended without trouble")


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def thought_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningChunk))


def finish_of(chunks: list[Chunk]) -> Finish:
    finish = chunks[-1]
    assert isinstance(finish, Finish)
    return finish
