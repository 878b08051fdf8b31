"""Chooses where a store keeps its packs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from everturn.domain.errors import Invalid, StorageAway, StoreRefused
from everturn.store.blobs.address import SCHEME, StorageKeys
from everturn.store.blobs.database_packs import DatabasePacks
from everturn.store.blobs.object_packs import ObjectPacks
from everturn.store.blobs.packs import FolderPacks, Packs
from everturn.store.files.disk import Disk
from everturn.store.scripts.queries.files import PACKS_IN
from everturn.store.scripts.script import Database, Script, Tx


class Places:
    """Where packs may be, by the name that their rows have.

    Packs of SQLite are in the data folder; those of PostgreSQL in the database, where every worker can read
    them. With an address of object storage new packs of both are written there. Packs stay where they are
    when the address changes: each storage that a row names is opened when it is needed.
    """

    def __init__(self, db: Database, data_dir: Path, disk: Disk, address: str | None) -> None:
        """Raises Invalid for a wrong address, StoreRefused if the package for object storage is missing."""
        self._db = db
        self.find_keys: Callable[[], StorageKeys] = StorageKeys
        own: Packs
        if db.dialect == "postgresql":
            own_place, own = "database", DatabasePacks(db)
        else:
            own_place, own = "folder", FolderPacks(data_dir, disk)
        self._packs: dict[str, Packs] = {own_place: own}
        self.current = address or own_place
        self.find(self.current)

    def find(self, place: str) -> Packs:
        """Raises StorageAway if this server cannot reach the place."""
        packs = self._packs.get(place)
        if packs is None:
            if not place.startswith(SCHEME):
                raise StorageAway(
                    f"The bytes are in {place}, which this server is not set up to read.",
                    hint="A newer version of Everturn stored them: use that version to read them.",
                )
            packs = self._packs[place] = self._open(place)
        return packs

    def _open(self, place: str) -> Packs:
        try:
            return ObjectPacks(place, lambda: self._db.read(_has_packs, place), lambda: self.find_keys())
        except (Invalid, StoreRefused) as error:
            if place == self.current:
                raise
            # A row names it: only what is stored there cannot be read.
            raise StorageAway(error.message, hint=error.hint) from error


def _has_packs(tx: Tx, place: str) -> Script[bool]:
    return (yield from PACKS_IN.only(place)) > 0
