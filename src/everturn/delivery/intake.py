"""Turns received updates into turns: in order within a chat, different chats in parallel."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.abc
import msgspec

from everturn.delivery.answers import Answers
from everturn.delivery.bell import Bell
from everturn.delivery.commands import ChatCommand, Commands
from everturn.delivery.context import AccountContext
from everturn.delivery.traces import is_unexpected
from everturn.domain.clock import call_within
from everturn.domain.delivery import (
    Chat,
    PartState,
    Received,
    Refusal,
    RemoteFile,
    SenderRole,
    Update,
    UpdateKind,
)
from everturn.domain.errors import EverturnError, Refused, Retry, StoreFault
from everturn.domain.gateway import RoleNow
from everturn.domain.media import SNIFF_BYTES, describe_file, safe_name
from everturn.domain.messages import Source
from everturn.domain.redaction import redact
from everturn.domain.store_values import File, Submission, WhenBusy
from everturn.skills import MissingValues

_log = logging.getLogger("everturn.delivery")
_FETCHES_MAX = 3
_NAME_CHARS_MAX = 200
_CHATS_KEPT_MAX = 10_000
LATE = "(This message arrived late: it was written before the one above.)"
_STEERED = "*Added to the answer that is being written.*"
_QUEUED = "*Queued: it is answered next.*"
_EDIT = "Edits are not seen; send it again as a new message."
_UNREADABLE = "A message of this kind cannot be read here. Send it as text or as a file."


async def role_at_receipt(update: Update) -> SenderRole | None:
    return update.role


class _Told(NamedTuple):
    """A notice that a chat's messages wait for the turn ``behind``. ``key`` identifies the notice."""

    key: str
    behind: str


class Intake:
    def __init__(self, context: AccountContext, role_now: RoleNow = role_at_receipt) -> None:
        self._context = context
        self._role_now = role_now
        self._account = context.account
        self._settings = context.settings
        self._inbox = context.delivery.inbox
        self._answers = Answers(context)
        self._commands = Commands(context, self._answers)
        self._told_queued: dict[str, _Told] = {}  # by chat
        self._busy: set[str] = set()  # chats with a message that is being made into a turn
        self.bell = Bell(context.clock)

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            while True:
                try:
                    await self._start_waiting(group)
                except Retry as error:
                    _log.warning("account %s: %s", self._account, error)
                await self.bell.wait(self._settings.poll_s)

    async def _start_waiting(self, group: anyio.abc.TaskGroup) -> None:
        limit = self._settings.chats_at_once_max
        for received in await self._inbox.list_waiting(self._account, limit=limit):
            if received.chat.id not in self._busy and len(self._busy) < limit:
                self._busy.add(received.chat.id)
                group.start_soon(self._settle_chat, received, name=f"accept {received.id}")

    async def _settle_chat(self, received: Received) -> None:
        try:
            await self.settle(received)
            self.bell.ring()  # the chat may have another message
        except (Retry, StoreFault) as error:
            # Retried at the next poll; until then later messages of this chat wait, and other chats go on.
            _log.warning("account %s: %s waits: %s", self._account, received.id, error)
        except Exception:  # the root of the chat's task: one message never stops the account
            _log.exception("account %s: %s waits", self._account, received.id)
        finally:
            self._busy.discard(received.chat.id)

    async def settle(self, received: Received) -> None:
        """Submit the update as a turn, or refuse it and say why.

        Raises Retry if the store cannot write now.
        """
        update = received.update
        if update is None:
            return
        role = await self._role_now(update)
        if role is None:  # no answer, as to any stranger
            await self._refuse(
                received, Refusal("stranger", "Its sender may not talk to this account any more.")
            )
            return
        update = msgspec.structs.replace(update, role=role)
        if update.kind is not UpdateKind.MESSAGE:
            await self._settle_other(received, update)
        elif not update.forwarded_from and (command := self._commands.read(update.text)):
            await self._run(received, command, update)
        elif turn_id := await self._answers.take_words(received, update):
            refusal = Refusal("answer", "It answers a question of the agent.")
            await self._refuse(received, refusal, turn_id=turn_id)
        else:
            await self._submit_expanded(received, update)

    async def _submit_expanded(self, received: Received, update: Update) -> None:
        """Submit the message, with a prompt's name expanded to its text.

        A member writes in the owner's session and may not use the owner's prompts.
        """
        slash = self._context.services.slash
        if slash is not None and update.role is not SenderRole.MEMBER and not update.forwarded_from:
            try:
                text = await slash.expand_in_chat(received.chat.owner, update.text)
            except MissingValues as error:
                await self._refuse(
                    received, Refusal(error.code, error.message), f"{error.message} {error.hint}"
                )
                return
            update = msgspec.structs.replace(update, text=text)
        await self._submit(received, update, self._settings.when_busy)

    async def _settle_other(self, received: Received, update: Update) -> None:
        if update.kind is UpdateKind.PRESS:
            told = await self._answers.press(received, update)
            await self._refuse(received, Refusal("press", "A button was pressed."), told)
        elif update.kind is UpdateKind.EDIT:
            await self._refuse(received, Refusal("edit", _EDIT), _EDIT)
        elif update.kind is UpdateKind.UNREADABLE:
            await self._refuse(received, Refusal("unreadable", _UNREADABLE), _UNREADABLE)
        elif update.kind is UpdateKind.DELETION:
            await self._refuse(received, Refusal("deletion", "A message was deleted in the chat."))
        else:
            await self._refuse(received, Refusal("unsupported", "This kind of update is not known."))

    async def _run(self, received: Received, command: ChatCommand, update: Update) -> None:
        if words := command.queued_words:
            # Keep its files and its author: a member's words are not the owner's.
            await self._submit(received, msgspec.structs.replace(update, text=words), WhenBusy.QUEUE)
            return
        done = await self._commands.run(received, command, update.role)
        await self._refuse(received, Refusal("command", f"/{command.name}"), done.text, done.turn_id)

    async def _submit(self, received: Received, update: Update, when_busy: WhenBusy) -> None:
        try:
            submission = await self._submission(received, update, when_busy)
            settled, accepted = await self._context.services.engine.submit_received(received.id, submission)
        except Refused as error:
            told = f"{error.message} {error.hint}"
            await self._refuse(received, Refusal(error.code, error.message), told)
            return
        if accepted is not None and accepted.is_steering:
            await self._tell(received, _STEERED)
        elif settled.behind is not None:
            await self._tell_queued(received, settled.behind)

    async def _tell_queued(self, received: Received, behind: str) -> None:
        """Say once that messages wait for this turn, however many. A restart may repeat the notice."""
        chat_id, key = received.chat.id, _key_of(received)
        told = self._told_queued.get(chat_id)
        if told is not None and told.behind == behind:
            return
        # One that is not sent yet will say it. In a flood, notices would hold up the answers.
        is_waiting = told is not None and await self._is_waiting(received.chat, told.key)
        if len(self._told_queued) >= _CHATS_KEPT_MAX:
            self._told_queued.clear()
        self._told_queued[chat_id] = _Told(told.key if told and is_waiting else key, behind)
        if not is_waiting:
            await self._tell(received, _QUEUED)

    async def _is_waiting(self, chat: Chat, key: str) -> bool:
        parts = await self._context.delivery.outbox.find(chat.owner, chat.id, key)
        return any(part.state in (PartState.WAITING, PartState.SENDING) for part in parts)

    async def _refuse(
        self, received: Received, refusal: Refusal, told: str = "", turn_id: str | None = None
    ) -> None:
        # Send the words first: after a crash between the two they are sent again, and the outbox recognises
        # them by their key.
        if told:
            await self._tell(received, told)
        await self._inbox.refuse(received.id, refusal, turn_id=turn_id)

    async def _submission(self, received: Received, update: Update, when_busy: WhenBusy) -> Submission:
        text = f"{LATE}\n{update.text}" if received.is_late else update.text
        attachments = []
        for file in update.files:
            stored = await self._fetch(received.chat, file)
            if isinstance(stored, File):
                attachments.append(stored.id)
            else:
                text += f"\n(The file {safe_name(file.name)} is missing: {stored})"
        # What an owner forwards was written by someone else.
        is_trusted = update.role is SenderRole.OWNER and not update.forwarded_from
        sender = update.forwarded_from or update.sender_name or update.sender
        return Submission(
            text=text,
            attachments=tuple(attachments),
            # Only the owner's words join or end a turn that runs.
            when_busy=when_busy if is_trusted else WhenBusy.QUEUE,
            source=Source(update.place.platform, sender[:_NAME_CHARS_MAX], _sent_at(received), is_trusted),
        )

    async def _fetch(self, chat: Chat, file: RemoteFile) -> File | str:
        """Fetch a file of an update into the store. If the platform does not provide it, return the
        reason."""
        failure: Exception | None = None
        with tempfile.TemporaryDirectory(prefix="everturn-fetch-") as folder:
            target = Path(folder, "file")
            for attempt in range(_FETCHES_MAX):
                failure = await self._try_fetch(file, target)
                if failure is None:
                    # As with uploads, the name and type that the sender gave are not trusted.
                    name, media_type = describe_file(file.name, await _head(target))
                    return await self._context.services.store.files.put(chat.owner, name, media_type, target)
                if isinstance(failure, Refused):
                    break
                await self._context.clock.sleep(self._settings.retry_first_s * 2**attempt)
        return redact(failure.message) if isinstance(failure, EverturnError) else "It could not be fetched."

    async def _try_fetch(self, file: RemoteFile, target: Path) -> Exception | None:
        settings, platform = self._settings, self._context.platform
        try:
            await call_within(
                self._context.clock,
                settings.fetch_timeout_s,
                lambda: platform.fetch(file, target, bytes_max=settings.file_bytes_max),
            )
        except Exception as error:  # the platform's own code
            has_trace = is_unexpected(error)
            _log.warning("account %s: fetching %s: %r", self._account, file.name, error, exc_info=has_trace)
            return error
        return None

    async def _tell(self, received: Received, markdown: str) -> None:
        await self._context.tell(received.chat, _key_of(received), markdown)


def _sent_at(received: Received) -> int | None:
    """Return when it was written, but not later than it was received: a platform's clock may be ahead."""
    sent_at = received.update.sent_at if received.update else None
    return None if sent_at is None else min(sent_at, received.received_at)


def _key_of(received: Received) -> str:
    """Return the key of the message that reports what happened to an update."""
    return f"inbox:{received.id}"


async def _head(path: Path) -> bytes:
    async with await anyio.open_file(path, "rb") as file:
        return await file.read(SNIFF_BYTES)
