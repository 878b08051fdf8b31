"""Finds words in the sections of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from everturn.tools.documents.document import Section

_EXCERPT_CHARS = 500
_WORDS_MAX = 20
_WORD = re.compile(r"\w+")


class FoundPassage(msgspec.Struct, frozen=True):
    """A passage.

    ``name`` is the document's name for users, ``document`` its name for tools; sections count from 1.
    """

    name: str
    document: str
    place: str
    section: int
    excerpt: str
    rank: float = 0.0  # lower is better
    is_own: bool = False  # from a folder that the user marked as their own words


def words_of(query: str) -> list[str]:
    return list(dict.fromkeys(word.casefold() for word in _WORD.findall(query)))[:_WORDS_MAX]


def find(sections: Sequence[Section], query: str, name: str, document: str) -> list[FoundPassage]:
    """Return the sections that contain words of the query, best matches first."""
    words = words_of(query)
    found: list[FoundPassage] = []
    for number, section in enumerate(sections, 1):
        text = section.text.casefold()
        counts = [text.count(word) for word in words]
        held = sum(count > 0 for count in counts)
        if held:
            rank = -(held + min(sum(counts), 50) / 100)
            found.append(
                FoundPassage(name, document, section.place, number, excerpt(section.text, words), rank)
            )
    return sorted(found, key=lambda one: one.rank)


def excerpt(text: str, words: Iterable[str]) -> str:
    """Return the text around the first matching word."""
    lowered = text.casefold()
    places = [at for at in (lowered.find(word) for word in words) if at >= 0]
    start = max(0, min(places, default=0) - _EXCERPT_CHARS // 4)
    part = " ".join(text[start : start + _EXCERPT_CHARS].split())
    return f"{'… ' if start else ''}{part}{' …' if start + _EXCERPT_CHARS < len(text) else ''}"
