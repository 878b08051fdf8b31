"""Notifications: what reaches a person while the page is closed, and the devices that it goes to (F10).

A notification is a row of the outbox, written by the transaction that caused it. It is checked before it is
sent: if its cause is gone by then, it is dropped; if it was sent already, it is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from everturn.domain.asks import Ask
from everturn.domain.delivery import Chat, NewPart
from everturn.domain.json_types import JsonObject
from everturn.domain.words import Words

# An account that no person can add: '~' is in no name of theirs. Its rows are not shown among messages.
DEVICES_ACCOUNT: Final = "~devices"  # recognise a repeat by its tag or id
SERVICES_ACCOUNT: Final = "~services"  # through Apprise: a repeat would be a second message
DEVICES_MAX: Final = 50  # of an owner
GRACE_MS: Final = 3_000  # an open page answers or reads meanwhile
ANSWER_AFTER_MS: Final = 30_000  # a turn that took less is not worth a notification
KEEP_MS: Final = 7 * 24 * 3_600_000  # after this nothing is sent, and the rows are deleted
TITLE_CHARS_MAX: Final = 100  # with the text, what a push service takes in any script
TEXT_CHARS_MAX: Final = 500


class NoticeKind(Words):
    """What a notification is about; a person chooses them for each device."""

    APPROVAL = "approval"  # approvals, questions, calls in doubt: a turn waits for an answer
    ANSWER = "answer"  # a long turn has ended, and its answer is unread
    JOB = "job"
    SCHEDULE = "schedule"  # a run failed, or the schedule was paused
    BUDGET = "budget"
    DELIVERY = "delivery"  # a message to a chat that may not have arrived
    TEST = "test"  # asked for by a person; every device takes it


CHOICES: Final = tuple(kind for kind in NoticeKind if kind is not NoticeKind.TEST)
ABOUT_ASKS: Final = frozenset({NoticeKind.APPROVAL, NoticeKind.BUDGET})


class DeviceKind(Words):
    BROWSER = "browser"  # Web Push
    WEBHOOK = "webhook"  # signed
    SERVICE = "service"  # ntfy, Gotify, mail and others, by an address of Apprise
    CHAT = "chat"  # of an account on a messaging platform


class NoticeState(StrEnum):
    DUE = "due"  # not checked yet
    SHOWN = "shown"  # recorded for sending; its cause is still there
    DROPPED = "dropped"  # its cause was gone before it was sent
    WITHDRAWN = "withdrawn"  # its cause is gone; the device was told where it can be


_N = NoticeState
NOTICE_MOVES: Final[Mapping[NoticeState, frozenset[NoticeState]]] = {
    _N.DUE: frozenset({_N.SHOWN, _N.DROPPED}),
    _N.SHOWN: frozenset({_N.DROPPED, _N.WITHDRAWN}),
    _N.DROPPED: frozenset(),
    _N.WITHDRAWN: frozenset(),
}


class NewDevice(msgspec.Struct, frozen=True, kw_only=True):
    """``address``: JSON for its kind, without secrets. ``mark``: the same for the same target, so that it is
    added once. ``chat_id``: of a device that is a chat."""

    id: str
    kind: DeviceKind
    name: str
    kinds: tuple[NoticeKind, ...]
    mark: str
    address: str = "{}"
    has_buttons: bool = False
    chat_id: str | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """Where notifications go. ``ended_at``: its service says that it is gone; nothing is sent there any more.
    ``error``: why the last message did not arrive; empty if it did."""

    id: str
    owner: str
    kind: DeviceKind
    name: str
    kinds: tuple[NoticeKind, ...]
    created_at: int
    has_buttons: bool = False
    sent_at: int | None = None
    ended_at: int | None = None
    error: str = ""
    address: str = "{}"
    chat_id: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification whose time has come. ``cause``: the id of what it is about. ``session_id``: where it
    can be seen. ``words``: what the transaction that caused it had to say."""

    id: str
    outbox_id: str
    kind: NoticeKind
    cause: str
    chat: Chat
    device: Device
    created_at: int
    due_at: int
    is_standing: bool  # its cause is still there
    session_id: str | None = None
    title: str = ""  # of the session
    words: str = ""
    ask: Ask | None = None
    answer: str = ""  # of the turn


class NoticeMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a device gets, as JSON in a part. ``tag``: a later message with the same one takes its place.
    ``link``: relative to the page. ``ask``: the approval that Deny answers. ``is_gone``: the cause is gone:
    take the earlier message away, or replace it."""

    tag: str
    kind: NoticeKind
    title: str
    text: str = ""
    link: str = "#/"
    session: str = ""
    ask: str = ""
    is_gone: bool = False


class QuietHours(msgspec.Struct, frozen=True):
    """Between these times of day only approvals and questions come through."""

    start: Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$(?!\n)")]
    end: Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$(?!\n)")]
    timezone: Annotated[str, Meta(min_length=1, max_length=100)]


class NoticeSettings(msgspec.Struct, frozen=True):
    """``shows_content``: off, a message says only that Everturn needs the person, or has news."""

    quiet: QuietHours | None = None
    shows_content: bool = True


class Devices(Protocol):
    """Rows of devices. Each write is durable when its call returns."""

    async def add(self, owner: str, new: NewDevice) -> Device:
        """Add a device, or bring back the one with the same mark. Raises Limit, NotFound for its chat."""
        ...

    async def list(self, owner: str) -> Sequence[Device]: ...

    async def get(self, owner: str, device_id: str) -> Device:
        """Raises NotFound."""
        ...

    async def of_chat(self, chat_id: str) -> Device | None:
        """The device that messages to this chat of ours go to."""
        ...

    async def change(
        self, owner: str, device_id: str, *, name: str | None, kinds: Sequence[NoticeKind] | None
    ) -> Device:
        """Raises NotFound."""
        ...

    async def remove(self, owner: str, device_id: str) -> None:
        """Delete the device with everything that waits for it. Raises NotFound."""
        ...

    async def note_sent(self, device_id: str) -> None: ...

    async def note_error(self, device_id: str, error: str, *, is_ended: bool = False) -> None: ...


class Notices(Protocol):
    async def put_test(self, owner: str, device_id: str) -> str:
        """Owe the device a test message; return its id. Raises NotFound, WrongState if it has ended."""
        ...

    async def due(self, *, limit: int) -> Sequence[Notice]:
        """Notifications that are due now, oldest first."""
        ...

    async def record(self, notice: Notice, part: NewPart | None) -> NoticeState | None:
        """Make the message a part, or drop it if its cause is gone; None if that was done before. Without a
        part there is nothing to send: the person is told in another way."""
        ...

    async def postpone(self, notice: Notice, until_ms: int) -> None: ...

    async def over(self, *, limit: int) -> Sequence[Notice]:
        """Recorded notifications whose cause is gone."""
        ...

    async def withdraw(self, notice: Notice, part: NewPart | None) -> NoticeState | None:
        """Take it back if it was not sent; otherwise send ``part`` after it. None: it is being sent now."""
        ...

    async def prune(self, before_ms: int) -> int:
        """Delete a batch of older ones; return how many, until it is 0."""
        ...

    async def state(self, notice_id: str) -> NoticeState | None: ...


class PushKey(msgspec.Struct, frozen=True):
    """``key``: what a browser subscribes with; empty if Web Push cannot be used here. ``problem``: why."""

    key: str
    problem: str = ""


class BrowserAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a browser's subscription says. ``key``: the one that it was made with."""

    endpoint: Annotated[str, Meta(min_length=1, max_length=2_000)]
    p256dh: Annotated[str, Meta(min_length=80, max_length=100)]
    auth: Annotated[str, Meta(min_length=20, max_length=30)]
    key: Annotated[str, Meta(min_length=80, max_length=100)]


class NewTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a person adds; each kind needs one of the fields. ``url``: of a webhook, or of Apprise.
    ``secret``: of a webhook; None: one is made. ``chat``: the id of a chat."""

    name: str
    kinds: tuple[NoticeKind, ...] = CHOICES
    browser: BrowserAddress | None = None
    has_buttons: bool = False
    webhook: str | None = None
    secret: str | None = None
    service: str | None = None
    chat: str | None = None


class Notifications(Protocol):
    """What the web needs: devices and their choices. Changes are durable on return."""

    async def key(self) -> PushKey: ...

    @property
    def services_problem(self) -> str:
        """Why addresses of Apprise cannot be used here; empty if they can."""
        ...

    async def devices(self, owner: str) -> Sequence[Device]: ...

    async def chats(self, owner: str) -> Sequence[Chat]:
        """Those that can be added."""
        ...

    async def add(self, owner: str, target: NewTarget) -> tuple[Device, str]:
        """The device, and the secret that signs a webhook's messages. Raises Invalid, Limit, NotFound,
        AddressRefused."""
        ...

    async def change(
        self, owner: str, device_id: str, *, name: str | None, kinds: Sequence[NoticeKind] | None
    ) -> Device: ...

    async def remove(self, owner: str, device_id: str) -> None: ...

    async def test(self, owner: str, device_id: str) -> None: ...

    async def settings(self, owner: str) -> NoticeSettings: ...

    async def put_settings(self, owner: str, settings: NoticeSettings) -> None:
        """Raises Invalid for a time zone that does not exist."""
        ...

    def status(self) -> JsonObject:
        """Figures of this server, for metrics."""
        ...
