"""F01 and F03 with Slack's real client: the process is killed before its acknowledgement and before its receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contracts.platform_kills import CHATS, TEXTS, Killer, survive
from tests.slack_service import SlackService

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1_100)]


class DeadlyService(SlackService):
    def __init__(self, killer: Killer) -> None:
        super().__init__()
        self._killer = killer

    def acknowledge(self, envelope_id: str) -> None:
        if not self._killer.strikes_before_acknowledgement():
            super().acknowledge(envelope_id)

    def post(self, sent: dict[str, Any]) -> dict[str, Any]:
        taken = super().post(sent)
        self._killer.strikes_before_receipt()
        return taken


async def test_f03_messages_over_slack_are_answered_once_or_marked_however_often_the_process_is_killed(
    data_dir: Path,
) -> None:
    killer = Killer()
    service = DeadlyService(killer)
    async with service.serve():
        for number, text in enumerate(TEXTS):
            service.say(text, f"D{number % CHATS}")
        await survive(
            killer,
            data_dir,
            ["slack", str(service.port)],
            lambda: len(service.envelopes),
            lambda chat: [one["text"] for one in service.posted if one["channel"] == f"D{chat}"],
        )
