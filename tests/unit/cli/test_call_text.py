"""What is approved on a terminal is on the screen, whole and in the order in which it runs."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from everturn.cli import prompts
from everturn.cli.call_text import exact, print_call
from everturn.domain.asks import Ask, AskTopic


def printed(arguments: str, *, width: int = 60, height: int = 24, is_terminal: bool = False) -> str:
    out = Console(file=io.StringIO(), width=width, height=height, force_terminal=is_terminal)
    print_call(arguments, out)
    text = out.file.getvalue()  # type: ignore[attr-defined]  # the console writes to a StringIO
    assert isinstance(text, str)
    return text


def unwrapped(text: str) -> str:
    return text.replace("\n  │ ", "")


def test_a_long_command_is_shown_to_its_end() -> None:
    command = "echo " + "a" * 500 + " && rm -rf ~/secret"
    text = printed(json.dumps({"command": command, "timeout_s": 5}))
    assert command in unwrapped(text)
    assert "timeout_s:" in text


def test_every_line_of_a_program_is_shown() -> None:
    code = "\n".join(f"step({number})" for number in range(200))
    text = printed(json.dumps({"code": code}))
    assert all(f"step({number})" in text for number in range(200))
    assert "200 lines in all" in text


def test_no_line_of_a_call_can_pass_for_a_prompt() -> None:
    forged = "ls\n  Allow? [y]es once\n\nRun this command?   terminal\n" + "宽" * 200
    lines = printed(json.dumps({"command": forged, "why": "x\ntimeout_s: 1"})).splitlines()
    assert all(line.startswith("  │ ") or line in ("  command:", "  why:") for line in lines)


@pytest.mark.parametrize(
    ("char", "visible"),
    [
        ("\u202e", r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\u200f", r"\u200f"),
        ("\u061c", r"\u061c"),
        ("\u200b", r"\u200b"),
        ("\u2028", r"\u2028"),
        ("\u00a0", r"\xa0"),
        ("\u3164", r"\u3164"),
        ("\x1b", r"\x1b"),
        ("\x9b", r"\x9b"),
        ("\r", r"\r"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_hidden_characters_are_visible(char: str, visible: str) -> None:
    assert exact(f"a{char}b").plain == f"a{visible}b"


def test_a_replaced_character_does_not_look_like_one_that_is_spelled_out() -> None:
    assert exact("\u202e").plain == exact(r"\u202e").plain
    assert exact("\u202e").spans
    assert not exact(r"\u202e").spans


def test_blank_lines_and_gaps_are_counted_instead_of_printed() -> None:
    text = printed(json.dumps({"command": "ls" + "\n" * 121 + "a" + " " * 5000 + "b\n \n \n \n \nrm -rf x"}))
    assert "[120 blank lines]" in text
    assert "a[5,000 spaces]b" in text
    assert "[4 blank lines]" in text
    assert len(text.splitlines()) < 10


def test_text_that_is_no_json_is_shown_unchanged() -> None:
    assert "  │ not {json" in printed("not {json")


@pytest.mark.anyio
async def test_the_question_shows_the_call_and_what_a_lasting_answer_covers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = Console(file=io.StringIO(), width=100)
    code = "print('hello')\nimport os\nos.system('rm -rf /srv')"
    ask = Ask(
        "ask_1",
        "ses_1",
        "trn_1",
        AskTopic.APPROVAL,
        0,
        text="It runs code.\nDescription that is trusted\nto its last line",
        choices=("once", "deny"),
        name="python",
        arguments=json.dumps({"code": code}),
        label="print('hello')",
    )
    asked: list[str] = []

    async def no(prompt: str) -> str:
        asked.append(prompt)
        return "n"

    monkeypatch.setattr(prompts, "_input", no)
    assert (await prompts.ask_user(ask, out)).answer == "deny"
    text = out.file.getvalue()  # type: ignore[attr-defined]  # the console writes to a StringIO
    assert "  │ os.system('rm -rf /srv')" in text
    assert "  It runs code." in text
    assert "  │ to its last line" in text
    assert asked == ["  Allow? [y]es once · [e]dit · [n]o "]
