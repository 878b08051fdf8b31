"""The search index of one collection: a separate SQLite file that can be rebuilt at any time.

It holds each file's text in sections, and the version that was read. A damaged or outdated index is rebuilt.
Calls block, so they run in threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from everturn.tools.documents.document import Document, Section
from everturn.tools.documents.passages import FoundPassage, words_of

if TYPE_CHECKING:
    import apsw

_FORM = 1  # version of the tables; an index of another version is rebuilt
_BUSY_MS = 10_000
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS files (
  path TEXT PRIMARY KEY, version TEXT NOT NULL, error TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER
  NOT NULL ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS sections USING fts5(
  text, place, path, tokenize = 'unicode61 remove_diacritics 2'
);
PRAGMA user_version = {_FORM};
"""
_FIND = """
SELECT s.path, s.place, s.rowid - f.first + 1, snippet(sections, 0, '', '', ' … ', 60), bm25(sections,
1.0, 2.0, 2.0) FROM sections s JOIN files f ON f.path = s.path WHERE sections MATCH ? ORDER BY 5 LIMIT ?
"""


class IndexState(msgspec.Struct, frozen=True):
    """``indexed_at``: when the last pass over all files ended.

    ``errors``: unreadable files and the reasons.
    """

    files: int = 0
    sections: int = 0
    indexed_at: int | None = None
    errors: tuple[tuple[str, str], ...] = ()
    trouble: str = ""  # why the last pass failed


class KnowledgeIndex:
    def __init__(self, path: Path) -> None:
        self._path = path

    def versions(self) -> dict[str, str]:
        """Return the indexed version of each file."""
        with self._open() as db:
            return dict(db.execute("SELECT path, version FROM files"))

    def put(self, path: str, version: str, document: Document) -> None:
        with self._open() as db, db:
            _remove(db, path)
            first = (db.execute("SELECT coalesce(max(rowid), 0) FROM sections").get or 0) + 1
            rows = [(first + at, one.text, one.place, path) for at, one in enumerate(document.sections)]
            db.executemany("INSERT INTO sections (rowid, text, place, path) VALUES (?, ?, ?, ?)", rows)
            last = first + len(rows) - 1
            db.execute(
                "INSERT INTO files VALUES (?, ?, ?, ?, ?)", (path, version, document.error, first, last)
            )

    def remove(self, paths: Sequence[str]) -> None:
        with self._open() as db, db:
            for path in paths:
                _remove(db, path)

    def note(self, *, at_ms: int | None, trouble: str = "") -> None:
        """Store the result of the last pass."""
        with self._open() as db, db:
            if at_ms is not None:
                db.execute("INSERT OR REPLACE INTO facts VALUES ('at', ?)", (at_ms,))
            db.execute("INSERT OR REPLACE INTO facts VALUES ('trouble', ?)", (trouble,))

    def state(self, errors_max: int = 50) -> IndexState:
        if not self._path.exists():
            return IndexState()
        with self._open() as db:
            facts = dict(db.execute("SELECT name, value FROM facts"))
            files, sections = next(
                iter(db.execute("SELECT count(*), coalesce(sum(last - first + 1), 0) FROM files"))
            )
            query = "SELECT path, error FROM files WHERE error != '' ORDER BY path LIMIT ?"
            errors = tuple(db.execute(query, (errors_max,)))
        return IndexState(files, sections, facts.get("at"), errors, facts.get("trouble", ""))

    def find(self, query: str, limit: int) -> list[FoundPassage]:
        """Return the sections that contain all words or, if there are none, some of them.

        ``document`` is the path.
        """
        words = [f'"{word}"' for word in words_of(query)]
        if not words or not self._path.exists():
            return []
        with self._open() as db:
            rows = list(db.execute(_FIND, (" ".join(words), limit)))
            rows = rows or list(db.execute(_FIND, (" OR ".join(words), limit)))
        return [
            FoundPassage(path, path, place, number, " ".join(text.split()), rank)
            for path, place, number, text, rank in rows
        ]

    def read(self, path: str) -> Document | None:
        """Return a file's text, or None if it is not in the index."""
        if not self._path.exists():
            return None
        with self._open() as db:
            row = next(iter(db.execute("SELECT first, last, error FROM files WHERE path = ?", (path,))), None)
            if row is None:
                return None
            query = "SELECT place, text FROM sections WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
            return Document(sections=tuple(Section(*one) for one in db.execute(query, row[:2])), error=row[2])

    def delete(self) -> None:
        for path in (
            self._path,
            *(self._path.with_name(f"{self._path.name}-{end}") for end in ("wal", "shm")),
        ):
            path.unlink(missing_ok=True)

    @contextmanager
    def _open(self) -> Iterator[apsw.Connection]:
        """Open the index. A damaged one is deleted, and the next pass fills it again. Raises OSError."""
        import apsw

        try:
            try:
                db = self._connect()
            except apsw.NotADBError:
                self.delete()
                db = self._connect()
            try:
                yield db
            finally:
                db.close()
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self.delete()
            raise OSError(f"the index {self._path.name} was damaged and is made again") from error
        except apsw.Error as error:
            raise OSError(f"the index {self._path.name} cannot be used: {error}") from error

    def _connect(self) -> apsw.Connection:
        import apsw

        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        db = apsw.Connection(str(self._path))
        try:
            db.set_busy_timeout(_BUSY_MS)
            db.transaction_mode = "IMMEDIATE"  # another process may write to it as well
            form = db.pragma("user_version")
            if form not in (0, _FORM):
                raise apsw.NotADBError(f"form {form}")
            if form == 0:
                for _ in db.execute(_SCHEMA):
                    pass
        except BaseException:
            db.close()
            raise
        return db


def _remove(db: apsw.Connection, path: str) -> None:
    row = next(iter(db.execute("SELECT first, last FROM files WHERE path = ?", (path,))), None)
    if row is not None:
        db.execute("DELETE FROM sections WHERE rowid BETWEEN ? AND ?", row)
        db.execute("DELETE FROM files WHERE path = ?", (path,))
