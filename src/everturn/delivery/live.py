"""Live messages: while a turn runs, one message in its chat shows the progress.

Nothing depends on it: the answer is recorded and sent whether or not the message arrived. The message is
first sent like any other, without any of the answer; later edits add parts of the answer and are not stored.
Every edit ends with a line saying that the turn is still running, so that a partial answer never looks
complete.
"""

from __future__ import annotations

import logging
from contextlib import aclosing

import anyio
import anyio.abc

from everturn.delivery.context import AccountContext
from everturn.delivery.live_text import THINKING, LiveText
from everturn.delivery.parts import render_parts
from everturn.domain import events as ev
from everturn.domain.clock import call_within
from everturn.domain.delivery import AccountLease, ReplyUnderway
from everturn.domain.errors import PlatformBusy, PlatformRefused, Refused, Retry

_BUSY_S = 10.0  # a pause if the platform asks for one and does not say how long
_ENDS = (ev.TurnCompleted, ev.TurnCancelled, ev.TurnFailed, ev.TurnInterrupted, ev.TurnWaiting)
_log = logging.getLogger("everturn.delivery")


class LiveMessages:
    """The live messages of one account, while this worker has its lease."""

    def __init__(self, context: AccountContext, lease: AccountLease) -> None:
        self._context = context
        self._lease = lease
        self._outbox = context.delivery.outbox
        self._followed: set[tuple[str, str]] = set()  # chat and turn

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            while True:
                try:
                    await self.look(group)
                except Retry as error:
                    _log.info("account %s: live messages wait: %s", self._context.account, error)
                await self._context.clock.sleep(self._context.settings.live_look_s)

    async def look(self, group: anyio.abc.TaskGroup) -> None:
        """Show turns that take long, and follow the ones shown."""
        context, now = self._context, self._context.clock.now_ms()
        limit = context.settings.chats_at_once_max
        underway = await self._outbox.replies_underway(context.account, limit=limit)
        self._followed.intersection_update((one.chat.id, one.turn_id) for one in underway)
        for one in underway:
            if not one.is_shown and now - one.started_at >= context.settings.live_after_s * 1000:
                await self._show(one)
            elif one.live_id is not None and (one.chat.id, one.turn_id) not in self._followed:
                self._followed.add((one.chat.id, one.turn_id))
                group.start_soon(self._follow, one, one.live_id, name=f"live {one.turn_id}")

    async def _show(self, underway: ReplyUnderway) -> None:
        context = self._context
        age_max_ms = round(context.settings.live_age_max_s * 1000)
        part = render_parts(context.platform, THINKING)[0]
        try:
            await self._outbox.put_live(underway, part, age_max_ms=age_max_ms)
        except Refused as error:  # its session or its account was removed meanwhile
            _log.info("account %s: %s is not shown: %s", context.account, underway.turn_id, error)
        context.outgoing.ring()

    async def _follow(self, underway: ReplyUnderway, live_id: str) -> None:
        chat_id = underway.chat.id
        lock = self._context.live.setdefault(chat_id, anyio.Lock())
        try:
            await _LiveMessage(self._context, self._lease, underway, live_id).run(lock)
        except Exception as error:  # the root of the message's task: the answer does not depend on it
            _log.warning("account %s: live message %s: %r", self._context.account, underway.turn_id, error)
        finally:
            self._context.live.pop(chat_id, None)


class _LiveMessage:
    def __init__(
        self, context: AccountContext, lease: AccountLease, underway: ReplyUnderway, live_id: str
    ) -> None:
        self._context = context
        self._lease = lease
        self._underway = underway
        self._live_id = live_id
        self._progress = LiveText()

    async def run(self, lock: anyio.Lock) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, group.cancel_scope, name="read")
            await self._edit_at_intervals(lock)
            group.cancel_scope.cancel()

    async def _read(self, scope: anyio.CancelScope) -> None:
        """Follow the turn until it ends or waits, then stop editing."""
        one, journal = self._underway, self._context.services.store.journal
        follow = journal.follow(one.chat.owner, one.session_id, one.first_position - 1)
        async with aclosing(follow) as batches:
            async for batch in batches:
                events = [event for event in batch if event.turn_id == one.turn_id]
                for event in events:
                    self._progress.take(event.payload, event.at)
                # Only the last event counts: an earlier wait or interruption may be over.
                if events and isinstance(events[-1].payload, _ENDS):
                    break
        scope.cancel()

    async def _edit_at_intervals(self, lock: anyio.Lock) -> None:
        context, chat = self._context, self._underway.chat
        spacing_s = max(context.settings.live_spacing_s, context.platform.limits.spacing_s(chat.place.kind))
        shown = THINKING
        while True:
            await context.clock.sleep(spacing_s)
            text = self._progress.text()
            if text == shown or not context.pace.count_allowed():
                continue
            # Not cancelled once begun: the edit could arrive after the answer that replaces it.
            with anyio.CancelScope(shield=True):
                async with lock:
                    if not await self._edit(text):
                        return
            shown = text

    async def _edit(self, text: str) -> bool:
        """Edit the message; return False if no further edit is allowed."""
        context, chat = self._context, self._underway.chat
        # Under the lock: once the answer is recorded, its sender may be the next to change the message.
        if not await context.delivery.outbox.is_underway(self._lease, self._underway):
            return False
        body = render_parts(context.platform, text)[-1]
        context.pace.spend()
        try:
            await call_within(
                context.clock,
                context.settings.live_timeout_s,
                lambda: context.platform.edit(chat, self._live_id, body),
            )
        except PlatformBusy as busy:
            context.pace.pause(busy.after_s if busy.after_s is not None else _BUSY_S)
        except PlatformRefused as error:  # a person deleted the message
            _log.info("account %s: live message: %s", context.account, error)
            return False
        return True
