"""The texts about an ask in chats and notifications: its title, its call, its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from everturn.domain.asks import Ask, AskTopic, BudgetAnswer, Decision

_COMMANDS: Final = frozenset(("terminal", "python"))
_QUOTED_CHARS_MAX = 200
_TITLES: Final[Mapping[AskTopic, str]] = MappingProxyType(
    {
        AskTopic.DOUBT: "Did this call finish?",
        AskTopic.LIMIT: "A limit is reached",
        AskTopic.REPEAT: "The same call repeats",
        AskTopic.INSTRUCTIONS: "Instructions from outside",
        AskTopic.BUDGET: "Budget reached",
        AskTopic.SIGN_IN: "Sign in again",
    }
)


def title_of(ask: Ask) -> str:
    """Return a short title, or an empty string for a question, which needs none."""
    if ask.topic is not AskTopic.APPROVAL:
        return _TITLES.get(ask.topic, "")
    return f"Approve {'this command' if ask.name in _COMMANDS else ask.name or 'this call'}"


def call_text(ask: Ask) -> str:
    """Return the whole call that the ask is about, with invisible characters escaped."""
    if not ask.name or ask.topic in (AskTopic.QUESTION, AskTopic.SIGN_IN):
        return ""
    try:
        arguments = json.loads(ask.arguments or "{}")
    except ValueError:
        arguments = ask.arguments
    if not isinstance(arguments, dict):
        return f"{ask.name}\n{_indent(ask.arguments)}"
    return "\n".join([ask.name, *(_field(name, value) for name, value in arguments.items())])


def _field(name: str, value: object) -> str:
    """Format an argument. Further lines are indented, so that none can pass for another argument."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    shown = _visible(name.replace("\n", " "))
    return f"{shown}:\n{_indent(text)}" if "\n" in text else f"{shown}: {_visible(text)}"


def _indent(text: str) -> str:
    return "\n".join(f"    {_visible(line)}" for line in text.split("\n"))


def _visible(text: str) -> str:
    """Escape invisible characters: a right-to-left mark could make a call look like another one."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def fence(text: str) -> str:
    """Return the text as a Markdown code block, even if it contains backticks."""
    runs = [len(run) for run in "".join(c if c == "`" else " " for c in text).split()]
    marks = "`" * max([3, *(length + 1 for length in runs)])
    return f"{marks}\n{text}\n{marks}"


def format_answer(ask: Ask) -> str:
    """Return the lines that replace a question after it was answered."""
    if ask.topic is AskTopic.QUESTION:
        return "\n\n".join((_one_line(ask.text), _outcome(ask)))
    call = _one_line(ask.label or ask.name)
    return f"{_outcome(ask)}: {_code(call)}" if call else _outcome(ask)


def _outcome(ask: Ask) -> str:
    when = datetime.fromtimestamp((ask.answered_at or 0) / 1000).astimezone().strftime("%H:%M")
    if ask.answer == "closed":
        return f"*Not answered: the turn ended at {when}*"
    if ask.answer == Decision.EXPIRED:
        return f"*Not answered in time ({when})*"
    if ask.answer == BudgetAnswer.RESUME:
        return f"*The budget has room again: the turn went on at {when}*"
    by = ask.by or ""
    place = by.removeprefix("chat:").capitalize() if by.startswith("chat:") else "the browser"
    if ask.topic is AskTopic.APPROVAL:
        return f"*{'Denied' if ask.answer == Decision.DENY else 'Allowed'} in {place} at {when}*"
    return f"*Answered in {place} at {when}:* {(ask.answer or '')[:_QUOTED_CHARS_MAX]}"


def _one_line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _QUOTED_CHARS_MAX else f"{words[:_QUOTED_CHARS_MAX].rstrip()} …"


def _code(text: str) -> str:
    """Return the text as a code span, with invisible characters escaped."""
    return f"`{_visible(text.replace('`', chr(39)))}`"
