"""Asking the person at the terminal: approvals by one key, questions by number or words."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from everturn.domain.storing import Ask

_KEYS = {"y": "once", "s": "session", "a": "always", "t": "trust", "n": "deny"}
_LINE_BYTES_MAX = 4096  # a terminal's own bound for a line
_WORDS = {"yes": "y", "no": "n", **{word: key for key, word in _KEYS.items()}}


def can_ask() -> bool:
    return sys.stdin.isatty()


@contextmanager
def echo(is_on: bool) -> Iterator[None]:
    """Whether the terminal repeats what is typed. While a turn is drawn it must not: a character between
    two drawings, that of Ctrl-C above all, moves the cursor, and a line would be drawn twice."""
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
    """What Ctrl-C means now: the innermost meaning that is entered. The loop's handler of SIGINT."""

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
    """A password that is not shown; empty where none is given."""
    sys.stdout.write(f"{why}\n")
    with echo(False):
        try:
            return await line("Password (Enter alone gives up): ", interrupts)
        except EOFError:
            return ""
        finally:
            sys.stdout.write("\n")


async def answer_to(ask: Ask, out: Console) -> str:
    """Ask until there is an answer. Runs the prompt in a thread, so that streams go on."""
    with echo(True):
        if ask.topic == "approval":
            return await _approval(ask, out)
        return await _question(ask, out)


async def _approval(ask: Ask, out: Console) -> str:
    out.print(f"\n[yellow]Approve this call?[/yellow] {escape(ask.text)}")
    out.print(f"  [bold]{escape(ask.name)}[/bold] {escape(ask.label or ask.arguments)}")
    options = [key for key, decision in _KEYS.items() if not ask.choices or decision in ask.choices]
    words = ", ".join(f"{key} {_KEYS[key]}" for key in options)
    while True:
        # Exactly: a message that somebody types here by mistake must not approve anything.
        given = (await _input(f"  [{words}] ")).strip().lower()
        given = _WORDS.get(given, given)
        if given in options:
            return _KEYS[given]


async def _question(ask: Ask, out: Console) -> str:
    """A number, one of the choices, or other words if the model asks. Where Everturn itself asks, other words
    would be taken for a no: somebody who types "y" wants to go on."""
    out.print(f"\n[yellow]{escape(ask.text)}[/yellow]")
    for number, choice in enumerate(ask.choices, start=1):
        out.print(f"  {number}  {escape(choice)}")
    while True:
        given = (await _input("  > ")).strip()
        if given.isdigit() and 0 < int(given) <= len(ask.choices):
            return ask.choices[int(given) - 1]
        if given and (ask.topic == "question" or given in ask.choices):
            return given


async def _input(prompt: str) -> str:
    """A line. On a terminal it can be cancelled, which a thread inside ``input`` cannot. Raises EOFError."""
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
