"""Full-text search: messages are indexed in the background and leave the index when they are deleted.

What waits is known by a watermark on SQLite, whose one writer gives numbers in the order of its commits,
and by a table of its own on PostgreSQL. There the words are found here and not by the database, so that
both stores find the same, whatever locale the server was set up with.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from everturn.domain.errors import Invalid
from everturn.domain.ids import message_id
from everturn.domain.probe import Moment
from everturn.domain.sessions import ANY_MESSAGE, Hit, MessageFilter
from everturn.domain.store_values import SearchOrder
from everturn.domain.words import read_word
from everturn.store.scripts.common import read_watermarks, renew_index
from everturn.store.scripts.queries.messages import (
    INDEX_NEXT,
    INDEX_TAKE,
    NEWEST_NUMBER,
    RECENT_LEAVING,
    SEARCH_BEST,
    SEARCH_NEWEST,
    SEARCH_RECENT_BEST,
    SEARCH_RECENT_COUNT,
    SEARCH_RECENT_NEWEST,
    HitColumns,
)
from everturn.store.scripts.rows import to_json
from everturn.store.scripts.script import Database, IndexBroken, Query, Script, Tx, q

QUERY_CHARS_MAX = 500
EXCERPT_CHARS = 180
_NEVER = 1  # an end before every message
EXCERPT_BEFORE_CHARS = 24
_WORD = re.compile(r"[^\W_]+", re.UNICODE)
# SQLite's index of recent messages: how many it covers, and how many matches in it are enough to rank.
RECENT_MAX = 5_000
RANKED_MIN = 100
# Bounds of PostgreSQL's word vectors.
WORDS_MAX = 50_000
WORD_CHARS_MAX = 200
PLACES_MAX = 16_383
PLACES_OF_WORD_MAX = 100


class Search:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def find(
        self,
        owner: str,
        query: str,
        *,
        limit: int = 20,
        order: SearchOrder = SearchOrder.NEWEST,
        within: MessageFilter = ANY_MESSAGE,
        reader: str | None = None,
    ) -> list[Hit]:
        order = read_word(SearchOrder, order, "order")
        words = _words(query)
        if not words:
            return []
        limit = max(1, min(limit, 100))
        match = _match(self._db.dialect, words)
        asked = _Asked(
            match,
            owner,
            limit,
            within.session_id or "",
            reader or "",
            max(0, within.since or 0),
            _NEVER if within.until is not None and within.until <= 0 else within.until or 0,
            within.role or "",
            to_json(within.tag) if within.tag else "",
        )
        rows = await self._db.read(_find_best if order is SearchOrder.RELEVANCE else _find_newest, asked)
        return [_hit(row, words) for row in rows]

    async def index(self, *, limit: int = 2000) -> int:
        if not await self._db.read(_next, 1):  # guard: a03
            return 0
        return await self._db.write(_index, limit)

    async def rebuild(self) -> None:
        """Throw the index away and fill it again from the messages."""
        await self._db.write(_drop)
        while await self.index():
            pass


def _words(query: str) -> list[str]:
    if len(query) > QUERY_CHARS_MAX:
        raise Invalid(f"The query has more than {QUERY_CHARS_MAX} characters.", hint="Use fewer words.")
    return _WORD.findall(query)[:16]


def _match(dialect: str, words: list[str]) -> str:
    """All words, the last one as a prefix, so that results come while the user types. A single letter is not
    a prefix: it begins too many words."""
    if dialect == "sqlite":
        star = "*" if len(words[-1]) > 1 else ""
        return " ".join([*(f'"{word}"' for word in words[:-1]), f'"{words[-1]}"{star}'])
    folded = [word[:WORD_CHARS_MAX] for word in plain_words(" ".join(words))] or [""]
    star = ":*" if len(folded[-1]) > 1 else ""
    return " & ".join([*(f"'{word}'" for word in folded[:-1]), f"'{folded[-1]}'{star}"])


def plain(text: str) -> str:
    """A text as it is compared: lower case, without marks on letters."""
    text = text.lower()
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def plain_words(text: str) -> list[str]:
    return _WORD.findall(plain(text))


def word_vector(text: str) -> str:
    """PostgreSQL's notation of a text's words and their places, within its bounds."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(plain_words(text)[:WORDS_MAX], start=1):
        known = places.setdefault(word[:WORD_CHARS_MAX], [])
        if len(known) < PLACES_OF_WORD_MAX:
            known.append(min(place, PLACES_MAX))
    return " ".join(f"'{word}':{','.join(map(str, known))}" for word, known in places.items())


class _Asked(NamedTuple):
    """The arguments of every search query, in their order."""

    match: str
    owner: str
    limit: int
    session_id: str
    reader: str
    since: int
    until: int  # 0: no end
    role: str
    tag: str  # JSON


def _find_newest(tx: Tx, asked: _Asked) -> Script[list[HitColumns]]:
    """A common word is found among the newest messages; a rare one is found fast by the whole index."""
    if tx.dialect == "sqlite":
        rows = yield from SEARCH_RECENT_NEWEST.all(*asked)
        if len(rows) == asked.limit:
            return rows
    return (yield from SEARCH_NEWEST.all(*asked))


def _find_best(tx: Tx, asked: _Asked) -> Script[list[HitColumns]]:
    if tx.dialect == "sqlite" and (yield from _has_many_recent(asked)):
        rows = yield from SEARCH_RECENT_BEST.all(*asked)
        if len(rows) == asked.limit:
            return rows
    return (yield from SEARCH_BEST.all(*asked))


def _has_many_recent(asked: _Asked) -> Script[bool]:
    """Whether enough recent messages match to rank only those."""
    return (yield from SEARCH_RECENT_COUNT.only(asked.match, RANKED_MIN)) == RANKED_MIN


def _hit(row: HitColumns, words: list[str]) -> Hit:
    excerpt, marks = _excerpt(row.text, words)
    return Hit(
        session_id=row.session_id,
        message_id=message_id(row.turn_id, row.ordinal),
        turn_id=row.turn_id,
        role=row.role,
        title=row.title,
        excerpt=excerpt,
        created_at=row.created_at,
        marks=marks,
    )


def _excerpt(text: str, words: list[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    pattern = re.compile("|".join(rf"\b{re.escape(word)}" for word in words), re.IGNORECASE)
    found = pattern.search(text)
    start = max(0, (found.start() if found else 0) - EXCERPT_BEFORE_CHARS)
    if start:
        space = text.find(" ", start, start + EXCERPT_BEFORE_CHARS)
        start = space + 1 if space >= 0 else start
    excerpt = re.sub(r"\s", " ", text[start : start + EXCERPT_CHARS])
    return excerpt, tuple((match.start(), match.end()) for match in pattern.finditer(excerpt))


def _next(tx: Tx, limit: int) -> Script[bool]:
    if tx.dialect == "postgresql":
        return bool((yield q("index_waiting")))
    _, through = yield from read_watermarks()
    return bool((yield q("index_next", through, limit)))


def _index(tx: Tx, limit: int) -> Script[int]:
    if tx.dialect == "postgresql":
        taken = yield from INDEX_TAKE.all(limit)
        vectors = [(m.message_no, m.session_no, m.owner, word_vector(m.text)) for m in taken]
        yield Query("index_add", many=vectors)
        tx.probe.pass_by(Moment.INDEXED)
        return len(taken)
    try:
        return (yield from index_more(tx, limit))
    except IndexBroken:
        yield from renew_index()
        return 1  # there is more to do: everything, once more


def index_more(tx: Tx, limit: int) -> Script[int]:
    """Bring messages behind the watermark into SQLite's indexes; what is not recent any more leaves the small
    one. Raises IndexBroken into the script."""
    after, through = yield from read_watermarks()
    new = yield from INDEX_NEXT.all(through, limit)
    if not new:
        return 0
    yield Query("index_add", many=[(m.message_no, m.text) for m in new])
    recent = max(after, (yield from NEWEST_NUMBER.only()) - RECENT_MAX)
    leaving = yield from RECENT_LEAVING.all(after, min(recent, through))
    yield Query("index_recent_remove", many=[(m.message_no, m.text) for m in leaving])
    yield Query("index_recent_add", many=[(m.message_no, m.text) for m in new if m.message_no > recent])
    yield q("meta_put", "recent_after", str(recent))
    yield q("meta_put", "indexed_through", str(new[-1].message_no))
    tx.probe.pass_by(Moment.INDEXED)
    return len(new)


def _drop(tx: Tx) -> Script[None]:
    if tx.dialect != "postgresql":
        yield from renew_index()
        return
    yield q("index_drop")
    yield q("index_clear")
    yield q("index_create")
    yield q("index_fill")
