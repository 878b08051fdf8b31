"""What Discord's gateway delivers, read as updates. Only the fields that are used."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final

import msgspec

from everturn.domain.delivery import ChatKind, ChatPlace, RemoteFile, Update, UpdateKind
from everturn.domain.platform import Identity

_EPOCH_MS: Final = 1_420_070_400_000  # of Discord's ids
_WRITTEN: Final = (0, 19)  # types of messages that people write: plain ones and replies
_COMPONENT: Final = 3  # the type of an interaction: a button was pressed
_REMEMBERED_MAX: Final = 1_000


class _User(msgspec.Struct, frozen=True):
    id: str
    username: str = ""
    global_name: str | None = None
    bot: bool = False


class _Attachment(msgspec.Struct, frozen=True):
    url: str
    filename: str = ""
    content_type: str = ""
    size: int | None = None


class _Answered(msgspec.Struct, frozen=True):
    author: _User | None = None


class _Message(msgspec.Struct, frozen=True):
    id: str
    channel_id: str
    guild_id: str = ""
    type: int = 0
    author: _User | None = None
    webhook_id: str = ""
    content: str = ""
    mentions: tuple[_User, ...] = ()
    attachments: tuple[_Attachment, ...] = ()
    referenced_message: _Answered | None = None
    edited_timestamp: str | None = None


class _Deleted(msgspec.Struct, frozen=True):
    id: str


class _Member(msgspec.Struct, frozen=True):
    user: _User


class _Pressed(msgspec.Struct, frozen=True):
    custom_id: str = ""


class _Interaction(msgspec.Struct, frozen=True):
    id: str
    type: int
    channel_id: str = ""
    guild_id: str = ""
    data: _Pressed = _Pressed()
    user: _User | None = None  # in a private chat
    member: _Member | None = None  # in a server


class UpdateReader:
    """Reads events for one account. ``me`` is its bot."""

    def __init__(self, account: str, me: Identity) -> None:
        self._account = account
        self._me = me
        self._mention = re.compile(rf"<@!?{me.id}>\s*")
        # The newest updates: of a deleted message Discord sends only the id.
        self._seen: OrderedDict[str, Update] = OrderedDict()

    def read(self, event: str, data: object) -> Update | None:
        """None: of an unknown kind, or written by a bot."""
        try:
            if event == "MESSAGE_CREATE":
                return self._message(msgspec.convert(data, _Message), UpdateKind.MESSAGE)
            if event == "MESSAGE_UPDATE":
                return self._message(msgspec.convert(data, _Message), UpdateKind.EDIT)
            if event == "MESSAGE_DELETE":
                return self._deletion(msgspec.convert(data, _Deleted))
            return self._press(msgspec.convert(data, _Interaction))
        except msgspec.ValidationError:
            return None

    def _message(self, message: _Message, kind: UpdateKind) -> Update | None:
        author = message.author
        if author is None or author.bot or message.webhook_id or message.type not in _WRITTEN:
            return None
        is_edit = kind is UpdateKind.EDIT
        if is_edit and message.edited_timestamp is None:
            return None  # Discord added the preview of a link
        text = self._mention.sub("", message.content).strip()
        files = tuple(
            RemoteFile(one.url, one.filename, one.content_type, one.size) for one in message.attachments
        )
        update = Update(
            f"{message.id}:{message.edited_timestamp}" if is_edit else message.id,
            self._place(message.channel_id, message.guild_id),
            author.id,
            text,
            files,
            sender_name=author.global_name or author.username,
            sent_at=(int(message.id) >> 22) + _EPOCH_MS,
            number=None if is_edit else int(message.id),
            kind=kind,
            is_addressed=not message.guild_id or text.startswith("/") or self._names_me(message),
        )
        self._seen[message.id] = update
        if len(self._seen) > _REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return update if text or files else None

    def _names_me(self, message: _Message) -> bool:
        answered = message.referenced_message
        users = [*message.mentions, *([answered.author] if answered and answered.author else [])]
        return any(user.id == self._me.id for user in users)

    def _deletion(self, deleted: _Deleted) -> Update | None:
        seen = self._seen.pop(deleted.id, None)
        if seen is None:
            return None
        return Update(f"{deleted.id}:deleted", seen.place, seen.sender, kind=UpdateKind.DELETION)

    def _press(self, interaction: _Interaction) -> Update | None:
        user = interaction.member.user if interaction.member else interaction.user
        if interaction.type != _COMPONENT or user is None or not interaction.data.custom_id:
            return None
        return Update(
            interaction.id,
            self._place(interaction.channel_id, interaction.guild_id),
            user.id,
            sender_name=user.global_name or user.username,
            kind=UpdateKind.PRESS,
            press=interaction.data.custom_id,
        )

    def _place(self, channel_id: str, guild_id: str) -> ChatPlace:
        """A thread is a channel of its own to Discord, and so a chat of its own here."""
        kind = ChatKind.GROUP if guild_id else ChatKind.DIRECT
        return ChatPlace(self._account, "discord", kind, channel_id)
