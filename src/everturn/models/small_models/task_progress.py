"""What the user asked for, what the model has done so far, and which tools are useful next.

A large model keeps track of this itself. A small one claims work it has not done, does things that were not
asked for, and repeats itself. ``text_calls`` turns the answers of this module into a grammar against that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from everturn.domain.messages import Attachment, Call, Message, Outcome, Result, Role, Text
from everturn.domain.model import ToolSchema
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
_RUN = re.compile(_IMPERATIVE % "run", re.IGNORECASE)
_EXTENSIONS = (
    "bash|bat|bz2|cc|cfg|conf|cpp|cs|css|csv|diff|docx?|env|gif|go|gz|hpp|html?|ini|ipynb|java|jpe?g|jsonl?|jsx?|"
    "kt|lock|log|lua|md|mjs|patch|pdf|php|pl|png|pptx?|ps1|py|rb|rs|rst|scss|sh|sql|sqlite|svg|swift|tar|tex|"
    "toml|tsv|tsx?|txt|vue|xlsx?|xml|ya?ml|zip"
)
_NO_FILES = (
    r"(?:angular|backbone|chart|d3|electron|ember|express|next|node|nuxt|p5|react|svelte|three|vue)\.js\b"
)
# Not every dotted word is a file: "list.sort", "3.11.x", "Node.js", "e.g.", "spiegel.de".
_FILE_NAME = re.compile(
    rf"\b(?!{_NO_FILES})(?:[\w-]*\w\.(?:{_EXTENSIONS})|[\w-]*\w\w\.[chr])(?![\w@]|[.-]\w)", re.IGNORECASE
)
_FILE_WORD = re.compile(r"\b(?:files?|folders?|scripts?)\b", re.IGNORECASE)
_ADDRESS = re.compile(
    rf"://|\bwww\.|\w\.[a-z]{{2,24}}/\w|\b[\w-]+\.(?!(?:{_EXTENSIONS})\b)[^\W\d_]{{2,24}}\b(?!\.\w|-)",
    re.IGNORECASE,
)
_LINK = re.compile(r"\S+://\S+")
_MAIL = re.compile(r"\S+@\S+")
# How the engine shows an attached file to a text-only model.
_ATTACHED = re.compile(r"\[Attached(?: file|:) ")
_RUNNING = frozenset({"python", "terminal"})
_CHANGING = frozenset({"apply_patch", "edit_file", "write_file"})
# The user refused, or the outcome is unknown: the model should report that, not try again.
_MUST_REPORT = frozenset({Outcome.CANCELLED, Outcome.DENIED, Outcome.UNKNOWN})
_OWED_CALLS_MAX = 6
_SAME_CALLS_MAX = 3


def select_tools(tools: Sequence[ToolSchema], messages: Sequence[Message]) -> tuple[ToolSchema, ...]:
    """The tools that are useful at this point.

    A small model uses every tool it sees: it edits a file it has not read, replaces a file it should change,
    and fetches pages that the user did not name.
    """
    task, steps = _turn(messages)
    unfit = set()
    if not any(_has_address(one) for one in messages if one.role is Role.USER):
        unfit.add("web_fetch")
    if not any(result.outcome is Outcome.OK or call.name in _RUNNING for call, result in steps):
        unfit.add("edit_file")  # a failed program counts as read: its output shows where the error is
    if _CHANGE.search(task) and _is_about_files(task):
        unfit |= {"memory"} if _MAKE.search(task) else {"memory", "write_file"}
    return tuple(tool for tool in tools if tool.name not in unfit)


def must_call(messages: Sequence[Message]) -> bool:
    """Whether the request needs a tool that the model has not tried yet.

    Small models describe a file without reading it, and describe a change instead of making it. Only clear
    requests count (a named file, an imperative), and only for a few steps: if the task cannot be done, text
    is the right answer.
    """
    task, steps = _turn(messages)
    if not _is_about_files(task) or len(steps) >= _OWED_CALLS_MAX:
        return False
    if any(result.outcome in _MUST_REPORT for _, result in steps):
        return False
    has_changed = any(result.outcome is Outcome.OK and not is_read_only(call) for call, result in steps)
    # A program changed after its last run has to run again.
    acts = [call.name for call, _ in steps if not is_read_only(call)]
    has_run = bool(acts) and acts[-1] in _RUNNING
    return bool(
        (not steps and _names_file(task))
        or (not has_changed and _CHANGE.search(task))
        or (not has_run and _RUN.search(task))
    )


def request_text(message: Message) -> str:
    """The user's own text. Recalled memory stands before it in the message, attached files after it."""
    return next(reversed([text for text in _texts(message) if not _ATTACHED.match(text)]), "")


def starts_turn(message: Message) -> bool:
    """Whether the message is a request. Steering only adds to the request of the running turn."""
    return message.role is Role.USER and not message.is_steering


def _turn(messages: Sequence[Message]) -> tuple[str, list[tuple[Call, Result]]]:
    """The last request, and the calls since then with their results.

    The request is empty if it came with a file: its content is in the prompt, so no tool is needed.
    """
    start = max((at for at, one in enumerate(messages) if starts_turn(one)), default=0)
    task = request_text(messages[start]) if messages and not _has_file(messages[start]) else ""
    return task, list(pair_calls(messages[start:]))


def _texts(message: Message) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, Text) and not part.is_abandoned]


def _has_file(message: Message) -> bool:
    return any(isinstance(part, Attachment) for part in message.parts) or any(
        _ATTACHED.match(text) for text in _texts(message)
    )


def _has_address(message: Message) -> bool:
    """Whether the user's text or an attached file contains a web address."""
    files = (text for text in _texts(message) if _ATTACHED.match(text))
    return any(_ADDRESS.search(_MAIL.sub(" ", text)) for text in (request_text(message), *files))


def _names_file(task: str) -> bool:
    return bool(_FILE_NAME.search(_MAIL.sub(" ", _LINK.sub(" ", task))))


def _is_about_files(task: str) -> bool:
    return _names_file(task) or bool(_FILE_WORD.search(task))


def pair_calls(messages: Sequence[Message]) -> Iterator[tuple[Call, Result]]:
    """Each call with its result; calls without one are left out."""
    calls: dict[str, Call] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, Call):
                calls[part.id] = part
            elif isinstance(part, Result) and part.call_id in calls:
                yield calls[part.call_id], part


def is_read_only(call: Call) -> bool:
    """Whether the call changes nothing, judging by the first word of a command."""
    command = str(arguments_of(call).get("command", ""))
    return call.name in _LOOKING or (bool(_LOOKING_COMMAND.match(command)) and ">" not in command)


def is_repeating(messages: Sequence[Message]) -> bool:
    """Whether the newest calls repeat earlier ones."""
    return next(reversed(list(find_repeats(messages))), False)


def find_repeats(messages: Sequence[Message]) -> Iterator[bool]:
    """For each message, whether it holds only results of calls that were made before in the turn.

    "The same call" means equal name, arguments and result. After a file was changed, a call may be made again
    even if its result is the same; the third time counts as a repetition. Later messages do not matter.
    """
    since_change: set[tuple[str, str, str]] = set()
    times: Counter[tuple[str, str, str]] = Counter()
    calls: dict[str, Call] = {}
    for message in messages:
        if message.role is Role.USER:
            since_change, times = set(), Counter()
        elif message.role is Role.ASSISTANT:
            calls = {part.id: part for part in message.parts if isinstance(part, Call)}
        if message.role is not Role.TOOL:
            yield False
            continue
        steps = list(pair_calls((Message("", "", Role.ASSISTANT, tuple(calls.values()), 0), message)))
        newest = {(call.name, call.arguments, result.text) for call, result in steps}
        times.update(newest)
        yield bool(newest) and all(one in since_change or times[one] >= _SAME_CALLS_MAX for one in newest)
        if any(call.name in _CHANGING and result.outcome is Outcome.OK for call, result in steps):
            since_change = set()
        since_change |= newest
