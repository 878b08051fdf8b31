"""Makes one backup: the database and the bytes it names, then the parts beside them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from everturn.backups.unfinished import UnfinishedBackup
from everturn.domain.errors import EverturnError, Invalid
from everturn.store import Store, copy_tree
from everturn.store.files.disk import Disk, sync_tree
from everturn.store.files.machine import FILE as MACHINE

SETTINGS = "config.toml"
FOLDERS = ("blobs", "files", "memory", "workspaces")  # of the data folder, in a backup


def go_on() -> None:
    """Nothing asks the backup to stop."""


async def make_backup(store: Store, home: Path, folder: Path, check: Callable[[], None] = go_on) -> list[str]:
    """Make a backup that is complete, checked and synced when it gets its name; return what was left out.

    ``check`` is called between two parts and may raise. If it does, or if the copy fails, nothing is left;
    after a crash the leftover is recognised as one. Raises Invalid if the folder cannot be used.
    """
    refuse_place(home, folder)
    with UnfinishedBackup(folder) as copy:
        await store.upkeep.backup(copy.inside)
        left_out = [
            f"{size / 1e6:.1f} MB of files in {place}: keep copies of them there"
            for place, size in (await store.blobs.stored_elsewhere()).items()
        ]
        for part in (_copy_settings, copy_memory, _copy_workspaces):
            check()
            left_out += await asyncio.to_thread(part, home, copy.inside)
        await asyncio.to_thread(sync_tree, Disk(), copy.inside)
        check()
        copy.finish()
        return left_out


def refuse_place(home: Path, folder: Path) -> None:
    """Raises Invalid if the folder exists, or would become part of the copy."""
    if folder.exists():
        raise Invalid(f"{folder} exists already.", hint="Name a folder that does not exist.")
    for name in FOLDERS:
        if folder.resolve().is_relative_to((home / name).resolve()):
            raise Invalid(f"{folder} lies in {home / name}, which is copied.", hint="Name another folder.")


def size_of(backup: Path) -> int:
    """Bytes of the files in a backup, or of the one file that it is."""
    if not backup.is_dir():
        return backup.lstat().st_size
    return sum(
        (Path(parent) / name).lstat().st_size for parent, _, names in os.walk(backup) for name in names
    )


def reason_of(error: EverturnError | OSError) -> str:
    """Why a backup failed, as a sentence."""
    if isinstance(error, EverturnError):
        return error.message
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}."


# The parts beside the database and its files. Keys are left out, because backups are moved around.


def _copy_settings(home: Path, folder: Path) -> list[str]:
    for name in (SETTINGS, MACHINE):
        if (home / name).exists():
            shutil.copy2(home / name, folder / name)
    return []


def copy_memory(home: Path, folder: Path) -> list[str]:
    left_out: list[str] = []
    if (home / "memory").is_dir():
        # Links are followed here: only the owner writes there, and may keep notes elsewhere.
        shutil.copytree(home / "memory", folder / "memory", ignore=partial(_unreadable, left_out))
    return left_out


def _copy_workspaces(home: Path, folder: Path) -> list[str]:
    is_there = (home / "workspaces").is_dir()
    return copy_tree(home / "workspaces", folder / "workspaces") if is_there else []


def _unreadable(left_out: list[str], folder: str, names: list[str]) -> set[str]:
    """Names in a folder that are neither a file nor a folder, nor a link to one."""
    found = {name for name in names if not ((path := Path(folder) / name).is_file() or path.is_dir())}
    left_out += [f"{Path(folder).name}/{name}: neither a file nor a folder" for name in sorted(found)]
    return found
