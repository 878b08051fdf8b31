"""Titles as the list is searched: folded like the words of messages, and found by any part of them.

A part of three or more characters is found by an index of three-letter pieces (FTS5's trigrams, or an array
on PostgreSQL); both give candidates, which are then compared. A part of many titles is found sooner by
looking through the newest sessions, which is tried first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import count

import msgspec

from everturn.store.scripts.queries.sessions import TITLE_GET
from everturn.store.scripts.script import IndexBroken, Script, Tx, q
from everturn.store.sessions.search import plain

_tags: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])

TITLE_CHARS_MAX = 200
GRAM_CHARS = 3
_COPY_NUMBER = re.compile(r" \(\d{1,2}\)$")
_GRAMS_MAX = 24  # of a query: more would not make the candidates fewer


def needle_of(query: str) -> str:
    return " ".join(plain(query).replace("\0", " ").split())


def origin_title(title: str) -> str:
    """The title without the number that makes it a copy's."""
    return _COPY_NUMBER.sub("", title)


def copy_title(title: str, taken: Collection[str]) -> str:
    """A numbered title for a copy of the session, so that lists tell the two apart."""
    origin = origin_title(title)[: TITLE_CHARS_MAX - len(" (999)")]
    numbered = (f"{origin} ({number})" for number in count(2))
    return next(title for title in numbered if title not in taken)


def title_text(title: str, tags: Sequence[str]) -> str:
    """What is searched of a session: its title and its tags, a line each."""
    return "\n".join(filter(None, (needle_of(part) for part in (title, *tags))))


def grams_of(text: str) -> list[str]:
    found = {text[at : at + GRAM_CHARS] for at in range(len(text) - GRAM_CHARS + 1)}
    return sorted(found)


def candidates(dialect: str, needle: str) -> str | list[str]:
    """The index query for titles with all three-letter pieces of the needle, which has at least one."""
    grams = grams_of(needle)[:_GRAMS_MAX]
    if dialect == "postgresql":
        return grams
    return " AND ".join('"' + gram.replace('"', '""') + '"' for gram in grams)


def title_text_of_row(title: str, tags: str) -> str:
    """The same, where the tags are JSON."""
    return title_text(title, _tags.decode(tags))


def titles_of(sessions: Iterable[tuple[int, str, str]]) -> list[tuple[int, str]]:
    """For migrating: the text of each session that has one, from its number, title and tags (as JSON)."""
    texts = ((number, title_text_of_row(title, tags)) for number, title, tags in sessions)
    return [(number, text) for number, text in texts if text]


def put_title(tx: Tx, session_no: int, text: str) -> Script[None]:
    """Let the session be found by this text, and not by the one before."""
    yield from delete_title(tx, session_no)
    if not text:
        return
    if tx.dialect == "postgresql":
        yield q("title_put", session_no, text, grams_of(text))
        return
    yield q("title_put", session_no, text)
    try:
        yield q("index_title_add", session_no, text)
    except IndexBroken:
        yield from renew_title_index()


def delete_title(tx: Tx, session_no: int) -> Script[None]:
    text = yield from TITLE_GET.first(session_no)
    if text is None:
        return
    yield q("title_delete", session_no)
    if tx.dialect != "postgresql":
        try:
            yield q("index_title_remove", session_no, text)
        except IndexBroken:
            yield from renew_title_index()


def renew_title_index() -> Script[None]:
    """A broken index never makes a write fail (A06): it is filled again from the titles, which are few."""
    yield q("index_titles_drop")
    yield q("index_titles_create")
    yield q("index_titles_secure")
    yield q("index_titles_rebuild")
