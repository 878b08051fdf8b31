"""Lines typed by the user: with editing, history and completion (extra ``chat``), or plain.

The plain way is used if prompt_toolkit is not installed, if the input is not a terminal, and on a terminal
that cannot move its cursor. Earlier messages come from the session itself, so deleting it leaves none behind.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from everturn.cli import prompts
from everturn.cli.prompts import Interrupts

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_PROMPT = "> "
_SHOWN_MAX = 50
# What completes a line up to the cursor: the words to offer, and how many characters each replaces.
Complete = Callable[[str], Awaitable[tuple[Sequence[str], int]]]


class Lines(Protocol):
    async def read(self) -> str:
        """A message of one line or more. Raises EOFError at the end of the input, and for Ctrl-C."""
        ...

    def remember(self, texts: Sequence[str]) -> None:
        """Offer these earlier messages, the oldest first, instead of those offered before."""
        ...


def open_lines(interrupts: Interrupts, complete: Complete, *, is_plain: bool) -> Lines:
    is_able = (
        not is_plain
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") != "dumb"
    )
    if is_able and not is_plain and importlib.util.find_spec("prompt_toolkit") is not None:
        return EditedLines(interrupts, complete)
    return PlainLines(interrupts)


class PlainLines:
    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    async def read(self) -> str:
        return await prompts.line(f"\n{_PROMPT}", self._interrupts)

    def remember(self, texts: Sequence[str]) -> None:
        """The terminal's own line has no history."""


class EditedLines:
    """Enter sends, Alt-Enter begins a new line, Tab completes, the arrows go through earlier messages."""

    def __init__(self, interrupts: Interrupts, complete: Complete) -> None:
        self._interrupts = interrupts
        self._complete = complete
        self._session = self._new_session([])

    def remember(self, texts: Sequence[str]) -> None:
        self._session = self._new_session(texts)

    async def read(self) -> str:
        sys.stdout.write("\n")
        sys.stdout.flush()
        reading = asyncio.create_task(
            self._session.prompt_async(_PROMPT, handle_sigint=False, prompt_continuation="  "), name="prompt"
        )
        with self._interrupts.mean(reading.cancel):
            await asyncio.wait({reading})
        if reading.cancelled():
            raise EOFError
        return reading.result()

    def _new_session(self, texts: Sequence[str]) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.output.vt100 import Vt100_Output

        # Without asking where the cursor is: a terminal that does not answer would delay the prompt.
        output = Vt100_Output(sys.stdout, _terminal_size, term=os.environ.get("TERM"), enable_cpr=False)
        return PromptSession(
            output=output,
            history=InMemoryHistory(texts),
            completer=_completer(self._complete),
            complete_while_typing=False,
            key_bindings=_keys(),
            multiline=False,
            enable_open_in_editor=False,
        )


def _terminal_size() -> Size:
    from prompt_toolkit.data_structures import Size

    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return Size(rows=rows or 24, columns=columns or 80)


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=EOFError())

    return keys


def _completer(complete: Complete) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Offers(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
            return []  # only the asynchronous way can ask the server

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            offered, replaced = await complete(document.text_before_cursor)
            for text in list(offered)[:_SHOWN_MAX]:
                yield Completion(text, start_position=-replaced)

    return Offers()


def files_like(start: str) -> list[str]:
    """Paths on this computer that begin so; folders end with a slash."""
    given = Path(start).expanduser()
    folder = given if start.endswith("/") or not start else given.parent
    name = "" if folder == given else given.name
    prefix = start[: len(start) - len(name)] if name else start
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []  # there is nothing to offer; sending it says what is wrong
    return [
        f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in found
        if entry.name.startswith(name)
        and (name.startswith(".") or not entry.name.startswith("."))
        and entry.name.isprintable()
    ]
