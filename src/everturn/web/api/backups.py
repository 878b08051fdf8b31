"""Backups that the server makes: how they are doing, and one made now. None can be read here."""

from __future__ import annotations

from everturn.domain import errors as e
from everturn.domain.backups import Backups, BackupStatus
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing


class BackupsApi:
    def __init__(self, backups: Backups, audit: Audit) -> None:
        self._backups = backups
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/backups",
                run=self.status,
                summary="How backups are doing: which there are, the next one, the last trial restore.",
                tag="server",
                scope=Scope.ADMIN,
                answer=BackupStatus,
            ),
            Endpoint(
                method="POST",
                path="/api/backups",
                run=self.make,
                summary="Have a backup made now. It goes on after the answer; ask again how far it is.",
                tag="server",
                scope=Scope.ADMIN,
                status=202,
                answer=BackupStatus,
                errors=(e.Invalid,),
            ),
        ]

    async def status(self, call: ApiCall[Nothing, Nothing]) -> BackupStatus:
        return await self._backups.status()

    async def make(self, call: ApiCall[Nothing, Nothing]) -> BackupStatus:
        await self._audit.note("backup.asked", call.caller)
        await self._backups.ask()
        return await self._backups.status()
