"""What tests of blobs share."""

from __future__ import annotations

from everturn.store import Store
from everturn.store.scripts.queries.files import BLOB_PLACE, PACK_PIECES, PACKS_ALL
from everturn.store.scripts.script import Script, Tx, q


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


async def content_of(store: Store, owner: str, file_id: str) -> bytes:
    """The bytes of a file."""
    file = await store.files.get(owner, file_id)
    return b"".join([piece async for piece in store.files.read(file)])


async def damage_byte(store: Store, sha256: str) -> None:
    """Change the first byte of a small blob behind the store's back."""
    path, start = await place_of(store, sha256)
    if store.kind == "postgresql":
        await store.database.write(_damage_row, path, start)
        return
    whole = store.data_dir / path
    data = bytearray(whole.read_bytes())
    data[start] ^= 1
    whole.write_bytes(data)


def _damage_row(tx: Tx, pack: str, start: int) -> Script[None]:
    (piece,) = yield from PACK_PIECES.all(pack, 0, 0, 0, 1 << 20)
    data = bytearray(piece)
    data[start] ^= 1
    yield q("pack_bytes_delete", pack, 64)
    yield q("pack_bytes_add", pack, 0, bytes(data))


async def lose_bytes(store: Store, owner: str, file_id: str, left: int = 0) -> None:
    """Cut the bytes of a file, which is alone in its pack, behind the store's back. ``left`` of them stay; with 0
    the pack is gone."""
    path, _ = await place_of(store, (await store.files.get(owner, file_id)).sha256)
    if store.kind == "postgresql":
        await store.database.write(_cut_rows, path, left)
        return
    whole = store.data_dir / path
    if left:
        whole.write_bytes(whole.read_bytes()[:left])
    else:
        whole.unlink()


def _cut_rows(tx: Tx, pack: str, left: int) -> Script[None]:
    pieces = yield from PACK_PIECES.all(pack, 0, 0, 0, left)
    yield q("pack_bytes_delete", pack, 64)
    if left:
        yield q("pack_bytes_add", pack, 0, pieces[0])
