from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.domain.model import ToolSchema
from everturn.models.small_models.grammar import calls_grammar

SHELL = ToolSchema(
    "terminal", "", {"properties": {"command": {"type": "string"}, "timeout_s": {}}, "required": ["command"]}
)
SEARCH = ToolSchema(
    "search",
    "",
    {
        "properties": {
            "kind": {"enum": ["file", "line"]},
            "deep": {"type": "boolean"},
            "max": {"type": "integer"},
        }
    },
)
STEPS = {"type": "array", "items": {"type": "object", "properties": {"text": {"type": "string"}}}}
PLAN = ToolSchema("plan", "", {"properties": {"steps": STEPS, "more": {"anyOf": []}}, "required": ["steps"]})
BARE = ToolSchema("list_files", "", {"properties": {}})
TOOLS = (SHELL, SEARCH, PLAN, BARE)

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|[a-z]+|\{[\d,]+\}|[()|?*]')


def pattern_of(grammar: str) -> re.Pattern[str]:
    """The grammar as a regular expression; what refers to itself is followed a few times."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.strip().splitlines())

    def expression(name: str, depth: int) -> str:
        if depth > 6:
            return "(?!)"
        found = []
        for token in _TOKEN.findall(rules[name]):
            if token.startswith('"'):
                found.append("(?:" + re.escape(token[1:-1].encode().decode("unicode_escape")) + ")")
            elif token.isalpha():
                is_again = name in ("value", "object", "array")
                found.append("(?:" + expression(token, depth + is_again) + ")")
            else:
                found.append("(?:" if token == "(" else token)
        return "".join(found)

    return re.compile(expression("root", 0), re.DOTALL)


PATTERN = pattern_of(calls_grammar(TOOLS))


def block(*calls: tuple[str, Any]) -> str:
    lines = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    return "\n".join(["```json", *lines, "```"])


@pytest.mark.parametrize(
    "said",
    [
        block(("terminal", {"command": "mv a b"})),
        block(("terminal", {"command": "ls", "timeout_s": 5})),
        block(("terminal", {"command": 'echo "x"\n'}), ("list_files", {})),
        block(("search", {})),
        block(("search", {"deep": True, "max": 3})),
        block(("search", {"kind": "line"})),
        block(("plan", {"steps": [{"text": "a"}, {}]})),
        block(("plan", {"steps": [], "more": {"any": [1, None, "x"]}})),
        "Hello.",
        "`ls` shows them.",
        "<b>Bold</b>",
        "```python\nprint(1)\n```",
        "```js\n1\n```",
        "```\nplain\n```\nThat is it.",
        '```json\n{\n  "name": "Ada"\n}\n```',
        'Like this:\n```json\n{"name": "Ada"}\n```',
    ],
)
def test_what_can_be_said(said: str) -> None:
    assert PATTERN.fullmatch(said)


@pytest.mark.parametrize(
    "said",
    [
        block(("rename_file", {"path": "a"})),
        block(("terminal", {})),
        block(("terminal", {"command": 3})),
        block(("terminal", {"command": "ls", "folder": "/"})),
        block(("search", {"kind": "folder"})),
        block(("list_files", {"depth": 0})),
        block(("list_files", {})) + "\nResult: a.txt",
        block(*[("list_files", {})] * 5),
        '{"name": "list_files", "arguments": {}}',
        "",
    ],
)
def test_what_cannot_be_said(said: str) -> None:
    assert not PATTERN.fullmatch(said)


def test_without_tools_only_words_can_be_said() -> None:
    pattern = pattern_of(calls_grammar(()))
    assert pattern.fullmatch("It is 3.")
    assert not pattern.fullmatch(block(("list_files", {})))


def test_where_a_call_is_owed_only_calls_can_be_made() -> None:
    pattern = pattern_of(calls_grammar(TOOLS, has_words=False))
    assert pattern.fullmatch(block(("terminal", {"command": "mv a b"})))
    assert not pattern.fullmatch("I renamed a.")


@given(st.text(max_size=30))
def test_any_text_can_be_an_argument(text: str) -> None:
    assert PATTERN.fullmatch(block(("terminal", {"command": text})))


def test_equal_tools_give_an_equal_grammar_and_a_huge_schema_a_short_one() -> None:
    assert calls_grammar(TOOLS) == calls_grammar(TOOLS[::-1])
    many = ToolSchema("many", "", {"properties": {f"p{n}": {"type": "string"} for n in range(200)}})
    inner: dict[str, Any] = {"type": "object", "properties": {}}
    for _ in range(12):
        inner = {"type": "object", "properties": {f"p{n}": inner for n in range(8)}}
    deep = ToolSchema("deep", "", inner)
    grammar = calls_grammar((many, deep))
    assert len(grammar) < 8000
    assert '\\"many\\", \\"arguments\\": " object "}"' in grammar


def test_names_with_quotes_and_backslashes_stay_names() -> None:
    odd = ToolSchema("od", "", {"properties": {'a"b\\c': {"enum": ['x"\\y']}}, "required": ['a"b\\c']})
    assert pattern_of(calls_grammar((odd,))).fullmatch(block(("od", {'a"b\\c': 'x"\\y'})))


def test_a_schema_whose_required_is_no_list_requires_nothing() -> None:
    odd = ToolSchema("odd", "", {"properties": {"a": {"type": "string"}}, "required": "abc"})
    assert pattern_of(calls_grammar((odd,))).fullmatch(block(("odd", {})))
