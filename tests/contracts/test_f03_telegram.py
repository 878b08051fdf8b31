"""F01 and F03 with Telegram's real client: the process is killed before its acknowledgement and before its receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contracts.platform_kills import CHATS, TEXTS, Killer, survive
from tests.telegram_api import BrokenOff, TelegramService

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1_100)]


class DeadlyService(TelegramService):
    def __init__(self, killer: Killer) -> None:
        super().__init__()
        self._killer = killer

    def acknowledge(self, offset: int) -> None:
        is_new = any(update["update_id"] < offset for update in self.updates)
        if is_new and self._killer.strikes_before_acknowledgement():
            raise BrokenOff
        super().acknowledge(offset)

    def send(self, form: dict[str, Any], content: dict[str, Any]) -> Any:
        taken = super().send(form, content)
        if self._killer.strikes_before_receipt():
            raise BrokenOff
        return taken


async def test_f03_messages_over_telegram_are_answered_once_or_marked_however_often_the_process_is_killed(
    data_dir: Path,
) -> None:
    killer = Killer()
    service = DeadlyService(killer)
    async with service.serve():
        for number, text in enumerate(TEXTS):
            service.say(text, {"id": 50 + number % CHATS, "type": "private"})
        await survive(
            killer,
            data_dir,
            ["telegram", str(service.port)],
            lambda: len(service.updates),
            lambda chat: service.read({"id": 50 + chat}),
        )
