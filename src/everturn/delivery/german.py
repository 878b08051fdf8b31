"""German translations of the server's texts in chats and notifications.

The server writes English. For owners who chose German, the texts listed in ``german.toml`` are translated;
others stay in English.
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
    """Translate an answer to a command or a button, line by line."""
    return "\n".join(_translate(line, _ANSWERS) for line in text.split("\n"))


def title_in_german(text: str) -> str:
    """Translate the title of a notification, or another text of the server."""
    return _translate(text, _NOTICES)


def _translate(line: str, patterns: Patterns) -> str:
    for pattern, german in patterns:
        if found := pattern.fullmatch(line):
            return german.format(*found.groups())
    return line
