"""What a chat's live message says while a turn runs."""

from __future__ import annotations

from everturn.delivery.live_text import LiveText
from everturn.domain import events as ev
from everturn.domain.messages import Outcome


def run(text: LiveText, name: str, took_ms: int, *, label: str = "") -> None:
    text.take(ev.ToolStarted(step=1, call_id="c1", name=name, arguments="{}", label=label), 1_000)
    text.take(ev.ToolFinished(call_id="c1", name=name, outcome=Outcome.OK, text=""), 1_000 + took_ms)


def test_a_finished_command_stays_in_one_line_that_updates() -> None:
    text = LiveText()
    text.take(ev.ToolStarted(step=1, call_id="c1", name="terminal", arguments="{}", label="make"), 0)
    assert text.text() == "*Running* `make` *…*"
    text.take(ev.ToolFinished(call_id="c1", name="terminal", outcome=Outcome.OK, text=""), 6_400)
    assert text.text() == "*Ran 1 command · 6 s*\n\n*Thinking …*"
    run(text, "python", 61_000)
    assert text.text() == "*Ran 2 commands · 1 min 7 s*\n\n*Thinking …*"


def test_other_tools_are_counted_beside_commands_and_what_takes_no_time_names_none() -> None:
    text = LiveText()
    run(text, "read_file", 20)
    assert text.text() == "*Used 1 tool*\n\n*Thinking …*"
    run(text, "terminal", 1_000)
    text.take(ev.StepStarted(step=2, model="scripted:one"), 5_000)
    text.take(ev.TextDelta(step=2, text="It was the lock."), 5_100)
    assert text.text() == "*Ran 1 command, used 1 other tool · 1 s*\n\nIt was the lock.\n\n*Writing …*"


def test_a_call_that_never_started_is_not_said_to_have_run() -> None:
    text = LiveText()
    text.take(ev.ToolFinished(call_id="c9", name="terminal", outcome=Outcome.DENIED, text="No."), 1_000)
    assert text.text() == "*Thinking …*"


def test_the_wait_for_an_answer_is_not_the_time_of_a_tool() -> None:
    text = LiveText()
    run(text, "ask_user", 3_600_000)
    assert text.text() == "*Thinking …*"
