# ruff: noqa: S101, S311 - a test suite that is shipped; its random bytes are only different from others
"""The tests that every implementation of ``Blobs`` must pass.

    class TestMyBlobs(BlobConformance):
        @pytest.fixture
        def blobs(self) -> Blobs:
            return MyBlobs(...)

The fixture ``clock`` is a FakeClock that the blobs go by; ``damage`` is a function that changes a stored byte
behind their back. Needs pytest and anyio's plugin.
"""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest

from everturn.domain.blobs import Blob, Blobs, Source
from everturn.domain.errors import BlobDamaged, BlobMissing
from everturn.testing.clock import FakeClock

MIB = 1 << 20
LARGE = 3 * MIB + 12_345
DAY_S = 24 * 3600
Damage = Callable[[Blob, int], Awaitable[None]]


def random_bytes(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def blob_of(data: bytes) -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), len(data))


async def read_all(blobs: Blobs, sha256: str, start: int = 0, end: int | None = None) -> bytes:
    async with aclosing(blobs.read(sha256, start, end)) as pieces:
        return b"".join([piece async for piece in pieces])


async def collect_all(blobs: Blobs, clock: FakeClock) -> None:
    """Collect until what nothing names is gone."""
    for _ in range(3):
        await clock.advance(2 * DAY_S)
        await blobs.collect()


def naming(names: set[str]) -> Callable[[], AsyncIterator[Sequence[str]]]:
    """Roots that give what is in this set at the time."""

    async def roots() -> AsyncIterator[Sequence[str]]:
        yield sorted(names)

    return roots


class _Slow(io.RawIOBase):
    """Gives fewer bytes than it is asked for, as a pipe does."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(min(size, 100_000))


@pytest.mark.anyio
class BlobConformance:
    @pytest.fixture
    def blobs(self) -> Blobs:
        raise NotImplementedError("Return the blobs to test, with nothing stored.")

    @pytest.fixture
    def damage(self) -> Damage:
        raise NotImplementedError("Return a function that changes the byte at an offset of a blob.")

    @pytest.mark.parametrize("size", [0, 1, 1000, MIB - 1, MIB, MIB + 1, LARGE])
    async def test_what_was_put_is_read(self, blobs: Blobs, size: int) -> None:
        data = random_bytes(size)
        blob = await blobs.put(data)
        assert blob == blob_of(data)
        assert await read_all(blobs, blob.sha256) == data
        assert await blobs.find([blob.sha256]) == {blob.sha256: size}

    async def test_sources_of_every_kind_are_stored_in_their_order(
        self, blobs: Blobs, tmp_path: Path
    ) -> None:
        small, large = random_bytes(500, 2), random_bytes(LARGE, 3)
        path = tmp_path / "large"
        await anyio.Path(path).write_bytes(large)

        def open_slowly() -> BinaryIO:
            return _Slow(large[1:])  # type: ignore[return-value]  # reads and closes, which is all that is used

        sources: list[Source] = [small, path, open_slowly, b"", small, lambda: io.BytesIO(small[1:])]
        wanted = [small, large, large[1:], b"", small, small[1:]]
        stored = await blobs.put_many(sources)
        assert stored == [blob_of(data) for data in wanted]
        for blob, data in zip(stored, wanted, strict=True):
            assert await read_all(blobs, blob.sha256) == data

    async def test_nothing_is_stored_of_nothing(self, blobs: Blobs) -> None:
        assert await blobs.put_many([]) == []
        assert await blobs.find([]) == {}

    async def test_many_small_sources_are_stored_together(self, blobs: Blobs) -> None:
        wanted = [f"file {number}".encode() * 100 for number in range(2500)]
        stored = await blobs.put_many(wanted)
        assert stored == [blob_of(data) for data in wanted]
        assert len(await blobs.find([blob.sha256 for blob in stored])) == 2500
        for number in (0, 999, 1000, 2499):
            assert await read_all(blobs, stored[number].sha256) == wanted[number]

    @pytest.mark.parametrize("size", [1000, LARGE])
    async def test_the_same_bytes_again_are_the_same_blob(self, blobs: Blobs, size: int) -> None:
        data = random_bytes(size)
        first = await blobs.put_many([data, data])
        again = await blobs.put(data)
        assert first == [again, again]
        assert await read_all(blobs, again.sha256) == data

    async def test_the_same_bytes_put_at_once_are_the_same_blob(self, blobs: Blobs) -> None:
        data = random_bytes(LARGE)
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(blobs.put_many, [data, b"small"])
        for wanted in (data, b"small"):
            assert await read_all(blobs, blob_of(wanted).sha256) == wanted

    @pytest.mark.parametrize("size", [5000, LARGE])
    async def test_a_range_is_read(self, blobs: Blobs, size: int) -> None:
        data = random_bytes(size)
        blob = await blobs.put_many([b"something before it", data])
        choice = random.Random(7)
        edges = [0, 1, size - 1, size, MIB - 1, MIB, MIB + 1, 2 * MIB]
        ranges = [(start, end) for start in edges for end in edges if start <= end <= size]
        ranges += [tuple(sorted(choice.sample(range(size), 2))) for _ in range(20)]  # type: ignore[misc]
        for start, end in ranges:
            assert await read_all(blobs, blob[1].sha256, start, end) == data[start:end], (start, end)
        assert await read_all(blobs, blob[1].sha256, size - 5, size + 100) == data[-5:]
        assert await read_all(blobs, blob[1].sha256, size + 1) == b""

    async def test_pieces_are_bounded(self, blobs: Blobs) -> None:
        blob = await blobs.put(random_bytes(9 * MIB))
        async with aclosing(blobs.read(blob.sha256)) as pieces:
            assert max([len(piece) async for piece in pieces]) <= 4 * MIB

    async def test_small_blobs_are_read_together(self, blobs: Blobs, damage: Damage) -> None:
        """From several packs, with gaps between them; what cannot be given is left out."""
        data = [
            random_bytes(size, seed) for seed, size in enumerate((0, 1, 100_000, 200_000, MIB, MIB, LARGE))
        ]
        stored = await blobs.put_many(data[:4]) + await blobs.put_many(data[4:])
        damaged = (await blobs.put_many([b"beside it", b"to be damaged"]))[1]
        await damage(damaged, 3)
        asked = [stored[number].sha256 for number in (6, 5, 3, 0, 1, 4)]
        found = await blobs.read_small([*asked, damaged.sha256, blob_of(b"never stored").sha256])
        assert found == {stored[number].sha256: data[number] for number in (0, 1, 3, 4, 5)}
        assert await blobs.read_small([]) == {}

    async def test_a_reader_may_stop_early(self, blobs: Blobs) -> None:
        blob = await blobs.put(random_bytes(LARGE))
        async with aclosing(blobs.read(blob.sha256)) as pieces:
            async for piece in pieces:
                assert piece
                break
        assert (await blobs.find([blob.sha256])) == {blob.sha256: LARGE}

    async def test_what_is_not_stored_is_missing(self, blobs: Blobs) -> None:
        missing = blob_of(b"never stored").sha256
        with pytest.raises(BlobMissing) as raised:
            await read_all(blobs, missing)
        assert missing in raised.value.message
        stored = await blobs.put(b"stored")
        assert await blobs.find([missing, stored.sha256]) == {stored.sha256: 6}

    async def test_a_source_that_fails_stores_nothing_of_itself(self, blobs: Blobs, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            await blobs.put_many([b"before", tmp_path / "there is no such file"])
        await blobs.put(b"after")
        assert await read_all(blobs, blob_of(b"after").sha256) == b"after"

    async def test_a_source_that_changes_is_stored_as_it_was_read_the_second_time(self, blobs: Blobs) -> None:
        contents = [random_bytes(LARGE, seed) for seed in (5, 6)]
        readings = iter(contents)
        blob = await blobs.put(lambda: io.BytesIO(next(readings)))
        assert blob == blob_of(contents[1])
        assert await read_all(blobs, blob.sha256) == contents[1]
        assert await blobs.find([blob_of(contents[0]).sha256]) == {}

    @pytest.mark.parametrize("size", [1000, LARGE])
    async def test_damage_is_found_named_and_mended_by_storing_again(
        self, blobs: Blobs, damage: Damage, size: int
    ) -> None:
        data = random_bytes(size)
        beside, blob = await blobs.put_many([b"in the same pack", data])
        await damage(blob, size - 1)
        with pytest.raises(BlobDamaged) as raised:
            await read_all(blobs, blob.sha256)
        assert blob.sha256 in raised.value.message
        if size > MIB:
            assert await read_all(blobs, blob.sha256, 0, MIB) == data[:MIB], "the rest is still served"
        assert await read_all(blobs, beside.sha256) == b"in the same pack"
        assert await blobs.find([blob.sha256]) == {}
        await blobs.put(data)
        assert await read_all(blobs, blob.sha256) == data

    async def test_only_what_no_root_names_is_collected(self, blobs: Blobs, clock: FakeClock) -> None:
        names: set[str] = set()
        blobs.add_roots(naming(names))
        kept = [random_bytes(300, 1), random_bytes(LARGE, 2), b""]
        dropped = [random_bytes(300, 3), random_bytes(LARGE, 4)]
        names |= {blob.sha256 for blob in await blobs.put_many(kept + dropped)}
        await collect_all(blobs, clock)
        for data in kept + dropped:
            assert await read_all(blobs, blob_of(data).sha256) == data
        names -= {blob_of(data).sha256 for data in dropped}
        await collect_all(blobs, clock)
        for data in kept:
            assert await read_all(blobs, blob_of(data).sha256) == data
        for data in dropped:
            with pytest.raises(BlobMissing):
                await read_all(blobs, blob_of(data).sha256)

    async def test_what_was_put_or_found_a_moment_ago_is_kept(self, blobs: Blobs, clock: FakeClock) -> None:
        blob = await blobs.put(b"not named yet")
        for _ in range(4):
            await clock.advance(DAY_S * 0.9)
            assert await blobs.find([blob.sha256])
            await blobs.collect()
        assert await read_all(blobs, blob.sha256) == b"not named yet"

    async def test_bytes_that_were_collected_can_be_stored_again(
        self, blobs: Blobs, clock: FakeClock
    ) -> None:
        for data in (b"small", random_bytes(LARGE)):
            blob = await blobs.put(data)
            await collect_all(blobs, clock)
            assert await blobs.find([blob.sha256]) == {}
            await blobs.put(data)
            assert await read_all(blobs, blob.sha256) == data
