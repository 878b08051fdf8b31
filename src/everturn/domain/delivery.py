"""What enters and leaves on its own: the states of inbox rows and of parts, and their values.

An update from a platform is a row of the inbox before it is acknowledged. A message to a chat is a row of the
outbox with its parts before the first part is sent. The database schema repeats both tables of moves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from html import unescape
from pathlib import Path
from types import MappingProxyType

import msgspec

from everturn.domain.asks import Ask
from everturn.domain.checkpoints import TurnFiles
from everturn.domain.turns import Failure, TurnState
from everturn.domain.words import Words

# How long settled rows of the inbox are kept. No platform redelivers an update after that long.
INBOX_KEEP_S = 30 * 24 * 3600
BUTTON_BYTES_MAX = 64  # of a button's data: the smallest limit of all platforms
_EXCERPT_CHARS_MAX = 160
_TAG = re.compile(r"<[^>]*>")


class InboxState(StrEnum):
    RECEIVED = "received"
    ACCEPTED = "accepted"  # it is a turn, or steers one
    REFUSED = "refused"


class PartState(StrEnum):
    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"
    UNKNOWN = "unknown"  # it was being sent; it may have arrived
    HELD = "held"  # unknown, and a person decides
    UNDELIVERED = "undelivered"  # refused by the platform, or too old


_I = InboxState
_P = PartState

INBOX_MOVES: Mapping[InboxState, frozenset[InboxState]] = MappingProxyType(
    {
        _I.RECEIVED: frozenset({_I.ACCEPTED, _I.REFUSED}),
        _I.ACCEPTED: frozenset(),
        _I.REFUSED: frozenset(),
    }
)
PART_MOVES: Mapping[PartState, frozenset[PartState]] = MappingProxyType(
    {
        _P.WAITING: frozenset({_P.SENDING, _P.UNDELIVERED}),
        # Back to waiting only if the platform certainly did not accept it.
        _P.SENDING: frozenset({_P.SENT, _P.WAITING, _P.UNKNOWN, _P.UNDELIVERED}),
        _P.UNKNOWN: frozenset({_P.WAITING, _P.HELD}),
        _P.HELD: frozenset({_P.WAITING, _P.SENT}),
        _P.UNDELIVERED: frozenset({_P.WAITING}),
        _P.SENT: frozenset(),
    }
)

# While a part is open, later parts of its chat wait. Held and undelivered parts block nothing.
OPEN = frozenset({_P.WAITING, _P.SENDING, _P.UNKNOWN})


class WhenUnknown(StrEnum):
    """What is done with a part whose outcome is unknown."""

    RESEND = "resend"  # the platform recognises a repeat by the part's id
    REPEAT = "repeat"  # send it once more, visibly as a possible repeat
    HOLD = "hold"  # a person decides


class ChatKind(Words):
    DIRECT = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    MAIL = "mail"
    HOOK = "hook"


PRIVATE_KINDS = frozenset({ChatKind.DIRECT, ChatKind.MAIL})  # with one person


class SenderRole(Words):
    """What the sender of a message may do."""

    OWNER = "owner"  # the person whose agent this is: may answer approvals
    MEMBER = "member"  # talks to the owner's agent; what they write is not trusted
    GUEST = "guest"  # has sessions and memory of their own, and sees nothing of the owner's


class ChatPlace(msgspec.Struct, frozen=True):
    """Where a chat is: an account, and the platform's names of the chat and of a thread in it."""

    account: str
    platform: str
    kind: ChatKind
    chat: str
    thread: str = ""


class SeenChat(msgspec.Struct, frozen=True):
    """A chat, and the number of the newest message of it that is stored."""

    place: ChatPlace
    number: int


def session_key(profile: str, place: ChatPlace) -> str:
    """The key of a chat's sessions: ``agent:<profile>:<platform>:<kind>:<chat>[:<thread>]``."""
    names = [profile, place.platform, place.kind.value, place.chat]
    if place.thread:
        names.append(place.thread)
    # A colon inside a name would make two chats look like one.
    return ":".join(["agent", *(name.replace("%", "%25").replace(":", "%3A") for name in names)])


class RemoteFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of an update that is still on the platform. ``ref`` is what the platform fetches it by."""

    ref: str
    name: str = ""
    media_type: str = ""
    size: int | None = None


class UpdateKind(Words):
    MESSAGE = "message"
    EDIT = "edit"  # a person changed an earlier message; ``text`` is the new one
    DELETION = "deletion"  # a person deleted an earlier message
    PRESS = "press"  # of a button of ours
    UNREADABLE = "unreadable"  # a message of which nothing can be given to the agent, such as a poll


class Update(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person did in a chat. ``id`` is the platform's own, the same each time it is delivered.

    ``number`` grows with the order of messages in the chat, where the platform has such a number. ``role``
    does not come from the platform: it is set when the sender is admitted, and stored with the update.
    """

    id: str
    place: ChatPlace
    sender: str
    text: str = ""
    files: tuple[RemoteFile, ...] = ()
    sender_name: str = ""
    chat_title: str = ""
    sent_at: int | None = None  # by the platform's clock
    number: int | None = None
    kind: UpdateKind = UpdateKind.MESSAGE
    press: str = ""  # the data of the pressed button
    is_addressed: bool = True  # in a group: the bot is mentioned or replied to, or it is a command
    role: SenderRole = SenderRole.MEMBER
    forwarded_from: str = ""  # the author's name, if the sender forwards it


class Refusal(msgspec.Struct, frozen=True):
    """Why an update did not become a turn. Also that it was a command or an answer, and was carried out."""

    code: str
    message: str


class Chat(msgspec.Struct, frozen=True):
    """``session_id``: the chat's current session; None: the next message starts one."""

    id: str
    owner: str
    place: ChatPlace
    profile: str
    title: str
    session_id: str | None
    created_at: int


class Received(msgspec.Struct, frozen=True):
    """A row of the inbox. ``update`` is None once the row is settled: its text is in the turn then."""

    id: str
    chat: Chat
    state: InboxState
    received_at: int
    update: Update | None = None
    is_late: bool = False  # the platform had delivered a later message of the chat before
    is_repeat: bool = False  # it was received before; nothing was stored now
    turn_id: str | None = None
    behind: str | None = None  # just accepted: the turn of its session that comes first
    refusal: Refusal | None = None


class Button(msgspec.Struct, frozen=True, omit_defaults=True):
    """Below a message. Pressing it delivers ``data`` as an update, or opens ``url``."""

    label: str
    data: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        if bool(self.data) == bool(self.url):
            raise ValueError(f"the button {self.label!r} needs either data or a url")
        if len(self.data.encode()) > BUTTON_BYTES_MAX:
            raise ValueError(f"the data of the button {self.label!r} is longer than {BUTTON_BYTES_MAX} bytes")


class NewPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one send carries: text in the platform's format, or a file of the store.

    ``replaces``: the platform's name of a message of ours. The sender edits the part into that message, and
    sends it as a new one if the message is gone. A platform's ``send`` can ignore it.
    """

    text: str = ""
    format: str = ""
    file_id: str | None = None
    buttons: tuple[Button, ...] = ()
    replaces: str = ""


class OutgoingFile(msgspec.Struct, frozen=True):
    """The bytes of ``NewPart.file_id``, for as long as the send lasts."""

    path: Path
    name: str
    media_type: str


class AccountLease(msgspec.Struct, frozen=True):
    """The right to send for an account. Every write of its sender carries the epoch."""

    account: str
    worker: str
    epoch: int


class OutgoingPart(msgspec.Struct, frozen=True):
    """A part that its sender has claimed.

    ``id`` is the same for every attempt, so that a platform can recognise a repeat by it. ``is_repeat``: an
    earlier attempt may have arrived, and the platform cannot tell.
    """

    id: str
    chat: Chat
    body: NewPart
    number: int  # of the parts of its message, from 0
    attempts: int
    is_repeat: bool
    give_up_at: int
    file: OutgoingFile | None = None  # there whenever the body names a file
    turn_id: str | None = None  # whose answer it belongs to


class PartStatus(msgspec.Struct, frozen=True):
    """The state of one part, for people."""

    id: str
    outbox_id: str
    chat_id: str
    number: int
    state: PartState
    attempts: int
    is_repeat: bool
    turn_id: str | None = None
    external_id: str | None = None  # the platform's name of the message
    error: str | None = None
    changed_at: int = 0
    excerpt: str = ""  # how its text begins, for the person who has to decide about it


def excerpt_of(body: NewPart) -> str:
    """How the text of a part begins, on one line and without the platform's markup."""
    text = unescape(_TAG.sub("", body.text)) if body.format == "HTML" else body.text
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_CHARS_MAX else line[: _EXCERPT_CHARS_MAX - 1].rstrip() + "…"


class AskedElsewhere(msgspec.Struct, frozen=True):
    """The user's words, if they were written outside the chat that gets the answer. ``platform``: where they
    were written; empty: in the browser, or by a program."""

    text: str
    platform: str = ""


_COMMAND_TOOLS = frozenset({"terminal", "python"})
_ASKS_ONLY = frozenset({"ask_user"})  # it takes as long as the person does


class ToolActivity(msgspec.Struct, frozen=True):
    """The finished tool calls of a turn: how many ran a command, how many were others, and their time."""

    commands: int = 0
    others: int = 0
    took_ms: int = 0

    def add(self, name: str, took_ms: int) -> ToolActivity:
        """With one more call."""
        if name in _ASKS_ONLY:
            return self
        is_command = name in _COMMAND_TOOLS
        return ToolActivity(
            self.commands + is_command, self.others + (not is_command), self.took_ms + max(0, took_ms)
        )


class ReplyDue(msgspec.Struct, frozen=True):
    """A turn of a chat that has ended and whose answer is not recorded as parts yet.

    ``answer`` is its last text, in Markdown.
    """

    outbox_id: str
    chat: Chat
    session_id: str
    turn_id: str
    state: TurnState
    epoch: int
    answer: str = ""
    failure: Failure | None = None
    asked: AskedElsewhere | None = None
    files: TurnFiles | None = None  # what the turn changed in its workspace
    live_id: str | None = None  # the message that showed the turn while it ran, which the answer replaces
    is_live_last: bool = False  # nothing was sent to the chat after that message
    activity: ToolActivity = ToolActivity()


class ReplyUnderway(msgspec.Struct, frozen=True):
    """A turn that runs and whose answer goes to a chat. ``is_shown``: the chat has a live message for it, or
    is about to. ``live_id``: the platform's name of that message, once it was sent."""

    chat: Chat
    session_id: str
    turn_id: str
    first_position: int
    started_at: int
    is_shown: bool = False
    live_id: str | None = None


class AskDue(msgspec.Struct, frozen=True):
    """An approval or a question that a chat has not seen yet. ``asked``: the words that led to it, if the
    chat has not seen those either."""

    chat: Chat
    ask: Ask
    asked: AskedElsewhere | None = None


class AnswerDue(msgspec.Struct, frozen=True):
    """An approval or a question that was answered after a chat was asked. ``question``: its parts there."""

    outbox_id: str
    chat: Chat
    ask: Ask
    question: tuple[PartStatus, ...]


class DeliveryTotals(msgspec.Struct, frozen=True):
    """How much is on its way, over all accounts, for metrics."""

    inbox_waiting: int  # updates that are not settled
    outbox_waiting: int  # parts
    outbox_unknown: int
    outbox_for_people: int  # held or undelivered
    outbox_lag_seconds: float  # of the part that could have been sent first


def next_after_unknown(policy: WhenUnknown, *, is_repeat: bool) -> tuple[PartState, bool]:
    """What becomes of an unknown part, and whether it counts as a possible repeat from now on."""
    if policy is WhenUnknown.RESEND:
        return PartState.WAITING, is_repeat
    if policy is WhenUnknown.REPEAT and not is_repeat:
        return PartState.WAITING, True
    return PartState.HELD, is_repeat
