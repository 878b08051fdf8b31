"""Prompts on the terminal: approvals by one key, questions by number or text."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.text import Text

from everturn.cli.call_text import exact, print_call, print_question
from everturn.cli.editor import compact, edit_arguments, find_editor
from everturn.domain.asks import Ask, AskTopic, Decision
from everturn.domain.errors import Invalid

_KEYS = {
    "y": Decision.ONCE,
    "s": Decision.SESSION,
    "a": Decision.ALWAYS,
    "t": Decision.TRUST,
    "n": Decision.DENY,
}
_LINE_BYTES_MAX = 4096  # a terminal's own bound for a line
_EDIT = "e"
_OFFERS = {
    "y": "[y]es once",
    "s": "[s]ession",
    "a": "[a]lways",
    "t": "[t]rust session",
    _EDIT: "[e]dit",
    "n": "[n]o",
}
_WORDS: dict[str, str] = {
    "yes": "y",
    "no": "n",
    "edit": _EDIT,
    **{word.value: key for key, word in _KEYS.items()},
}


def can_ask() -> bool:
    return sys.stdin.isatty()


@contextmanager
def echo(is_on: bool) -> Iterator[None]:
    """Switch the terminal's echo. It must be off while a turn is drawn: an echoed character (^C) moves
    the cursor, and a line would be drawn twice."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    wanted = [*before]
    wanted[3] = before[3] | termios.ECHO if is_on else before[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, wanted)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


class Interrupts:
    """The loop's SIGINT handler: calls the innermost action that was entered with ``mean``."""

    def __init__(self) -> None:
        self._acts: list[Callable[[], object]] = []

    def __call__(self) -> None:
        if self._acts:
            self._acts[-1]()

    @contextmanager
    def mean(self, act: Callable[[], object]) -> Iterator[None]:
        self._acts.append(act)
        try:
            yield
        finally:
            self._acts.remove(act)


async def line(prompt: str, interrupts: Interrupts) -> str:
    """A line without its end. Raises EOFError at the end of the input, and for Ctrl-C."""
    task = asyncio.create_task(_input(prompt), name="prompt")
    with interrupts.mean(task.cancel):
        await asyncio.wait({task})
    if task.cancelled():
        raise EOFError
    return task.result().rstrip("\r\n")


async def password(why: str, interrupts: Interrupts) -> str:
    """A password, typed without echo; empty if none is given."""
    sys.stdout.write(f"{why}\n")
    with echo(False):
        try:
            return await line("Password or token (Enter alone gives up): ", interrupts)
        except EOFError:
            return ""
        finally:
            sys.stdout.write("\n")


class PromptAnswer(msgspec.Struct, frozen=True):
    """``arguments``: the changed arguments of an approved call; None if unchanged."""

    answer: str
    arguments: str | None = None


async def ask_user(ask: Ask, out: Console) -> PromptAnswer:
    """Ask until there is an answer. Runs the prompt in a thread, so that streams continue."""
    with echo(True):
        if ask.topic == AskTopic.APPROVAL:
            return await _approval(ask, out)
        return PromptAnswer(await _question(ask, out))


async def _approval(ask: Ask, out: Console) -> PromptAnswer:
    _forget_typed()
    what = "command" if ask.name == "terminal" else "call"
    out.print(Text(f"\nRun this {what}? ", "yellow") + Text("  ") + exact(ask.name), soft_wrap=True)
    print_call(ask.arguments, out)
    print_question(ask.text, out)
    options = [key for key, decision in _KEYS.items() if not ask.choices or decision in ask.choices]
    arguments: str | None = None
    while True:
        key = await _key(options, is_changed=arguments is not None)
        if key != _EDIT:
            return PromptAnswer(_KEYS[key], arguments if key == "y" else None)
        try:
            editor = find_editor(os.environ) if can_ask() else []
            changed = await edit_arguments(arguments or ask.arguments, editor, _input)
        except Invalid as error:
            out.print(f"  {error.message} {error.hint}", markup=False)
            continue
        arguments = None if changed == compact(ask.arguments) else changed
        if arguments is None:
            out.print("  (unchanged)")
        else:
            print_call(arguments, out)


def _forget_typed() -> None:
    """Discard what was typed before the question was visible."""
    if sys.stdin.isatty():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def _key(options: list[str], *, is_changed: bool) -> str:
    """One of the options, or edit. A changed call can only be allowed once or denied."""
    allowed = [key for key in options if not is_changed or key in ("y", "n")]
    if "y" in allowed:
        allowed.insert(-1, _EDIT)
    words = " · ".join(_OFFERS[key] for key in allowed)
    while True:
        # Only exact answers count: a message typed here by mistake must not approve anything.
        given = (await _input(f"  Allow? {words} ")).strip().lower()
        given = _WORDS.get(given, given)
        if given in allowed:
            return given


async def choose(prompt: str, keys: str) -> str:
    """One of these letters. Raises EOFError."""
    while True:
        given = (await _input(prompt)).strip().lower()
        if len(given) == 1 and given in keys:
            return given


async def _question(ask: Ask, out: Console) -> str:
    """A number, one of the choices, or free text if the model asks.

    Everturn's own questions accept only their choices: free text would count as a no, also for a user who
    types "y".
    """
    _forget_typed()
    out.print()
    print_question(ask.text, out, "yellow")
    for number, choice in enumerate(ask.choices, start=1):
        out.print(Text(f"  {number}  ") + exact(choice.replace("\n", " ")), soft_wrap=True)
    while True:
        given = (await _input("  > ")).strip()
        if given.isdigit() and 0 < int(given) <= len(ask.choices):
            return ask.choices[int(given) - 1]
        if given and (ask.topic == AskTopic.QUESTION or given in ask.choices):
            return given


async def _input(prompt: str) -> str:
    """A line of input. On a terminal it can be cancelled, unlike a thread in ``input``. Raises EOFError."""
    if not sys.stdin.isatty():
        return await asyncio.to_thread(input, prompt)
    sys.stdout.write(prompt)
    sys.stdout.flush()
    loop, is_there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, is_there.set)  # of a terminal: when a whole line is there
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(sys.stdin)
    line = os.read(sys.stdin.fileno(), _LINE_BYTES_MAX)
    if not line:
        raise EOFError
    return line.decode(errors="replace")
