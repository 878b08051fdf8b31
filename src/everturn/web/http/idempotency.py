"""First answers by idempotency key, for requests that leave no session behind."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import KeyReused
from everturn.domain.json_types import Json
from everturn.domain.store import Records

_KIND = "completion"
_KEPT_MAX = 500
_LOOK_EVERY = 50
_KEPT_MS = 24 * 3600 * 1000


def digest_of(body: object) -> str:
    return hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()


class FirstAnswers:
    """Two requests with one key at once: the second waits for the first one's answer."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._puts = 0
        self._under_way: dict[tuple[str, str], anyio.Lock] = {}

    def __len__(self) -> int:
        """The number of keys in use."""
        return len(self._under_way)

    @asynccontextmanager
    async def only_one(self, owner: str, key: str) -> AsyncIterator[None]:
        lock = self._under_way.setdefault((owner, key), anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            # Check again after waiting: another request that waited may hold it now.
            if not lock.locked():
                self._under_way.pop((owner, key), None)

    async def get(self, owner: str, key: str, digest: str) -> Json | None:
        """Raises KeyReused if the key came with another body before."""
        known = await self._records.get(owner, _KIND, _name(key))
        if known is None or self._clock.now_ms() - known["at"] > _KEPT_MS:
            return None
        if known["digest"] != digest:
            raise KeyReused(key)
        return known["answer"]

    async def put(self, owner: str, key: str, digest: str, answer: object) -> None:
        value = {"at": self._clock.now_ms(), "digest": digest, "answer": answer}
        await self._records.put(owner, _KIND, _name(key), value)
        self._puts += 1
        if self._puts % _LOOK_EVERY == 1:  # not each time: looking reads every answer that is kept
            await self._drop_oldest(owner)

    async def _drop_oldest(self, owner: str) -> None:
        kept = await self._records.list(owner, _KIND)
        oldest = sorted(kept, key=lambda name: kept[name]["at"])[: max(0, len(kept) - _KEPT_MAX)]
        for name in oldest:
            await self._records.delete(owner, _KIND, name)


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:40]
