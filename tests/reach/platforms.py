"""The stand-ins of all platforms, with faults, behind one small interface."""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import httpx2
import msgspec

from everturn.delivery.signatures import sign
from everturn.domain.clock import SystemClock
from everturn.testing.webhook_service import WebhookService
from tests import discord_api, mail_service, slack_service, telegram_api
from tests.reach.chaos import Faults, Killer, Strike

ANSWER = "answer to "
KEY = bytes(range(32))


class Outside(Protocol):
    """One platform as its users see it."""

    name: str

    def serve(self) -> AbstractAsyncContextManager[None]: ...

    def options(self) -> Mapping[str, object]:
        """Settings of the account."""

    def secrets(self) -> Mapping[str, str]: ...

    def write(self, chat: int, text: str) -> None: ...

    def pending(self) -> int:
        """How many messages are not acknowledged."""

    def read(self, chat: int) -> Sequence[str]:
        """What people in the chat have read, in order."""

    async def drop_all(self) -> None: ...


class Telegram(telegram_api.TelegramService):
    name = "telegram"

    def __init__(self, killer: Killer, faults: Faults) -> None:
        super().__init__()
        self._killer = killer
        self._faults = faults

    def options(self) -> Mapping[str, object]:
        return {"api_url": self.url, "allow": [str(telegram_api.ADA["id"])]}

    def secrets(self) -> Mapping[str, str]:
        return {"token": telegram_api.TOKEN}

    def write(self, chat: int, text: str) -> None:
        self.shuffles = self._faults.rate > 0
        self.say(text, {"id": 50 + chat, "type": "private"})

    def pending(self) -> int:
        return len(self.updates)

    def read(self, chat: dict[str, Any] | int = telegram_api.PRIVATE) -> list[str]:
        return super().read({"id": 50 + chat} if isinstance(chat, int) else chat)

    def acknowledge(self, offset: int) -> None:
        if any(update["update_id"] < offset for update in self.updates):
            if self._killer.strikes(Strike.ACKNOWLEDGEMENT):
                raise telegram_api.BrokenOff
            self.repeats = self._faults.pick(self.name, "forgets an acknowledgement") is not None
        super().acknowledge(offset)

    def send(self, form: dict[str, Any], content: dict[str, Any]) -> Any:
        failure = telegram_api.Failure
        kinds = (failure.BUSY, failure.BREAK_OFF, failure.ERROR_AFTER, failure.ERROR, failure.DROP)
        self.failures = [kind] if (kind := self._faults.pick(self.name, *kinds)) else []
        taken = super().send(form, content)
        if self._killer.strikes(Strike.RECEIPT):
            raise telegram_api.BrokenOff
        return taken

    async def drop_all(self) -> None:
        self.poll_failures = [telegram_api.Failure.ERROR]


class Slack(slack_service.SlackService):
    name = "slack"

    def __init__(self, killer: Killer, faults: Faults) -> None:
        super().__init__()
        self._killer = killer
        self._faults = faults

    def options(self) -> Mapping[str, object]:
        return {"api_url": f"{self.url}/api/", "allow": [slack_service.PERSON]}

    def secrets(self) -> Mapping[str, str]:
        return {"bot_token": slack_service.BOT_TOKEN, "app_token": slack_service.APP_TOKEN}

    def write(self, chat: int, text: str) -> None:
        self.say(text, f"D{chat}")
        self.envelopes = self._faults.shuffled(self.envelopes)

    def pending(self) -> int:
        return len(self.envelopes)

    def read(self, chat: int = 0) -> list[str]:
        return [one["text"] for one in self.posted if one["channel"] == f"D{chat}"]

    def acknowledge(self, envelope_id: str) -> None:
        if self._killer.strikes(Strike.ACKNOWLEDGEMENT):
            return
        sent = next((one for one in self.envelopes if one["envelope_id"] == envelope_id), None)
        super().acknowledge(envelope_id)
        forgotten = self._faults.pick(self.name, "forgets an acknowledgement")
        if sent is not None and forgotten:
            self.emit(sent["type"], sent["payload"])

    def post(self, sent: dict[str, Any]) -> dict[str, Any]:
        taken = super().post(sent)
        self._killer.strikes(Strike.RECEIPT)
        kind = self._faults.pick(self.name, "busy", "500", "break off")
        if kind == "busy":
            self.be_busy()  # the next one
        elif kind is not None:
            self.failures.append(kind)
        return taken

    async def drop_all(self) -> None:
        await self.drop_sockets()


class Discord(discord_api.DiscordService):
    name = "discord"

    def __init__(self, killer: Killer, faults: Faults) -> None:
        super().__init__()
        self._killer = killer
        self._faults = faults

    def options(self) -> Mapping[str, object]:
        urls = {"api_url": f"{self.url}/api", "gateway_url": self.gateway_url}
        return urls | {"allow": [discord_api.ADA["id"]]}

    def secrets(self) -> Mapping[str, str]:
        return {"token": discord_api.TOKEN}

    def write(self, chat: int, text: str) -> None:
        channel = str(7000 + chat)
        self.say(text, channel, mentions=[discord_api.BOT])
        if self._faults.pick(self.name, "repeats an event"):
            self.push("MESSAGE_CREATE", self._last_said)

    def pending(self) -> int:
        return 0  # it does not wait for acknowledgements: what is missing shows in the turns

    def read(self, channel: str | int = discord_api.PRIVATE) -> list[str]:
        return super().read(str(7000 + channel) if isinstance(channel, int) else channel)

    async def _send(self, request: Any, channel: str) -> Any:
        failure = discord_api.Failure
        kinds = (failure.BUSY, failure.BREAK_OFF, failure.ERROR_AFTER, failure.DROP)
        self.failures = [kind] if (kind := self._faults.pick(self.name, *kinds)) else []
        answer = await super()._send(request, channel)
        self._killer.strikes(Strike.RECEIPT)
        return answer

    async def drop_all(self) -> None:
        await self.drop_sockets()


class Mail(mail_service.MailService):
    name = "mail"

    def __init__(self, killer: Killer, faults: Faults) -> None:
        super().__init__()
        self._killer = killer
        self._faults = faults

    def options(self) -> Mapping[str, object]:
        ports = {"imap_port": self.imap_port, "smtp_port": self.smtp_port}
        return {**mail_service.OPTIONS, **ports, "allow": [mail_service.PERSON]}

    def secrets(self) -> Mapping[str, str]:
        return {"password": mail_service.PASSWORD}

    def write(self, chat: int, text: str) -> None:
        self.put(mail_service.mail(text, references=_thread(chat)))

    def pending(self) -> int:
        return self.unread

    def read(self, chat: int = 0) -> list[str]:
        found = [one for one in self.mails() if one["References"] == _thread(chat)]
        return [one.get_body(("plain",)).get_content() for one in found]

    def mark_read(self, stored: mail_service.Stored) -> None:
        is_forgotten = self._faults.pick(self.name, "forgets an acknowledgement")
        if not self._killer.strikes(Strike.ACKNOWLEDGEMENT) and not is_forgotten:
            super().mark_read(stored)

    def take(self, raw: bytes) -> None:
        super().take(raw)
        self._killer.strikes(Strike.RECEIPT)
        kinds = ("451 try again later", "break off", "break before data")
        self.failures = [kind] if (kind := self._faults.pick(self.name, *kinds)) else []  # of the next one

    async def drop_all(self) -> None:
        self.drop_connections()


class Webhook(WebhookService):
    """Posts the messages of each chat in their order, each until it is accepted, to any server."""

    name = "webhook"

    def __init__(self, killer: Killer, faults: Faults, hooks: Sequence[str]) -> None:
        super().__init__(KEY, SystemClock())
        self._killer = killer
        self._faults = faults
        self._hooks = hooks
        self._chats: dict[int, asyncio.Queue[tuple[str, str]]] = {}
        self._posting: set[asyncio.Task[None]] = set()
        self._unread = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:  # type: ignore[override]  # in the loop of the others
        with super().serve():
            async with httpx2.AsyncClient(timeout=20.0, trust_env=False) as self._http:
                try:
                    yield
                finally:
                    for task in self._posting:
                        task.cancel()
                    await asyncio.gather(*self._posting, return_exceptions=True)

    def options(self) -> Mapping[str, object]:
        address = f"127.0.0.1:{self.port}"
        return {"url": f"http://{address}/in", "private_addresses": [address], "allow": ["ci"]}

    def secrets(self) -> Mapping[str, str]:
        return {"secret": "whsec_" + base64.b64encode(KEY).decode()}

    def write(self, chat: int, text: str) -> None:
        self._unread += 1
        if chat not in self._chats:
            self._chats[chat] = asyncio.Queue()
            self._posting.add(asyncio.create_task(self._post_all(chat, self._chats[chat])))
        self._chats[chat].put_nowait((f"msg_{text}", text))

    def pending(self) -> int:
        return self._unread

    def read(self, chat: int = 0) -> list[str]:
        return [one["text"] for one in self.answers.values() if one["chat"] == f"chat{chat}"]

    async def _post_all(self, chat: int, messages: asyncio.Queue[tuple[str, str]]) -> None:
        while True:
            message_id, text = await messages.get()
            body = msgspec.json.encode({"text": text, "chat": f"chat{chat}", "sender": "ci"})
            while not await self._post(message_id, body):
                await asyncio.sleep(0.3)
            self._unread -= 1

    async def _post(self, message_id: str, body: bytes) -> bool:
        """Whether it was accepted, and we do not forget that."""
        signed = sign(KEY, message_id, self.clock.now_ms() // 1000, body)
        headers = signed | {"content-type": "application/json"}
        try:
            answer = await self._http.post(random.choice(self._hooks), content=body, headers=headers)
        except httpx2.HTTPError:
            return False
        is_forgotten = self._killer.strikes(Strike.ACKNOWLEDGEMENT)
        is_forgotten |= self._faults.pick(self.name, "forgets an acknowledgement") is not None
        return answer.status_code == 202 and not is_forgotten

    def take(self, headers: dict[str, str], body: bytes) -> int:
        kind = self._faults.pick(self.name, "busy", "break off", "500 after it was taken")
        if kind == "busy":
            self.be_busy()
        elif kind == "break off":
            self.break_off()
        status = super().take(headers, body)
        if self._killer.strikes(Strike.RECEIPT):
            return 0
        return 500 if kind == "500 after it was taken" else status

    async def drop_all(self) -> None:
        """Each message has a connection of its own."""


def answered(text: str) -> str:
    """The message that an answer is for."""
    found = re.search(ANSWER + r"(m\d+)", text)
    assert found is not None, text
    return found[1]


def _thread(chat: int) -> str:
    return f"<thread{chat}@example.org>"
