"""The text of a chat's live message."""

from __future__ import annotations

from everturn.delivery.activity_line import activity_line
from everturn.domain import events as ev
from everturn.domain.delivery import ToolActivity

_TEXT_CHARS_MAX = 1_000  # the newest ones are shown; they fit into one message everywhere
_LABEL_CHARS_MAX = 80
THINKING = "*Thinking …*"


class LiveText:
    """A text about what a turn has done so far."""

    def __init__(self) -> None:
        self._written = ""  # text of the current model call, or of the last one that wrote any
        self._is_new_step = False
        self._doing = THINKING
        self._started: dict[str, int] = {}  # running calls and their start times
        self._activity = ToolActivity()

    def take(self, payload: object, at: int) -> None:
        """Take an event into account. ``at`` is its time in milliseconds."""
        if isinstance(payload, ev.StepStarted):
            self._is_new_step, self._doing = True, THINKING
        elif isinstance(payload, ev.TextDelta):
            if self._is_new_step:
                self._written, self._is_new_step = "", False
            self._written += payload.text
            self._doing = "*Writing …*"
        elif isinstance(payload, ev.StepAbandoned) and not payload.continues:
            self._written = ""
        elif isinstance(payload, ev.ToolStarted):
            self._started[payload.call_id] = at
            self._doing = f"*Running* `{_one_line(payload.label or payload.name)}` *…*"
        elif isinstance(payload, ev.ToolFinished):
            self._doing = THINKING
            self._count(payload, at)

    def _count(self, finished: ev.ToolFinished, at: int) -> None:
        started = self._started.pop(finished.call_id, None)
        if started is not None:  # else it was refused: nothing ran
            self._activity = self._activity.add(finished.name, at - started)

    def text(self) -> str:
        """Return Markdown: finished calls, the newest words, running calls."""
        words = self._written.strip()
        if len(words) > _TEXT_CHARS_MAX:
            words = f"… {words[-_TEXT_CHARS_MAX:].lstrip()}"
        return "\n\n".join(part for part in (activity_line(self._activity), words, self._doing) if part)


def _one_line(label: str) -> str:
    return " ".join(label.replace("`", "'").split())[:_LABEL_CHARS_MAX]
