"""What a chat is told about a turn that has ended."""

from __future__ import annotations

import pytest

from everturn.delivery.german import answer_in_german
from everturn.delivery.replies import reply_text
from everturn.domain.delivery import AskedElsewhere, Chat, ChatKind, ChatPlace, ReplyDue, ToolActivity
from everturn.domain.turns import Failure, TurnState

CHAT = Chat("cht_x", "ada", ChatPlace("main", "fake", ChatKind.DIRECT, "42"), "default", "", None, 0)
FAILURE = Failure("model_refused", "The model refused.")


@pytest.mark.parametrize(
    ("state", "answer", "failure", "text"),
    [
        (TurnState.COMPLETED, "good morning", None, "good morning"),
        (TurnState.CANCELLED, "good mor", None, "good mor\n\n*Stopped.*"),
        (TurnState.CANCELLED, "", None, "*Stopped.*"),
        (TurnState.FAILED, "", FAILURE, "*The model refused.*"),
        (TurnState.INTERRUPTED, "good mor", FAILURE, "good mor\n\n*The model refused.*"),
        (TurnState.COMPLETED, " ", None, "*The answer is empty.*"),
    ],
)
def test_a_reply_is_the_answer_and_how_the_turn_ended(
    state: TurnState, answer: str, failure: Failure | None, text: str
) -> None:
    due = ReplyDue("out_x", CHAT, "ses_x", "trn_x", state, 1, answer, failure)
    assert reply_text(due) == text


PAGE = AskedElsewhere("what is new?\n\nanything?")


@pytest.mark.parametrize(
    ("asked", "state", "answer", "text"),
    [
        (
            PAGE,
            TurnState.COMPLETED,
            "nothing",
            "*From the browser:*\n> what is new?\n> \n> anything?\n\nnothing",
        ),
        (
            AskedElsewhere("x" * 600, "slack"),
            TurnState.COMPLETED,
            "ok",
            f"*From Slack:*\n> {'x' * 500} …\n\nok",
        ),
        (AskedElsewhere(""), TurnState.COMPLETED, "a cat", "*From the browser:*\n> (a file)\n\na cat"),
        (PAGE, TurnState.CANCELLED, "", ""),
    ],
)
def test_a_reply_to_words_from_elsewhere_quotes_them(
    asked: AskedElsewhere, state: TurnState, answer: str, text: str
) -> None:
    due = ReplyDue("out_x", CHAT, "ses_x", "trn_x", state, 1, answer, None, asked)
    assert reply_text(due) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ChatKind.DIRECT, "*Ran 1 command, used 2 other tools · 7 s*\n\nDone.\n\n*Stopped.*"),
        (ChatKind.MAIL, "*Ran 1 command, used 2 other tools · 7 s*\n\nDone.\n\n*Stopped.*"),
        (ChatKind.HOOK, "Done.\n\n*Stopped.*"),
    ],
)
def test_a_reply_to_people_says_what_was_run(kind: ChatKind, text: str) -> None:
    chat = Chat("cht_x", "ada", ChatPlace("main", "fake", kind, "42"), "default", "", None, 0)
    activity = ToolActivity(commands=1, others=2, took_ms=7_300)
    due = ReplyDue("out_x", chat, "ses_x", "trn_x", TurnState.CANCELLED, 1, "Done.", activity=activity)
    assert reply_text(due) == text
    german = reply_text(due, answer_in_german)
    assert german == text.replace(
        "Ran 1 command, used 2 other tools", "1 Befehl ausgeführt, 2 weitere Werkzeuge benutzt"
    ).replace("Stopped", "Gestoppt")
