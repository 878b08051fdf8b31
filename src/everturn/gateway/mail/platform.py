"""One mailbox: mails become updates, answers become mails."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec
from imap_tools import MailMessage

from everturn.domain.clock import Clock
from everturn.domain.delivery import Chat, NewPart, OutgoingPart, RemoteFile, Update
from everturn.domain.errors import PlatformRefused
from everturn.domain.platform import Deliver, Features, Identity, Promises, SendLimits
from everturn.gateway.mail.incoming import FileRef, Ignored, read_head, read_mail, sender_of
from everturn.gateway.mail.mailbox import Mailbox
from everturn.gateway.mail.outgoing import message_id, write_mail
from everturn.gateway.mail.settings import MailSettings
from everturn.gateway.mail.submission import connect, submit

MAIL_BYTES_MAX: Final = 35_000_000  # of a mail that is read as a whole
AGE_MAX_S: Final = 7 * 24 * 3600  # older mails that are unread are left alone
_THREADS_MAX: Final = 4

T = TypeVar("T")
_log = logging.getLogger("everturn.gateway.mail")


class MailPlatform:
    name = "mail"
    promises = Promises(deduplicates=False, redelivers=True, keeps_updates_s=AGE_MAX_S)
    limits = SendLimits(per_s_max=1)
    features = Features(edits=False, buttons=False, files=True, typing=False)

    def __init__(self, account: str, settings: MailSettings, password: str, clock: Clock) -> None:
        """Raises Invalid."""
        settings.check()
        self._account = account
        self._settings = settings
        self._password = password
        self._clock = clock
        self._threads = anyio.CapacityLimiter(_THREADS_MAX)
        self.ignored = 0  # mails that were no update

    async def identify(self) -> Identity:
        async with self._open_mailbox():
            pass
        async with connect(self._settings, self._password, is_login_final=True):
            address = self._settings.address
            return Identity(address, address, f"mailto:{address}")

    # --- receiving -----------------------------------------------------------------------------------

    async def receive(self, deliver: Deliver) -> None:
        """Deliver unread mails. A mail is acknowledged when the server has marked it as read."""
        async with self._open_mailbox() as box:
            while True:
                for uid in await self._in_thread(lambda: box.unread(self._oldest())):
                    await self._take_in(box, uid, deliver)
                if not await self._in_thread(lambda: box.wait(self._settings.poll_s)):
                    await self._clock.sleep(self._settings.poll_s)

    async def _take_in(self, box: Mailbox, uid: str, deliver: Deliver) -> None:
        # Only the head decides whether a mail is read, so strangers cannot make us fetch large ones.
        head = await self._in_thread(lambda: box.read(uid, is_whole=False))
        if head is not None:
            update = await self._update(box, uid, head)
            if isinstance(update, Ignored):
                self.ignored += 1
                _log.info("account %s: a mail was ignored: %s", self._account, update.reason)
            else:
                await deliver(update)
            await self._in_thread(lambda: box.take(uid))

    async def _update(self, box: Mailbox, uid: str, head: MailMessage) -> Update | Ignored:
        sender = _parse_or_ignore(lambda: sender_of(head, self._settings))
        if isinstance(sender, Ignored):
            return sender
        if head.size_rfc822 > MAIL_BYTES_MAX:
            note = (
                f"This mail was not read: it has {head.size_rfc822 // 1_000_000} MB, more than can be read."
            )
            return _parse_or_ignore(lambda: read_head(self._account, sender, head, note))
        mail = await self._in_thread(lambda: box.read(uid, is_whole=True))
        if mail is None:
            return Ignored("it was deleted")
        return await self._in_thread(
            lambda: _parse_or_ignore(lambda: read_mail(self._account, sender, mail, box.validity))
        )

    def _oldest(self) -> date:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000 - AGE_MAX_S, UTC).date()

    # --- sending -------------------------------------------------------------------------------------

    async def send(self, part: OutgoingPart) -> str:
        settings, now_ms = self._settings, self._clock.now_ms()
        mail = await self._in_thread(lambda: write_mail(part, settings, now_ms))
        await submit(settings, self._password, part.chat.place.chat, mail)
        return message_id(part.id, settings)

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        raise PlatformRefused("A mail cannot be changed once it is sent.")

    async def show_typing(self, chat: Chat) -> None:
        """Mail has no typing sign."""

    def render(self, markdown: str) -> Sequence[NewPart]:
        """One mail, however long the answer is."""
        return [NewPart(markdown, "markdown")] if markdown.strip() else []

    # --- files of mails ------------------------------------------------------------------------------

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        if (file.size or 0) > bytes_max:
            raise PlatformRefused(f"The file is larger than {bytes_max // 1_000_000} MB.")
        ref = msgspec.json.decode(file.ref, type=FileRef)
        async with self._open_mailbox() as box:
            data = await self._in_thread(lambda: _find_attachment(box, ref))
        if data is None:
            raise PlatformRefused("The mail is no longer there.")
        await anyio.Path(target).write_bytes(data)

    async def close(self) -> None:
        """Nothing to close: each call has a connection of its own."""

    @asynccontextmanager
    async def _open_mailbox(self) -> AsyncIterator[Mailbox]:
        box = Mailbox(self._settings, self._password)
        try:
            await self._in_thread(box.open)
            yield box
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(box.close)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """The result of a call that blocks. If cancelled, its thread ends when the mailbox is closed."""
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)


def _parse_or_ignore(parse: Callable[[], T]) -> T | Ignored:
    try:
        return parse()
    except Exception as error:  # the email package raises errors of many kinds for malformed mails
        _log.warning("a mail cannot be read: %r", error)
        return Ignored("it cannot be read")


def _find_attachment(box: Mailbox, ref: FileRef) -> bytes | None:
    uids = [ref.uid] if ref.validity == box.validity else box.by_message_id(ref.message_id)
    for uid in uids:
        mail = box.read(uid, is_whole=True)
        if mail is not None and len(mail.attachments) > ref.index:
            return mail.attachments[ref.index].payload
    return None
