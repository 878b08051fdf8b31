"""Blobs: bytes that the store keeps under their SHA-256.

A **blob** is the content of a file without its name. **Packs** are what it is written in: one pack holds many
small blobs or one large one, so that many small files cost one sync. What a row of another table names must
have been stored before, and it stays stored while any of the *roots* names it (contract G02).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

# Bytes, a file, or a function that opens a stream. What is larger than a mebibyte is read twice.
Source = bytes | Path | Callable[[], BinaryIO]

# Gives the hashes of all blobs that are in use, in batches. What is named while it reads may be missing: a
# blob must be put or found shortly before it is named, and is kept for that reason.
Roots = Callable[[], AsyncIterator[Sequence[str]]]


class Blob(msgspec.Struct, frozen=True, gc=False):
    sha256: str
    size: int


class Collected(msgspec.Struct, frozen=True):
    """What one collection did. ``marked`` and ``deleted`` count blobs."""

    marked: int = 0
    deleted: int = 0
    deleted_bytes: int = 0


class Blobs(Protocol):
    async def put_many(self, sources: Sequence[Source]) -> list[Blob]:
        """Store the bytes of each source; return a blob for each, in their order.

        On return, bytes and rows survive power loss. Equal bytes are stored once. Memory does not grow with
        the size of a source. What was put is kept for a day even if nothing names it, so that the caller
        has time to. A source that changes between its two readings is stored as the second one found it. If
        cancelled or failed, some of the sources may be stored. Raises DiskFull, DiskReadOnly, StoreAway,
        StorageAway, and what a source raises.
        """
        ...

    async def put(self, source: Source) -> Blob:
        """``put_many`` of one source."""
        ...

    def read(self, sha256: str, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes from ``start`` up to ``end``, in bounded pieces, each verified before it is given.

        Raises BlobMissing, BlobDamaged, FileUnreadable, StoreAway, StorageAway; also after the first pieces.
        """
        ...

    async def read_small(self, hashes: Sequence[str]) -> dict[str, bytes]:
        """The bytes of those of these blobs that have at most a mebibyte, each verified: faster than ``read``
        of each one. What is larger, missing or damaged is not in it; ``read`` says why. All of it is in
        memory at once: the caller chooses how much that is.

        Raises FileUnreadable, StoreAway, StorageAway.
        """
        ...

    async def find(self, hashes: Sequence[str]) -> dict[str, int]:
        """The size of each of these blobs that is stored. Like what was put, they are kept for a day, so the
        caller may name them."""
        ...

    def add_roots(self, roots: Roots) -> None:
        """Have the blobs that these roots give kept."""
        ...

    async def collect(self) -> Collected:
        """Free what no root names. Any worker may store bytes and collect at the same time."""
        ...
