"""German for what the server says to its owner in chats and notifications.

The server speaks English; what ``german.toml`` lists is said in German to an owner who chose it. A text that
is not listed stays as it is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from everturn.domain.preferences import preferred_language
from everturn.domain.store import Records

Patterns = tuple[tuple[re.Pattern[str], str], ...]


def _patterns(words: Mapping[str, str]) -> Patterns:
    return tuple(
        (re.compile(re.escape(said).replace(r"\{\}", "(.+)")), german) for said, german in words.items()
    )


_WORDS: Final = tomllib.loads(files(__package__).joinpath("german.toml").read_text(encoding="utf-8"))
_ANSWERS: Final = _patterns(_WORDS["answers"])
_NOTICES: Final = _patterns(_WORDS["notices"])


async def speaks_german(records: Records, owner: str) -> bool:
    return await preferred_language(records, owner) == "de"


def answer_in_german(text: str) -> str:
    """An answer to a command or a button, line by line."""
    return "\n".join(_translate(line, _ANSWERS) for line in text.split("\n"))


def title_in_german(text: str) -> str:
    """The title of a notification, or a text that is the server's own."""
    return _translate(text, _NOTICES)


def _translate(line: str, patterns: Patterns) -> str:
    for pattern, german in patterns:
        if found := pattern.fullmatch(line):
            return german.format(*found.groups())
    return line
