"""Connections to SQLite: checks of its version and file system, pragmas, migrations, error messages."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
from pathlib import Path

import apsw

from everturn.domain.errors import (
    DiskFull,
    DiskReadOnly,
    EverturnError,
    NotADatabase,
    StoreAway,
    StoreBroken,
    StoreFault,
    StoreRefused,
)
from everturn.domain.json_types import Json
from everturn.store import sql
from everturn.store.files.disk import report_errors
from everturn.store.scripts.schema_range import refuse_newer
from everturn.store.sessions.titles import titles_of

_log = logging.getLogger("everturn.store")

SCHEMA = 14
SQLITE_MIN = (3, 51, 3)  # older ones can corrupt a WAL database when the log is reset
BUSY_TIMEOUT_MS = 10_000
STATEMENTS_KEPT = 512  # apsw forgets by number of uses: with fewer, a busy statement drives out the others
# Of the shared memory beside the log, which holds nothing that matters: SQLite recreates it when it can.
_SHARED_MEMORY = frozenset({apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP, apsw.SQLITE_IOERR_SHMOPEN})
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph"})


def open_connection(path: Path, *, vfs: str | None = None, is_reader: bool = False) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | (0 if is_reader else apsw.SQLITE_OPEN_CREATE)
    try:
        connection = apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=STATEMENTS_KEPT)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Plans that do not look at bound values. Otherwise a statement whose plan might (any lookup by number
        # beside a partial index) is parsed and planned again each time it runs: 100 µs instead of 10.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        # Deleted content is overwritten; otherwise it would stay readable in free pages.
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA cache_size=-16000")
        if sys.platform == "darwin":
            # On macOS fsync does not reach the platter; these two pragmas ask for what does.
            connection.execute("PRAGMA fullfsync=1")
            connection.execute("PRAGMA checkpoint_fullfsync=1")
        if is_reader:
            connection.execute("PRAGMA query_only=ON")
    except apsw.Error as error:
        raise explain_error(error, path) from error
    return connection


def prepare(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """Open the writer's connection on a database of the current schema, making or migrating it."""
    with report_errors(path):
        return _prepare(path, vfs)


def _prepare(path: Path, vfs: str | None) -> apsw.Connection:
    refuse_old_sqlite(tuple(int(part) for part in apsw.sqlite_lib_version().split(".")))
    if vfs is None:
        refuse_network_file_system(path.parent)
    is_new = not path.exists() or path.stat().st_size == 0
    connection = open_connection(path, vfs=vfs)
    try:
        if is_new:
            path.chmod(0o600)  # its log and the index of that are made with the same mode
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchall()[0][0]
        if mode != "wal":
            raise StoreRefused(f"{path.name} cannot use a write-ahead log here (it is in mode {mode}).")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("PRAGMA synchronous=FULL")
        _migrate(connection, path, vfs)
    except apsw.Error as error:
        trouble = explain_error(error, path, connection.system_errno)
        _close_after(connection, trouble)
        if isinstance(trouble, StoreFault):
            # Here it is no matter of one request: without its schema there is no store.
            trouble = StoreBroken(
                f"{path.name} could not be prepared: {error}. It is as it was.",
                hint="This is a fault in Everturn; the version that was used before still opens it.",
            )
        raise trouble from error
    except EverturnError as error:
        _close_after(connection, error)
        raise
    if is_new:
        try:
            sync_folder(path.parent)
        except OSError as error:
            _close_after(connection, error)
            raise
    return connection


def _close_after(connection: apsw.Connection, error: Exception) -> None:
    """Close because of an error. Closing writes, and may fail as well: the first error is reported."""
    try:
        connection.close()
    except apsw.Error as second:
        error.add_note(f"Closing the database failed, too: {second}")


def _migrate(connection: apsw.Connection, path: Path, vfs: str | None) -> None:
    version = schema_version(connection)
    if version > SCHEMA:
        refuse_newer(path.name, version, _schema_min(connection), SCHEMA)
    if version >= SCHEMA:
        return
    if version > 0:
        _log.info(
            "%s: from schema %d to %d; a copy is kept, which takes its time if it is large",
            path,
            version,
            SCHEMA,
        )
        copy_before_migrating(connection, path, version)
    for number in range(version + 1, SCHEMA + 1):
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                if schema_version(connection) < number:  # another process may have been faster
                    cursor.execute(sql.schema(number, "sqlite"))
                    if number == 4:
                        _fill_titles(cursor)
                cursor.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise


def _fill_titles(cursor: apsw.Cursor) -> None:
    rows: list[Json] = cursor.execute("SELECT session_no, title, tags FROM sessions").fetchall()
    cursor.executemany("INSERT INTO titles (session_no, text) VALUES (?, ?)", titles_of(rows))
    cursor.execute("INSERT INTO title_index(title_index) VALUES ('rebuild')")


def copy_before_migrating(connection: apsw.Connection, path: Path, version: int) -> None:
    """Keep the database as it was, beside it. Another process may migrate at the same moment: a copy that
    came out migrated is thrown away, so that it never takes the place of the other's good one."""
    target = path.with_name(f"{path.stem}.before-schema-{version + 1}.db")
    temporary = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        connection.execute("VACUUM INTO ?", (str(temporary),))
        temporary.chmod(0o600)
        with contextlib.closing(open_connection(temporary)) as copy:
            is_as_it_was = schema_version(copy) == version
        if is_as_it_was:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
            sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def schema_version(connection: apsw.Connection) -> int:
    """The database's schema; 0 for an empty file. Raises NotADatabase for a foreign one."""
    # One look, not two: between two, another process could make the schema, and an empty file would
    # then look like a foreign database.
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not names:
        return 0
    found: list[Json] = []
    if {"meta", "sessions"} <= names:
        found = connection.execute("SELECT value FROM meta WHERE name='schema'").fetchall()
    if not found:
        raise NotADatabase(
            f"The file is a SQLite database, but not one of Everturn's: it has the table {min(names)}."
        )
    return int(found[0][0])


def _schema_min(connection: apsw.Connection) -> int:
    """The oldest schema that a program must know to write to this database, which has a newer one."""
    rows: list[Json] = connection.execute("SELECT value FROM meta WHERE name = 'schema_min'").fetchall()
    return int(rows[0][0])


def refuse_old_sqlite(version: tuple[int, ...]) -> None:
    if version < SQLITE_MIN:
        raise StoreRefused(
            f"This SQLite is {'.'.join(map(str, version))}; before {'.'.join(map(str, SQLITE_MIN))} it can "
            "corrupt a database in WAL mode.",
            hint="Upgrade the package apsw.",
        )


def refuse_network_file_system(folder: Path) -> None:
    kind = file_system_of(folder, Path("/proc/self/mounts"))
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreRefused(
            f"The data folder lies on a network file system ({kind}), where SQLite's locks do not hold.",
            hint="Put EVERTURN_HOME on a local disk, or use PostgreSQL (EVERTURN_DATABASE_URL).",
        )


def file_system_of(folder: Path, mounts: Path) -> str:
    """The type of the file system that holds the folder; empty if it is unknown."""
    if not mounts.exists():
        return ""
    resolved = folder.resolve()
    best, kind = -1, ""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = Path(fields[1].encode().decode("unicode_escape"))
        if (mount == resolved or mount in resolved.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), fields[2]
    return kind


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def explain_error(error: apsw.Error, path: Path, system_errno: int = 0) -> EverturnError:
    """SQLite's error as one of ours, which says what is safe and what to do.

    ``system_errno``: what the operating system said, as the connection remembers it. What is not known to
    be trouble of the whole database is a StoreFault: it concerns one request.
    """
    name = path.name
    if isinstance(error, apsw.FullError):
        return DiskFull(f"Could not write {name}: the disk is full. Nothing of this write is stored.")
    if isinstance(error, apsw.IOError):
        return _io_trouble(error, path, system_errno)
    if isinstance(error, apsw.CantOpenError) and (system_errno in _NO_ROOM or _is_full(path.parent)):
        return DiskFull(f"Could not open {name}: the disk has no room for a new file. Nothing was written.")
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError)):
        return DiskReadOnly(f"Could not open or write {name}: {error}.")
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(f"{name} is not a SQLite database. It was not touched.")
    if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)):
        return StoreAway(
            f"{name} was locked by another process for {BUSY_TIMEOUT_MS // 1000} s. Nothing was written.",
            hint="Try again; see what else has the file open.",
        )
    if isinstance(error, apsw.CorruptError):
        return StoreBroken(f"{name} is damaged: {error}.", hint="Run 'everturn doctor', restore a backup.")
    return StoreFault(f"SQLite refused a statement: {error}. Nothing of this request was stored.")


def _is_full(folder: Path) -> bool:
    """Whether no file can be made there. A connection that could not be opened remembers no reason."""
    found = os.statvfs(folder)
    return found.f_bavail == 0 or (found.f_files > 0 and found.f_favail == 0)


def _io_trouble(error: apsw.Error, path: Path, system_errno: int) -> EverturnError:
    """Decide by the extended code whether the store recovers by itself. It does where the database is certain
    to be unchanged; after a failed sync or an unknown code, only reopening shows what is stored."""
    name = path.name
    code: int = error.extendedresult  # type: ignore[attr-defined]  # apsw sets it on every error
    if code in _SHARED_MEMORY:
        # The log's index grows after the log was synced. Within this process the commit has not happened and
        # the next one takes its place; after a crash before that, SQLite would find it complete in the log.
        return DiskFull(
            f"Could not write {name}: {_no_room(path, system_errno)} ({name}-shm cannot grow). "
            "This write is not stored; only a crash before the next one could bring it back."
        )
    if code == apsw.SQLITE_IOERR_WRITE and system_errno in _NO_ROOM:
        return DiskFull(f"Could not write {name}: the disk is full. Nothing of this write is stored.")
    return StoreBroken(
        f"The disk failed under {name} ({_code_name(code)}). Whether the last write is stored is unknown "
        "until the store is opened again; everything acknowledged before is safe."
    )


def _no_room(path: Path, system_errno: int) -> str:
    if system_errno in _NO_ROOM or _is_full(path.parent):
        return "the disk is full"
    return f"there is no room ({os.strerror(system_errno)})" if system_errno else "there is no room"


def _code_name(code: int) -> str:
    return str(apsw.mapping_extended_result_codes.get(code, f"SQLite's code {code}"))
