"""The pages of notes, with PostgreSQL: rows that every server reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from everturn.domain.memory import StoredPage
from everturn.store.scripts.queries.memory import NOTE_HASHES, NOTE_PAGES
from everturn.store.scripts.script import Database, Script, Tx, q


class Notes:
    """Implements ``domain.memory.NotePages``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def hashes(self, owner: str) -> dict[str, str]:
        return await self._db.read(_hashes, owner)

    async def read(self, owner: str, names: Sequence[str]) -> dict[str, StoredPage]:
        return await self._db.read(_pages, owner, list(names)) if names else {}

    async def replace(
        self, owner: str, expected: Mapping[str, str], changes: Mapping[str, bytes | None]
    ) -> bool:
        return await self._db.write(_replace, owner, dict(expected), dict(changes))


def _hashes(tx: Tx, owner: str) -> Script[dict[str, str]]:
    return {row.page: row.sha256 for row in (yield from NOTE_HASHES.all(owner))}


def _pages(tx: Tx, owner: str, names: list[str]) -> Script[dict[str, StoredPage]]:
    rows = yield from NOTE_PAGES.all(owner, names)
    return {
        row.page: StoredPage(row.sha256, bytes(row.content), _hash(row.content) == row.sha256) for row in rows
    }


def _replace(tx: Tx, owner: str, expected: dict[str, str], changes: dict[str, bytes | None]) -> Script[bool]:
    yield q("notes_lock", owner)  # guard: g01 postgresql
    if (yield from _hashes(tx, owner)) != expected:  # guard: g01 postgresql
        return False
    for page, content in changes.items():
        if content is None:
            yield q("note_page_delete", owner, page)
        else:
            yield q("note_page_put", owner, page, content, _hash(content), tx.now)
    return True


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
