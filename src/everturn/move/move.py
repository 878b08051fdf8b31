"""One whole move, in either direction.

A move into PostgreSQL is one transaction, committed after verification. A move into a data folder writes to
``TARGET/.moving``, verifies that, and then moves everything into place, the database last. An interrupted
move leaves the target without data and can simply be started again. If it was interrupted after the last
step, the next run finds the target complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import msgspec

from everturn.domain.errors import Invalid, StoreRefused
from everturn.move.copier import Copier, CopySummary, Report, carry
from everturn.move.postgres_side import PostgresSide, open_postgres_side
from everturn.move.sqlite_side import DATABASE, SqliteSide
from everturn.move.tables import tables_of, to_postgres, to_sqlite
from everturn.store.files.disk import Disk, report_errors, sync_tree
from everturn.store.files.machine import read_machine
from everturn.store.files.server_lock import hold_server_lock
from everturn.store.open import is_postgres, open_store
from everturn.store.secrets.file import SecretsFile
from everturn.store.sqlite.connection import explain_error

_MOVING = ".moving"
_PLACING = "placing"  # a marker file: while it exists, everything in the target came from this move
_PARTS = ("blobs", "memory")
_NOTHING = "Nothing was moved."


class MoveResult(msgspec.Struct, frozen=True):
    """The result of a move. ``was_there``: an earlier move filled the target, so it was only verified."""

    carried: CopySummary
    was_there: bool


async def move_store(source: str, target: str, report: Report) -> MoveResult:
    """Copy a store. One of ``source`` and ``target`` is a data folder, the other a PostgreSQL address.

    The source does not change. Raises Invalid, StoreRefused for a target with other data or while a server
    runs, StoreBroken if something did not arrive.
    """
    if is_postgres(source) == is_postgres(target):
        raise Invalid(
            "A move is between a data folder and a PostgreSQL database.",
            hint="Between two of the same kind, use 'everturn backup' and 'everturn restore'.",
        )
    if is_postgres(target):
        return await _to_postgres(Path(source), target, report)
    return await _to_folder(source, Path(target), report)


async def _to_postgres(folder: Path, address: str, report: Report) -> MoveResult:
    if not (folder / DATABASE).is_file():
        raise Invalid(f"There is no {DATABASE} in {folder}.", hint="Name a data folder.")
    with hold_server_lock(folder, _NOTHING), _report_database(folder):
        # Open this side first: it refuses another schema version, while opening the store would migrate it.
        SqliteSide.open_source(folder).close()
        async with open_store(data_dir=folder) as store:
            await store.workers.take_over("")
        with closing(SqliteSide.open_source(folder)) as source:
            machine = read_machine(folder, Disk()).text or ""
            async with open_postgres_side(address, is_target=True) as target:
                await _refuse_live(target)
                tables = tables_of(await target.describe(), source.columns())
                copier = Copier(source, target, tables, lambda t: to_postgres(t, machine), report)
                carried, was_there = await carry(copier)
    if names := SecretsFile(folder).names():
        carried.not_carried.append(
            f"{len(names)} saved keys in {folder / 'secrets.toml'}: a server that starts with this data "
            "folder and EVERTURN_SECRET_KEY brings them into the database"
        )
    carried.not_carried.append(
        f"folders of sessions, output of jobs, config.toml and models stay in {folder}: go on using it as "
        "the data folder of a server"
    )
    return MoveResult(carried, was_there)


async def _to_folder(address: str, folder: Path, report: Report) -> MoveResult:
    _prepare_folder(folder)
    with hold_server_lock(folder, _NOTHING), _open_staging(folder) as moving, _report_database(folder):
        is_filled = _has_database(folder)
        async with open_postgres_side(address, is_target=False):
            pass  # refuses another schema version, while opening the store would migrate it
        if not is_filled:  # opening the store changes files in the folder
            async with open_store(address, data_dir=folder) as store:
                await store.workers.take_over("")
        async with open_postgres_side(address, is_target=False) as source:
            await _refuse_live(source)
            machine = read_machine(folder, Disk()).id
            made = SqliteSide.open_source(folder) if is_filled else SqliteSide.make(moving)
            with closing(made) as target:
                tables = tables_of(await source.describe(), target.columns())
                copier = Copier(source, target, tables, lambda t: to_sqlite(t, machine), report)
                carried, was_there = await carry(copier)
                if not is_filled:
                    target.commit()
            carried.not_carried += await _list_left_behind(source)
        if not is_filled:
            _put_in_place(moving, folder, report)
    return MoveResult(carried, was_there)


async def _list_left_behind(source: PostgresSide) -> list[str]:
    lines = []
    if count := await source.saved_secrets():
        lines.append(f"{count} saved keys, which are encrypted for the database: save them again")
    if count := await source.lost_writers():
        lines.append(
            f"what {count} turn(s) may still have in the folder spool/ of a server that did not stop "
            "cleanly: to bring it over, start and stop a server with that data folder first"
        )
    lines.append(
        "folders of sessions, output of jobs and config.toml of the servers stay in their data folders"
    )
    return lines


# --- checks before the move --------------------------------------------------------------------------


async def _refuse_live(side: PostgresSide) -> None:
    if count := await side.live_workers():
        raise StoreRefused(
            f"{count} process(es) work on the PostgreSQL database. Nothing was moved.",
            hint="Stop every server. One that was killed counts until its lease has run out: wait a minute.",
        )


def _prepare_folder(folder: Path) -> None:
    """Make the folder if needed. Raises Invalid unless it is empty or a data folder."""
    if folder.exists() and not folder.is_dir():
        raise Invalid(f"{folder} is not a folder.")
    with report_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
    if names and not names & {DATABASE, "config.toml", "machine", "workers", _MOVING}:
        raise Invalid(
            f"{folder} has files that are not Everturn's. Nothing was moved.",
            hint="Name a data folder, or one that does not exist yet.",
        )


def _has_database(folder: Path) -> bool:
    """True if the folder has a database. Raises StoreRefused if it has a database's files but no database."""
    if (folder / DATABASE).exists():
        return True
    for name in (*_PARTS, "files"):
        if (folder / name).is_dir() and any((folder / name).iterdir()):
            raise StoreRefused(
                f"The target has data of its own: {folder / name}. It was not touched.",
                hint="Move that folder away, or name another target.",
            )
    return False


@contextmanager
def _report_database(folder: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, with a message for users."""
    try:
        yield
    except apsw.Error as error:
        raise explain_error(error, folder / DATABASE) from error


# --- the staging folder ------------------------------------------------------------------------------


@contextmanager
def _open_staging(folder: Path) -> Iterator[Path]:
    """Yield a new folder and remove it at the end. First remove leftovers of an interrupted move."""
    moving = folder / _MOVING
    with report_errors(moving):
        if (moving / _PLACING).exists() and not (folder / DATABASE).exists():
            for name in _PARTS:
                if (folder / name).exists():
                    shutil.rmtree(folder / name)
        if moving.exists():
            shutil.rmtree(moving)
        moving.mkdir(mode=0o700)
    try:
        yield moving
    finally:
        if not (moving / _PLACING).exists() or (folder / DATABASE).exists():
            shutil.rmtree(moving, ignore_errors=True)


def _put_in_place(moving: Path, folder: Path, report: Report) -> None:
    """Move everything into place, the database last."""
    with report_errors(folder):
        sync_tree(Disk(), moving)
        (moving / _PLACING).touch()
        Disk().sync_folder(moving)
        for name in _PARTS:
            if (moving / name).exists():
                if (folder / name).exists():
                    (folder / name).rmdir()  # it is empty
                (moving / name).rename(folder / name)
                report(f"Placed {name}")
        Disk().sync_folder(folder)
        if (folder / DATABASE).exists():
            raise StoreRefused(f"{folder / DATABASE} was made meanwhile. It was not touched.")
        (moving / DATABASE).rename(folder / DATABASE)
        Disk().sync_folder(folder)
