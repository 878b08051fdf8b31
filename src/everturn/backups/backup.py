"""Makes one backup: the database and the bytes it names, then the parts beside them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import anyio
import msgspec

from everturn.backups.encryption import Lock
from everturn.backups.sealed import FolderParts, seal
from everturn.backups.unfinished import UnfinishedBackup
from everturn.backups.watch import BackupWatch
from everturn.domain.errors import EverturnError, Invalid
from everturn.store import Store, copy_tree, count_rows
from everturn.store.files.disk import Disk, sync_tree
from everturn.store.files.machine import FILE as MACHINE

SETTINGS = "config.toml"
P = ParamSpec("P")
T = TypeVar("T")
FOLDERS = ("blobs", "files", "memory", "workspaces")  # of the data folder, in a backup


class BackupSummary(msgspec.Struct, frozen=True):
    """What was copied. ``counts`` holds the numbers of sessions, turns and messages."""

    left_out: list[str]
    counts: Mapping[str, int]


class BackupOptions(msgspec.Struct, frozen=True):
    """How to make a backup. With a ``lock`` it becomes an encrypted archive."""

    watch: BackupWatch
    lock: Lock | None = None


async def make_backup(store: Store, home: Path, folder: Path, options: BackupOptions) -> BackupSummary:
    """Make a backup that is complete, checked and synced before it gets its name.

    If the watch ends it or the copy fails, nothing is left behind. After a crash the leftover is recognised
    as one. Raises Invalid if the folder cannot be used.
    """
    refuse_place(home, folder)
    with UnfinishedBackup(folder) as copy:
        summary = await fill(store, home, copy.inside, options.watch)
        lock = options.lock
        if lock is not None:
            await in_thread(options.watch, _seal_beside, copy, lock, options.watch)
        options.watch.check()
        copy.finish(sealed=lock is not None)
        return summary


def _seal_beside(copy: UnfinishedBackup, lock: Lock, watch: BackupWatch) -> None:
    copy.sealed.mkdir(mode=0o700)
    seal(copy.inside, FolderParts(copy.sealed), lock, watch)
    sync_tree(Disk(), copy.sealed)


async def fill(store: Store, home: Path, inside: Path, watch: BackupWatch) -> BackupSummary:
    """Copy everything into a new folder, durably, and open the copy."""
    await store.upkeep.backup(inside)
    left_out = [
        f"{size / 1e6:.1f} MB of files in {place}: keep copies of them there"
        for place, size in (await store.blobs.stored_elsewhere()).items()
    ]
    for part in (_copy_settings, copy_memory, _copy_workspaces):
        watch.check()
        left_out += await in_thread(watch, part, home, inside, watch)
    await in_thread(watch, sync_tree, Disk(), inside, watch.check)
    counts = await in_thread(watch, count_rows, inside)
    watch.check()
    return BackupSummary(left_out, counts)


async def in_thread(watch: BackupWatch, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run ``work`` in a thread. If this is cancelled, the watch stops the thread, and its end is awaited: the
    caller removes what it has written, and the process could not end before it either."""
    thread = asyncio.create_task(asyncio.to_thread(work, *args, **named), name="backup thread")
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        watch.stop()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(thread, return_exceptions=True)  # the cancellation is what counts
        raise


def refuse_place(home: Path, folder: Path) -> None:
    """Raise Invalid if the folder exists or would become part of the copy."""
    if folder.exists():
        raise Invalid(f"{folder} exists already.", hint="Name a folder that does not exist.")
    for name in FOLDERS:
        if folder.resolve().is_relative_to((home / name).resolve()):
            raise Invalid(f"{folder} lies in {home / name}, which is copied.", hint="Name another folder.")


def reason_of(error: EverturnError | OSError) -> str:
    """Return why a backup failed, as a sentence."""
    if isinstance(error, EverturnError):
        return error.message
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}."


# The parts besides the database and its files. Keys are left out, because backups travel.


def _copy_settings(home: Path, folder: Path, watch: BackupWatch) -> list[str]:
    for name in (SETTINGS, MACHINE):
        watch.check()
        if (home / name).exists():
            shutil.copy2(home / name, folder / name)
    return []


def copy_memory(home: Path, folder: Path, watch: BackupWatch) -> list[str]:
    left_out: list[str] = []
    if (home / "memory").is_dir():
        # Links are followed here: only the owner writes to this folder, and may keep notes elsewhere.
        shutil.copytree(home / "memory", folder / "memory", ignore=partial(_unreadable, left_out, watch))
    return left_out


def _copy_workspaces(home: Path, folder: Path, watch: BackupWatch) -> list[str]:
    source = home / "workspaces"
    return copy_tree(source, folder / "workspaces", check=watch.check) if source.is_dir() else []


def _unreadable(left_out: list[str], watch: BackupWatch, folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that are neither files, nor folders, nor links to one."""
    watch.check()
    found = {name for name in names if not ((path := Path(folder) / name).is_file() or path.is_dir())}
    left_out += [f"{Path(folder).name}/{name}: neither a file nor a folder" for name in sorted(found)]
    return found
