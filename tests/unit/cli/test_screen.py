"""The terminal's view of a turn: what stays, what is redrawn, what is said about the rest."""

from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from everturn.cli import prompts
from everturn.cli.screen import Screen, describe, finished_length
from everturn.domain import events as ev
from everturn.domain.asks import Ask, AskTopic
from everturn.domain.messages import Message, Outcome, Role, Summary, Text
from everturn.domain.turns import ClaimReason, Failure


def drawn(*payloads: ev.Payload, is_terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=60, color_system=None)
    screen = Screen(console)
    for payload in payloads:
        screen.show(payload)
    screen.close()
    return out.getvalue()


def test_where_the_output_is_no_terminal_the_words_come_as_they_are() -> None:
    text = drawn(ev.TextDelta(1, "**a** "), ev.TextDelta(1, "b"), ev.TurnCompleted(), is_terminal=False)
    assert text == "**a** b\n"


def test_on_a_terminal_markdown_is_drawn_and_every_word_is_there_once_it_is_finished() -> None:
    text = drawn(
        ev.TextDelta(1, "First *word*.\n\n"),
        ev.TextDelta(1, "Second."),
        ev.TurnCompleted(),
        is_terminal=True,
    )
    assert "First word." in text
    assert "Second." in text
    assert "*word*" not in text


FORGED = "\x1b[2K\x1b[1A\x9b2Jrm\r\u202eself\x07"


def test_words_of_others_cannot_draw_over_what_was_printed() -> None:
    text = drawn(
        ev.TextDelta(1, f"Said {FORGED}.\r\n\r\nMore."),
        ev.ToolStarted(1, "c", "terminal", "{}", f"label {FORGED}"),
        ev.ToolFinished("c", "terminal", Outcome.OK, FORGED),
        ev.Progress(FORGED),
        ev.TurnFailed(Failure("x", FORGED)),
        is_terminal=True,
    )
    left = re.sub(r"\x1b\[\d*[A-K]|\x1b\[\?25[lh]", "", text)  # what drawing itself needs
    assert [char for char in left if char in FORGED and not char.isprintable()] == ["\r"] * left.count("\r")
    assert "\x1b[2K\x1b[1A\x9b" not in text
    assert text.count(r"\x1b[2K\x1b[1A\x9b2Jrm\x0d\u202eself\x07") >= 4


@pytest.mark.anyio
async def test_a_forged_question_is_shown_for_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    given_to_tool = json.dumps({"command": f"{FORGED} [bold]"})
    ask = Ask(
        "ask_1", "ses_1", "trn_1", AskTopic.APPROVAL, 0, text=FORGED, name="terminal", arguments=given_to_tool
    )

    async def no(prompt: str) -> str:
        return "n"

    monkeypatch.setattr(prompts, "_input", no)
    given = await prompts.ask_user(ask, Console(file=out, width=200))
    assert given.answer == "deny"
    assert [char for char in out.getvalue() if not char.isprintable() and char != "\n"] == []
    assert out.getvalue().count(r"\x1b[2K\x1b[1A\x9b2Jrm\r\u202eself\x07") == 2
    assert "[bold]" in out.getvalue()


@given(st.lists(st.sampled_from(["a\n", "\n", "```\n", "  \n", "b c\n"]), max_size=12))
def test_a_finished_part_never_ends_inside_a_fence(lines: list[str]) -> None:
    text = "".join(lines)
    finished = text[: finished_length(text)]
    assert finished.count("```") % 2 == 0
    assert text.startswith(finished)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (ev.TurnCancelled(), "Everything up to here is kept"),
        (ev.TurnFailed(Failure("x", "No key.", "Set one.")), "No key. Set one."),
        (
            ev.StepAbandoned(1, "rate_limited", retry_in_ms=3000, model="lab:fake-1"),
            "Rate-limited by lab:fake-1. Trying again in 3 s.",
        ),
        (
            ev.StepAbandoned(
                1, "dropped", "lab:fake-1 cannot be reached.", retry_in_ms=2000, model="lab:fake-1"
            ),
            "lab:fake-1 cannot be reached. Trying again in 2 s.",
        ),
        (
            ev.TurnFailed(
                Failure("model_refused", "lab:fake-1 answered 404: no such endpoint", "Choose another.")
            ),
            "lab:fake-1 answered 404: no such endpoint. Choose another.",
        ),
        (ev.StepAbandoned(1, "crash", continues=True), "continues where it stopped"),
        (ev.StepAbandoned(1, "crash"), "asked again"),
        (ev.TurnResumed(2, "w", ClaimReason.CRASH, step=3), "after step 3"),
        (ev.TurnResumed(2, "w", ClaimReason.ANSWERED), ""),
        (ev.ToolFinished("c", "terminal", Outcome.OK, "done\nmore"), "ok: done"),
    ],
)
def test_events_without_text_are_shown_in_one_line(payload: ev.Payload, words: str) -> None:
    line = describe(payload)
    assert (words in line) if words else not line
    assert "\n" not in line


def test_progress_in_a_log_is_a_line_for_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    news = [ev.Progress("Fetching", done, 200) for done in range(0, 201, 5)]
    drawn(ev.Progress("Starting"), *news, ev.TextDelta(1, "Hi."), ev.TurnCompleted(), is_terminal=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == ["Starting", "Fetching", "Fetching 10 %"]
    assert lines[-1] == "Fetching 100 %"
    assert len(lines) == 12


def test_a_summary_is_announced_and_steering_is_not() -> None:
    summary = Message("m", "t", Role.SUMMARY, (Summary("Short.", covers="m0", messages=7),), 0)
    assert "Summarised 7 messages" in describe(ev.MessageAdded(summary))
    assert describe(ev.MessageAdded(Message("m", "t", Role.USER, (Text("Also this"),), 0))) == ""


def test_a_turn_rests_at_its_end_and_when_it_waits() -> None:
    screen = Screen(Console(file=io.StringIO()), is_plain=True)
    assert not screen.show(ev.TextDelta(1, "x"))
    assert screen.show(ev.TurnWaiting(asks=("ask_1",)))
    assert screen.end is None
    assert screen.show(ev.TurnCompleted())
    assert screen.end == ev.TurnCompleted()
