"""A process that stores and collects blobs: ``python -m tests.contracts.blob_child URL FOLDER PART MOMENT NTH [FILES]``.

The names of what must stay are records of the store. ``life`` stores, names and collects by turns, and is killed
at the moment; ``store`` and ``collect`` do only that, against each other. FILES: the address of object storage.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from everturn.domain.probe import Moment, Probe
from everturn.store import Store, StoreSettings, open_store
from everturn.testing import KillingProbe
from everturn.testing.blob_conformance import random_bytes

KEPT = 12
_RECORDS = ("test", "blob")


async def read_names(store: Store) -> list[str]:
    return sorted(await store.records.list(*_RECORDS))


def roots(store: Store) -> Callable[[], AsyncIterator[Sequence[str]]]:
    async def read() -> AsyncIterator[Sequence[str]]:
        yield await read_names(store)

    return read


async def name(store: Store, sha256: str) -> None:
    await store.records.put(*_RECORDS, sha256, True)


async def live(store: Store) -> None:
    for number in range(4):
        contents = [random_bytes(size, number) for size in (10, 2_000, 1_500_000)]
        kept, *_ = await store.blobs.put_many(contents)
        await name(store, kept.sha256)
        await store.blobs.collect(grace_ms=-60_000, wait_ms=-60_000)


def contents() -> list[bytes]:
    """What ``store`` stores. It was stored days before too, so each put races with the collection of it."""
    return [random_bytes(1_100_000 if number % 4 == 0 else 20_000, number) for number in range(2 * KEPT)]


async def keep_storing(store: Store) -> None:
    for number in range(KEPT):
        *_, blob = await store.blobs.put_many([b"beside it", contents()[number]])
        await name(store, blob.sha256)


async def keep_collecting(store: Store) -> None:
    for _ in range(20):
        await store.blobs.collect(wait_ms=0)


async def run(url: str, folder: str, part: str, probe: Probe, files_url: str | None) -> None:
    settings = StoreSettings(files_url=files_url)
    async with open_store(url, data_dir=Path(folder), probe=probe, settings=settings) as store:
        store.blobs.add_roots(roots(store))
        await {"life": live, "store": keep_storing, "collect": keep_collecting}[part](store)


def main(url: str, folder: str, part: str, moment: str, nth: str, files_url: str | None = None) -> None:
    probe = KillingProbe(Moment(moment), int(nth)) if moment else Probe()
    asyncio.run(run(url, folder, part, probe, files_url))


if __name__ == "__main__":
    main(*sys.argv[1:])
