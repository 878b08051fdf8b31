"""The words that a chat has not seen, quoted there."""

from __future__ import annotations

from collections.abc import Callable

from everturn.domain.delivery import AskedElsewhere

_QUOTE_CHARS_MAX = 500


def quote_words(asked: AskedElsewhere, say: Callable[[str], str] = str) -> str:
    """The user's words, which this chat has not seen. Without them what follows would make no sense
    here. ``say``: puts our own words into the chat's language."""
    words = asked.text.strip() or say("(a file)")
    if len(words) > _QUOTE_CHARS_MAX:
        words = words[:_QUOTE_CHARS_MAX].rstrip() + " …"
    lines = "\n".join(f"> {line}" for line in words.splitlines())
    place = asked.platform.capitalize() or "the browser"
    return f"{say(f'*From {place}:*')}\n{lines}"
