"""F01 and F03 with Telegram's real client: the process is killed before its acknowledgement and before its receipt.

``EVERTURN_MESSAGES=1000`` makes it the long run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import PartState
from everturn.domain.messages import Role
from everturn.domain.turns import ENDED, Turn, TurnState
from everturn.store import Store, open_store
from everturn.testing.harness import OWNER
from everturn.testing.waiting import within
from tests.telegram_api import BrokenOff, TelegramService

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1_100)]
MESSAGES = int(os.environ.get("EVERTURN_MESSAGES", "12"))
CHATS = max(3, MESSAGES // 25)
KILL_EVERY = 4 if MESSAGES < 100 else 40  # so many sends, and so many polls
LONGEST_S = 280 if MESSAGES < 100 else 1_000  # loading the client alone takes seconds of a busy machine
REPEAT = "This may be a repeat:\n"


class DeadlyService(TelegramService):
    """Kills the process when it acknowledges, and when it waits for a receipt, again and again."""

    process = 0
    kills = 0
    sends = 0
    kills_max = 2 if MESSAGES < 100 else 30

    def acknowledge(self, offset: int) -> None:
        if any(update["update_id"] < offset for update in self.updates) and self.kills % 2 == 0:
            self._kill()
        super().acknowledge(offset)

    def send(self, form: dict[str, Any], content: dict[str, Any]) -> Any:
        taken = super().send(form, content)
        self.sends += 1
        if self.sends % KILL_EVERY == 0 and self.kills % 2:
            self._kill()
        return taken

    def _kill(self) -> None:
        if self.kills < self.kills_max and self.process:
            self.kills += 1
            os.kill(self.process, signal.SIGKILL)
            self.process = 0
            raise BrokenOff


@asynccontextmanager
async def served(service: DeadlyService, url: str, folder: Path) -> Any:
    """Processes that serve the account, one after the other."""
    command = ["-m", "tests.contracts.platform_child", url, str(folder), str(service.port)]
    parent = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )

    async def follow() -> None:
        assert parent.stdout is not None
        while line := await parent.stdout.readline():
            service.process = int(line)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        await parent.wait()
        await following


async def test_f03_messages_over_telegram_are_answered_once_or_marked_however_often_the_process_is_killed(
    data_dir: Path,
) -> None:
    url = f"sqlite://{data_dir / 'everturn.db'}"
    service = DeadlyService()
    async with open_store(url, data_dir=data_dir, clock=SystemClock()) as store, service.serve():
        for number in range(MESSAGES):
            service.say(f"m{number:04}", {"id": 50 + number % CHATS, "type": "private"})
        async with served(service, url, data_dir):
            with within("all is answered and sent", LONGEST_S):
                while not await _is_settled(store, service):
                    await anyio.sleep(0.1)
        turns = await _turns(store)
    assert service.kills == service.kills_max
    assert service.updates == []
    assert sorted(text for text, _ in turns) == [f"m{number:04}" for number in range(MESSAGES)], "a turn each"
    shown = [message["shown"] for message in service.sent.values()]
    plain = Counter(text for text in shown if not text.startswith(REPEAT))
    marked = Counter(text.removeprefix(REPEAT) for text in shown if text.startswith(REPEAT))
    for text, turn in turns:
        answer = f"answer to {text}"
        assert plain[answer] <= 1, "twice and not marked"
        assert plain[answer] + marked[answer] >= 1 or turn.state is TurnState.INTERRUPTED, "no answer"
    for chat in range(CHATS):
        found = service.read({"id": 50 + chat})
        order = [text[-5:] for text in found if text.removeprefix(REPEAT).startswith("answer to")]
        assert order == sorted(order), "in their order"


async def _turns(store: Store) -> list[tuple[str, Turn]]:
    """All turns with what was written."""
    found: list[tuple[str, Turn]] = []
    cursor = None
    while True:
        page = await store.sessions.list(OWNER, cursor=cursor)
        for session in page.items:
            shown = await store.transcript.page(OWNER, session.id, limit=100)
            texts = {one.turn_id: one.text for one in shown.messages.items if one.role is Role.USER}
            found += [(texts[turn.id], turn) for turn in shown.turns]
        cursor = page.cursor
        if cursor is None:
            return found


async def _is_settled(store: Store, service: DeadlyService) -> bool:
    """Whether each message has a turn that has ended, and each turn a reply that was sent."""
    if service.updates or service.sends < MESSAGES:
        return False
    turns = [turn for _, turn in await _turns(store)]
    if len(turns) < MESSAGES or any(turn.state not in ENDED for turn in turns):
        return False
    for turn in turns:
        states = [part.state for part in await store.delivery.outbox.of_turn(OWNER, turn.id)]
        if turn.state is not TurnState.INTERRUPTED and states != [PartState.SENT]:
            return False
    return True
