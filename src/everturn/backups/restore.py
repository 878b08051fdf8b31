"""Restores a backup into a data folder. The backup is untrusted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from everturn.backups.backup import SETTINGS
from everturn.backups.watch import BackupWatch
from everturn.store import copy_tree
from everturn.store.files.copy_tree import DEPTH_MAX
from everturn.store.files.disk import Disk, sync_tree
from everturn.store.files.machine import FILE as MACHINE

DATABASE: Final = "everturn.db"  # unless an address is configured


def database_name(address: str | None) -> str:
    # A database with an address is not in the data folder.
    return Path(address or DATABASE).name


# Links are restored only from this depth on, because commands can create them in a workspace. A link in place
# of a workspace would lead the sandbox elsewhere; notes and attachments have no links.
_LINKS_BELOW = {"workspaces": 1, **dict.fromkeys(("blobs", "files", "memory"), DEPTH_MAX + 1)}


def _put_part_back(part: Path, target: Path, watch: BackupWatch) -> list[str]:
    """Copy one part of a backup; return what was left out.

    A backup is untrusted, so everything that 'everturn backup' does not create is left out: keys, links,
    other folders.
    """
    if part.name in (SETTINGS, MACHINE) and part.is_file() and not part.is_symlink():
        shutil.copy2(part, target)
        return []
    if part.name in _LINKS_BELOW and part.is_dir() and not part.is_symlink():
        left_out = copy_tree(part, target, links_below=_LINKS_BELOW[part.name], check=watch.check)
        return [f"{part.name}/{line}" for line in left_out]
    return [f"{part.name}: not part of a backup"]


def put_back(source: Path, home: Path, address: str | None, watch: BackupWatch) -> list[str]:
    """Copy a backup into the data folder, durably, the database last; return what was left out.

    A database at an ``address`` outside the data folder is not copied. The watch may end it.

    An interrupted restoration leaves a folder without a database, which is never mistaken for a complete one.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)  # it may have existed before
    left_out = []
    for part in sorted(source.iterdir()):
        if part.name not in (DATABASE, database_name(address), "postgresql"):
            left_out += _put_part_back(part, home / part.name, watch)
    sync_tree(Disk(), home, watch.check)
    if not address:
        coming = home / f".{DATABASE}.incoming"
        shutil.copy2(source / DATABASE, coming)
        with coming.open("rb") as file:
            Disk().sync_file(file.fileno())
        coming.rename(home / DATABASE)
        Disk().sync_folder(home)
    return left_out
