from __future__ import annotations

import json

import pytest

from everturn.domain.messages import Attachment, Message, Outcome, Role, Text
from everturn.domain.modelling import ToolSchema
from everturn.models.errands import fitting, is_repeating, owes_call
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
    assert {tool.name for tool in TOOLS} - {tool.name for tool in fitting(TOOLS, messages)} == unfit


def test_a_file_that_came_with_the_request_need_not_be_read() -> None:
    attached = Attachment("fil_1", "story.txt", "text/plain", 3)
    assert not owes_call([message(Role.USER, Text("What does story.txt say?"), attached)])


def test_an_address_that_was_named_before_can_be_fetched_again() -> None:
    tools = (ToolSchema("web_fetch", "", {}),)
    assert fitting(tools, [user("Read www.a.example."), user("And the rest of it?")]) == tools


RAN = Outcome.ERROR  # a program that failed was run all the same


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
    assert owes_call(messages) is owes


def wrote(content: str, outcome: Outcome = Outcome.OK) -> tuple[Message, Message]:
    arguments = json.dumps({"path": "a.txt", "content": content})
    return called(arguments, f"Replaced a.txt by {content}.", "write_file", outcome)


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
        (
            (user("Write."), *wrote("1"), *called("{}", "1"), *wrote("2"), *called("{}", "2"), *wrote("3")),
            True,
        ),
        ((user("Write."), *wrote("1", Outcome.ERROR), *wrote("2", Outcome.ERROR), *wrote("3")), False),
    ],
)
def test_who_does_the_same_again_and_again_goes_round(messages: tuple[Message, ...], is_round: bool) -> None:
    assert is_repeating(messages) is is_round
