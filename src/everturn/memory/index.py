"""A full-text index of one owner's notes, kept in memory and rebuilt from the files."""

from __future__ import annotations

import re
from collections.abc import Sequence

import apsw

from everturn.memory.notes import Note

_WORDS_MAX = 24  # of a query
# Words too common to tell notes apart.
_STOP_WORDS = """
a an and are as at be but by can could did do does for from had has have he her his how i if in into is it its
just let me my no not of on or our please she should so that the their them then there these they this to us
was we were what when where which who why will with would you your
der die das ein eine und ist mir mich ich du wir le la les un une et est je tu el los y es una yo
"""
_STOP = frozenset(_STOP_WORDS.split())


class Index:
    """Not thread-safe: a notebook calls it under its lock."""

    def __init__(self) -> None:
        self._db = apsw.Connection(":memory:")
        self._db.execute(
            "CREATE VIRTUAL TABLE facts USING fts5(text, id UNINDEXED, "
            "tokenize='porter unicode61 remove_diacritics 2')"
        )
        self._rows: dict[str, list[int]] = {}
        self._next = 1

    def put(self, page: str, notes: Sequence[Note]) -> None:
        self.drop(page)
        rows = list(range(self._next, self._next + len(notes)))
        self._next += len(notes)
        self._rows[page] = rows
        with self._db:
            self._db.executemany(
                "INSERT INTO facts (rowid, text, id) VALUES (?, ?, ?)",
                [(row, note.text, note.id) for row, note in zip(rows, notes, strict=True)],
            )

    def drop(self, page: str) -> None:
        rows = self._rows.pop(page, [])
        with self._db:
            self._db.executemany("DELETE FROM facts WHERE rowid = ?", [(row,) for row in rows])

    def find(self, query: str, limit: int) -> list[str]:
        words = [word for word in re.findall(r"\w+", query.lower()) if len(word) > 1 and word not in _STOP]
        chosen = list(dict.fromkeys(words))[:_WORDS_MAX]
        if not chosen:
            return []
        match = " OR ".join(f'"{word}"' for word in chosen)
        rows = self._db.execute(
            "SELECT id FROM facts WHERE facts MATCH ? ORDER BY rank, rowid LIMIT ?", (match, limit)
        )
        return [str(row[0]) for row in rows]
