"""Ids of traces and spans, computed from what is stored.

Every worker computes the same ids for the same turn. So a worker that takes a turn over continues its trace,
and nothing about traces is stored.
"""

from __future__ import annotations

from hashlib import sha256


def trace_id(turn_id: str) -> int:
    """The id of the turn's trace: the first 16 bytes of the SHA-256 of the turn's id."""
    return int.from_bytes(sha256(turn_id.encode()).digest()[:16])


def span_id(turn_id: str, name: str) -> int:
    """The id of one span of the turn; ``name`` is unique in the turn."""
    return int.from_bytes(sha256(f"{turn_id}/{name}".encode()).digest()[:8])
