"""F01 and F03 with mail: the process is killed before it marks a mail as read and before its receipt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.platform_kills import CHATS, TEXTS, Killer, survive
from tests.mail_service import MailService, Stored, mail

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1_100)]


class DeadlyService(MailService):
    def __init__(self, killer: Killer) -> None:
        super().__init__()
        self._killer = killer

    def mark_read(self, stored: Stored) -> None:
        if not self._killer.strikes_before_acknowledgement():
            super().mark_read(stored)

    def take(self, raw: bytes) -> None:
        super().take(raw)
        self._killer.strikes_before_receipt()

    def read_in(self, thread: str) -> list[str]:
        found = [one for one in self.mails() if one["References"] == thread]
        return [one.get_body(("plain",)).get_content() for one in found]


async def test_f03_mails_are_answered_once_or_marked_however_often_the_process_is_killed(
    data_dir: Path,
) -> None:
    killer = Killer()
    service = DeadlyService(killer)
    async with service.serve():
        for number, text in enumerate(TEXTS):
            service.put(mail(text, references=f"<thread{number % CHATS}@example.org>"))
        await survive(
            killer,
            data_dir,
            ["mail", str(service.imap_port), str(service.smtp_port)],
            lambda: service.unread,
            lambda chat: service.read_in(f"<thread{chat}@example.org>"),
        )
