"""Blobs for code that runs in a thread: it waits while the event loop reads and stores."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

from everturn.domain.blobs import Blobs
from everturn.domain.trees import EMPTY_TREE, Tree, decode_tree
from everturn.workspace.loop_calls import clean_up_on_loop, run_on_loop
from everturn.workspace.scan import Source

_AT_ONCE: Final = 1 << 20  # bytes that are handed to the thread together


class ThreadBlobs:
    """Each method must be called in a thread that anyio started, and raises what the blobs raise."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def put(self, sources: Sequence[Source]) -> list[tuple[str, int]]:
        blobs = run_on_loop(self._blobs.put_many, sources)
        return [(blob.sha256, blob.size) for blob in blobs]

    def load(self, sha256: str) -> Tree:
        """Raises TreeUnreadable too."""
        if sha256 == EMPTY_TREE:
            return Tree()  # never stored: it is the same everywhere
        data = self.fetch_small([sha256]).get(sha256)
        return decode_tree(b"".join(self.fetch(sha256)) if data is None else data, sha256)

    def fetch_small(self, hashes: Sequence[str]) -> dict[str, bytes]:
        """See ``Blobs.read_small``."""
        return run_on_loop(self._blobs.read_small, hashes)

    def fetch(self, sha256: str) -> Iterator[bytes]:
        """The bytes of a blob, in pieces."""
        stream = self._blobs.read(sha256)
        try:
            while pieces := run_on_loop(_next_pieces, stream):
                yield from pieces
        finally:
            clean_up_on_loop(stream.aclose)


async def _next_pieces(stream: AsyncGenerator[bytes, None]) -> list[bytes]:
    """As many as fit; none at the end."""
    pieces: list[bytes] = []
    size = 0
    async for piece in stream:
        pieces.append(piece)
        size += len(piece)
        if size >= _AT_ONCE:
            break
    return pieces
