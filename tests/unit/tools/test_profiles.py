from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.errors import Invalid
from everturn.tools import TOOL_NAMES, Profiles, built_in, parse_profiles, read_profiles
from everturn.tools.profiles import DEFAULT_PROMPT, POCKET_PROMPT, key_lines

GOOD = '''\
theme = "dark"

[profiles.coder]
prompt = """
You write code.
[profiles.fake]
tools = 3
"""
model = "openai:gpt-x"
tools = [
  "terminal",
  "read_file",
]
network = true
mcp = ["time"]

[profiles.default]
model = "anthropic:claude"

[mcp.time]
command = "mcp-server-time"
args = ["--local-timezone", "UTC"]
env = { LANG = "C" }
'''


def parse(text: str) -> Profiles:
    return parse_profiles(text, "config.toml", TOOL_NAMES)


def test_profiles_are_read_and_other_tables_left_alone() -> None:
    profiles = parse(GOOD)
    coder = profiles.get("coder")
    assert (coder.model, coder.tools, coder.network) == ("openai:gpt-x", ("terminal", "read_file"), True)
    assert profiles.servers["time"].args == ("--local-timezone", "UTC")
    assert profiles.names == ["coder", "default", "guest", "pocket"]
    default = profiles.get(None)
    assert (default.model, default.prompt) == ("anthropic:claude", DEFAULT_PROMPT)


@pytest.mark.parametrize("name", ["guest", "pocket"])
def test_a_built_in_profile_without_tools_that_the_file_changes_still_has_none(name: str) -> None:
    changed = parse(f'[profiles.{name}]\nmodel = "openai:gpt-x"\n').get(name)
    assert (changed.model, changed.tools) == ("openai:gpt-x", ())


@pytest.mark.parametrize(
    ("change", "line", "key", "words"),
    [
        (("network = true", 'network = "yes"'), 14, "profiles.coder.network", "bool"),
        (("network = true", "netwrok = true"), 14, "profiles.coder.netwrok", "not a key"),
        (('"read_file"', '"read_fiel"'), 10, "profiles.coder.tools", "no tool 'read_fiel'"),
        (('mcp = ["time"]', 'mcp = ["clock"]'), 15, "profiles.coder.mcp", "no MCP server 'clock'"),
        (('command = "mcp-server-time"', ""), 20, "mcp.time", "a command or a url"),
        (('env = { LANG = "C" }', "env = { LANG = 1 }"), 23, "mcp.time.env", "str"),
        (('model = "openai:gpt-x"', "model = 7"), 9, "profiles.coder.model", "str"),
        (("[profiles.coder]", '[profiles."no good"]'), 3, "profiles.no good", "not a good name"),
    ],
)
def test_a_mistake_is_named_with_line_and_key(
    change: tuple[str, str], line: int, key: str, words: str
) -> None:
    with pytest.raises(Invalid) as caught:
        parse(GOOD.replace(*change))
    assert f"config.toml, line {line}: {key}" in caught.value.message
    assert words in caught.value.message
    assert (caught.value.facts["line"], caught.value.facts["key"]) == (line, key)


def test_a_mistake_in_the_syntax_is_named_with_its_line() -> None:
    with pytest.raises(Invalid, match="line 2"):
        parse("[profiles.x]\nmodel = \n")


def test_a_section_that_is_no_table_is_named() -> None:
    with pytest.raises(Invalid, match=r"line 1: profiles must be a table"):
        parse("profiles = 3\n")
    with pytest.raises(Invalid, match=r"line 2: mcp\.time must be a table"):
        parse("[mcp]\ntime = 'x'\n")


def test_keys_are_found_in_every_way_of_writing_them() -> None:
    text = "a.b = 1\n[x]\n'q' . r = '''\nz = 1\n'''\nl = [\n 1, # ]\n]\n[[arr]]\n\"k k\" = 2\n"
    assert list(key_lines(text)) == [
        (("a", "b"), 1),
        (("x",), 2),
        (("x", "q", "r"), 3),
        (("x", "l"), 6),
        (("arr",), 9),
        (("arr", "k k"), 10),
    ]


def test_without_a_file_the_built_in_profiles_are_there(tmp_path: Path) -> None:
    assert read_profiles(tmp_path / "config.toml", TOOL_NAMES) == built_in()


def test_the_pocket_profile_is_tiny() -> None:
    pocket = built_in().get("pocket")
    assert pocket.tools == ()
    # English text has about 1.3 tokens per word; 1.5 leaves room for a small vocabulary.
    assert len(POCKET_PROMPT.split()) * 1.5 < 150


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(Invalid) as caught:
        built_in().get("unknown")
    assert "default, guest, pocket" in caught.value.hint
