"""Whether the result of a task is there."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec

from everturn.bench.task import AnswerCheck, CallCheck, Check, CommandCheck, FileCheck

_SHOWN = 120
RunCommand = Callable[[str], Awaitable[str]]
"""Runs a command in the session's sandbox and gives what it printed."""


class TaskOutcome(msgspec.Struct, frozen=True):
    """What a turn left behind. ``said`` is what came after its last call."""

    workspace: Path
    said: str
    called: frozenset[str]
    run: RunCommand


async def find_failure(check: Check, outcome: TaskOutcome) -> str:
    """What is missing, in one line; empty if nothing is."""
    match check:
        case AnswerCheck():
            return _wrong_words("the answer", outcome.said, check.has, check.lacks)
        case FileCheck():
            return _wrong_file(check, outcome.workspace)
        case CommandCheck():
            return _wrong_words(check.run, await outcome.run(check.run), check.has)
        case CallCheck():
            is_called = outcome.called & set(check.any_of)
            return "" if is_called else f"no successful call of {' or '.join(check.any_of)}"


def _wrong_file(check: FileCheck, workspace: Path) -> str:
    path = workspace / check.path
    # A link could lead out of the workspace, to a file that only the benchmark may read.
    if not path.resolve().is_relative_to(workspace.resolve()) or not path.is_file():
        return f"{check.path} is missing" if check.is_there else ""
    if not check.is_there:
        return f"{check.path} is there"
    text = path.read_text(encoding="utf-8", errors="replace")
    if check.equals is not None and _plain(text) != _plain(check.equals):
        return f"{check.path} holds {_short(text)}"
    if check.json is not None and _parse_json(text) != check.json:
        return f"{check.path} holds {_short(text)}"
    return _wrong_words(check.path, text, check.has)


def _wrong_words(place: str, text: str, has: Iterable[str], lacks: Iterable[str] = ()) -> str:
    for words in has:
        if not any(_holds(text, word) for word in words.split("|")):
            return f"{place} lacks {words!r}: {_short(text)}"
    for words in lacks:
        if any(_holds(text, word) for word in words.split("|")):
            return f"{place} has {words!r}: {_short(text)}"
    return ""


def _holds(text: str, words: str) -> bool:
    """As whole words, so that 16 is not found in 160, whatever their case."""
    return re.search(rf"(?<![\w.]){re.escape(words)}(?!\w)", text, re.IGNORECASE) is not None


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _SHOWN else line[:_SHOWN] + "…")
