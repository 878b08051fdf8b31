"""What a small model was asked to do, what it has done of that, and what it can do next.

A large model knows this by itself. A small one claims what it has not done, does what nobody asked for, and
goes round in circles; a grammar that follows the turn (``text_calls``) keeps it from that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from everturn.domain.messages import Attachment, Call, Message, Outcome, Result, Role
from everturn.domain.modelling import ToolSchema
from everturn.models.history import arguments_of

_LOOKING = frozenset({"list_files", "read_file", "search_files"})
_LOOKING_COMMAND = re.compile(r"\s*(?:cat|file|find|grep|head|ls|pwd|stat|tail|tree|wc)\b")
_IMPERATIVE = r"(?:^|[.!,;:]\s+|\b(?:and|then|please)\s+)(?:%s)\b"
_CHANGE = re.compile(
    _IMPERATIVE % "add|append|change|copy|correct|create|delete|fix|insert|make|mend|move|put|remove|rename|"
    "replace|update|write",
    re.IGNORECASE,
)
_MAKE = re.compile(r"\b(?:copy|creat|mak|sav|writ|new)", re.IGNORECASE)
_ADDRESS = re.compile(r"://|\bwww\.|\w\.(?:com|dev|edu|gov|io|net|org)\b", re.IGNORECASE)
_RUN = re.compile(_IMPERATIVE % "run", re.IGNORECASE)
_FILE_NAME = re.compile(r"\w\.[a-z]\w{1,4}\b|\w{2}\.[a-z]\b", re.IGNORECASE)  # not "e.g."
_ABOUT_FILES = re.compile(_FILE_NAME.pattern + r"|\b(?:files?|folders?|scripts?)\b", re.IGNORECASE)
_RUNNING = frozenset({"python", "terminal"})
_OWED_CALLS_MAX = 6
_SAME_CALLS_MAX = 3


def fitting(tools: Sequence[ToolSchema], messages: Sequence[Message]) -> tuple[ToolSchema, ...]:
    """The tools that can be of use at this place. A small model takes what it was told of for what it is to
    use: it edits a file that it has not seen, replaces one that it was to change, and fetches pages that
    nobody named."""
    task, steps = _turn(messages)
    unfit = set()
    if not any(_ADDRESS.search(one.text) for one in messages if one.role is Role.USER):
        unfit.add("web_fetch")
    if not any(result.outcome is Outcome.OK or call.name in _RUNNING for call, result in steps):
        unfit.add("edit_file")  # a program that failed has shown where
    if _CHANGE.search(task) and _ABOUT_FILES.search(task):
        unfit |= {"memory"} if _MAKE.search(task) else {"memory", "write_file"}
    return tuple(tool for tool in tools if tool.name not in unfit)


def owes_call(messages: Sequence[Message]) -> bool:
    """Whether something was asked for that words cannot do, and that was not even tried.

    Small models tell what a file says without reading it, and how it should be changed instead of changing
    it. Only what is plain counts (a file that is named, an imperative), and only for a few steps: where it
    cannot be done, words are the answer.
    """
    task, steps = _turn(messages)
    if not _ABOUT_FILES.search(task) or len(steps) >= _OWED_CALLS_MAX:
        return False
    has_changed = any(result.outcome is Outcome.OK and not is_look(call) for call, result in steps)
    # What was changed after it had run has to run again.
    acts = [call.name for call, _ in steps if not is_look(call)]
    has_run = bool(acts) and acts[-1] in _RUNNING
    return bool(
        (not steps and _FILE_NAME.search(task))
        or (not has_changed and _CHANGE.search(task))
        or (not has_run and _RUN.search(task))
    )


def _turn(messages: Sequence[Message]) -> tuple[str, list[tuple[Call, Result]]]:
    """What was asked for last, and the calls since with their results. A file that came with the request is
    in it already, so nothing is asked for there that only a tool could do."""
    start = max((at for at, one in enumerate(messages) if one.role is Role.USER), default=0)
    has_file = bool(messages) and any(isinstance(part, Attachment) for part in messages[start].parts)
    task = messages[start].text if messages and not has_file else ""
    return task, list(steps_of(messages[start:]))


def steps_of(messages: Sequence[Message]) -> Iterator[tuple[Call, Result]]:
    calls: dict[str, Call] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, Call):
                calls[part.id] = part
            elif isinstance(part, Result) and part.call_id in calls:
                yield calls[part.call_id], part


def is_look(call: Call) -> bool:
    """Whether the call changes nothing, as far as its first word tells."""
    command = str(arguments_of(call).get("command", ""))
    return call.name in _LOOKING or (bool(_LOOKING_COMMAND.match(command)) and ">" not in command)


def is_repeating(messages: Sequence[Message]) -> bool:
    """Whether the newest calls were all made before in this turn, each with the result it has now; or whether
    one file was written, or one command run, well and again and again."""
    seen: set[tuple[str, str, str]] = set()
    newest: set[tuple[str, str, str]] = set()
    times: Counter[tuple[str, str]] = Counter()
    open_calls: dict[str, Call] = {}
    for message in messages:
        if message.role is Role.USER:
            seen, newest, times = set(), set(), Counter()
        elif message.role is Role.ASSISTANT:
            open_calls = {part.id: part for part in message.parts if isinstance(part, Call)}
        else:
            seen |= newest
            newest = {
                (call.name, call.arguments, part.text)
                for part in message.parts
                if isinstance(part, Result) and (call := open_calls.get(part.call_id)) is not None
            }
            times.update(
                (part.name, _object_of(open_calls[part.call_id]))
                for part in message.parts
                if isinstance(part, Result) and part.outcome is Outcome.OK and part.call_id in open_calls
            )
    return bool(newest) and (newest <= seen or max(times.values(), default=0) >= _SAME_CALLS_MAX)


def _object_of(call: Call) -> str:
    """What the call is about: its file, its command, or all of it."""
    arguments = arguments_of(call)
    return str(arguments.get("path") or arguments.get("command") or call.arguments)
