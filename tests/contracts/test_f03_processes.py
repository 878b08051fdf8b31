"""F03 with real processes: the sender is killed after the receiver took a part and before it answers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import PartState
from everturn.store import Store
from everturn.testing.forks import Fork, fork_command
from everturn.testing.harness import OWNER
from everturn.testing.webhook_service import WebhookService
from tests.contracts.delivery_child import ANSWER, KEY, platform_at
from tests.waiting import until

pytestmark = pytest.mark.anyio
MESSAGES = 3


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


class DeadlyService(WebhookService):
    """Takes what it is sent, then kills the sender instead of answering, ``kills`` times."""

    kills = 0
    sender: Fork | None = None

    def take(self, headers: dict[str, str], body: bytes) -> int:
        status = super().take(headers, body)
        if self.kills and self.sender is not None:
            self.kills -= 1
            self.sender.send_signal(signal.SIGKILL)
            return 0
        return status


@contextmanager
def sender(service: DeadlyService, url: str, folder: Path) -> Iterator[Fork]:
    arguments = (url, str(folder), str(service.port))
    process = fork_command(*arguments, environ=os.environ, module="tests.contracts.delivery_child")
    service.sender = process
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) is not None


async def test_f03_a_sender_killed_between_send_and_receipt_loses_and_doubles_nothing(
    store: Store, store_url: str, data_dir: Path
) -> None:
    service = DeadlyService(KEY, SystemClock())
    with service.serve():
        for number in range(MESSAGES):
            service.say(f"message {number}")
            update = platform_at(service.port).read_update(*service.waiting[-1])
            await store.delivery.inbox.receive(OWNER, update, profile="default")
        service.kills = MESSAGES
        for number in range(MESSAGES):
            with sender(service, store_url, data_dir) as process:
                await until(f"the sender is killed, time {number + 1}", lambda: process.wait(0) is not None)
        with sender(service, store_url, data_dir):
            await until("all is sent", lambda: _is_all_sent(store))
    answers = [text for text in service.read() if not text.startswith("*")]
    assert answers == [ANSWER] * MESSAGES
    assert service.attempts > len(service.answers), "what was in doubt was sent again, and recognised"
    assert await store.delivery.outbox.list_undecided(OWNER) == []


async def _is_all_sent(store: Store) -> bool:
    """Whether each message has a turn, and each turn a reply that was sent."""
    sessions = (await store.sessions.list(OWNER)).items
    if len(sessions) != 1:
        return False
    page = await store.transcript.page(OWNER, sessions[0].id, limit=100)
    states = [
        [part.state for part in await store.delivery.outbox.of_turn(OWNER, turn.id)] for turn in page.turns
    ]
    return len(states) == MESSAGES and all(found == [PartState.SENT] for found in states)
