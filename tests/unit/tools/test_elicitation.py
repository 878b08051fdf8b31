"""What a server asks in the middle of a call, as words: each kind of field that the protocol knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from everturn.tools.mcp.elicitation import Elicitation, Reply, read_elicitation, read_reply

FISH = {
    "type": "array",
    "description": "Fish",
    "items": {"anyOf": [{"const": "f1", "title": "Tuna"}, {"const": "f2", "title": "Trout"}]},
}


def ask(properties: dict[str, Any], *required: str) -> Elicitation:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return read_elicitation("shop", SimpleNamespace(mode="form", message="Fill in.", requested_schema=schema))


def test_the_question_says_what_is_needed_and_what_can_be_left_out() -> None:
    asked = ask(
        {
            "name": {"type": "string", "description": "Your name"},
            "born": {"type": "string", "format": "date", "title": "Birthday"},
            "news": {"type": "boolean", "default": False},
            "fish": FISH,
            "pet": {"type": "string", "enum": ["p1", "p2"], "enumNames": ["Cat", "Dog"]},
        },
        "name",
    )
    assert asked.text.splitlines()[4:] == [
        "name: Your name (text)",
        "born: Birthday (a date, as in 2026-01-31; may be left out)",
        "news (yes or no; no if you leave it out)",
        "fish: Fish (one or more of f1 for Tuna, f2 for Trout, with commas between them; may be left out)",
        "pet (one of p1 for Cat, p2 for Dog; may be left out)",
        "",
        "Answer with a line for each, as in: name = …",
    ]


def test_what_is_needed_and_missing_is_asked_for_again() -> None:
    asked = ask({"name": {"type": "string"}, "age": {"type": "integer"}}, "name")
    assert read_reply(asked, "age = 3") == "name is missing: text is wanted. Answer again, with all lines."
    assert read_reply(asked, "name = Emma") == Reply("accept", {"name": "Emma"})


@pytest.mark.parametrize(
    ("answer", "value"), [("f1, f2", ["f1", "f2"]), ("Trout", ["f2"]), ("tuna ,f2", ["f1", "f2"])]
)
def test_several_options_are_chosen_by_value_or_title(answer: str, value: list[str]) -> None:
    asked = ask({"fish": FISH}, "fish")
    assert asked.choices == ("decline",)
    assert read_reply(asked, answer) == Reply("accept", {"fish": value})


def test_an_option_that_is_not_offered_is_named() -> None:
    asked = ask({"fish": FISH}, "fish")
    assert read_reply(asked, "f1, shark") == (
        "fish cannot be 'f1, shark': one or more of f1, f2, with commas between them is wanted."
    )
