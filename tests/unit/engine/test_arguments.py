"""Arguments against schemas: valid ones pass, a mistake is named, unknown keywords are ignored."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.engine.arguments import find_misfit

RUN = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1},
        "timeout": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 600}, {"type": "null"}]},
        "mode": {"enum": ["fast", "slow"]},
        "files": {"type": "array", "items": {"$ref": "#/$defs/file"}, "maxItems": 2},
    },
    "required": ["command"],
    "additionalProperties": False,
    "$defs": {"file": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
}


@pytest.mark.parametrize(
    "given",
    [
        {"command": "ls"},
        {"command": "ls", "timeout": 5, "mode": "fast", "files": [{"path": "a", "more": 1}]},
        {"command": "ls", "timeout": None},
    ],
)
def test_what_fits_passes(given: dict[str, Any]) -> None:
    assert find_misfit(RUN, given) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "command is missing"),
        ({"command": 5}, "command must be of type string"),
        ({"command": ""}, "command must be at least 1 characters"),
        ({"command": "ls", "cmd": "x"}, "cmd is not taken"),
        ({"command": "ls", "timeout": "5"}, "timeout must be of type integer"),
        ({"command": "ls", "timeout": True}, "timeout must be of type integer"),
        ({"command": "ls", "timeout": 601}, "timeout must be at most 600"),
        ({"command": "ls", "mode": "medium"}, "mode must be one of: fast, slow"),
        ({"command": "ls", "files": [{"path": "a"}, {}]}, "files[1].path is missing"),
        ({"command": "ls", "files": [{"path": "a"}] * 3}, "files must be at most 2 items"),
    ],
)
def test_the_first_slip_is_named(given: dict[str, Any], said: str) -> None:
    assert find_misfit(RUN, given) == said


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"$ref": "#"},
        {"$ref": "https://example.org/elsewhere.json"},
        {"type": "unheard of", "properties": {"a": {"if": {}, "then": {}}}},
        {"properties": {"a": True}},
        {"required": "x"},
        {"required": 5},
        {"required": {"x": True}},
        {"required": [5, None]},
        {"properties": "x"},
        {"allOf": 5, "anyOf": {"type": "string"}},
        {"type": [{}]},
    ],
)
def test_what_is_not_known_is_let_through(schema: dict[str, Any]) -> None:
    assert find_misfit(schema, {"a": {"b": [1]}}) is None
