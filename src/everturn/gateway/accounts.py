"""The accounts of this server, each served on its own.

Every server has all accounts ready, so that it can take what is posted to it. One server at a time receives
and sends for an account, under the account's lease.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

import anyio
import msgspec

from everturn.delivery.bell import Bell
from everturn.domain.delivery import SenderRole
from everturn.domain.errors import HookDenied, NotFound, Retry, StoreFault
from everturn.domain.gateway import (
    Account,
    AccountHealth,
    AccountSetup,
    AccountState,
    PairingCode,
    Person,
    PlatformForm,
    TakesHooks,
)
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Identity
from everturn.gateway.book import AccountBook
from everturn.gateway.platforms import platform_names
from everturn.gateway.running_account import RunningAccount, RunningServices

_log = logging.getLogger("everturn.gateway")
_LOOK_S: Final = 5.0  # how often to poll for changes that other processes made
_SEEN_MS: Final = 20_000  # how often unchanged health is written


class GatewayAccounts:
    """An async context manager: the accounts are served inside it."""

    def __init__(self, services: RunningServices) -> None:
        self._services = services
        self._book: AccountBook = services.book
        self._running: dict[str, RunningAccount] = {}
        self._written: dict[str, tuple[AccountHealth, int]] = {}  # and when
        self._changing = anyio.Lock()
        self._look = Bell(services.book.clock)
        self._is_stopping = False
        self._exits = AsyncExitStack()
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._exits.enter_async_context(self._group)
        try:
            await self._update()
            self._group.start_soon(self._follow, name="gateway")
        except BaseException:
            # ``__aexit__`` is not called after a failed ``__aenter__``: end the tasks here.
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        self._group.cancel_scope.cancel()
        await self._exits.aclose()

    async def stop(self) -> None:
        """Stop receiving, and finish the sends that have begun. Safe to call twice, from any task."""
        # Not by cancelling the group: that would cancel the task that entered it as well, perhaps the caller.
        self._is_stopping = True
        for running in self._running.values():
            running.remove()
        for running in self._running.values():
            await running.ended.wait()

    # --- the contract ---------------------------------------------------------------------------------

    async def accounts(self) -> Sequence[Account]:
        return [await self._describe(running) for _, running in sorted(self._running.items())]

    async def account(self, name: str) -> Account:
        running = self._running.get(name)
        if running is None:
            raise NotFound("account", name)
        return await self._describe(running)

    def platforms(self) -> Sequence[str]:
        return platform_names()

    async def platform(self, name: str) -> PlatformForm:
        return (await self._book.find_platform(name)).form()

    async def add(self, name: str, setup: AccountSetup, secrets: Mapping[str, str]) -> Account:
        async with self._changing:
            await self._book.add(name, setup, secrets)
            await self._update()
        return await self.account(name)

    async def change(
        self, name: str, changes: Mapping[str, object], secrets: Mapping[str, str | None]
    ) -> Account:
        async with self._changing:
            await self._book.change(name, changes, secrets)
            await self._update()
        return await self.account(name)

    async def remove(self, name: str) -> None:
        async with self._changing:
            await self._book.remove(name)
            await self._update()

    async def test(self, name: str) -> Identity:
        return await self._book.test(name)

    async def pair(self, name: str, role: SenderRole) -> PairingCode:
        code = await self._book.pair(name, role)
        running = self._running.get(name)
        identity = None if running is None else running.identity
        return msgspec.structs.replace(code, link=identity.link if identity else "")

    async def change_role(self, name: str, sender: str, role: SenderRole) -> Person:
        async with self._changing:  # a person who is removed meanwhile must stay removed
            return await self._book.change_role(name, sender, role)

    async def remove_person(self, name: str, sender: str) -> None:
        async with self._changing:
            await self._book.remove_person(name, sender)

    async def take_hook(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        running = self._running.get(name)
        if running is None:
            raise HookDenied
        await running.take_hook(headers, body)

    def status(self) -> JsonObject:
        """Figures of this server, for metrics."""
        healths = [running.health() for running in self._running.values()]
        return {
            "accounts": len(healths),
            "serving": sum(running.is_serving for running in self._running.values()),
            "failing": sum(health.state is AccountState.FAILING for health in healths),
            "strangers_total": sum(health.strangers for health in healths),
        }

    async def _describe(self, running: RunningAccount) -> Account:
        name = running.name
        return Account(
            name=name,
            origin=running.wanted.origin,
            settings=running.wanted.setup,
            secrets=running.secrets(),
            health=await self._health(running),
            figures=await self._book.figures(name),
            people=tuple(await self._book.people_of(name)),
            identity=running.identity,
            hook=f"/hooks/{name}" if isinstance(running.platform, TakesHooks) else "",
        )

    async def _health(self, running: RunningAccount) -> AccountHealth:
        """As the server that serves the account sees it."""
        here = running.health()
        if here.state is not AccountState.STARTING:
            return here
        return await self._book.read_health(running.name) or here

    # --- following the settings ----------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self._look.wait(_LOOK_S)
            try:
                async with self._changing:
                    await self._update()
                await self._write_health()
            except (Retry, StoreFault) as error:
                _log.warning("accounts keep their settings for now: %s", error)

    async def _update(self) -> None:
        """Start, change and remove accounts, as the settings are now."""
        wanted = await self._book.all()
        if self._is_stopping:
            return
        for name in self._running.keys() - wanted.keys():
            self._running.pop(name).remove()
        for name, one in wanted.items():
            running = self._running.get(name)
            if running is not None:
                running.change(one)
                continue
            self._running[name] = running = RunningAccount(name, one, self._services)
            self._group.start_soon(running.run, name=f"account {name}")

    async def _write_health(self) -> None:
        """Publish the health of the accounts that are served here, when it has changed, and at intervals,
        so that other servers notice if this one stops."""
        now = self._book.clock.now_ms()
        for name, running in list(self._running.items()):
            health = msgspec.structs.replace(running.health(), strangers=0)
            before, written_at = self._written.get(name, (None, 0))
            if running.is_serving and (health != before or now - written_at >= _SEEN_MS):
                await self._book.write_health(name, health)
                self._written[name] = health, now
