"""Draws a turn on a terminal from its events.

Finished Markdown blocks are printed once; only the last, unfinished one is redrawn. If the output is not a
terminal, the text is written as it arrives.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from everturn.cli.common import printable
from everturn.domain import events as ev
from everturn.domain.messages import Summary

_TAIL_LINES = 12


def finished_length(text: str) -> int:
    """How much of a growing Markdown text is final: up to the last blank line outside a code fence."""
    end = position = 0
    in_fence = False
    for line in text.splitlines(keepends=True):
        position += len(line)
        if line.lstrip().startswith(("```", "~~~")):
            in_fence = not in_fence
        if not line.strip() and not in_fence:
            end = position
    return end


class Screen:
    """Draws one turn. ``show`` takes its events in order."""

    def __init__(self, out: Console, *, is_plain: bool | None = None, shows_reasoning: bool = False) -> None:
        self._out = out
        self._is_plain = (not out.is_terminal) if is_plain is None else is_plain
        self._shows_reasoning = shows_reasoning
        self._text = ""
        self._live: Live | None = None
        self._said_something = False
        self._progressed = ("", 0)
        self._abandoned = ""  # why the last attempt ended, as it was printed
        self.end: ev.Payload | None = None

    def show(self, payload: ev.Payload | ev.Unknown) -> bool:
        """Draw one event that this version knows; True if the turn has ended or waits for an answer."""
        if isinstance(payload, ev.Unknown):
            return False
        if isinstance(payload, ev.TextDelta):
            self._more(payload.text)
        elif isinstance(payload, ev.ReasoningDelta):
            if self._shows_reasoning:
                self._note(payload.text, end="")
        elif isinstance(payload, ev.Progress):
            self._progress(payload)
        else:
            self._rest(payload)
        if isinstance(payload, _ENDS):
            self.end = payload
            return True
        return isinstance(payload, ev.TurnWaiting)

    def close(self) -> None:
        """Print the unfinished block and stop redrawing."""
        self._flush(everything=True)
        if self._live is not None:
            self._live.stop()
            self._live = None

    # --- words ---------------------------------------------------------------------------------------

    def _more(self, text: str) -> None:
        self._said_something = True
        if self._is_plain:
            self._out.file.write(text)
            self._out.file.flush()
            return
        self._text += printable(text)
        self._flush(everything=False)
        if self._live is None:
            self._live = Live(console=self._out, refresh_per_second=12, transient=True)
            self._live.start()
        tail = "\n".join(self._text.splitlines()[-_TAIL_LINES:])
        self._live.update(Markdown(tail))

    def _flush(self, *, everything: bool) -> None:
        cut = len(self._text) if everything else finished_length(self._text)
        block, self._text = self._text[:cut], self._text[cut:]
        if block.strip():
            if self._live is not None:
                self._live.update(Text(""))
            self._out.print(Markdown(block))
        elif everything and self._is_plain and self._said_something:
            self._out.file.write("\n")
            self._said_something = False

    # --- everything else -----------------------------------------------------------------------------

    def _rest(self, payload: ev.Payload) -> None:
        line = describe(payload)
        if isinstance(payload, ev.StepAbandoned):
            self._abandoned = payload.message
        elif isinstance(payload, ev.TurnFailed) and payload.failure.message == self._abandoned:
            line = payload.failure.hint  # the reason stands above
        if line:
            self.close()
            self._note(line)
        elif isinstance(payload, (*_ENDS, ev.StepFinished, ev.TurnWaiting)):
            self.close()

    def _note(self, text: str, end: str = "\n") -> None:
        text = printable(text)
        if self._is_plain:
            sys.stderr.write(text + end)
        else:
            self._out.print(Text(text, style="dim"), end=end)

    def _progress(self, payload: ev.Progress) -> None:
        share = payload.done * 100 // payload.total if payload.total else 0
        text = printable(f"{payload.label} {share} %" if share else payload.label)
        if self._is_plain:
            # One line per ten percent: in a log nothing can be redrawn.
            news = (payload.label, share // 10)
            if news != self._progressed:
                self._progressed = news
                sys.stderr.write(f"{text}\n")
            return
        if self._live is None:
            self._live = Live(console=self._out, refresh_per_second=12, transient=True)
            self._live.start()
        self._live.update(Text(text, style="dim"))


_ENDS = (ev.TurnCompleted, ev.TurnCancelled, ev.TurnFailed, ev.TurnInterrupted)


def _with_stop(text: str) -> str:
    """A provider's own words often lack the full stop that separates them from what follows."""
    text = text.strip()
    return f"{text}." if text and text[-1] not in ".!?…" else text


def describe(payload: ev.Payload) -> str:
    """One line about an event other than text; empty if there is nothing to show."""
    if isinstance(payload, ev.ToolStarted):
        return f"▸ {payload.name} {payload.label}".rstrip()
    if isinstance(payload, ev.ToolFinished):
        first = payload.text.strip().splitlines()[:1]
        return f"  {payload.outcome}{': ' + first[0][:100] if first else ''}"
    if isinstance(payload, ev.StepAbandoned):
        if payload.reason == "crash":  # the return of the server was just reported
            return (
                "The answer continues where it stopped." if payload.continues else "The model is asked again."
            )
        wait = f" Trying again in {payload.retry_in_ms / 1000:.0f} s." if payload.retry_in_ms else ""
        if payload.reason == "rate_limited":
            return f"Rate-limited by {payload.model or 'the provider'}.{wait}"
        return f"{_with_stop(payload.message) or 'The answer was not finished.'}{wait}"
    if isinstance(payload, ev.MessageAdded):
        return "".join(_describe_summary(part) for part in payload.message.parts if isinstance(part, Summary))
    if isinstance(payload, ev.TurnResumed) and payload.reason != "answered":
        place = f" after step {payload.step}" if payload.step else ""
        return f"The server came back. The turn resumes{place}; nothing that was shown is lost."
    if isinstance(payload, ev.TurnCancelled):
        return "Stopped. Everything up to here is kept."
    if isinstance(payload, (ev.TurnFailed, ev.TurnInterrupted)):
        failure = payload.failure
        return f"{_with_stop(failure.message)} {failure.hint}".strip()
    return ""


def _describe_summary(summary: Summary) -> str:
    return f"Summarised {summary.messages} messages; each of them can still be read."
