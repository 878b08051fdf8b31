"""Rolls SQLite back to the copy of the database from before a schema change.

First, everything newer is saved as a backup, which the newer version can restore, and as session archives for
``everturn import``. Then the copy replaces the database in one step: a killed run leaves either all of the
newer data or all of the copy, and in both cases what was saved.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, contextmanager
from pathlib import Path
from typing import Final

import apsw
import msgspec

from everturn.backups.backup import fill
from everturn.backups.unfinished import UnfinishedBackup, clear
from everturn.backups.watch import BackupWatch
from everturn.domain.errors import Invalid, StoreRefused
from everturn.domain.turns import ENDED
from everturn.store import Store
from everturn.store.files.disk import Disk, atomic_file, sync_tree
from everturn.workspace import SessionArchive

_NAME: Final = re.compile(r"\.before-schema-(\d+)\.db")
_AFTER: Final = """
SELECT s.id, s.owner FROM main.sessions s JOIN main.tails t USING (session_no)
LEFT JOIN old.sessions o ON o.id = s.id LEFT JOIN old.tails u ON u.session_no = o.session_no
WHERE o.id IS NULL OR o.version <> s.version OR u.position <> t.position ORDER BY s.session_no
"""
_SCHEMA: Final = "SELECT value FROM main.meta WHERE name = 'schema'"
_OLD_SCHEMA: Final = "SELECT value FROM old.meta WHERE name = 'schema'"
_TURNS: Final = "SELECT count(*) FROM main.turns WHERE id NOT IN (SELECT id FROM old.turns)"
_MESSAGES: Final = """
SELECT count(*) FROM main.messages m JOIN main.turns t USING (turn_no)
WHERE NOT EXISTS (SELECT 1 FROM old.turns o JOIN old.messages n USING (turn_no)
                  WHERE o.id = t.id AND n.ordinal = m.ordinal)
"""
_RETURNING: Final = "SELECT count(*) FROM old.sessions WHERE id NOT IN (SELECT id FROM main.sessions)"


class FormerCopy(msgspec.Struct, frozen=True):
    """The database as it was before the migration to the schema ``before``."""

    path: Path
    before: int
    made_at: float

    @property
    def schema(self) -> int:
        return self.before - 1


class Since(msgspec.Struct, frozen=True):
    """What changed after a copy was made.

    ``changed``: id and owner of new and changed sessions. ``returning``: sessions that were deleted since and
    would come back. ``unfinished``: turns that would continue.
    """

    changed: tuple[tuple[str, str], ...]
    turns: int
    messages: int
    returning: int
    unfinished: int


def find_copies(database: Path) -> list[FormerCopy]:
    """Return the copies beside a database, latest schema last."""
    found = []
    for path in database.parent.glob(f"{database.stem}.before-schema-*.db"):
        if (match := _NAME.fullmatch(path.name.removeprefix(database.stem))) and path.is_file():
            found.append(FormerCopy(path, int(match[1]), path.stat().st_mtime))
    return sorted(found, key=lambda copy: copy.before)


def compare(database: Path, copy: FormerCopy) -> Since:
    """Compare both. Raises StoreRefused if the copy is damaged or not older than the database."""
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("ATTACH ? AS old", (str(copy.path),))
        schemas = (_one(connection, _SCHEMA), _one(connection, _OLD_SCHEMA))
        if int(schemas[1]) != copy.schema or int(schemas[0]) <= copy.schema:
            raise StoreRefused(
                f"{database.name} has schema {schemas[0]} and {copy.path.name} has {schemas[1]}: there is "
                "nothing to go back to. Nothing was changed.",
                hint="If a rollback was just made, start the earlier version now.",
            )
        if (found := _one(connection, "PRAGMA old.quick_check(1)")) != "ok":
            raise StoreRefused(
                f"{copy.path.name} is damaged: {found}. Nothing was changed.",
                hint="Restore a backup instead.",
            )
        ended = ", ".join(f"'{state.value}'" for state in ENDED)
        unfinished = f"SELECT count(*) FROM old.turns WHERE state NOT IN ({ended})"  # noqa: S608 - our names
        return Since(
            changed=tuple((str(a), str(b)) for a, b in connection.execute(_AFTER)),
            turns=int(_one(connection, _TURNS)),
            messages=int(_one(connection, _MESSAGES)),
            returning=int(_one(connection, _RETURNING)),
            unfinished=int(_one(connection, unfinished)),
        )


def _one(connection: apsw.Connection, query: str) -> str:
    return str(connection.execute(query).fetchall()[0][0])


async def keep_newer(store: Store, home: Path, since: Since, report: Callable[[str], None]) -> Path:
    """Save what the copy lacks and return the folder: ``newer/`` is a backup, ``sessions/`` holds archives.

    The folder gets its name when it is complete and synced. The next run removes leftovers of a killed one.
    """
    target = home / time.strftime("rolled-back-%Y-%m-%d-%H%M%S")
    _clear_leftovers(home)
    with UnfinishedBackup(target) as kept:
        kept.inside.mkdir(mode=0o700)
        report("Keeping a backup of everything")
        await fill(store, home, kept.inside / "newer", BackupWatch())
        (kept.inside / "sessions").mkdir(mode=0o700)
        for number, (session_id, owner) in enumerate(since.changed, 1):
            report(f"Exporting session {number:,} of {len(since.changed):,}")
            await _export(store, owner, session_id, kept.inside / "sessions" / f"{session_id}.zip")
        sync_tree(Disk(), kept.inside)
        kept.finish()
    return target


def _clear_leftovers(home: Path) -> None:
    for leftover in home.glob("rolled-back-*.unfinished"):
        clear(leftover)


async def _export(store: Store, owner: str, session_id: str, target: Path) -> None:
    with atomic_file(Disk(), target) as file:
        async with aclosing(SessionArchive(store).pieces(owner, session_id)) as pieces:
            async for piece in pieces:
                file.write(piece)


def put_copy_in_place(database: Path, copy: FormerCopy) -> None:
    """Replace the database by the copy, and keep the copy.

    If killed before the last step, nothing has changed. Raises StoreRefused if another process has the
    database open, OSError.
    """
    coming = database.with_name(f".{database.name}.incoming")
    shutil.copy2(copy.path, coming)
    with coming.open("rb") as file:
        Disk().sync_file(file.fileno())
    with _alone_with(database):
        coming.rename(database)
        Disk().sync_folder(database.parent)


@contextmanager
def _alone_with(database: Path) -> Iterator[None]:
    """Hold the database exclusively with its log merged into the main file.

    Otherwise the newer database's log would be replayed into the copy and destroy it.
    """
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        try:
            mode = _one(connection, "PRAGMA journal_mode=DELETE")
            connection.execute("BEGIN EXCLUSIVE")
        except apsw.BusyError:
            mode = "busy"
        log = database.with_name(f"{database.name}-wal")
        if mode != "delete" or (log.exists() and log.stat().st_size):
            raise StoreRefused(
                f"Another program has {database.name} open. Nothing was changed.",
                hint="Stop it, then try again.",
            )
        log.unlink(missing_ok=True)
        database.with_name(f"{database.name}-shm").unlink(missing_ok=True)
        yield


def choose(copies: list[FormerCopy], schema: int | None) -> FormerCopy:
    """Return the copy with this schema, or the newest. Raises Invalid."""
    for copy in reversed(copies):
        if schema in (None, copy.schema):
            return copy
    known = ", ".join(str(copy.schema) for copy in copies)
    raise Invalid(
        f"There is no copy of the database with schema {schema}. Nothing was changed."
        if known
        else "There is no copy that was made before a schema change. Nothing was changed.",
        hint=f"There are copies with schema {known}."
        if known
        else "Restore a backup that the earlier version made.",
    )
