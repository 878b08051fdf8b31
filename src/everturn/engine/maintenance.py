"""Periodic tasks: index, expire, prune, sweep. They write nothing when there is nothing to do."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from everturn.domain.delivery import INBOX_KEEP_S
from everturn.domain.errors import EverturnError
from everturn.engine.services import TurnServices

_log = logging.getLogger("everturn.engine")
_INDEX_BATCH = 2000


class Maintenance:
    """``nudge`` is called when turns can go on."""

    def __init__(self, services: TurnServices, nudge: Callable[[], None]) -> None:
        self._services = services
        self._nudge = nudge
        self.troubles: dict[str, str] = {}  # the newest error by task, for the status

    async def run(self) -> None:
        settings = self._services.settings
        async with anyio.create_task_group() as group:
            group.start_soon(self._every, "index", settings.index_s, self._index, name="index")
            group.start_soon(self._every, "expire", settings.expire_s, self._expire, name="expire")
            group.start_soon(self._every, "budgets", settings.budgets_s, self._budgets, name="budgets")
            group.start_soon(self._every, "prune", settings.prune_s, self._prune, name="prune")
            group.start_soon(self._every, "sweep", settings.sweep_s, self._sweep, name="sweep")

    async def _every(self, what: str, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        """Repeat a task forever. A failure of one task, such as a broken index, must not end the others."""
        while True:
            await self._services.clock.sleep(seconds)
            try:
                await act()
            except EverturnError as error:
                if self.troubles.get(what) != error.message:
                    _log.warning("%s: %s", what, error.message)
                self.troubles[what] = error.message
            except Exception as error:
                # The root of a task: recorded, shown in the status, tried again.
                _log.exception("%s failed", what)
                self.troubles[what] = f"{type(error).__name__}: {error}"
            else:
                self.troubles.pop(what, None)

    async def _index(self) -> None:
        while await self._services.store.search.index(limit=_INDEX_BATCH) >= _INDEX_BATCH:
            pass

    async def _expire(self) -> None:
        if await self._services.store.asks.expire(self._services.clock.now_ms()):
            self._nudge()

    async def _budgets(self) -> None:
        if await self._services.budgets.look():
            self._nudge()

    async def _prune(self) -> None:
        grace_ms = round(self._services.settings.prune_grace_s * 1000)
        while await self._services.store.upkeep.prune(older_than_ms=grace_ms):
            pass
        before = self._services.clock.now_ms() - INBOX_KEEP_S * 1000
        while await self._services.store.delivery.inbox.prune(before):
            pass
        made = self._services.clock.now_ms() - round(self._services.settings.empty_keep_s * 1000)
        while await self._services.store.sessions.discard_empty(before=made):
            pass

    async def _sweep(self) -> None:
        await self._services.store.files.sweep()
