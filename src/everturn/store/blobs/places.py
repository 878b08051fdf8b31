"""Chooses where a store keeps its packs."""

from __future__ import annotations

from pathlib import Path

from everturn.store.blobs.blobs import StoredBlobs
from everturn.store.blobs.database_packs import DatabasePacks
from everturn.store.blobs.packs import FolderPacks, Packs
from everturn.store.files.disk import Disk
from everturn.store.scripts.script import Database


def open_blobs(db: Database, data_dir: Path, disk: Disk) -> StoredBlobs:
    """Packs of SQLite are in the data folder; those of PostgreSQL in the database, where every worker can
    read them."""
    packs: Packs
    if db.dialect == "postgresql":
        place, packs = "database", DatabasePacks(db)
    else:
        place, packs = "folder", FolderPacks(data_dir, disk)
    return StoredBlobs(db, {place: packs}, place)
