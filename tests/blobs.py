"""What tests of blobs share."""

from __future__ import annotations

from everturn.store import Store
from everturn.store.scripts.queries import BLOB_PLACE, PACKS_ALL
from everturn.store.scripts.script import Script, Tx


async def place_of(store: Store, sha256: str) -> tuple[str, int]:
    """The path of the pack that a blob is in, and where it starts there."""

    def place(tx: Tx) -> Script[tuple[str, int]]:
        found = yield from BLOB_PLACE.first(sha256)
        assert found is not None
        return found.path, found.start

    return await store.database.read(place)


async def packs_of(store: Store) -> list[tuple[str, int]]:
    """Path and size of each pack that has a row."""

    def packs(tx: Tx) -> Script[list[tuple[str, int]]]:
        return [(pack.path, pack.size) for pack in (yield from PACKS_ALL.all())]

    return await store.database.read(packs)
