from __future__ import annotations

import json

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.domain.clock import SystemClock
from everturn.domain.messages import Call, Result, Role, Text
from everturn.domain.modelling import ModelRequest, ToolSchema
from everturn.models.openai_wire import OpenAIModel
from everturn.models.text_calls import CallReader, TextCalls, as_text
from everturn.models.wire import Target
from everturn.testing.wires import Answer, WireServer, openai_answer
from tests.unit.models.samples import TOOLS, asks, collect, finish_of, message, text_of, user

CALL = '{"name": "add", "arguments": {"a": 1}}'

# What the model writes; what people are shown of it; the calls in it.
CASES = [
    ("Just words.", "Just words.", []),
    (f"```json\n{CALL}\n```", "", [("add", {"a": 1})]),
    (f"```\n{CALL}\n```", "", [("add", {"a": 1})]),
    (f"{CALL}", "", [("add", {"a": 1})]),
    (f"<tool_call>\n{CALL}\n</tool_call>", "", [("add", {"a": 1})]),
    (f"I will add.\n```json\n{CALL}\n```", "I will add.\n", [("add", {"a": 1})]),
    (f"```json\n{CALL}\n{CALL}\n```", "", [("add", {"a": 1}), ("add", {"a": 1})]),
    (f"```json\n[{CALL}, {CALL}]\n```", "", [("add", {"a": 1}), ("add", {"a": 1})]),
    (f"```json\n{CALL}\n```\n```json\n{CALL}\n```", "", [("add", {"a": 1})] * 2),
    (f"```json\n{CALL}", "", [("add", {"a": 1})]),
    ('```json\n{"name": "add", "parameters": {"a": 1,}}\n```', "", [("add", {"a": 1})]),
    ('```json\n{"function": {"name": "add", "arguments": "{\\"a\\": 1}"}}\n```', "", [("add", {"a": 1})]),
    ('```json\n{"name": "write", "arguments": {"path": "a\nb"}}\n```', "", [("write", {"path": "a\nb"})]),
    ('```json\n{"name": "add"}\n```', "", [("add", {})]),
    ('```json\n{"name": "unheard_of", "arguments": {}}\n```', "", [("unheard_of", {})]),
    ('```json\n{"name": "Bob", "age": 3}\n```\nDone.', '```json\n{"name": "Bob", "age": 3}\n```\nDone.', []),
    ("```python\nx = {}\n{1}\n```\nThat was it.", "```python\nx = {}\n{1}\n```\nThat was it.", []),
    ("```python\nx = 1\n```", "```python\nx = 1\n```", []),
    ("A set {1, 2} in a line.", "A set {1, 2} in a line.", []),
    ("{1, 2} first.\nMore.", "{1, 2} first.\nMore.", []),
    ("| a | b |\n\n- c\n\n", "| a | b |\n\n- c\n\n", []),
    (f"```python\nprint()\n```\n```json\n{CALL}\n```", "```python\nprint()\n```\n", [("add", {"a": 1})]),
]


def read(pieces: list[str]) -> tuple[str, list[tuple[str, object]]]:
    reader = CallReader([tool.name for tool in TOOLS])
    shown = "".join(reader.feed(piece) for piece in pieces) + reader.rest()
    return shown, [(call.name, json.loads(call.arguments, strict=False)) for call in reader.calls]


@pytest.mark.parametrize(("written", "shown", "calls"), CASES)
def test_calls_are_found_however_the_text_is_torn(
    written: str, shown: str, calls: list[tuple[str, object]]
) -> None:
    for size in (1, 2, 3, 5, 1000):
        pieces = [written[at : at + size] for at in range(0, len(written), size)]
        assert read(pieces) == (shown, calls)


@given(st.lists(st.sampled_from(["```", "json", "\n", "{", "}", "<tool_call>", '"name"', "x ", "`"])))
def test_without_a_call_nothing_is_lost_or_changed(pieces: list[str]) -> None:
    shown, calls = read(pieces)
    assert calls or shown == "".join(pieces)


def test_plain_text_is_given_out_at_once() -> None:
    reader = CallReader(["add"])
    assert reader.feed("Hel") == "Hel"
    assert reader.feed("lo {x} `") == "lo {x} `"


def test_a_broken_call_is_handed_on_as_the_model_wrote_it() -> None:
    reader = CallReader(["add"])
    assert reader.feed('```json\n{"name": "add", "arguments": {"a": }}\n```') == ""
    assert reader.calls == [Call("", "add", '{"name": "add", "arguments": {"a": }}')]


def test_what_follows_a_call_is_not_shown() -> None:
    reader = CallReader(["add"])
    assert reader.feed(f"```json\n{CALL}\n```\n\n") == ""
    assert not reader.is_past_calls
    assert reader.feed("Result: 3, so the answer is") == ""
    assert reader.is_past_calls


def test_without_tools_everything_is_text() -> None:
    assert CallReader([]).feed(f"```json\n{CALL}\n```") == f"```json\n{CALL}\n```"


def test_the_request_is_plain_text_in_the_form_that_is_asked_for() -> None:
    request = ModelRequest(
        "Be brief.",
        (
            user("Add."),
            message(Role.ASSISTANT, Text("Sure."), Call("c1", "add", '{"a":1}')),
            message(Role.TOOL, Result("c1", "add", "3")),
        ),
        TOOLS,
    )
    plain = as_text(request)
    assert plain.tools == ()
    assert plain.system.index("\n- add(") < plain.system.index("\n- write(")
    assert plain.messages[1].text == f"Sure.\n\n```json\n{CALL}\n```"
    assert plain.messages[2].role is Role.USER
    assert plain.messages[2].text.startswith("Result of add:\n3")
    assert as_text(ModelRequest("Be brief.", request.messages, TOOLS[::-1])) == plain


def test_a_tool_is_told_in_one_line_with_what_must_be_given_first() -> None:
    step = {"type": "object", "properties": {"state": {"enum": ["open", "done"]}, "text": {"type": "string"}}}
    parameters = {
        "properties": {
            "b": {"type": "integer"},
            "a": {"type": "array", "items": step},
            "c": {},
            "z": {"type": "string"},
        },
        "required": ["z", "a"],
    }
    tool = ToolSchema("plan", "Keep a plan,\nin order.\n\nMore about it.", parameters)
    lines = as_text(ModelRequest("", (user("Hi."),), (tool,))).system.splitlines()
    assert (
        '- plan(z: string, a: [{state: "open" | "done", text: string}], b?: integer, c?: any): '
        "Keep a plan, in order."
    ) in lines


def test_the_example_is_shown_only_with_the_tools_it_uses() -> None:
    both = tuple(ToolSchema(name, "", {}) for name in ("terminal", "write_file"))
    assert "count.py" in as_text(ModelRequest("", (user("Hi."),), both)).system
    assert "count.py" not in as_text(ModelRequest("", (user("Hi."),), both[:1])).system


@pytest.mark.anyio
async def test_hidden_tools_are_not_told_and_not_called(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    wire = OpenAIModel(Target("fake:m", "m", server.url), client, SystemClock())
    model = TextCalls(wire, hidden=frozenset({"write"}))
    server.play(Answer(openai_answer(["Hello."])))
    await collect(model, asks(tools=TOOLS))
    system = server.requests[0].json["messages"][0]["content"]
    assert "- add(" in system
    assert "- write(" not in system


@pytest.mark.anyio
async def test_over_the_wire(server: WireServer, client: httpx2.AsyncClient) -> None:
    model = TextCalls(OpenAIModel(Target("fake:m", "m", server.url), client, SystemClock()))
    server.play(Answer(openai_answer(["Ok.\n", "```js", "on\n", CALL, "\n``", "`"], prompt_tokens=5)))
    chunks = await collect(model, asks(tools=TOOLS))
    assert text_of(chunks) == "Ok.\n"
    finish = finish_of(chunks)
    assert finish.reason == "calls"
    assert [(call.name, call.arguments) for call in finish.calls] == [("add", '{"a": 1}')]
    assert finish.calls[0].id.startswith("call_")
    assert finish.usage.input_tokens == 5
    assert "tools" not in server.requests[0].json


@pytest.mark.anyio
async def test_a_model_that_invents_the_result_is_stopped(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    model = TextCalls(OpenAIModel(Target("fake:m", "m", server.url), client, SystemClock()))
    pieces = openai_answer([f"```json\n{CALL}\n```\n", "Result of add: 77"])[:2]
    server.play(Answer(pieces, ending="hang"))
    chunks = await collect(model, asks(tools=TOOLS))
    assert text_of(chunks) == ""
    assert finish_of(chunks).reason == "calls"
