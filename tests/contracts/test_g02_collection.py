"""G02: bytes are collected while any worker stores the same bytes, and no row names bytes that are not stored."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.domain.blobs import Blobs
from everturn.domain.clock import SystemClock
from everturn.domain.errors import BlobDamaged, BlobMissing, Retry
from everturn.domain.probe import Moment
from everturn.store import Store, StoreSettings, open_store
from everturn.store.blobs.object_storage import MARKER
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import ME, new_session
from everturn.testing.blob_conformance import (
    DAY_S,
    LARGE,
    blob_of,
    collect_all,
    naming,
    random_bytes,
    read_all,
)
from everturn.testing.forks import Fork, fork_command
from tests.blobs import damage_byte, packs_of, place_of
from tests.conftest import OpenAnother
from tests.contracts import blob_child
from tests.contracts.test_e04_versions import turn_with
from tests.s3_server import S3Server

pytestmark = pytest.mark.anyio
KILLED = 137
SIZES = pytest.mark.parametrize("size", [100, LARGE])


@SIZES
async def test_g02_a_put_that_meets_a_mark_writes_to_a_new_place_which_stays(
    store: Store, open_another: OpenAnother, clock: FakeClock, size: int
) -> None:
    probe, data = HoldingProbe(), random_bytes(size)
    collector = await open_another(probe=probe)
    sha256 = (await store.blobs.put(data)).sha256
    marked = await place_of(store, sha256)
    await clock.advance(2 * DAY_S)
    probe.hold(Moment.BLOBS_MARKED)
    async with anyio.create_task_group() as group:
        group.start_soon(collector.blobs.collect)
        await probe.reached(Moment.BLOBS_MARKED)
        assert await read_all(store.blobs, sha256) == data, "marked bytes can still be read"
        assert await store.blobs.find([sha256]) == {}, "but they count as missing"
        await store.blobs.put(data)
        probe.release(Moment.BLOBS_MARKED)
    assert await place_of(store, sha256) != marked
    names = {sha256}
    collector.blobs.add_roots(naming(names))
    await collect_all(collector.blobs, clock)
    assert await read_all(store.blobs, sha256) == data
    assert len(await packs_of(store)) == 1, "the marked place is gone"


@SIZES
async def test_g02_a_put_between_the_deletion_of_the_bytes_and_of_their_row_keeps_its_row(
    store: Store, open_another: OpenAnother, clock: FakeClock, size: int
) -> None:
    probe, data = HoldingProbe(), random_bytes(size)
    collector = await open_another(probe=probe)
    sha256 = (await store.blobs.put(data)).sha256
    await clock.advance(2 * DAY_S)
    await collector.blobs.collect()
    await clock.advance(DAY_S)
    probe.hold(Moment.PACK_DELETED)
    async with anyio.create_task_group() as group:
        group.start_soon(collector.blobs.collect)
        await probe.reached(Moment.PACK_DELETED)
        await store.blobs.put(data)
        probe.release(Moment.PACK_DELETED)
    assert await read_all(store.blobs, sha256) == data
    assert await store.blobs.find([sha256]) == {sha256: size}


async def test_g02_a_put_whose_bytes_are_written_and_not_named_survives_a_collection(
    store: Store, open_another: OpenAnother, clock: FakeClock, probe: HoldingProbe
) -> None:
    collector = await open_another(probe=HoldingProbe())
    probe.hold(Moment.BLOB_WRITTEN)
    async with anyio.create_task_group() as group:
        group.start_soon(store.blobs.put, b"on its way")
        await probe.reached(Moment.BLOB_WRITTEN)
        await clock.advance(DAY_S * 0.9)
        await collector.blobs.collect()
        probe.release(Moment.BLOB_WRITTEN)
    assert await read_all(store.blobs, blob_of(b"on its way").sha256) == b"on its way"


async def test_g02_a_put_that_takes_longer_than_a_day_names_nothing_that_is_collected(
    store: Store, open_another: OpenAnother, clock: FakeClock, probe: HoldingProbe
) -> None:
    collector = await open_another(probe=HoldingProbe())
    probe.hold(Moment.BLOB_WRITTEN)
    async with anyio.create_task_group() as group:
        failed: list[Retry] = []

        async def put() -> None:
            try:
                await store.blobs.put(b"stopped for days")
            except Retry as error:
                failed.append(error)

        group.start_soon(put)
        await probe.reached(Moment.BLOB_WRITTEN)
        await collect_all(collector.blobs, clock)
        probe.release(Moment.BLOB_WRITTEN)
    assert failed
    assert await store.blobs.find([blob_of(b"stopped for days").sha256]) == {}
    await store.blobs.put(b"stopped for days")
    assert await read_all(store.blobs, blob_of(b"stopped for days").sha256) == b"stopped for days"


async def test_g02_a_put_whose_pack_was_marked_meanwhile_names_nothing_in_it(
    store: Store, open_another: OpenAnother, clock: FakeClock, probe: HoldingProbe
) -> None:
    collector = await open_another(probe=HoldingProbe())
    probe.hold(Moment.BLOB_WRITTEN)
    async with anyio.create_task_group() as group:

        async def put() -> None:
            with pytest.raises(Retry):
                await store.blobs.put(b"stopped for days")

        group.start_soon(put)
        await probe.reached(Moment.BLOB_WRITTEN)
        await clock.advance(2 * DAY_S)
        await collector.blobs.collect()
        probe.release(Moment.BLOB_WRITTEN)
    assert await store.blobs.find([blob_of(b"stopped for days").sha256]) == {}


@SIZES
async def test_g02_a_blob_that_is_named_after_it_was_marked_is_not_lost(
    store: Store, clock: FakeClock, size: int
) -> None:
    """Against the rules: it was neither put nor found before."""
    names: set[str] = set()
    store.blobs.add_roots(naming(names))
    data = random_bytes(size)
    sha256 = (await store.blobs.put(data)).sha256
    await clock.advance(2 * DAY_S)
    assert (await store.blobs.collect()).marked == 1
    names.add(sha256)
    await collect_all(store.blobs, clock)
    assert await read_all(store.blobs, sha256) == data
    assert await store.blobs.find([sha256]) == {sha256: size}


def act_after(
    monkeypatch: pytest.MonkeyPatch, store: Store, query: str, act: Callable[[], Awaitable[object]]
) -> None:
    """Do something once between the first read of this name in the store and what follows it."""
    real_read = store.database.read
    waiting = [act]

    async def read(script: Callable[..., Any], *args: Any) -> Any:
        found = await real_read(script, *args)
        if script.__name__ == query and waiting:
            await waiting.pop()()
        return found

    monkeypatch.setattr(store.database, "read", read)


async def test_g02_a_blob_that_is_found_when_it_is_about_to_be_marked_stays(
    store: Store, open_another: OpenAnother, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = await open_another()
    sha256 = (await store.blobs.put(b"used again")).sha256
    await clock.advance(2 * DAY_S)
    act_after(monkeypatch, collector, "_to_mark", lambda: store.blobs.find([sha256]))
    assert (await collector.blobs.collect()).marked == 0
    assert await store.blobs.find([sha256]) == {sha256: 10}


async def test_g02_a_blob_that_is_marked_when_it_is_about_to_be_found_counts_as_missing(
    store: Store, open_another: OpenAnother, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = await open_another()
    sha256 = (await store.blobs.put(b"used again")).sha256
    await clock.advance(2 * DAY_S)
    act_after(monkeypatch, store, "_find", collector.blobs.collect)
    assert await store.blobs.find([sha256]) == {}


async def test_g02_a_damaged_blob_that_is_named_after_it_was_marked_is_not_deleted(
    store: Store, clock: FakeClock
) -> None:
    """It cannot be moved. Deleting it would also delete what is left for a repair."""
    names: set[str] = set()
    store.blobs.add_roots(naming(names))
    sha256 = (await store.blobs.put(b"damaged")).sha256
    await clock.advance(2 * DAY_S)
    assert (await store.blobs.collect()).marked == 1
    names.add(sha256)
    await damage_byte(store, sha256)
    await collect_all(store.blobs, clock)
    with pytest.raises(BlobDamaged):
        await read_all(store.blobs, sha256)


async def test_g02_a_reader_goes_on_when_its_bytes_are_moved_and_their_place_is_deleted(
    store: Store, open_another: OpenAnother, clock: FakeClock
) -> None:
    names: set[str] = set()
    collector = await open_another()
    collector.blobs.add_roots(naming(names))
    data = random_bytes(LARGE)
    sha256 = (await store.blobs.put(data)).sha256
    await clock.advance(2 * DAY_S)
    await collector.blobs.collect()
    names.add(sha256)
    found = b""
    async for piece in store.blobs.read(sha256):
        found += piece
        if len(found) == len(piece):
            await collect_all(collector.blobs, clock)
    assert found == data


async def test_g02_a_pack_that_is_mostly_unused_is_emptied(store: Store, clock: FakeClock) -> None:
    names: set[str] = set()
    store.blobs.add_roots(naming(names))
    contents = [random_bytes(50_000, seed) for seed in range(20)]
    stored = await store.blobs.put_many(contents)
    ((_, size),) = await packs_of(store)
    assert size == 20 * 50_000
    names |= {blob.sha256 for blob in stored[:5]}
    await collect_all(store.blobs, clock)
    assert [size for _, size in await packs_of(store)] == [5 * 50_000]
    for data in contents[:5]:
        assert await read_all(store.blobs, blob_of(data).sha256) == data


async def test_g02_a_damaged_tree_keeps_what_it_can_name_and_no_more(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    session = await new_session(store)
    await turn_with(store, session.id, {b"a": b"named only by the tree"})
    (made,) = await store.checkpoints.list_kept(ME, session.id)
    await damage_byte(store, made.tree)
    await clock.advance(3 * DAY_S)
    later = await store.blobs.put(b"stored days after it")
    await collect_all(store.blobs, clock)
    assert "what it can name is kept" in caplog.text
    assert await store.blobs.find([later.sha256]) == {}, "the rest is collected"
    kept = blob_of(b"named only by the tree")
    assert await read_all(store.blobs, kept.sha256) == b"named only by the tree"
    found = [finding for finding in await store.upkeep.check() if finding.what == "version damaged"]
    assert len(found) == 1
    assert made.id in found[0].detail
    assert f"the blob {made.tree}" in " ".join(finding.detail for finding in await store.upkeep.check())
    await store.sessions.delete(ME, session.id)
    await collect_all(store.blobs, clock)
    assert await packs_of(store) == []


async def test_g02_what_a_damaged_tree_can_name_is_kept_after_it_was_moved(
    store: Store, clock: FakeClock
) -> None:
    """Moving gives a blob a new pack, not a new age."""
    session = await new_session(store)
    beside = [random_bytes(50_000, seed) for seed in range(20)]
    named: set[str] = {blob.sha256 for blob in await store.blobs.put_many([b"named", *beside])}
    store.blobs.add_roots(naming(named))
    await turn_with(store, session.id, {b"a": b"named"})
    await clock.advance(3 * DAY_S)
    named.clear()
    before = await place_of(store, blob_of(b"named").sha256)
    await collect_all(store.blobs, clock)
    assert await place_of(store, blob_of(b"named").sha256) != before, "it was moved"
    (made,) = await store.checkpoints.list_kept(ME, session.id)
    await damage_byte(store, made.tree)
    await collect_all(store.blobs, clock)
    assert await read_all(store.blobs, blob_of(b"named").sha256) == b"named"


async def test_g02_nothing_is_written_when_there_is_nothing_to_collect(
    store: Store, clock: FakeClock
) -> None:
    names: set[str] = {(await store.blobs.put(b"used")).sha256}
    store.blobs.add_roots(naming(names))
    await clock.advance(3 * DAY_S)
    await store.blobs.collect()
    before = await packs_of(store)
    commits = store.counts().commits
    await store.blobs.collect()
    assert await packs_of(store) == before
    assert store.counts().commits == commits


# --- processes ------------------------------------------------------------------------------------------


def run_child(url: str, folder: Path, part: str, moment: str = "", nth: int = 1, *more: str) -> Fork:
    arguments = (url, str(folder), part, moment, str(nth), *more)
    return fork_command(*arguments, environ=os.environ, module="tests.contracts.blob_child")


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("moment", [Moment.BLOB_WRITTEN, Moment.BLOBS_MARKED, Moment.PACK_DELETED])
async def test_g02_a_process_killed_at_any_moment_loses_nothing_and_leaves_nothing(
    store_url: str, data_dir: Path, moment: Moment, nth: int
) -> None:
    child = run_child(store_url, data_dir, "life", moment, nth)
    with anyio.fail_after(300):
        assert await child.wait_async() == KILLED
    async with open_store(store_url, data_dir=data_dir) as store:
        names = await blob_child.read_names(store)
        store.blobs.add_roots(blob_child.roots(store))
        for _ in range(2):
            await store.blobs.collect(grace_ms=-60_000, wait_ms=-60_000)
        for sha256 in names:
            assert blob_of(await read_all(store.blobs, sha256)).sha256 == sha256
        await check_nothing_left(store, data_dir, names)


@pytest.mark.parametrize("moment", [Moment.BLOB_WRITTEN, Moment.BLOBS_MARKED, Moment.PACK_DELETED])
async def test_g02_a_process_killed_at_any_moment_leaves_nothing_in_object_storage(
    store_url: str, data_dir: Path, moment: Moment, s3_server: S3Server, files_url: str
) -> None:
    child = run_child(store_url, data_dir, "life", moment, 2, files_url)
    with anyio.fail_after(300):
        assert await child.wait_async() == KILLED
    settings = StoreSettings(files_url=files_url)
    async with open_store(store_url, data_dir=data_dir, settings=settings) as store:
        names = await blob_child.read_names(store)
        store.blobs.add_roots(blob_child.roots(store))
        for _ in range(2):
            await store.blobs.collect(grace_ms=-60_000, wait_ms=-60_000)
        for sha256 in names:
            assert blob_of(await read_all(store.blobs, sha256)).sha256 == sha256
        packs = {path for path, _ in await packs_of(store)}
        assert packs == {(await place_of(store, sha256))[0] for sha256 in names}
        assert s3_server.names(files_url) == {MARKER, *(f"{pack}/0" for pack in packs)}


async def test_g02_one_process_stores_while_another_collects(store_url: str, data_dir: Path) -> None:
    days_ago = FakeClock(start_ms=SystemClock().now_ms() - 3 * DAY_S * 1000)
    async with open_store(store_url, data_dir=data_dir, clock=days_ago) as store:
        await store.blobs.put_many(blob_child.contents())
    async with open_store(store_url, data_dir=data_dir) as store:
        children = [run_child(store_url, data_dir, part) for part in ("store", "collect")]
        with anyio.fail_after(300):
            for child in children:
                assert await child.wait_async() == 0
        names = await blob_child.read_names(store)
        assert len(names) == blob_child.KEPT
        for sha256 in names:
            assert blob_of(await read_all(store.blobs, sha256)).sha256 == sha256
        store.blobs.add_roots(blob_child.roots(store))
        for _ in range(2):
            await store.blobs.collect(grace_ms=-60_000, wait_ms=-60_000)
        await check_nothing_left(store, data_dir, names)


async def check_nothing_left(store: Store, data_dir: Path, names: Sequence[str]) -> None:
    """Every pack is used, and there are no files beside them."""
    packs = await packs_of(store)
    assert {path for path, _ in packs} == {(await place_of(store, sha256))[0] for sha256 in names}
    if store.kind == "sqlite":
        assert {f"blobs/{path.name}" for path in (data_dir / "blobs").iterdir()} == {
            path for path, _ in packs
        }


# --- any order of puts and collections ------------------------------------------------------------------

CONTENTS = [b"", b"a", random_bytes(70_000, 2), random_bytes(70_000, 3), random_bytes((1 << 20) + 5, 4)]
WHICH = st.integers(0, len(CONTENTS) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(WHICH, min_size=1, max_size=5)),
        st.tuples(st.sampled_from(["name", "unname"]), WHICH),
        st.tuples(st.just("collect"), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 0.6, 3.0])),
    ),
    max_size=25,
)


@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_g02_any_order_of_puts_and_collections(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]
) -> None:
    asyncio.run(follow(steps, tmp_path_factory.mktemp("blobs")))


async def follow(steps: list[tuple[str, object]], folder: Path) -> None:
    """Two stores on one database, whose turn alternates. A plain model says what must be there: what is named,
    and what was put within the last day."""
    clock = FakeClock()
    names: set[str] = set()
    put_at: dict[int, float] = {}
    async with (
        open_store(data_dir=folder, clock=clock) as first,
        open_store(data_dir=folder, clock=clock) as second,
    ):
        for number, (act, value) in enumerate(steps):
            blobs: Blobs = (first, second)[number % 2].blobs
            blobs.add_roots(naming(names))
            match act, value:
                case "put", list():
                    await blobs.put_many([CONTENTS[which] for which in value])
                    put_at |= dict.fromkeys(value, clock.monotonic())
                case "name", int() if clock.monotonic() - put_at.get(value, -1e9) < DAY_S * 0.9:
                    names.add(blob_of(CONTENTS[value]).sha256)
                case "unname", int():
                    names.discard(blob_of(CONTENTS[value]).sha256)
                case "collect", _:
                    await blobs.collect()
                case "wait", float():
                    await clock.advance(value * DAY_S)
            await check_model(blobs, clock, names, put_at)
        await collect_all(first.blobs, clock)
        await check_nothing_left(first, folder, sorted(names)) if put_at else None


async def check_model(blobs: Blobs, clock: FakeClock, names: set[str], put_at: dict[int, float]) -> None:
    for which, data in enumerate(CONTENTS):
        sha256 = blob_of(data).sha256
        if sha256 in names or clock.monotonic() - put_at.get(which, -1e9) < DAY_S * 0.9:
            assert await read_all(blobs, sha256) == data
        else:
            try:
                assert await read_all(blobs, sha256) == data
            except BlobMissing:
                continue
