"""Copies the bytes of packs, then verifies them: byte by byte, and each blob by its hash."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from everturn.domain.errors import StoreBroken
from everturn.move.tables import Row

Blob = tuple[int, int, str]  # offset in its pack, size, hash


class HasPacks(Protocol):
    def pack(self, pack: str, path: str) -> AsyncIterator[bytes]: ...

    async def put_pack(self, pack: str, pieces: AsyncIterator[bytes]) -> None: ...


class PackDigest:
    """Hashes and counts a stream of bytes."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0

    async def watch(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            self._hash.update(piece)
            self.size += len(piece)
            yield piece

    @property
    def text(self) -> str:
        return self._hash.hexdigest()


class _BlobCheck:
    """Hashes the blobs of one pack while its bytes stream by in order."""

    def __init__(self, blobs: Iterable[Blob]) -> None:
        self._waiting = sorted(blobs, reverse=True)
        self._hash = hashlib.sha256()
        self._at = 0
        self.damaged: list[str] = []
        self._finish_whole()

    def add(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view and self._waiting:
            start, size, _ = self._waiting[-1]
            skipped = min(len(view), max(0, start - self._at))
            taken = min(len(view) - skipped, max(0, start + size - self._at - skipped))
            self._hash.update(view[skipped : skipped + taken])
            self._at += skipped + taken
            view = view[skipped + taken :]
            self._finish_whole()

    def _finish_whole(self) -> None:
        while self._waiting and self._at >= self._waiting[-1][0] + self._waiting[-1][1]:
            _, _, sha256 = self._waiting.pop()
            if self._hash.hexdigest() != sha256:
                self.damaged.append(sha256)
            self._hash = hashlib.sha256()

    def finish(self) -> list[str]:
        """Return the blobs that are missing or have the wrong hash."""
        return [*self.damaged, *(sha256 for _, _, sha256 in self._waiting)]


async def carry_pack(source: HasPacks, target: HasPacks, old: Row, new: Row) -> PackDigest:
    """Copy one pack. ``old`` and ``new`` are the pack's id and path on each side."""
    digest = PackDigest()
    await target.put_pack(new[0], digest.watch(source.pack(*old)))
    return digest


async def read_pack(side: HasPacks, place: Row) -> PackDigest:
    digest = PackDigest()
    async for _ in digest.watch(side.pack(*place)):
        pass
    return digest


async def verify_pack(target: HasPacks, place: Row, expected: PackDigest, blobs: Iterable[Blob]) -> list[str]:
    """Return the blobs that were already damaged in the source: equal bytes with the wrong hash.

    Raises StoreBroken if the bytes differ from the source's.
    """
    check, found = _BlobCheck(blobs), PackDigest()
    async for piece in found.watch(target.pack(*place)):
        check.add(piece)
    if (found.text, found.size) != (expected.text, expected.size):
        raise StoreBroken(f"The bytes of {place[0]} did not arrive as they were ({found.size:,} bytes).")
    return check.finish()
