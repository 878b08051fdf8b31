"""F10 with real processes: the sender is killed after the push service took a message and before it answers."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from everturn.domain.clock import SystemClock
from everturn.store import Store
from everturn.testing.acting import ME
from everturn.testing.forks import Fork, fork_command
from tests.notifying import add_browser, service_of
from tests.push_service import PushService
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


class DeadlyPush(PushService):
    """Takes what it is sent, then kills the sender instead of answering."""

    kills = 0
    sender: Fork | None = None

    def take(self, headers: dict[str, str], body: bytes) -> int:
        status = super().take(headers, body)
        if self.kills and self.sender is not None:
            self.kills -= 1
            self.sender.send_signal(signal.SIGKILL)
            return 0
        return status


async def test_f10_a_sender_killed_between_send_and_receipt_shows_it_once(
    store: Store, store_url: str, clock: SystemClock, data_dir: Path
) -> None:
    push = DeadlyPush()
    with push.serve():
        device = await add_browser(service_of(store, clock, data_dir, [push.private]), push)
        await service_of(store, clock, data_dir).test(ME, device.id)
        push.kills = 2
        for _ in range(3):
            process = _sender(store_url, data_dir, push)
            try:
                await until("the sender is killed or done", partial(_is_over, store, process))
            finally:
                process.send_signal(signal.SIGKILL)
                assert process.wait(60) is not None
    assert len(push.attempts) == 3
    (shown,) = push.shown.values()
    assert shown["title"] == "Test from Everturn"


def _sender(store_url: str, folder: Path, push: DeadlyPush) -> Fork:
    arguments = (store_url, str(folder), push.private)
    process = fork_command(*arguments, environ=os.environ, module="tests.contracts.notify_child")
    push.sender = process
    return process


async def _is_over(store: Store, process: Fork) -> bool:
    (device,) = await store.delivery.devices.list(ME)
    return device.sent_at is not None or process.wait(0) is not None
