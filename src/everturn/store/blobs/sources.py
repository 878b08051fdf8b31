"""Reading what is to be stored: small sources at once, large ones in two passes."""

from __future__ import annotations

import hashlib
import importlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import BinaryIO

import msgspec

from everturn.domain.blobs import Blob, Source
from everturn.store.blobs.packs import CHUNK_BYTES

GROUP_BYTES = 8 << 20  # of small sources in memory at once
GROUP_SOURCES = 1_000


class Loaded(msgspec.Struct, frozen=True):
    """A source that was read once. ``data`` is None if it is too large to be kept in memory."""

    blob: Blob
    source: Source
    data: bytes | None


class Digest:
    """The hash of a stream, its size, and the checksum of each of its chunks. Given whole chunks."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._checksums = bytearray()

    def add(self, chunk: bytes) -> None:
        self._sha256.update(chunk)
        self._size += len(chunk)
        self._checksums += checksum(chunk)

    @property
    def blob(self) -> Blob:
        return Blob(self._sha256.hexdigest(), self._size)

    @property
    def checksums(self) -> bytes:
        """Empty if the hash alone verifies the one chunk."""
        return bytes(self._checksums) if self._size > CHUNK_BYTES else b""


def _find_crc32() -> Callable[[bytes | memoryview], int]:
    """The function of isal, which is four times as fast, where there is a package of it for this machine."""
    try:
        return importlib.import_module("isal.isal_zlib").crc32  # type: ignore[no-any-return]  # no import that a type checker would need
    except ImportError:
        return zlib.crc32


_crc32 = _find_crc32()


def checksum(chunk: bytes | memoryview) -> bytes:
    """CRC-32: it finds damage, at a fraction of the cost of the hash. Nothing here defends against a forger,
    who could change the rows as well."""
    return _crc32(chunk).to_bytes(4, "big")


def open_source(source: Source) -> BinaryIO:
    if isinstance(source, bytes):
        return BytesIO(source)
    return source() if callable(source) else source.open("rb")


def read_chunk(stream: BinaryIO) -> bytes:
    """A whole chunk, or what is left. A stream may give less than it was asked for."""
    chunk = stream.read(CHUNK_BYTES)
    if not chunk or len(chunk) == CHUNK_BYTES:
        return chunk
    parts, size = [chunk], len(chunk)
    while size < CHUNK_BYTES and (more := stream.read(CHUNK_BYTES - size)):
        parts.append(more)
        size += len(more)
    return b"".join(parts)


def load_group(sources: Sequence[Source], first: int) -> list[Loaded]:
    """Read and hash sources from the ``first`` on, as many as fit into memory and at least one."""
    loaded: list[Loaded] = []
    size = 0
    for source in sources[first : first + GROUP_SOURCES]:
        loaded.append(_load(source))
        size += len(loaded[-1].data or b"")
        if size >= GROUP_BYTES:
            break
    return loaded


def _load(source: Source) -> Loaded:
    digest = Digest()
    with open_source(source) as stream:
        first = read_chunk(stream)
        digest.add(first)
        for chunk in _chunks(stream) if len(first) == CHUNK_BYTES else ():
            digest.add(chunk)
    blob = digest.blob
    return Loaded(blob, source, first if blob.size <= CHUNK_BYTES else None)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := read_chunk(stream):
        yield chunk
