"""The audit log: sign-ins, tokens, keys and approvals, one JSON line each, synced before it counts."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from everturn.domain.audit import AuditLog
from everturn.domain.clock import Clock
from everturn.web.access.identity import Caller

_BYTES_MAX = 10_000_000
_TAIL_BYTES = 400_000


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    at: int
    what: str  # signin | signin.failed | signout | token.created | approval | key.set | …
    by: str
    address: str = ""
    detail: str = ""


class Audit(AuditLog):
    """A file beside the database, so that it can be read, shipped and kept when the database is not.

    At 10 MB it becomes ``audit.1.jsonl`` and a new one begins.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._path = folder / "audit.jsonl"
        self._older = folder / "audit.1.jsonl"
        self._clock = clock
        self._lock = anyio.Lock()

    async def write(self, what: str, by: str, *, address: str = "", detail: str = "") -> None:
        entry = AuditEntry(self._clock.now_ms(), what, by[:200], address, detail[:500])
        async with self._lock:
            await anyio.to_thread.run_sync(self._append, msgspec.json.encode(entry) + b"\n")

    async def note(self, what: str, caller: Caller, detail: str = "") -> None:
        """Write what a caller did. Durable on return."""
        await self.write(what, caller.name, address=caller.address, detail=detail)

    async def newest(self, limit: int) -> list[AuditEntry]:
        return await anyio.to_thread.run_sync(self._tail, limit)

    def _append(self, line: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > _BYTES_MAX:
            self._path.replace(self._older)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # a crash tore the last line; it must not swallow this one
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _tail(self, limit: int) -> list[AuditEntry]:
        found = _newest(self._path)
        if len(found) < limit:  # a new file has just begun
            found += _newest(self._older)
        return found[:limit]


def _newest(path: Path) -> list[AuditEntry]:
    """The entries at the end of a file, newest first."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().splitlines()
    # The first line may be cut by the seek, and the last by a crash: what does not parse is no entry.
    return [entry for entry in map(_parse, reversed(lines)) if entry is not None]


def _parse(line: bytes) -> AuditEntry | None:
    try:
        return msgspec.json.decode(line, type=AuditEntry)
    except msgspec.DecodeError:
        return None
