"""Serves one account while this worker holds its lease. Accounts never wait for each other."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
import msgspec

from everturn.delivery.bell import Bell
from everturn.delivery.context import AccountContext, AccountServices
from everturn.delivery.intake import Intake, role_at_receipt
from everturn.delivery.live import LiveMessages
from everturn.delivery.pace import Pace
from everturn.delivery.questions import Questions
from everturn.delivery.replies import Replies
from everturn.delivery.sender import Sender
from everturn.delivery.settings import AccountSettings
from everturn.delivery.traces import is_unexpected
from everturn.domain.audit import name_sender
from everturn.domain.delivery import AccountLease, ChatKind, SeenChat, Update
from everturn.domain.errors import Denied, LeaseLost, Retry
from everturn.domain.gateway import Admit, RoleNow
from everturn.domain.platform import Platform, ReadsHistory
from everturn.domain.probe import Moment
from everturn.domain.redaction import redact

PAIRED = "/start paired"  # stored in place of a pairing code
_log = logging.getLogger("everturn.delivery")
_SEEN_MAX = 200  # chats whose history is read at the start of a connection


class AccountService:
    """Receives, sends and answers for one account. ``admit`` decides whether the sender of an update may talk
    to the account; ``role_now`` decides again when the update is used (F05)."""

    def __init__(
        self,
        account: str,
        platform: Platform,
        admit: Admit,
        settings: AccountSettings,
        services: AccountServices,
        role_now: RoleNow = role_at_receipt,
    ) -> None:
        self.account = account
        self._platform = platform
        self._admit = admit
        self._settings = settings
        self._services = services
        clock = services.clock
        pace = Pace(clock, platform.limits.per_s_max)
        self._context = AccountContext(account, platform, settings, services, Bell(clock), pace)
        self._intake = Intake(self._context, role_now)
        if isinstance(platform, ReadsHistory):
            platform.use_history(self._find_seen)
        self.strangers = 0  # updates that were not admitted
        self.last_error = ""
        self.last_error_at: int | None = None
        self.is_serving = False  # by this worker
        self.receiving_since: int | None = None  # None while it is not served, and in a pause after an error

    async def run(self) -> None:
        """Serve the account until cancelled, whenever no other worker does."""
        clock, settings = self._services.clock, self._settings
        while True:
            try:
                lease = await self._services.store.delivery.leases.take(self.account, self._services.worker)
                if lease is not None:
                    await self._serve(lease)
            except Exception as error:  # the root of the account's tasks: one account never stops another
                self._note_error(error)
                _log.warning("account %s: %r", self.account, error, exc_info=is_unexpected(error))
            await clock.sleep(settings.take_s)

    async def deliver(self, update: Update) -> None:
        """Store an update. Its receipt may be acknowledged to the sender once this has returned."""
        if not update.is_addressed:
            return  # a group's own conversation
        admission = await self._admit(update)
        if admission is None:
            self.strangers += 1
            return
        if admission.is_paired_now:
            by = name_sender(update.sender, self.account, self._platform.name)
            await self._services.audit.write("gateway.paired", by, detail=f"{self.account}: {admission.role}")
        inbox = self._services.store.delivery.inbox
        # A pairing code is not a message to the agent, and not stored.
        text = PAIRED if admission.is_paired_now else update.text
        stored = _storable(update)
        title = _title_of(stored)
        admitted = msgspec.structs.replace(stored, role=admission.role, text=_clean(text), chat_title=title)
        try:
            received = await inbox.receive(admission.owner, admitted, profile=admission.profile)
        except Denied:
            self.strangers += 1  # a guest in another user's chat
            return
        await self._services.probe.reach(Moment.INBOX_RECEIVED, received.id)
        self._intake.bell.ring()

    async def _serve(self, lease: AccountLease) -> None:
        sender = Sender(self._context, lease)
        replies = Replies(self._context)
        questions = Questions(self._context)
        self.is_serving = True
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(sender.run, name=f"{self.account}: send")
                group.start_soon(replies.run, name=f"{self.account}: replies")
                group.start_soon(self._intake.run, name=f"{self.account}: intake")
                group.start_soon(self._receive, name=f"{self.account}: receive")
                group.start_soon(questions.run, name=f"{self.account}: questions")
                if self._settings.live and self._platform.features.edits:
                    live = LiveMessages(self._context, lease)
                    group.start_soon(live.run, name=f"{self.account}: live")
                if self._platform.features.typing:
                    group.start_soon(self._show_typing, name=f"{self.account}: typing")
                group.start_soon(self._wake, [replies.bell, questions.bell], name=f"{self.account}: wake")
        finally:
            self.is_serving = False
            with anyio.CancelScope(shield=True):
                await self._release(lease)

    async def _release(self, lease: AccountLease) -> None:
        try:
            await self._services.store.delivery.leases.release(lease)
        except (LeaseLost, Retry) as error:
            # Another worker has the lease, or the store is away: the lease ends when this worker does.
            _log.info("account %s: the lease was not released: %s", self.account, error)

    async def _receive(self) -> None:
        """Receive while the account is served. An error of the platform does not stop sending."""
        clock, settings = self._services.clock, self._settings
        pause_s = settings.retry_first_s
        while True:
            started = clock.monotonic()
            self.receiving_since = clock.now_ms()
            try:
                await self._platform.receive(self.deliver)
                _log.warning("account %s: the platform stopped delivering", self.account)
            except Exception as error:  # the platform's own code
                # Log its trace once: the same error may repeat for hours.
                has_trace = self._note_error(error) and is_unexpected(error)
                _log.warning("account %s: receiving: %r", self.account, error, exc_info=has_trace)
            finally:
                self.receiving_since = None
            if clock.monotonic() - started > settings.retry_longest_s:
                pause_s = settings.retry_first_s
            await clock.sleep(pause_s)
            pause_s = min(settings.retry_longest_s, pause_s * 2)

    async def _find_seen(self) -> Sequence[SeenChat]:
        return await self._services.store.delivery.chats.list_seen(self.account, limit=_SEEN_MAX)

    async def _show_typing(self) -> None:
        """Show in chats that an answer is being written. Best effort: errors are not worth a warning."""
        settings, chats = self._settings, self._services.store.delivery.chats
        while True:
            try:
                for chat in await chats.list_working(self.account, limit=settings.chats_at_once_max):
                    await self._platform.show_typing(chat)
            except Exception as error:  # the platform's own code, or the store is away
                _log.debug("account %s: typing: %r", self.account, error)
            await self._services.clock.sleep(settings.typing_s)

    async def _wake(self, bells: Sequence[Bell]) -> None:
        """Record replies and questions soon after any session changed. They are also polled for."""
        known = 0
        while True:
            known = await self._services.store.wait_for_change(known)
            for bell in bells:
                bell.ring()
            await self._services.clock.sleep(self._settings.wake_s)

    def _note_error(self, error: Exception) -> bool:
        """Remember the error; return True if it differs from the last one."""
        before, self.last_error = self.last_error, redact(str(error)) or type(error).__name__
        self.last_error_at = self._services.clock.now_ms()
        return self.last_error != before


def _title_of(update: Update) -> str:
    """Slack and Discord have no title for a chat with one person: it is called by the person's name."""
    is_direct = update.place.kind is ChatKind.DIRECT
    return update.chat_title or (update.sender_name if is_direct else "")


def _storable(update: Update) -> Update:
    """The update without lone surrogates in the words that people choose. No store accepts those: the
    platform would redeliver the update for ever, and nothing after it."""
    files = tuple(msgspec.structs.replace(file, name=_clean(file.name)) for file in update.files)
    return msgspec.structs.replace(
        update,
        sender_name=_clean(update.sender_name),
        chat_title=_clean(update.chat_title),
        files=files,
    )


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
