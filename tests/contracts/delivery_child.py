"""A process that serves one webhook account, to be killed: ``python -m tests.contracts.delivery_child URL FOLDER PORT``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from everturn.delivery import AccountService, AccountServices, AccountSettings
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import SenderRole, Update
from everturn.domain.gateway import Admission
from everturn.gateway.webhook import WebhookPlatform, WebhookSettings
from everturn.store import open_store
from everturn.testing import Say, ScriptedModel
from everturn.testing.harness import OWNER, open_harness

ACCOUNT = "ci"
KEY = bytes(range(32))
ANSWER = "the answer"


def platform_at(port: int) -> WebhookPlatform:
    address = f"127.0.0.1:{port}"
    settings = WebhookSettings(url=f"http://{address}/in", private_addresses=(address,))
    return WebhookPlatform(ACCOUNT, settings, (KEY,), SystemClock())


async def admit(update: Update) -> Admission:
    return Admission(OWNER, SenderRole.OWNER, "default")


async def serve(url: str, folder: Path, port: int) -> None:
    clock = SystemClock()
    model = ScriptedModel(then=Say(ANSWER), clock=clock)
    async with (
        open_store(url, data_dir=folder) as store,
        open_harness(store, model=model, clock=clock) as here,
    ):
        services = AccountServices(store, here.engine, clock, here.engine.worker)
        settings = AccountSettings(poll_s=0.02, take_s=0.02, retry_first_s=0.02)
        await AccountService(ACCOUNT, platform_at(port), admit, settings, services).run()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
