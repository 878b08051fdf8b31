"""What tests of notifications share: a service without a server, a browser that subscribed, and its messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from everturn.delivery import AccountServices, AccountSettings, NotificationService, NotificationSettings
from everturn.delivery.sender import Sender
from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.notifications import ANSWER_AFTER_MS, CHOICES, GRACE_MS, Device, NewTarget, NoticeKind
from everturn.store import Store
from everturn.store.secrets.file import SecretsFile
from everturn.testing import FakeClock
from everturn.testing.acting import ME, WORKER, answer, append, complete, new_session, start
from tests.push_service import PushService


def service_of(
    store: Store, clock: Clock, folder: Path, private: Sequence[str] = (), worker: str = WORKER, **more: Any
) -> NotificationService:
    services = AccountServices(store, None, clock, worker, **more)  # type: ignore[arg-type]  # only chats need one
    settings = NotificationSettings(private_addresses=tuple(private))
    sending = AccountSettings(poll_s=0.02, take_s=0.02, retry_first_s=0.02, send_timeout_s=25.0)
    return NotificationService(services, SecretsFile(folder), Ids(clock), settings, sending)


async def add_browser(
    service: NotificationService,
    push: PushService,
    name: str = "one",
    kinds: Sequence[NoticeKind] = CHOICES,
) -> Device:
    key = await service.key()
    target = NewTarget(name=name, kinds=tuple(kinds), browser=push.browser(key.key, name))
    device, _ = await service.add(ME, target)
    return device


async def long_turn(store: Store, clock: FakeClock, title: str = "Receipts", text: str = "Done: 210.") -> str:
    """A turn that took long enough to be worth a notification, just ended; return its session's id."""
    session = await new_session(store, title)
    held = await start(store, session.id, "sort them")
    await clock.advance(ANSWER_AFTER_MS / 1000)
    await complete(store, held, await append(store, held, answer(text)))
    return session.id


async def grace(clock: FakeClock) -> None:
    await clock.advance(GRACE_MS / 1000)


async def send_all(service: NotificationService, worker: str = WORKER) -> None:
    """Send what can be sent now, as the service does while it runs."""
    services = service.senders[0].context.services
    await services.store.workers.register(worker)
    for one in service.senders:
        lease = await services.store.delivery.leases.take(one.account, worker)
        if lease is None:
            continue
        sender = Sender(one.context, lease)
        while True:
            async with anyio.create_task_group() as group:
                count = await sender.send_due(group)
            if not count:
                break


async def look_and_send(service: NotificationService, worker: str = WORKER) -> None:
    await service.notifier.look()
    await send_all(service, worker)
