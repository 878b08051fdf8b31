"""Blobs in the data folder and in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from everturn.domain.blobs import Blob
from everturn.store import Store
from everturn.store.blobs.blobs import StoredBlobs
from everturn.testing.blob_conformance import BlobConformance, Damage
from tests.blobs import place_of


class TestStoredBlobs(BlobConformance):
    @pytest.fixture
    def blobs(self, store: Store) -> StoredBlobs:
        return store.blobs

    @pytest.fixture
    def damage(self, store: Store, store_url: str, data_dir: Path) -> Damage:
        async def in_folder(blob: Blob, offset: int) -> None:
            path, start = await place_of(store, blob.sha256)
            with (data_dir / path).open("r+b") as file:
                file.seek(start + offset)
                byte = file.read(1)[0]
                file.seek(start + offset)
                file.write(bytes([byte ^ 1]))

        async def in_database(blob: Blob, offset: int) -> None:
            pack, start = await place_of(store, blob.sha256)
            number, at = divmod(start + offset, 1 << 20)
            connection = await asyncpg.connect(store_url)
            await connection.execute(
                "UPDATE pack_bytes SET data = set_byte(data, $3, get_byte(data, $3) # 1) "
                "WHERE pack = $1 AND number = $2",
                pack,
                number,
                at,
            )
            await connection.close()

        return in_database if store.kind == "postgresql" else in_folder
