"""Reads many small blobs at once: neighbours in a pack cost one read and one thread."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec

from everturn.store.blobs.packs import CHUNK_BYTES, PackGone
from everturn.store.blobs.places import Places
from everturn.store.scripts.queries.files import BLOBS_PLACES, SmallBlob
from everturn.store.scripts.script import Database, Script, Tx, encode_list

_HASHES_AT_ONCE: Final = 1_000
_SPAN_BYTES: Final = 4 * CHUNK_BYTES
_GAP_BYTES: Final = 64 << 10  # of unwanted bytes between two blobs: reading them is cheaper than another read


class _Span(msgspec.Struct):
    """Bytes of a pack that are read together, from ``start`` up to ``end``."""

    start: int
    end: int
    blobs: list[SmallBlob]


async def read_small(db: Database, places: Places, hashes: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for at in range(0, len(hashes), _HASHES_AT_ONCE):
        rows = await db.read(_places, hashes[at : at + _HASHES_AT_ONCE])
        for _, blobs in groupby(rows, key=attrgetter("place", "path")):
            with suppress(PackGone):  # it was moved, or is lost: a read of each blob finds out
                await _read_pack(places, list(blobs), found)
    return found


async def _read_pack(places: Places, blobs: Sequence[SmallBlob], found: dict[str, bytes]) -> None:
    pack = await places.find(blobs[0].place).open(blobs[0].path)
    try:
        for span in _spans(blobs):
            if span.start == span.end:
                _cut(span, found, b"")
                continue
            await pack.read(span.start, span.end - span.start, partial(_cut, span, found))
    finally:
        await pack.close()


def _spans(blobs: Iterable[SmallBlob]) -> Iterator[_Span]:
    """``blobs``: of one pack, in the order of their places."""
    span: _Span | None = None
    for blob in blobs:
        end = blob.start + blob.size
        if span is None or blob.start > span.end + _GAP_BYTES or end > span.start + _SPAN_BYTES:
            if span is not None:
                yield span
            span = _Span(blob.start, end, [])
        span.blobs.append(blob)
        span.end = max(span.end, end)
    if span is not None:
        yield span


def _cut(span: _Span, found: dict[str, bytes], data: bytes) -> None:
    """Verify each blob and keep it. Called in a thread."""
    for blob in span.blobs:
        at = blob.start - span.start
        piece = data[at : at + blob.size]
        if hashlib.sha256(piece).hexdigest() == blob.sha256:
            found[blob.sha256] = piece


def _places(tx: Tx, hashes: Sequence[str]) -> Script[list[SmallBlob]]:
    return (yield from BLOBS_PLACES.all(encode_list(hashes), CHUNK_BYTES))
