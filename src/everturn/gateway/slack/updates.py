"""What Slack sends, as updates."""

from __future__ import annotations

import re

import msgspec

from everturn.domain.delivery import ChatKind, ChatPlace, RemoteFile, Update, UpdateKind
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Identity

COMMAND = "/everturn"  # the one slash command that an app registers for all of ours
_DIRECT = "D"  # the ids of direct conversations begin with it
_PLAIN_SUBTYPES = (None, "", "file_share", "thread_broadcast", "me_message")
_MARKUP = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")


class Frame(msgspec.Struct, frozen=True):
    """One message on the socket. Those with an ``envelope_id`` are acknowledged by it."""

    type: str = ""
    envelope_id: str = ""
    reason: str | None = None
    payload: JsonObject | None = None  # decoded by its type


class _File(msgspec.Struct, frozen=True):
    id: str
    name: str | None = None
    mimetype: str | None = None
    size: int | None = None


class _Message(msgspec.Struct, frozen=True):
    type: str = "message"
    subtype: str | None = None
    channel: str = ""
    user: str | None = None
    bot_id: str | None = None
    text: str | None = None
    ts: str = ""
    thread_ts: str | None = None
    parent_user_id: str | None = None
    files: tuple[_File, ...] | None = None
    event_ts: str | None = None
    message: _Message | None = None  # as it is now, if it was changed
    previous_message: _Message | None = None


class _Event(msgspec.Struct, frozen=True):
    event: _Message


class _Id(msgspec.Struct, frozen=True):
    id: str
    name: str | None = None
    username: str | None = None


class _Action(msgspec.Struct, frozen=True):
    action_id: str
    action_ts: str
    value: str | None = None


class _Posted(msgspec.Struct, frozen=True):
    ts: str
    thread_ts: str | None = None


class _Press(msgspec.Struct, frozen=True):
    type: str
    user: _Id
    channel: _Id
    message: _Posted
    actions: tuple[_Action, ...]


class _Slash(msgspec.Struct, frozen=True):
    command: str
    channel_id: str
    user_id: str
    trigger_id: str
    text: str | None = None
    user_name: str | None = None


class UpdateReader:
    """Reads updates for one account; ``bot`` is who the account is on Slack."""

    def __init__(self, account: str, bot: Identity) -> None:
        self._account = account
        self._bot = bot

    def read(self, frame: Frame) -> Update | None:
        """The update in a frame; None if it is not something that a person said or did to the bot.

        Raises msgspec.ValidationError if it looks like an update and cannot be read.
        """
        if frame.type == "events_api":
            return self._read_event(msgspec.convert(frame.payload, _Event).event)
        if frame.type == "slash_commands":
            return self._read_slash(msgspec.convert(frame.payload, _Slash))
        if frame.type == "interactive" and (frame.payload or {}).get("type") == "block_actions":
            return self._read_press(msgspec.convert(frame.payload, _Press))
        return None

    def _read_event(self, event: _Message) -> Update | None:
        if event.type not in ("message", "app_mention"):
            return None
        if event.subtype in _PLAIN_SUBTYPES:
            # Slack reports a mention twice, as two kinds of events: the message's own name is their one id.
            return self._message(event, event.channel, f"{event.channel}:{event.ts}", UpdateKind.MESSAGE)
        now, before = event.message, event.previous_message
        name = f"{event.channel}:{event.event_ts or event.ts}"
        if event.subtype == "message_changed" and now is not None:
            if before is not None and before.text == now.text:
                return None  # Slack added a preview
            return self._message(now, event.channel, f"edit:{name}", UpdateKind.EDIT)
        if event.subtype == "message_deleted" and before is not None:
            return self._message(before, event.channel, f"deletion:{name}", UpdateKind.DELETION)
        return None

    def _message(self, message: _Message, channel: str, update_id: str, kind: UpdateKind) -> Update | None:
        if not message.user or message.bot_id or message.user == self._bot.id or not channel:
            return None  # a bot's, perhaps our own: two bots that answer each other never stop
        text = message.text or ""
        is_direct = channel.startswith(_DIRECT)
        is_mentioned = f"<@{self._bot.id}>" in text or f"<@{self._bot.id}|" in text
        thread = message.thread_ts or ("" if is_direct else message.ts)
        is_message = kind is UpdateKind.MESSAGE
        return Update(
            update_id,
            self._place(channel, thread),
            message.user,
            self._plain(text),
            tuple(_remote(file) for file in message.files or ()) if is_message else (),
            sent_at=_milliseconds(message.ts),
            number=_microseconds(message.ts) if is_message else None,
            kind=kind,
            is_addressed=is_direct or is_mentioned or message.parent_user_id == self._bot.id,
        )

    def _read_slash(self, slash: _Slash) -> Update:
        words = (slash.text or "").strip()
        text = (
            f"/{words.removeprefix('/') or 'help'}"
            if slash.command == COMMAND
            else f"{slash.command} {words}"
        )
        place = self._place(slash.channel_id, "")
        name = slash.user_name or ""
        return Update(f"slash:{slash.trigger_id}", place, slash.user_id, text, sender_name=name)

    def _read_press(self, press: _Press) -> Update | None:
        pressed = next((action for action in press.actions if action.value), None)
        if pressed is None:
            return None  # a button that opens an address
        message = press.message
        return Update(
            f"press:{press.channel.id}:{message.ts}:{press.user.id}:{pressed.action_ts}",
            self._place(press.channel.id, message.thread_ts or ""),
            press.user.id,
            sender_name=press.user.username or press.user.name or "",
            kind=UpdateKind.PRESS,
            press=pressed.value or "",
        )

    def _place(self, channel: str, thread: str) -> ChatPlace:
        kind = ChatKind.DIRECT if channel.startswith(_DIRECT) else ChatKind.CHANNEL
        return ChatPlace(self._account, "slack", kind, channel, thread)

    def _plain(self, text: str) -> str:
        """The text without Slack's markup, and without the mention that it begins with."""
        text = _MARKUP.sub(self._write_out, text.strip())
        text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return text.removeprefix(f"@{self._bot.name}").strip()

    def _write_out(self, found: re.Match[str]) -> str:
        target, label = found[1], found[2] or ""
        sign, name = target[0], target[1:]
        if target == f"@{self._bot.id}":
            return f"@{self._bot.name}"
        if sign in "@#":
            return sign + (label or name)
        if sign == "!":
            return label or f"@{name}"
        address = target.removeprefix("mailto:")
        return f"{label} ({address})" if label and label not in target else address


def _remote(file: _File) -> RemoteFile:
    return RemoteFile(file.id, file.name or "", file.mimetype or "", file.size)


def _microseconds(ts: str) -> int | None:
    """Slack's time of a message, such as ``1700000000.000100``, as a number that grows within a chat."""
    seconds, _, fraction = ts.partition(".")
    is_number = ts.isascii() and seconds.isdigit() and fraction.isdigit() and len(ts) < 19
    return int(seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0")) if is_number else None


def _milliseconds(ts: str) -> int | None:
    number = _microseconds(ts)
    return None if number is None else number // 1000
