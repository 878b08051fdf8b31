"""A session: one conversation, as lists and readers see it."""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.parameters import Parameters
from everturn.domain.turns import TurnState

T = TypeVar("T")


class SessionKind(StrEnum):
    """What a session is for. Lists show ordinary ones only. A newer version may have stored other kinds."""

    ORDINARY = "ordinary"
    EPHEMERAL = "ephemeral"  # serves one answer, then it is purged
    DELEGATE = "delegate"  # works for a turn of another session


class SessionChat(msgspec.Struct, frozen=True):
    """The chat on a messaging platform that a session is the current one of: its answers go there, too."""

    id: str
    account: str
    platform: str
    kind: str
    title: str


class Session(msgspec.Struct, frozen=True, omit_defaults=True):
    """``version`` grows with the transcript and the settings, ``position`` with each event."""

    id: str
    owner: str
    version: int
    position: int
    created_at: int
    updated_at: int
    title: str = ""
    is_title_given: bool = False  # a user named it; no generated title may replace it
    key: str = ""  # the place where a user talks; several sessions can share one
    head: str | None = None  # the turn the transcript ends with
    redo_to: str | None = None  # the turn that redo returns to, until a new turn starts
    pinned: bool = False
    archived: bool = False
    private: bool = False  # its turns are not saved to memory
    tags: tuple[str, ...] = ()
    project: str | None = None  # a folder to work in
    machine: str | None = None  # that has this folder, as id@name: only it runs the session's turns
    profile: str | None = None
    model: str | None = None
    active_turn: str | None = None
    active_state: TurnState | None = None
    last_state: TurnState | None = None  # how the newest ended turn ended
    queued: int = 0
    asks: int = 0  # open approvals and questions
    is_unread: bool = False
    messages: int = 0
    preview: str = ""  # its last words
    first_words: str = ""  # what lists call it until it has a title; empty then
    transcript_version: int = 0  # the version at which the transcript last changed
    chat: SessionChat | None = None
    parent_turn: str | None = None  # of a delegate: the turn that it works for
    parent_session: str | None = None
    parameters: Parameters | None = None  # for its turns, where a message gives none

    @property
    def is_delegate(self) -> bool:
        return self.parent_turn is not None


class NewSession(msgspec.Struct, frozen=True):
    """The session that a request asks for.

    ``preferred_profile`` is used if ``profile`` is None. It is not part of the request itself, so a repeated
    request is still recognised after the preference has changed.
    """

    title: str = ""
    key: str = ""
    private: bool = False
    project: str | None = None
    profile: str | None = None
    model: str | None = None
    preferred_profile: str | None = None


class SessionFilter(msgspec.Struct, frozen=True):
    """Which sessions a list shows. None: a session may be either; without a tag or a project, it may
    have any. ``since``, ``until``: milliseconds; it was last active from the first on, before the second."""

    query: str = ""
    archived: bool | None = False
    pinned: bool | None = None
    tag: str | None = None
    project: str | None = None
    since: int | None = None
    until: int | None = None


class MessageFilter(msgspec.Struct, frozen=True):
    """Which messages a search may find. None: any. ``since``, ``until``: milliseconds; a message is from the
    first on, before the second. ``tag``: of its session."""

    session_id: str | None = None
    since: int | None = None
    until: int | None = None
    role: str | None = None
    tag: str | None = None


class Label(msgspec.Struct, frozen=True):
    """A tag or a project, and how many sessions have it."""

    name: str
    sessions: int


class Labels(msgspec.Struct, frozen=True):
    """The tags and projects of the listed sessions, the most used first."""

    tags: tuple[Label, ...]
    projects: tuple[Label, ...]


ANY_MESSAGE = MessageFilter()
NEW_SESSION = NewSession()
ORDINARY_SESSIONS = SessionFilter()


class SessionPatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes to a session. A field that is UNSET stays as it is."""

    title: str | msgspec.UnsetType = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    tags: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    project: str | msgspec.UnsetType | None = msgspec.UNSET
    profile: str | msgspec.UnsetType | None = msgspec.UNSET
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    private: bool | msgspec.UnsetType = msgspec.UNSET
    is_unread: bool | msgspec.UnsetType = msgspec.UNSET
    parameters: Parameters | msgspec.UnsetType | None = msgspec.UNSET


class Page(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """One page and the cursor of the next; no cursor on the last page."""

    items: tuple[T, ...]
    cursor: str | None = None


class Overview(msgspec.Struct, frozen=True):
    """The first page of the list, the state of some other sessions, and totals, in one consistent read."""

    page: Page[Session]
    others: tuple[tuple[str, Session | None], ...]  # None: deleted
    sessions: int
    archived: int
    asks: tuple[str, ...]  # the session of each open approval and question


class Deletion(msgspec.Struct, frozen=True):
    """A deleted session that is still stored. ``due_at``: when it will be purged."""

    session_id: str
    owner: str
    due_at: int


class Hit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that search found. ``marks`` are (start, end) inside ``excerpt``."""

    session_id: str
    message_id: str
    turn_id: str
    role: str
    title: str
    excerpt: str
    created_at: int
    marks: tuple[tuple[int, int], ...] = ()


def refuse_control_characters(**given: str | tuple[str, ...] | msgspec.UnsetType | None) -> None:
    """Refuse names of a session with characters that move a terminal's cursor, end a line or hide the rest.
    ``given``: the values by field. Raises Invalid.

    A title may have line breaks: the store replaces all spaces in it by single ones.
    """
    for field, value in given.items():
        for text in (value,) if isinstance(value, str) else value or ():
            shown = " ".join(text.split()) if field == "title" else text
            found = next((char for char in shown if unicodedata.category(char) in ("Cc", "Cs")), None)
            if found is not None:
                raise Invalid(
                    f"The session's {field} contains a control character (U+{ord(found):04X}).",
                    hint="Remove it, then try again.",
                )
