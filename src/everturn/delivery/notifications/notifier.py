"""Composes due notifications, and withdraws them when their cause is gone (F10).

Every server has one. The store lets only one of them settle a notification.
"""

from __future__ import annotations

import logging

import anyio
import msgspec

from everturn.delivery.bell import Bell
from everturn.delivery.german import speaks_german, title_in_german
from everturn.delivery.notifications.messages import compose, compose_gone, part_of, quiet_until
from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, Retry
from everturn.domain.notifications import (
    ABOUT_ASKS,
    KEEP_MS,
    DeviceKind,
    Notice,
    NoticeKind,
    NoticeMessage,
    NoticeSettings,
    NoticeState,
)
from everturn.domain.store import Store

RECORD_KIND = "notifications"
RECORD_NAME = "settings"
BATCH_MAX = 50
POLL_S = 1.0
WAKE_S = 0.1  # the least time between two checks because a session changed
PRUNE_S = 3600.0
CHAT_WAIT_MS = 60_000  # for a chat's account to ask there itself, with buttons
CHAT_LOOK_MS = 5_000
_log = logging.getLogger("everturn.delivery")


class Notifier:
    def __init__(self, store: Store, clock: Clock, outgoing: list[Bell], page_url: str) -> None:
        """``outgoing``: rung when there is something to send."""
        self._store = store
        self._notices = store.delivery.notices
        self._clock = clock
        self._outgoing = outgoing
        self._page_url = page_url
        self._pruned_at: float | None = None
        self.bell = Bell(clock)

    async def run(self) -> None:
        """Run until cancelled. Errors are logged: without this task no notification would be sent."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._wake, name="notifications: wake")
            while True:
                count = 0
                try:
                    count = await self.look()
                except Retry as error:
                    _log.warning("notifications wait: %s", error)
                except EverturnError:
                    _log.exception("notifications wait")
                if not count:
                    await self.bell.wait(POLL_S)

    async def look(self) -> int:
        """Process due and obsolete notifications; return how many messages were recorded."""
        count = 0
        for notice in await self._notices.due(limit=BATCH_MAX):
            count += await self._settle(notice)
        for notice in await self._notices.over(limit=BATCH_MAX):
            count += await self._withdraw(notice)
        await self._prune()
        if count:
            for bell in self._outgoing:
                bell.ring()
        return count

    async def _settle(self, notice: Notice) -> bool:
        settings = await read_settings(self._store, notice.device.owner)
        until = self._later(notice, settings)
        if until is not None:
            await self._notices.postpone(notice, until)
            return False
        message = await self._speak(compose(notice, settings), notice.device.owner)
        part = part_of(notice, message, self._page_url)
        if _is_asked_in_chat(notice):
            key = f"ask:{notice.cause}"
            is_asked = bool(await self._store.delivery.outbox.find(notice.chat.owner, notice.chat.id, key))
            now_ms = self._clock.now_ms()
            if not is_asked and notice.is_standing and now_ms - notice.created_at < CHAT_WAIT_MS:
                await self._notices.postpone(notice, now_ms + CHAT_LOOK_MS)
                return False
            state = await self._notices.record(notice, None if is_asked else part)
        else:
            state = await self._notices.record(notice, part)
        return state is NoticeState.SHOWN

    async def _speak(self, message: NoticeMessage, owner: str) -> NoticeMessage:
        """Return the message in the owner's language: the title, and the text if it is ours."""
        if not await speaks_german(self._store.records, owner):
            return message
        title, text = title_in_german(message.title), message.text
        is_ours = message.kind is NoticeKind.TEST or message.is_gone
        return msgspec.structs.replace(message, title=title, text=title_in_german(text) if is_ours else text)

    def _later(self, notice: Notice, settings: NoticeSettings) -> int | None:
        """Return when it may be sent; None for now. What blocks work is sent even in quiet hours."""
        if notice.kind in ABOUT_ASKS or notice.kind is NoticeKind.TEST or not notice.is_standing:
            return None
        return quiet_until(settings.quiet, self._clock.now_ms())

    async def _withdraw(self, notice: Notice) -> bool:
        part = None
        if notice.device.kind in (DeviceKind.BROWSER, DeviceKind.WEBHOOK):
            settings = await read_settings(self._store, notice.device.owner)
            message = await self._speak(compose_gone(notice, settings), notice.device.owner)
            part = part_of(notice, message, self._page_url)
        return await self._notices.withdraw(notice, part) is not None

    async def _prune(self) -> None:
        now = self._clock.monotonic()
        if self._pruned_at is None or now - self._pruned_at > PRUNE_S:
            self._pruned_at = now
            while await self._notices.prune(self._clock.now_ms() - KEEP_MS):
                await anyio.lowlevel.checkpoint()

    async def _wake(self) -> None:
        known = 0
        while True:
            known = await self._store.wait_for_change(known)
            self.bell.ring()
            await self._clock.sleep(WAKE_S)


def _is_asked_in_chat(notice: Notice) -> bool:
    """True if the chat's own account asks there, because it can show buttons."""
    return notice.device.kind is DeviceKind.CHAT and notice.kind in ABOUT_ASKS


async def read_settings(store: Store, owner: str) -> NoticeSettings:
    found = await store.records.get(owner, RECORD_KIND, RECORD_NAME)
    return NoticeSettings() if found is None else msgspec.convert(found, NoticeSettings)
