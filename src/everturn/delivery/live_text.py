"""What a chat's live message says."""

from __future__ import annotations

from everturn.domain import events as ev

_TEXT_CHARS_MAX = 1_000  # the newest ones are shown; they fit into one message everywhere
_LABEL_CHARS_MAX = 80
_COMMAND_TOOLS = frozenset({"terminal", "python"})
THINKING = "*Thinking …*"


class LiveText:
    """What a turn has done so far, in words."""

    def __init__(self) -> None:
        self._written = ""  # of the present model call, or of the last one that wrote something
        self._is_new_step = False
        self._doing = THINKING
        self._started: dict[str, int] = {}  # calls that run, and since when
        self._commands = 0
        self._others = 0
        self._took_ms = 0

    def take(self, payload: object, at: int) -> None:
        """``at``: when it happened, in milliseconds."""
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
        if started is None:
            return  # it was refused: nothing ran
        self._took_ms += max(0, at - started)
        if finished.name in _COMMAND_TOOLS:
            self._commands += 1
        else:
            self._others += 1

    def text(self) -> str:
        """In Markdown. What was done, the newest words, and what is being done."""
        words = self._written.strip()
        if len(words) > _TEXT_CHARS_MAX:
            words = f"… {words[-_TEXT_CHARS_MAX:].lstrip()}"
        return "\n\n".join(part for part in (self._describe_done(), words, self._doing) if part)

    def _describe_done(self) -> str:
        """The finished calls in one line, such as "Ran 1 command · 6 s"."""
        done = []
        if self._commands:
            done.append(f"ran {_count_of(self._commands, 'command')}")
        if self._others:
            done.append(f"used {_count_of(self._others, 'other tool' if done else 'tool')}")
        if not done:
            return ""
        line = ", ".join(done)
        return f"*{line[0].upper()}{line[1:]}{_duration(self._took_ms // 1000)}*"


def _count_of(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _duration(seconds: int) -> str:
    """After a dot; nothing for less than a second."""
    minutes, rest = divmod(seconds, 60)
    words = [f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest)
    return f" · {' '.join(words)}" if words else ""


def _one_line(label: str) -> str:
    return " ".join(label.replace("`", "'").split())[:_LABEL_CHARS_MAX]
