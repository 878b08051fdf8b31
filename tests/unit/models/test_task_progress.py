from __future__ import annotations

import json

import msgspec
import pytest

from everturn.domain.messages import Attachment, Message, Outcome, Role, Text
from everturn.domain.model import Abilities, ToolSchema
from everturn.engine.context import Prefix, build_request, show
from everturn.models.small_models.task_progress import is_repeating, must_call, request_text, select_tools
from tests.unit.models.samples import called, message, user

TOOLS = tuple(
    ToolSchema(name, "", {})
    for name in ("edit_file", "memory", "read_file", "terminal", "web_fetch", "write_file")
)


@pytest.mark.parametrize(
    ("asked", "done", "unfit"),
    [
        ("Hello.", [], {"edit_file", "web_fetch"}),
        ("Change the port in a.ini.", [], {"edit_file", "memory", "web_fetch", "write_file"}),
        (
            "Change the port in a.ini.",
            [("read_file", Outcome.ERROR)],
            {"edit_file", "memory", "web_fetch", "write_file"},
        ),
        ("Change the port in a.ini.", [("read_file", Outcome.OK)], {"memory", "web_fetch", "write_file"}),
        ("Fix calc.py.", [("terminal", Outcome.ERROR)], {"memory", "web_fetch", "write_file"}),
        ("Make a new file b.ini.", [("list_files", Outcome.OK)], {"memory", "web_fetch"}),
        ("Fix this sentence: He go home.", [("list_files", Outcome.OK)], {"web_fetch"}),
        ("What does https://a.example/x say?", [("web_fetch", Outcome.OK)], set()),
    ],
)
def test_a_tool_that_cannot_be_of_use_cannot_be_called(
    asked: str, done: list[tuple[str, Outcome]], unfit: set[str]
) -> None:
    messages = [user(asked)]
    for name, outcome in done:
        messages += called("{}", "x", name, outcome)
    assert {tool.name for tool in TOOLS} - {tool.name for tool in select_tools(TOOLS, messages)} == unfit


def given(
    *history: Message, recalled: str = "", files: dict[str, bytes] | None = None, images: bool = False
) -> tuple[Message, ...]:
    """The messages as the engine gives them to a model."""
    shown = show(history, model="fake:m", abilities=Abilities(images=images), files=files)
    return build_request(Prefix("", recalled=recalled), shown, files=files).messages


@pytest.mark.parametrize("recalled", ["", "You remember: the user keeps a list."])
@pytest.mark.parametrize(
    ("media_type", "files", "images"),
    [
        ("text/plain", {"fil_1": b"Once upon a time."}, False),
        ("text/plain", {}, False),
        ("image/png", {"fil_1": b"PNG"}, False),
        ("image/png", {"fil_1": b"PNG"}, True),
    ],
    ids=["text", "gone", "unseen", "seen"],
)
def test_a_file_that_came_with_the_request_need_not_be_read(
    media_type: str, files: dict[str, bytes], images: bool, recalled: str
) -> None:
    attached = Attachment("fil_1", "story.txt", media_type, 3)
    asked = message(Role.USER, Text("What does story.txt say?"), attached)
    assert not must_call(given(asked, files=files, images=images, recalled=recalled))
    assert must_call(given(user("What does story.txt say?"), recalled=recalled))


def test_what_memory_recalls_is_not_what_was_asked_for() -> None:
    notes = "You remember: change todo.md and run it, see https://a.example."
    tools = (ToolSchema("web_fetch", "", {}), ToolSchema("memory", "", {}))
    messages = given(user("Hi."), recalled=notes)
    assert messages[0].text.startswith(notes)
    assert not must_call(messages)
    assert select_tools(tools, messages) == (tools[1],)
    assert request_text(messages[0]) == "Hi."


def test_a_message_sent_into_the_turn_does_not_take_its_task_away() -> None:
    steering = msgspec.structs.replace(user("Be quick."), is_steering=True)
    read = called("{}", "x", "read_file")
    assert must_call([user("Change the port in a.ini."), *read, steering])
    done = called("{}", "x", "edit_file")
    named = msgspec.structs.replace(user("It is in a.ini."), is_steering=True)
    assert not must_call([user("Change the port in a.ini."), *done, named])


@pytest.mark.parametrize("outcome", [Outcome.DENIED, Outcome.UNKNOWN, Outcome.CANCELLED])
@pytest.mark.parametrize("name", ["edit_file", "read_file"])
def test_a_denied_model_may_say_so(name: str, outcome: Outcome) -> None:
    asked = user("Change the port in a.ini, and run it.")
    assert not must_call([asked, *called("{}", "x", name, outcome)])
    assert not must_call(
        [asked, *called("{}", "x", name, outcome), *called("{}", "x", "read_file", Outcome.OK)]
    )


@pytest.mark.parametrize(
    ("words", "is_file"),
    [
        ("story.txt", True),
        ("See src/my-app.test.js.", True),
        ("main.c, please", True),
        ("(settings.ini)", True),
        ("a.tar.gz", True),
        ("Node.js", False),
        ("my-node.js", True),
        ("list.sort", False),
        ("3.11.x", False),
        ("anna@firma.de", False),
        ("anna@build.rs", False),
        ("hetzner.de", False),
        ("readme.md.example.org", False),
        ("https://a.example/index.html", False),
        ("e.g. this", False),
        ("a.m. or p.m.", False),
    ],
)
def test_what_a_file_is_called(words: str, is_file: bool) -> None:
    assert must_call([user(words)]) is is_file


@pytest.mark.parametrize(
    ("words", "is_address"),
    [
        ("spiegel.de", True),
        ("bbc.co.uk", True),
        ("Read news.ycombinator.com, please.", True),
        ("https://localhost:8000", True),
        ("docs.rs/tokio", True),
        ("münchen.de", True),
        ("main.py", False),
        ("app.test.py", False),
        ("3.11", False),
        ("e.g. this", False),
        ("anna@firma.de", False),
        ("That is all.", False),
    ],
)
def test_what_an_address_is(words: str, is_address: bool) -> None:
    assert bool(select_tools((ToolSchema("web_fetch", "", {}),), [user(words)])) is is_address


def test_an_address_that_was_named_before_can_be_fetched_again() -> None:
    tools = (ToolSchema("web_fetch", "", {}),)
    assert select_tools(tools, [user("Read www.a.example."), user("And the rest of it?")]) == tools


RAN = Outcome.ERROR  # a program that failed was still run


@pytest.mark.parametrize(
    ("asked", "done", "owes"),
    [
        ("What does story.txt say?", [], True),
        ("What does story.txt say?", [("read_file", Outcome.ERROR)], False),
        ("How many files are in this folder?", [], False),
        ("Change the port in settings.ini.", [("read_file", Outcome.OK)], True),
        ("Change the port in settings.ini.", [("edit_file", Outcome.ERROR)], True),
        ("Change the port in settings.ini.", [("read_file", Outcome.OK), ("edit_file", Outcome.OK)], False),
        ("Please delete the files here.", [("terminal", Outcome.OK)], False),
        ("calc.py fails. Fix it, and run it.", [("terminal", RAN), ("edit_file", Outcome.OK)], True),
        ("calc.py fails. Fix it, and run it.", [("edit_file", Outcome.OK), ("terminal", RAN)], False),
        ("calc.py fails. Fix it.", [("terminal", RAN)], True),
        ("Fix calc.py.", [("read_file", Outcome.ERROR)] * 6, False),
        ("How do I write a file in Python?", [], False),
        ("Write a poem about the sea.", [], False),
        ("Say hello, e.g. in French.", [], False),
    ],
)
def test_what_was_asked_for_and_not_tried_is_owed(
    asked: str, done: list[tuple[str, Outcome]], owes: bool
) -> None:
    messages = [user("Make a.txt."), message(Role.ASSISTANT, Text("I did.")), user(asked)]
    for name, outcome in done:
        messages += called("{}", "x", name, outcome)
    assert must_call(messages) is owes


def wrote(content: str, outcome: Outcome = Outcome.OK) -> tuple[Message, Message]:
    arguments = json.dumps({"path": "a.txt", "content": content})
    return called(arguments, f"Replaced a.txt by {content}.", "write_file", outcome)


def ran(result: str) -> tuple[Message, Message]:
    return called('{"command": "python3 a.py"}', result, "terminal")


@pytest.mark.parametrize(
    ("messages", "is_round"),
    [
        ((user("Add."),), False),
        ((user("Add."), *called("{}", "3")), False),
        ((user("Add."), *called("{}", "3"), *called("{}", "3")), True),
        ((user("Add."), *called("{}", "3"), *called('{"a": 1}', "3"), *called("{}", "3")), True),
        ((user("Add."), *called("{}", "failed"), *called('{"a": 1}', "3"), *called("{}", "3")), False),
        ((user("Add."), *called("{}", "3"), user("Again."), *called("{}", "3")), False),
        ((user("Write."), *wrote("1"), *wrote("2")), False),
        ((user("Write."), *wrote("1"), *wrote("1")), True),
        ((user("Edit."), *wrote("1"), *wrote("2"), *wrote("3"), *called("{}", "x")), False),
        ((user("Run."), *ran("1"), *wrote("1"), *ran("2"), *wrote("2"), *ran("3")), False),
        ((user("Run."), *ran("1"), *wrote("1"), *ran("1")), False),
        ((user("Run."), *ran("1"), *wrote("1"), *ran("1"), *wrote("2"), *ran("1")), True),
        ((user("Run."), *ran("1"), *wrote("1"), *ran("1"), *wrote("2"), *ran("1"), *wrote("3")), False),
        ((user("Run."), *ran("1"), *wrote("1", Outcome.ERROR), *ran("1")), True),
        ((user("Write."), *wrote("1"), *wrote("2"), *wrote("1"), *wrote("2"), *wrote("1")), True),
    ],
)
def test_who_does_the_same_again_and_again_goes_round(messages: tuple[Message, ...], is_round: bool) -> None:
    assert is_repeating(messages) is is_round
