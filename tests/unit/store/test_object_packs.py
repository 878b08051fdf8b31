"""Blobs in object storage, against a real S3-speaking server."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from everturn.domain.blobs import Blob
from everturn.domain.errors import BlobDamaged, Invalid, StorageAway, StoreRefused
from everturn.store import Store, StoreSettings, open_store
from everturn.store.blobs import object_packs
from everturn.store.blobs.address import StorageAddress, parse_address
from everturn.store.blobs.blobs import StoredBlobs
from everturn.store.blobs.object_packs import OBJECT_BYTES
from everturn.store.blobs.object_storage import MARKER
from everturn.testing import FakeClock
from everturn.testing.blob_conformance import (
    LARGE,
    BlobConformance,
    Damage,
    blob_of,
    collect_all,
    naming,
    random_bytes,
    read_all,
)
from tests.blobs import packs_of, place_of
from tests.conftest import OpenAnother
from tests.s3_server import S3Server

pytestmark = pytest.mark.anyio
# What is the same with any database is tested with one.
ONE_DATABASE = pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)


@pytest.fixture
def settings(lease_s: float, files_url: str) -> StoreSettings:
    return StoreSettings(lease_s=lease_s, files_url=files_url)


@pytest.fixture
async def store(empty_tables: None, open_another: OpenAnother, settings: StoreSettings) -> Store:
    return await open_another(settings=settings)


class TestObjectBlobs(BlobConformance):
    @pytest.fixture
    def blobs(self, store: Store) -> StoredBlobs:
        return store.blobs

    @pytest.fixture
    def damage(self, store: Store, s3_server: S3Server, files_url: str) -> Damage:
        async def damage(blob: Blob, offset: int) -> None:
            pack, start = await place_of(store, blob.sha256)
            number, at = divmod(start + offset, OBJECT_BYTES)
            data = bytearray(s3_server.get(files_url, f"{pack}/{number}"))
            data[at] ^= 1
            s3_server.put(files_url, f"{pack}/{number}", bytes(data))

        return damage


@ONE_DATABASE
async def test_a_pack_is_stored_as_objects_of_a_bounded_size(
    store: Store, s3_server: S3Server, files_url: str
) -> None:
    data = random_bytes(2 * OBJECT_BYTES + 100)
    blob = await store.blobs.put(data)
    pack, _ = await place_of(store, blob.sha256)
    assert s3_server.names(files_url) == {MARKER, f"{pack}/0", f"{pack}/1", f"{pack}/2"}
    assert await read_all(store.blobs, blob.sha256) == data
    edge = OBJECT_BYTES
    assert await read_all(store.blobs, blob.sha256, edge - 10, edge + 10) == data[edge - 10 : edge + 10]


async def test_collection_deletes_every_object_of_a_pack(
    store: Store, s3_server: S3Server, files_url: str, clock: FakeClock
) -> None:
    await store.blobs.put_many([random_bytes(OBJECT_BYTES + 5), b"small"])
    await collect_all(store.blobs, clock)
    assert s3_server.names(files_url) == {MARKER}
    assert await packs_of(store) == []


async def test_away_writes_refuse_and_what_is_elsewhere_is_read(
    open_another: OpenAnother, store: Store, s3_server: S3Server
) -> None:
    inside = await open_another()
    here = await inside.blobs.put(b"in the store itself")
    there = await store.blobs.put(b"in object storage")
    s3_server.go_away()
    try:
        with pytest.raises(StorageAway) as raised:
            await store.blobs.put(b"new")
        assert "AWS_ACCESS_KEY_ID" in raised.value.hint
        with pytest.raises(StorageAway):
            await read_all(store.blobs, there.sha256)
        assert await read_all(store.blobs, here.sha256) == b"in the store itself"
        assert await store.blobs.put(b"in the store itself") == here, "stored already: nothing to write"
        assert [finding.what for finding in await store.upkeep.check()] == []
    finally:
        s3_server.come_back()
    assert await read_all(store.blobs, there.sha256) == b"in object storage", "it does not count as damaged"
    new = await store.blobs.put(b"new")
    assert await read_all(store.blobs, new.sha256) == b"new"


@ONE_DATABASE
async def test_doctor_says_that_the_storage_is_away_and_blames_no_file(
    store: Store, s3_server: S3Server
) -> None:
    for name in ("one", "two"):
        await store.files.put("me", name, "text/plain", name.encode())
    assert await store.upkeep.check() == []
    s3_server.go_away()
    try:
        assert [finding.what for finding in await store.upkeep.check()] == ["storage away"]
    finally:
        s3_server.come_back()


async def test_a_collection_while_the_storage_is_away_frees_what_can_be_reached(
    open_another: OpenAnother,
    store: Store,
    s3_server: S3Server,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inside = await open_another()
    here = await inside.blobs.put(b"here")
    there = await store.blobs.put(b"there")
    s3_server.go_away()
    try:
        with caplog.at_level(logging.WARNING):
            await collect_all(inside.blobs, clock)
        assert "not deleted" in caplog.text
        assert [path for path, _ in await packs_of(store)] == [(await place_of(store, there.sha256))[0]]
    finally:
        s3_server.come_back()
    await collect_all(inside.blobs, clock)
    assert await packs_of(store) == []
    assert await inside.blobs.find([here.sha256, there.sha256]) == {}


async def test_packs_stay_readable_where_they_are_when_the_address_changes(
    open_another: OpenAnother, store: Store, s3_server: S3Server, lease_s: float, clock: FakeClock
) -> None:
    names = {(await store.blobs.put(data)).sha256 for data in (b"old", random_bytes(LARGE))}
    other = s3_server.make_bucket()
    for settings in (StoreSettings(lease_s=lease_s, files_url=other), StoreSettings(lease_s=lease_s)):
        later = await open_another(settings=settings)
        for sha256 in names:
            assert blob_of(await read_all(later.blobs, sha256)).sha256 == sha256
        new = await later.blobs.put(repr(settings).encode())
        assert await read_all(store.blobs, new.sha256) == repr(settings).encode()
        names.add(new.sha256)
    assert len(s3_server.names(other)) == 2, "the marker and the new pack"
    later.blobs.add_roots(naming(set()))
    await collect_all(later.blobs, clock)
    assert await packs_of(store) == [], "old places are collected too"
    assert s3_server.names(other) == {MARKER}


@ONE_DATABASE
async def test_a_bucket_without_the_marker_is_away_and_nothing_counts_as_damaged(
    store: Store, open_another: OpenAnother, settings: StoreSettings, s3_server: S3Server, files_url: str
) -> None:
    data = b"stored"
    blob = await store.blobs.put(data)
    moved = {name: s3_server.get(files_url, name) for name in s3_server.names(files_url)}
    for name in moved:
        s3_server.delete(files_url, name)
    again = await open_another(settings=settings)
    with pytest.raises(StorageAway, match=MARKER):
        await read_all(again.blobs, blob.sha256)
    with pytest.raises(StorageAway, match=MARKER):
        await again.blobs.put(b"must not be written to the wrong bucket")
    assert s3_server.names(files_url) == set()
    for name, content in moved.items():
        s3_server.put(files_url, name, content)
    assert await read_all(again.blobs, blob.sha256) == data


@ONE_DATABASE
@pytest.mark.parametrize("left", [None, 0, 4])
async def test_an_object_that_is_missing_or_cut_is_damage(
    store: Store, s3_server: S3Server, files_url: str, left: int | None
) -> None:
    blob, other = await store.blobs.put(b"0123456789"), await store.blobs.put(b"another pack")
    pack, _ = await place_of(store, blob.sha256)
    if left is None:
        s3_server.delete(files_url, f"{pack}/0")
    else:
        s3_server.put(files_url, f"{pack}/0", b"0123456789"[:left])
    with pytest.raises(BlobDamaged):
        await read_all(store.blobs, blob.sha256)
    assert await read_all(store.blobs, other.sha256) == b"another pack"
    await store.blobs.put(b"0123456789")
    assert await read_all(store.blobs, blob.sha256) == b"0123456789"


@ONE_DATABASE
async def test_a_bucket_that_does_not_exist_is_away(
    open_another: OpenAnother, files_url: str, s3_server: S3Server
) -> None:
    missing = f"s3://no-such-bucket?endpoint={s3_server.endpoint}"
    store = await open_another(settings=StoreSettings(files_url=missing))
    with pytest.raises(StorageAway, match="no-such-bucket"):
        await store.blobs.put(b"anything")
    await store.sessions.create("me")


@ONE_DATABASE
async def test_names_of_packs_in_a_restored_backup_reach_nothing_else(
    store: Store, s3_server: S3Server, files_url: str
) -> None:
    """A pack named "" or ".." would make the collector list, and delete, what is not a pack."""
    await store.blobs.put(b"kept")
    before = s3_server.names(files_url)
    packs = object_packs.ObjectPacks(files_url, _never)
    for path in ("", ".", "..", "../files", MARKER, "pck_/.."):
        await packs.delete(path)
        assert await packs.size(path) == 0
    assert s3_server.names(files_url) == before


async def _never() -> bool:
    return False


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("s3://bucket", StorageAddress("bucket")),
        ("s3://bucket/", StorageAddress("bucket")),
        ("s3://my.bucket-1/a/b/", StorageAddress("my.bucket-1", "a/b")),
        (
            "s3://bucket/x?endpoint=http://minio:9000&region=eu-west-1",
            StorageAddress("bucket", "x", "http://minio:9000", "eu-west-1"),
        ),
    ],
)
def test_an_address_names_bucket_prefix_endpoint_and_region(address: str, wanted: StorageAddress) -> None:
    assert parse_address(address) == wanted


@pytest.mark.parametrize(
    "address",
    [
        *("", "bucket", "http://bucket", "s3://", "s3://bucket/../other", "s3://b", "s3://bucket/a//b"),
        *("s3://key:word@bucket/x", "s3://bucket?endpoint=minio:9000", "s3://bucket?acl=public", "s3://a b"),
    ],
)
def test_a_wrong_address_is_refused_without_showing_a_password(address: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_address(address)
    assert "word" not in raised.value.message


async def test_a_store_with_a_wrong_address_does_not_open(data_dir: Path) -> None:
    with pytest.raises(Invalid):
        async with open_store(data_dir=data_dir, settings=StoreSettings(files_url="s3://")):
            pass


async def test_a_missing_package_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StoreRefused, match="obstore") as raised:
        async with open_store(data_dir=data_dir, settings=StoreSettings(files_url="s3://bucket")):
            pass
    assert "everturn[s3]" in raised.value.hint
