from __future__ import annotations

import json

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.domain.clock import SystemClock
from everturn.domain.messages import Attachment, Call, Outcome, Result, Role, Text
from everturn.domain.model import Abilities, ModelRequest, ToolSchema
from everturn.engine.context import Prefix, build_request, show
from everturn.models.openai_wire import OpenAIModel
from everturn.models.small_models.call_reader import CallReader
from everturn.models.small_models.grammar import calls_grammar
from everturn.models.small_models.task_progress import must_call
from everturn.models.small_models.text_calls import TextCalls, ToolBrief
from everturn.models.small_models.text_prompt import as_text
from everturn.models.wire import Target
from everturn.testing.wires import WireAnswer, WireServer, openai_answer
from tests.unit.models.samples import TOOLS, asks, called, collect, finish_of, message, text_of, user

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


def test_a_tool_is_described_in_one_line_with_required_arguments_first() -> None:
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


SHOWN = tuple(
    ToolSchema(name, "", {}) for name in ("edit_file", "read_file", "search_files", "terminal", "write_file")
)


def test_examples_come_before_the_conversation_only_with_the_tools_they_use() -> None:
    written = as_text(ModelRequest("", (user("Hi."),), SHOWN)).messages
    assert written[-1].text == "Hi."
    roles = [message.role for message in written]
    assert roles == [Role.USER, Role.ASSISTANT] * (len(roles) // 2) + [Role.USER]
    calls = CallReader([tool.name for tool in SHOWN])
    for one in written:
        calls.feed(one.text + "\n" if one.role is Role.ASSISTANT and one.text.startswith("```") else "")
    assert {call.name for call in calls.calls} == {"edit_file", "read_file", "terminal", "write_file"}
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls.calls)
    assert len(as_text(ModelRequest("", (user("Hi."),), SHOWN[1:])).messages) == 1


@pytest.mark.parametrize(
    ("names", "outcome", "words"),
    [
        (["terminal"], Outcome.OK, 'Asked was: "Do it all." If a part of that is left'),
        (["read_file"], Outcome.OK, 'Asked was: "Do it all." If a change was asked for'),
        (["read_file", "terminal"], Outcome.OK, "If a part of that is left"),
        (["read_file"], Outcome.ERROR, "This failed."),
    ],
)
def test_what_a_result_is_followed_by(names: list[str], outcome: Outcome, words: str) -> None:
    calls = [Call(f"c{n}", name, "{}") for n, name in enumerate(names)]
    results = [Result(call.id, call.name, "x", outcome) for call in calls]
    messages = (user("Do it\nall."), message(Role.ASSISTANT, *calls), message(Role.TOOL, *results))
    assert words in as_text(ModelRequest("", messages, SHOWN)).messages[-1].text


def test_a_model_that_checks_its_work_is_not_told_to_do_it_again() -> None:
    made = called('{"path": "a"}', "Made a.", name="write_file")
    looked = called('{"path": "a"}', "     1\tx", name="read_file")
    request = ModelRequest("", (user("Make a."), *made, *looked, user("What is in a?"), *looked), SHOWN)
    texts = [one.text for one in as_text(request).messages[-6:] if one.text.startswith("Result of read_file")]
    assert ["If a change was asked for" in text for text in texts] == [False, True]
    assert [text.count("Make a.") for text in texts] == [1, 0]


@pytest.mark.parametrize(
    ("command", "is_read_only"),
    [
        ("grep -rn teh .", True),
        (" wc -l a", True),
        ("cat a > b", False),
        ("mv a b", False),
        ("python3 x", False),
    ],
)
def test_a_command_that_only_looks_is_a_look(command: str, is_read_only: bool) -> None:
    steps = called(json.dumps({"command": command}), "x", name="terminal")
    messages = (user("Correct a.txt."), *steps)
    assert must_call(messages) is is_read_only
    last = as_text(ModelRequest("", messages, SHOWN)).messages[-1].text
    assert ("If a change was asked for" in last) is is_read_only


@pytest.mark.parametrize("is_held", [True, False])
def test_a_longer_conversation_begins_like_the_shorter_one(is_held: bool) -> None:
    """Else the server has to read all of it again."""
    messages = (
        user("Make a."),
        *called("{}", "3"),
        *called('{"a": 1}', "4"),
        *called("{}", "3"),
        msgspec.structs.replace(user("Be quick."), is_steering=True),
        *called("{}", "4"),
        user("And b."),
        *called("{}", "5"),
    )
    whole = as_text(ModelRequest("", messages, SHOWN), is_held=is_held).messages
    for count in range(1, len(messages)):
        short = as_text(ModelRequest("", messages[:count], SHOWN), is_held=is_held).messages
        assert whole[: -len(messages) + count] == short
    told = [one.text for one in whole[-len(messages) :] if one.text.startswith("Result of")]
    assert ["You have done this before" in text for text in told] == [False, False, is_held, False, False]
    assert "Make a." in told[3]  # what was sent into the turn is not its task


def test_the_request_is_repeated_without_recalled_facts_and_attachments() -> None:
    attached = Attachment("fil_1", "b.txt", "text/plain", 3)
    history = (message(Role.USER, Text("Make a."), attached), *called("{}", "3"))
    files = {"fil_1": b"bbb"}
    shown = show(history, model="fake:m", abilities=Abilities(), files=files)
    request = build_request(Prefix("", SHOWN, "You remember: nothing."), shown, files=files)
    assert 'Asked was: "Make a."' in as_text(request).messages[-1].text


@pytest.mark.anyio
async def test_a_model_that_no_grammar_holds_may_call_again(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    model = TextCalls(OpenAIModel(Target("fake:m", "m", server.url), client, SystemClock()))
    server.play(WireAnswer(openai_answer([f"```json\n{CALL}\n```"])))
    messages = (user("Add."), *called("{}", "3"), *called("{}", "3"))
    assert finish_of(await collect(model, ModelRequest("", messages, TOOLS))).calls


@pytest.mark.anyio
async def test_who_goes_round_is_held_to_words_and_who_owes_a_call_to_calls(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    wire = OpenAIModel(Target("fake:m", "m", server.url), client, SystemClock())
    model = TextCalls(wire, has_grammar=True)
    messages = (user("Add."), *called("{}", "3"), *called("{}", "3"))
    server.play(WireAnswer(openai_answer(["It is 3."])), WireAnswer(openai_answer([f"```json\n{CALL}\n```"])))
    await collect(model, ModelRequest("", messages, TOOLS))
    grammars = [server.requests[0].json["grammar"]]
    assert "You have done this before" in server.requests[0].json["messages"][-1]["content"]
    await collect(model, ModelRequest("", messages[:3], TOOLS))
    grammars.append(server.requests[1].json["grammar"])
    server.play(WireAnswer(openai_answer([f"```json\n{CALL}\n```"])))
    await collect(model, ModelRequest("", (user("Write a.txt."),), TOOLS))
    grammars.append(server.requests[2].json["grammar"])
    assert grammars == [calls_grammar(()), calls_grammar(TOOLS), calls_grammar(TOOLS, has_words=False)]
    systems = {request.json["messages"][0]["content"] for request in server.requests}
    assert len(systems) == 1  # the prefix stays, whatever may be called


@pytest.mark.anyio
async def test_a_tool_is_described_in_the_chosen_words_and_with_the_chosen_arguments(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    wire = OpenAIModel(Target("fake:m", "m", server.url), client, SystemClock())
    model = TextCalls(wire, briefs={"add": ToolBrief("Sum up.", ("a",))})
    server.play(WireAnswer(openai_answer(["Hello."])))
    await collect(model, asks(tools=TOOLS))
    body = server.requests[0].json
    assert "- add(a: any): Sum up.\n" in body["messages"][0]["content"]
    assert "grammar" not in body  # only for servers that read one


@pytest.mark.anyio
async def test_hidden_tools_are_neither_described_nor_called(
    server: WireServer, client: httpx2.AsyncClient
) -> None:
    wire = OpenAIModel(Target("fake:m", "m", server.url), client, SystemClock())
    model = TextCalls(wire, hidden=frozenset({"write"}))
    server.play(WireAnswer(openai_answer(["Hello."])))
    await collect(model, asks(tools=TOOLS))
    system = server.requests[0].json["messages"][0]["content"]
    assert "- add(" in system
    assert "- write(" not in system


@pytest.mark.anyio
async def test_over_the_wire(server: WireServer, client: httpx2.AsyncClient) -> None:
    model = TextCalls(OpenAIModel(Target("fake:m", "m", server.url), client, SystemClock()))
    server.play(WireAnswer(openai_answer(["Ok.\n", "```js", "on\n", CALL, "\n``", "`"], prompt_tokens=5)))
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
    server.play(WireAnswer(pieces, ending="hang"))
    chunks = await collect(model, asks(tools=TOOLS))
    assert text_of(chunks) == ""
    assert finish_of(chunks).reason == "calls"
