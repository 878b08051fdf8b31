"""Full-text search: rows enter the index later, up to a watermark, and leave it with their message."""

from __future__ import annotations

import re

from everturn.domain.errors import Invalid
from everturn.domain.ids import message_id
from everturn.domain.probe import Moment
from everturn.domain.sessions import Hit
from everturn.store.script import Database, Query, Row, Script, Tx, one, q

QUERY_CHARS_MAX = 500
EXCERPT_CHARS = 180
EXCERPT_BEFORE_CHARS = 24
_WORD = re.compile(r"[^\W_]+", re.UNICODE)


class Search:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def find(
        self,
        owner: str,
        query: str,
        *,
        limit: int = 20,
        order: str = "newest",
        session_id: str | None = None,
    ) -> list[Hit]:
        words = _words(query)
        if not words:
            return []
        limit = max(1, min(limit, 100))
        name = "search_best" if order == "best" else "search_newest"
        match = _match(self._db.dialect, words)
        rows = await self._db.read(_find, name, match, owner, limit, session_id or "")
        return [_hit(row, words) for row in rows]

    async def index(self, *, limit: int = 2000) -> int:
        if not await self._db.read(_next, 1):
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
    """All words, the last one as a prefix, so that results come while somebody types."""
    if dialect == "sqlite":
        return " ".join([*(f'"{word}"' for word in words[:-1]), f'"{words[-1]}"*'])
    return " & ".join([*(f"'{word}'" for word in words[:-1]), f"'{words[-1]}':*"])


def _find(tx: Tx, name: str, match: str, owner: str, limit: int, session_id: str) -> Script[list[Row]]:
    return list((yield q(name, match, owner, limit, session_id)))


def _hit(row: Row, words: list[str]) -> Hit:
    _, ordinal, role, created_at, text, turn_id, session_id, title = row
    excerpt, marks = _excerpt(text, words)
    return Hit(
        session_id=session_id,
        message_id=message_id(turn_id, ordinal),
        turn_id=turn_id,
        role=role,
        title=title,
        excerpt=excerpt,
        created_at=created_at,
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


def _watermark() -> Script[int]:
    row = one((yield q("meta_get", "indexed_through")))
    return int(row[0]) if row else 0


def _next(tx: Tx, limit: int) -> Script[bool]:
    through = yield from _watermark()
    return bool((yield q("index_next", through, limit)))


def _index(tx: Tx, limit: int) -> Script[int]:
    if tx.dialect == "postgresql":
        yield q("index_lock")
    through = yield from _watermark()
    rows = yield q("index_next", through, limit)
    if not rows:
        return 0
    yield Query("index_add", many=[(row[0], row[1]) for row in rows])
    yield q("meta_put", "indexed_through", str(rows[-1][0]))
    tx.probe.pass_by(Moment.INDEXED)
    return len(rows)


def _drop(tx: Tx) -> Script[None]:
    yield q("index_drop")
    yield q("index_create")
    yield q("index_secure")
    yield q("meta_put", "indexed_through", "0")
