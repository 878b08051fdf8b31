"""Accounts that are served in a test: an engine with a scripted model, and a platform in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from everturn.delivery import AccountService, AccountServices, AccountSettings
from everturn.delivery.bell import Bell
from everturn.delivery.context import AccountContext
from everturn.delivery.pace import Pace
from everturn.domain.audit import AuditLog
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import SenderRole, Update
from everturn.domain.gateway import Admission
from everturn.store import Store
from everturn.testing.harness import OWNER, Harness, open_harness
from everturn.testing.platform import FakePlatform
from tests.waiting import until

FAST = AccountSettings(poll_s=0.01, take_s=0.01, retry_first_s=0.01)


ROLES = {"ada": SenderRole.OWNER, "bob": SenderRole.MEMBER}


async def admit(update: Update) -> Admission | None:
    role = ROLES.get(update.sender)
    return None if role is None else Admission(OWNER, role, "default")


async def _profiles() -> tuple[str, ...]:
    return ("default", "quiet")


def services_of(harness: Harness, *, page_url: str = "", audit: AuditLog | None = None) -> AccountServices:
    return AccountServices(
        harness.store,
        harness.engine,
        harness.clock,
        harness.engine.worker,
        profiles=_profiles,
        page_url=page_url,
        audit=audit or AuditLog(),
    )


def context_of(harness: Harness, platform: FakePlatform) -> AccountContext:
    clock = harness.clock
    return AccountContext(
        platform.account, platform, FAST, services_of(harness), Bell(clock), Pace(clock, per_s_max=0)
    )


def service_of(
    harness: Harness,
    platform: FakePlatform,
    settings: AccountSettings = FAST,
    *,
    page_url: str = "",
    audit: AuditLog | None = None,
) -> AccountService:
    services = services_of(harness, page_url=page_url, audit=audit)
    return AccountService(platform.account, platform, admit, settings, services)


@asynccontextmanager
async def serving(*services: AccountService) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        for service in services:
            group.start_soon(service.run, name=service.account)
        yield
        group.cancel_scope.cancel()


@asynccontextmanager
async def answering(
    store: Store,
    platform: FakePlatform,
    *script: Any,
    settings: AccountSettings = FAST,
) -> AsyncIterator[tuple[Harness, AccountService]]:
    """An engine whose model plays the script, and the account of this platform."""
    async with open_harness(store, *script, clock=SystemClock()) as harness:
        service = service_of(harness, platform, settings)
        async with serving(service):
            yield harness, service


async def arrived(platform: FakePlatform, count: int, chat: str = "42") -> list[str]:
    await until(f"{count} messages arrive in {chat}", lambda: len(platform.texts(chat)) >= count)
    return platform.texts(chat)
