"""Serves one account in a process that is killed, and served anew by the next one.

``python -m tests.contracts.platform_child URL FOLDER PLATFORM PORT...`` prints the id of each process. It forks them from
one that has loaded everything: the platforms' libraries take seconds to load.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everturn.delivery import AccountService, AccountServices, AccountSettings
from everturn.domain.clock import SystemClock
from everturn.domain.gateway import AccountSetup
from everturn.domain.model import Chunk, ModelRequest
from everturn.domain.platform import Platform, SendLimits
from everturn.gateway.platforms import find_platform
from everturn.store import open_store
from everturn.testing import Say, ScriptedModel
from everturn.testing.harness import open_harness
from tests.contracts.delivery_child import admit

ACCOUNT = "family"


class EchoModel(ScriptedModel):
    """Answers each message by its own text."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        self.add(Say(f"answer to {request.messages[-1].text}"))
        async with super().stream(request) as chunks:
            yield chunks


def make_platform(name: str, *ports: str) -> Platform:
    """Imports what the platform needs, and nothing that another one does."""
    options: dict[str, Any]
    if name == "telegram":
        from tests.telegram_api import TOKEN

        options, secrets = {"api_url": f"http://127.0.0.1:{ports[0]}"}, {"token": TOKEN}
    elif name == "slack":
        from tests.slack_service import APP_TOKEN, BOT_TOKEN

        options = {"api_url": f"http://127.0.0.1:{ports[0]}/api/"}
        secrets = {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN}
    else:
        from tests.mail_service import OPTIONS, PASSWORD

        options = {**OPTIONS, "imap_port": int(ports[0]), "smtp_port": int(ports[1])}
        secrets = {"password": PASSWORD}
    setup = AccountSetup(platform=name, options=options)
    platform: Any = find_platform(name).make_platform(ACCOUNT, setup, secrets, SystemClock())
    platform.limits = SendLimits()  # a thousand messages would take minutes
    return platform


async def serve(url: str, folder: Path, platform: Platform) -> None:
    clock = SystemClock()
    async with (
        open_store(url, data_dir=folder) as store,
        open_harness(store, model=EchoModel(clock=clock), clock=clock) as here,
    ):
        services = AccountServices(store, here.engine, clock, here.engine.worker)
        settings = AccountSettings(poll_s=0.05, take_s=0.05, retry_first_s=0.05)
        await AccountService(ACCOUNT, platform, admit, settings, services).run()


def main(url: str, folder: str, name: str, *ports: str) -> None:
    make_platform(name, *ports)  # loads its libraries
    while True:
        child = os.fork()
        if child == 0:
            asyncio.run(serve(url, Path(folder), make_platform(name, *ports)))
            os._exit(1)  # it serves until it is killed
        print(child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
