"""Sends the parts of one account and records each outcome: one part per chat at a time, within limits."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext

import anyio
import anyio.abc
import msgspec

from everturn.delivery.context import AccountContext
from everturn.delivery.files import stored_file
from everturn.delivery.traces import is_unexpected
from everturn.domain.clock import call_within
from everturn.domain.delivery import AccountLease, OutgoingPart, WhenUnknown
from everturn.domain.errors import (
    FileMissing,
    NotFound,
    OutcomeUnknown,
    PlatformBusy,
    PlatformRefused,
    Retry,
)
from everturn.domain.probe import Moment
from everturn.domain.redaction import redact
from everturn.domain.turn_traces import SentPart

_log = logging.getLogger("everturn.delivery")


class Sender:
    def __init__(self, context: AccountContext, lease: AccountLease) -> None:
        self._outbox = context.delivery.outbox
        self._files = context.services.store.files
        self._platform = context.platform
        self._lease = lease
        self._settings = context.settings
        self._clock = context.clock
        self._probe = context.services.probe
        self._traces = context.services.traces
        self._pace = context.pace
        self._live = context.live
        self._sending: set[str] = set()  # ids of parts
        self._may_hold_more = False  # a claim had an unknown outcome: parts may be claimed that no task sends
        self._bell = context.outgoing

    async def run(self) -> None:
        """Send until cancelled. Raises LeaseLost once another worker serves the account."""
        async with anyio.create_task_group() as group:
            while True:
                try:
                    claimed = await self.send_due(group)
                except Retry as error:
                    _log.warning("account %s: %s", self._lease.account, error)
                    claimed = 0
                if not claimed:
                    await self._bell.wait(min(self._settings.poll_s, self._pace.wait_s() or 60.0))

    async def send_due(self, group: anyio.abc.TaskGroup) -> int:
        """Start sending what can be sent now; return the number of parts."""
        await self._outbox.settle_unknown(self._lease, self._when_unknown())
        if self._may_hold_more:
            await self._outbox.put_back_unsent(self._lease, self._sending)
            self._may_hold_more = False
        # If this process dies, a claimed part has an unknown outcome: claim only what can be sent at once.
        free = min(self._settings.sends_at_once_max - len(self._sending), self._pace.count_allowed())
        parts = await self._claim(free) if free > 0 else []
        for part in parts:
            self._pace.spend()
            self._sending.add(part.id)
            group.start_soon(self._send, part, name=f"send {part.id}")
        return len(parts)

    async def _claim(self, limit: int) -> Sequence[OutgoingPart]:
        try:
            return await self._outbox.claim(self._lease, limit=limit)
        except OutcomeUnknown:
            self._may_hold_more = True
            raise

    def _when_unknown(self) -> WhenUnknown:
        return WhenUnknown.RESEND if self._platform.promises.deduplicates else self._settings.when_unknown

    async def _send(self, part: OutgoingPart) -> None:
        # Stopping waits for a send that has begun, which has its own time limit. A cancelled one would have
        # an unknown outcome and could arrive twice.
        with anyio.CancelScope(shield=True):
            try:
                await self._send_part(part)
            finally:
                self._sending.discard(part.id)
                self._bell.ring()

    async def _send_part(self, part: OutgoingPart) -> None:
        outbox, lease = self._outbox, self._lease
        await self._probe.reach(Moment.PART_CLAIMED, part.id)
        try:
            external_id = await self._send_in_turn(part)
        except PlatformBusy as busy:
            reason, retry_at = redact(busy.message), self._retry_at(part, busy.after_s)
            await self._write(lambda: outbox.put_back(lease, part.id, reason, retry_at=retry_at))
        except (PlatformRefused, FileMissing, NotFound) as refused:
            reason = redact(refused.message)
            if part.body.replaces:
                await self._write(lambda: outbox.send_as_new(lease, part))
            else:
                await self._write(lambda: outbox.give_up(lease, part.id, reason))
        except Exception as error:  # the platform's own code: the outcome is unknown
            has_trace = is_unexpected(error)
            _log.warning("account %s: sending %s: %r", lease.account, part.id, error, exc_info=has_trace)
            reason = redact(str(error)) or type(error).__name__
            if part.body.replaces:  # an edit can be repeated
                retry_at = self._retry_at(part, None)
                await self._write(lambda: outbox.put_back(lease, part.id, reason, retry_at=retry_at))
            else:
                await self._write(lambda: outbox.mark_unknown(lease, part.id, reason))
        else:
            await self._probe.reach(Moment.PART_SENT, part.id)
            spacing_ms = round(self._platform.limits.spacing_s(part.chat.place.kind) * 1000)
            await self._write(lambda: outbox.mark_sent(lease, part.id, external_id, spacing_ms=spacing_ms))

    async def _send_in_turn(self, part: OutgoingPart) -> str:
        """Wait for a live edit of the same chat that has begun, then send: the edit must not replace the
        answer."""
        async with self._live.get(part.chat.id) or nullcontext():
            began, error = self._clock.monotonic(), ""
            try:
                timeout_s = self._settings.send_timeout_s
                return await call_within(self._clock, timeout_s, lambda: self._send_or_edit(part))
            except Exception as raised:
                error = type(raised).__name__
                raise
            finally:
                self._trace(part, error, self._clock.monotonic() - began)

    def _trace(self, part: OutgoingPart, error: str, took_s: float) -> None:
        if part.turn_id is not None:
            place = part.chat.place
            sent = SentPart(part.turn_id, part.id, place.platform, place.account, part.attempts, error)
            self._traces.part_sent(sent, took_s)

    async def _send_or_edit(self, part: OutgoingPart) -> str:
        if part.body.replaces:
            await self._platform.edit(part.chat, part.body.replaces, part.body)
            return part.body.replaces
        if part.body.file_id is None:
            return await self._platform.send(part)
        async with stored_file(self._files, part.chat.owner, part.body.file_id) as file:
            return await self._platform.send(msgspec.structs.replace(part, file=file))

    def _retry_at(self, part: OutgoingPart, after_s: float | None) -> int:
        settings = self._settings
        backoff_s = min(settings.retry_longest_s, settings.retry_first_s * 2 ** min(part.attempts - 1, 30))
        wait_s = backoff_s if after_s is None else after_s
        if after_s is not None:
            self._pace.pause(after_s)
        return self._clock.now_ms() + round(wait_s * 1000)

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        """Store the outcome of a send; retry while the store is away. Raises LeaseLost."""
        while True:
            try:
                return await write()
            except Retry as error:
                _log.warning(
                    "account %s: the outcome of a send is not stored: %s", self._lease.account, error
                )
                await self._clock.sleep(self._settings.retry_first_s)
