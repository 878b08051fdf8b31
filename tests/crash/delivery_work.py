"""A process that serves a chat, to be killed: ``python -m tests.crash.delivery_work URL FOLDER OUTSIDE MOMENT NTH``.

The platform's own memory is files in the folder ``OUTSIDE``: it outlives the process, as a real service does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from everturn.delivery import AccountService, AccountServices, AccountSettings
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import ChatKind, ChatPlace, NewPart, OutgoingPart, SenderRole, Update
from everturn.domain.gateway import Admission
from everturn.domain.platform import Deliver
from everturn.domain.probe import Moment, Probe
from everturn.store import Store, StoreSettings, open_store
from everturn.testing import KillingProbe, Say, ScriptedModel
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.platform import FakePlatform

MESSAGES = 4
SETTINGS = AccountSettings(poll_s=0.05, take_s=0.05, retry_first_s=0.05, wake_s=0.01)
STORE = StoreSettings(lease_s=7.0)


class Sent(msgspec.Struct, frozen=True):
    """What people in the chat have read, as the outside keeps it."""

    text: str
    is_repeat: bool


class OutsidePlatform(FakePlatform):
    """Delivers each message until it is acknowledged, and keeps both sides in files."""

    def __init__(self, outside: Path) -> None:
        super().__init__()
        self._outside = outside

    def lines(self, name: str) -> list[str]:
        path = self._outside / name
        return path.read_text().splitlines() if path.exists() else []

    def sent(self) -> list[Sent]:
        return [msgspec.json.decode(line, type=Sent) for line in self.lines("sent")]

    def _add(self, name: str, line: str) -> None:
        with (self._outside / name).open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    async def receive(self, deliver: Deliver) -> None:
        place = ChatPlace(self.account, self.name, ChatKind.DIRECT, "42")
        for number in range(len(self.lines("acknowledged")), MESSAGES):
            await deliver(Update(f"u{number}", place, "ada", f"message {number}"))
            self._add("acknowledged", f"u{number}")
        await anyio.sleep_forever()

    async def send(self, part: OutgoingPart) -> str:
        self._add("sent", msgspec.json.encode(Sent(part.body.text, part.is_repeat)).decode())
        return part.id

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(line) for line in markdown.splitlines()]


async def admit(update: Update) -> Admission:
    return Admission(OWNER, SenderRole.OWNER, "default")


async def serve(store: Store, outside: Path, probe: Probe) -> None:
    """Serve until every message is answered and nothing is to be sent."""
    clock = SystemClock()
    model = ScriptedModel(then=Say("one\ntwo"), clock=clock)
    platform = OutsidePlatform(outside)
    async with open_harness(store, model=model, clock=clock) as here:
        services = AccountServices(store, here.engine, clock, here.engine.worker, probe=probe)
        service = AccountService(platform.account, platform, admit, SETTINGS, services)
        async with anyio.create_task_group() as group:
            group.start_soon(service.run)
            while not await is_done(store):
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()


async def is_done(store: Store) -> bool:
    sessions = (await store.sessions.list(OWNER)).items
    if len(sessions) != 1 or sessions[0].active_turn or sessions[0].queued:
        return False
    page = await store.transcript.page(OWNER, sessions[0].id, limit=100)
    parts = [await store.delivery.outbox.of_turn(OWNER, turn.id) for turn in page.turns]
    return len(parts) >= MESSAGES and all(
        len(found) == 2 and all(part.state == "sent" for part in found) for found in parts
    )


async def main(url: str, folder: str, outside: str, moment: str, nth: str) -> None:
    probe = KillingProbe(Moment(moment), int(nth))
    async with open_store(url, data_dir=Path(folder), settings=STORE) as store:
        await serve(store, Path(outside), probe)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
