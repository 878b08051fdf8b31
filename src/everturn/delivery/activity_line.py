"""What a turn's tools did, in one line."""

from __future__ import annotations

from collections.abc import Callable

from everturn.domain.delivery import ToolActivity


def activity_line(activity: ToolActivity, say: Callable[[str], str] = str) -> str:
    """In Markdown, such as "Ran 1 command · 6 s"; empty if nothing ran. ``say``: puts words into the
    language of the chat."""
    done = []
    if activity.commands:
        done.append(say(f"ran {_count_of(activity.commands, 'command')}"))
    if activity.others:
        done.append(say(f"used {_count_of(activity.others, 'other tool' if done else 'tool')}"))
    if not done:
        return ""
    line = ", ".join(done)
    return f"*{line[0].upper()}{line[1:]}{_duration(activity.took_ms // 1000)}*"


def _count_of(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _duration(seconds: int) -> str:
    """After a dot; nothing for less than a second."""
    minutes, rest = divmod(seconds, 60)
    words = [f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest)
    return f" · {' '.join(words)}" if words else ""
