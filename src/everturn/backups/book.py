"""Records about backups: the last result, the list of backups, and whether one was requested."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from everturn.domain.backups import BackupDrill, BackupEntry, BackupProgress, BackupState
from everturn.domain.store import Records

SYSTEM: Final = "system"  # owner of records that belong to the server itself
STATE_KIND: Final = "backups"
ENTRY_KIND: Final = "backup"
_STATE = "state"
_ASKED = "asked"
_DRILL = "drill"
_PROGRESS = "progress"

T = TypeVar("T", BackupEntry, BackupState)


class BackupBook:
    def __init__(self, records: Records) -> None:
        self._records = records

    async def state(self) -> BackupState:
        found = await self._records.get(SYSTEM, STATE_KIND, _STATE)
        return BackupState() if found is None else msgspec.convert(found, BackupState)

    async def put_state(self, state: BackupState) -> None:
        await self._records.put(SYSTEM, STATE_KIND, _STATE, msgspec.to_builtins(state))

    async def entries(self) -> dict[str, BackupEntry]:
        found = await self._records.list(SYSTEM, ENTRY_KIND)
        return {name: msgspec.convert(value, BackupEntry) for name, value in found.items()}

    async def put_entry(self, entry: BackupEntry) -> None:
        await self._records.put(SYSTEM, ENTRY_KIND, entry.name, msgspec.to_builtins(entry))

    async def forget(self, name: str) -> None:
        await self._records.delete(SYSTEM, ENTRY_KIND, name)

    async def drill(self) -> BackupDrill | None:
        found = await self._records.get(SYSTEM, STATE_KIND, _DRILL)
        return None if found is None else msgspec.convert(found, BackupDrill)

    async def put_drill(self, drill: BackupDrill) -> None:
        await self._records.put(SYSTEM, STATE_KIND, _DRILL, msgspec.to_builtins(drill))

    async def progress(self) -> BackupProgress | None:
        found = await self._records.get(SYSTEM, STATE_KIND, _PROGRESS)
        return None if found is None else msgspec.convert(found, BackupProgress)

    async def put_progress(self, progress: BackupProgress) -> None:
        """Publish the progress to the other servers. It is valid only while a server holds the lease."""
        await self._records.put(SYSTEM, STATE_KIND, _PROGRESS, msgspec.to_builtins(progress))

    async def ask(self, now_ms: int) -> None:
        await self._records.put(SYSTEM, STATE_KIND, _ASKED, {"at": now_ms})

    async def is_asked(self) -> bool:
        return await self._records.get(SYSTEM, STATE_KIND, _ASKED) is not None

    async def clear_ask(self) -> None:
        await self._records.delete(SYSTEM, STATE_KIND, _ASKED)
