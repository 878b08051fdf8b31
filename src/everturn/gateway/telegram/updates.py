"""What Telegram delivers, read as updates. Only the fields that are used: a newer Bot API does not matter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from everturn.domain.delivery import ChatKind, ChatPlace, RemoteFile, Update, UpdateKind
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Identity

ALLOWED: Final = ["message", "edited_message", "callback_query"]
_KINDS: Final = {
    "private": ChatKind.DIRECT,
    "group": ChatKind.GROUP,
    "supergroup": ChatKind.GROUP,
    "channel": ChatKind.CHANNEL,
}


class _User(msgspec.Struct, frozen=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""


class _Chat(msgspec.Struct, frozen=True):
    id: int
    type: str
    title: str = ""
    first_name: str = ""
    last_name: str = ""


class _Entity(msgspec.Struct, frozen=True):
    type: str
    offset: int  # in UTF-16 units, like length
    length: int
    user: _User | None = None


class _File(msgspec.Struct, frozen=True):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int | None = None


class _Sticker(msgspec.Struct, frozen=True):
    emoji: str = ""


class _Location(msgspec.Struct, frozen=True):
    latitude: float
    longitude: float


class _Contact(msgspec.Struct, frozen=True):
    phone_number: str = ""
    first_name: str = ""
    last_name: str = ""


class _Answered(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """The message that another one answers. In a topic it may be the notice that began the topic."""

    sender: _User | None = None
    forum_topic_created: JsonObject | None = None


class _Origin(msgspec.Struct, frozen=True):
    """Who wrote a message that was forwarded. Which of the fields are there depends on who it was."""

    sender_user: _User | None = None
    sender_user_name: str = ""
    sender_chat: _Chat | None = None
    chat: _Chat | None = None


class _Message(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    message_id: int
    chat: _Chat
    date: int = 0
    sender: _User | None = None
    sender_chat: _Chat | None = None  # who writes as a group or a channel
    message_thread_id: int = 0
    is_topic_message: bool = False
    reply_to_message: _Answered | None = None
    forward_origin: _Origin | None = None
    media_group_id: str = ""
    text: str = ""
    entities: tuple[_Entity, ...] = ()
    caption: str = ""
    caption_entities: tuple[_Entity, ...] = ()
    photo: tuple[_File, ...] = ()  # one picture in several sizes
    document: _File | None = None
    voice: _File | None = None
    audio: _File | None = None
    video: _File | None = None
    video_note: _File | None = None
    animation: _File | None = None
    sticker: _Sticker | None = None
    location: _Location | None = None
    contact: _Contact | None = None
    # Written by a person, and nothing that an agent could read. What Telegram itself reports in a chat, such
    # as a new member, has none of them.
    poll: JsonObject | None = None
    dice: JsonObject | None = None
    story: JsonObject | None = None
    game: JsonObject | None = None
    checklist: JsonObject | None = None
    paid_media: JsonObject | None = None

    @property
    def is_unreadable(self) -> bool:
        found = (self.poll, self.dice, self.story, self.game, self.checklist, self.paid_media)
        return any(content is not None for content in found)


class _Query(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    id: str
    sender: _User
    message: _Message | None = None
    data: str = ""


class Incoming(msgspec.Struct, frozen=True):
    """One update of the Bot API. None of the three is set if its kind is not known here."""

    update_id: int
    message: _Message | None = None
    edited_message: _Message | None = None
    callback_query: _Query | None = None

    @property
    def album(self) -> tuple[int, str] | None:
        """The chat and the name of the album that it is a picture of."""
        if self.message is None or not self.message.media_group_id:
            return None
        return self.message.chat.id, self.message.media_group_id


def read_incoming(raw: JsonObject) -> Incoming:
    """An update that cannot be read counts as one of an unknown kind, so that it does not stop the next
    ones."""
    try:
        return msgspec.convert(raw, Incoming)
    except msgspec.ValidationError:
        return Incoming(int(raw["update_id"]))


def group_albums(batch: Iterable[Incoming]) -> list[tuple[Incoming, ...]]:
    """Updates in their order. The pictures of an album are one entry, at the place of the last one."""
    groups: dict[object, tuple[Incoming, ...]] = {}
    for incoming in sorted(batch, key=lambda one: one.update_id):
        name: object = incoming.album or incoming.update_id
        groups[name] = (*groups.pop(name, ()), incoming)
    return list(groups.values())


class UpdateReader:
    """Reads updates for one account. ``me`` is its bot."""

    def __init__(self, account: str, me: Identity) -> None:
        self._account = account
        self._me = me
        self._mention = re.compile(rf"(?<!\w){re.escape(me.name)}\b\s*", re.IGNORECASE)

    def read(self, group: Sequence[Incoming]) -> Update | None:
        """None: of an unknown kind, or written by a bot."""
        first = group[0]
        if first.callback_query is not None:
            return self._press(first.update_id, first.callback_query)
        if first.edited_message is not None:
            return self._message([first.update_id], [first.edited_message], UpdateKind.EDIT)
        messages = [incoming.message for incoming in group if incoming.message is not None]
        if not messages:
            return None
        return self._message([incoming.update_id for incoming in group], messages, UpdateKind.MESSAGE)

    def _message(self, ids: Sequence[int], messages: Sequence[_Message], kind: UpdateKind) -> Update | None:
        first = messages[0]
        text = "\n".join(text for message in messages if (text := self._text(message)))
        files = tuple(file for message in messages for file in _files(message))
        sender = _sender(first)
        if not (text or files) and first.is_unreadable and kind is UpdateKind.MESSAGE:
            kind = UpdateKind.UNREADABLE
        elif not (text or files):
            return None
        # A location that moves is edited every few seconds.
        if sender is None or (kind is UpdateKind.EDIT and first.location is not None):
            return None
        return Update(
            self._update_id(*ids),
            self._place(first),
            sender,
            text,
            files,
            sender_name=_name(first.sender or first.sender_chat),
            chat_title=first.chat.title or _name(first.chat),
            sent_at=first.date * 1000 or None,
            # An edited message keeps its old number, and would look late.
            number=first.message_id if kind is not UpdateKind.EDIT else None,
            kind=kind,
            is_addressed=any(self._is_addressed(message) for message in messages),
            forwarded_from=next(filter(None, map(_original_author, messages)), ""),
        )

    def _press(self, update_id: int, query: _Query) -> Update | None:
        if query.message is None or not query.data:
            return None
        return Update(
            self._update_id(update_id),
            self._place(query.message),
            str(query.sender.id),
            sender_name=_name(query.sender),
            chat_title=query.message.chat.title or _name(query.message.chat),
            kind=UpdateKind.PRESS,
            press=query.data,
        )

    def _update_id(self, *ids: int) -> str:
        """Contains the bot's id: two bots may count their updates with the same numbers.

        An album has the numbers of its first and last picture. A picture that is delivered later than the
        others, after they were stored and not acknowledged, makes another album of it: twice, not lost.
        """
        return ":".join([self._me.id, *dict.fromkeys((str(ids[0]), str(ids[-1])))])

    def _place(self, message: _Message) -> ChatPlace:
        chat = message.chat
        # Without the flag it is a chain of replies, not a topic.
        thread = str(message.message_thread_id) if message.is_topic_message else ""
        kind = _KINDS.get(chat.type, ChatKind.GROUP)
        return ChatPlace(self._account, "telegram", kind, str(chat.id), thread)

    def _text(self, message: _Message) -> str:
        """What was written. The bot's own name is left out: it only says that the bot is meant."""
        text = message.text or message.caption
        if text.startswith("/"):
            command, space, rest = text.partition(" ")
            name, at, bot = command.partition("@")
            return (name if at and f"@{bot}".lower() == self._me.name.lower() else command) + space + rest
        if message.chat.type != "private":
            text = self._mention.sub("", text).strip()
        if not text and message.sticker is not None:
            return message.sticker.emoji
        if not text and message.location is not None:
            return f"My location: {message.location.latitude}, {message.location.longitude}"
        if not text and message.contact is not None:
            return f"Contact: {_name(message.contact)}, {message.contact.phone_number}"
        return text

    def _is_addressed(self, message: _Message) -> bool:
        if message.chat.type == "private":
            return True
        text = message.text or message.caption
        entities = message.entities or message.caption_entities
        return self._is_mine(message.reply_to_message) or any(
            self._names_me(entity, text) for entity in entities
        )

    def _is_mine(self, answered: _Answered | None) -> bool:
        if answered is None or answered.sender is None or answered.forum_topic_created is not None:
            return False
        return str(answered.sender.id) == self._me.id

    def _names_me(self, entity: _Entity, text: str) -> bool:
        named = _cut(text, entity).lower()
        if entity.type == "mention":
            return named == self._me.name.lower()
        if entity.type == "text_mention":
            return entity.user is not None and str(entity.user.id) == self._me.id
        if entity.type == "bot_command" and entity.offset == 0:
            _, at, bot = named.partition("@")
            return not at or f"@{bot}" == self._me.name.lower()
        return False


def _cut(text: str, entity: _Entity) -> str:
    units = text.encode("utf-16-le")
    return units[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le", "replace")


def _sender(message: _Message) -> str | None:
    """Who wrote it; None: a bot, whose messages are never answered, so that no two bots talk for ever."""
    if message.sender_chat is not None:
        return str(message.sender_chat.id)
    if message.sender is None or message.sender.is_bot:
        return None
    return str(message.sender.id)


def _original_author(message: _Message) -> str:
    """The name of its author; empty if that is the sender."""
    origin = message.forward_origin
    if origin is None or (
        origin.sender_user and message.sender and origin.sender_user.id == message.sender.id
    ):
        return ""
    place = origin.chat or origin.sender_chat
    name = origin.sender_user_name or _name(origin.sender_user) or (place.title if place else "")
    return name or "another person"


def _name(of: _User | _Chat | _Contact | None) -> str:
    return f"{of.first_name} {of.last_name}".strip() if of is not None else ""


def _files(message: _Message) -> Iterator[RemoteFile]:
    number = message.message_id
    if message.photo:
        largest = max(message.photo, key=lambda size: size.file_size or 0)
        yield _file(largest, f"photo-{number}.jpg", "image/jpeg")
    if message.voice is not None:
        yield _file(message.voice, f"voice-{number}.ogg", "audio/ogg")
    if message.audio is not None:
        yield _file(message.audio, f"audio-{number}.mp3", "audio/mpeg")
    if message.video is not None:
        yield _file(message.video, f"video-{number}.mp4", "video/mp4")
    if message.video_note is not None:
        yield _file(message.video_note, f"video-{number}.mp4", "video/mp4")
    if message.animation is not None:  # comes with a document that is the same file
        yield _file(message.animation, f"animation-{number}.mp4", "video/mp4")
    elif message.document is not None:
        yield _file(message.document, f"file-{number}", "application/octet-stream")


def _file(found: _File, name: str, media_type: str) -> RemoteFile:
    return RemoteFile(found.file_id, found.file_name or name, found.mime_type or media_type, found.file_size)
