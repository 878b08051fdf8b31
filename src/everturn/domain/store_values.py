"""The values that the store takes and returns, besides sessions, turns, messages and events."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from everturn.domain.checkpoints import SessionCheckpoints
from everturn.domain.events import Event
from everturn.domain.messages import Message, Source
from everturn.domain.parameters import Parameters
from everturn.domain.sessions import Page, Session
from everturn.domain.turns import ClaimReason, Turn, TurnKind, Usage
from everturn.domain.words import Words


class Request(msgspec.Struct, frozen=True):
    """What protects a change of the transcript from repeats and stale reads: a key, a version, or both."""

    key: str | None = None
    version: int | None = None


NO_REQUEST = Request()


class WhenBusy(StrEnum):
    """What becomes of a message while a turn runs."""

    QUEUE = "queue"  # it waits
    STEER = "steer"  # it joins the turn
    INTERRUPT = "interrupt"  # it ends the turn and runs next


class SearchOrder(StrEnum):
    NEWEST = "newest"
    RELEVANCE = "relevance"


class FileKind(Words):
    UPLOAD = "upload"  # of a user
    ARTIFACT = "artifact"  # of a tool


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that a user sends."""

    text: str = ""
    attachments: tuple[str, ...] = ()  # file ids
    model: str | None = None
    profile: str | None = None
    when_busy: WhenBusy = WhenBusy.QUEUE
    key: str | None = None  # idempotency key
    kind: TurnKind = TurnKind.MESSAGE
    note: str = ""  # for a compaction: its focus
    # Used if ``model`` is None. Not part of the request itself, so a repeated request is still recognised
    # after the preference has changed.
    preferred_model: str | None = None
    version: int | None = None  # the session version that the message is based on, if it matters
    source: Source | None = None
    # False: its sender may not choose a profile, so it does not steer a turn for which one was chosen.
    may_choose_profile: bool = True
    parameters: Parameters | None = None  # where it says nothing, the session's apply


class Accepted(msgspec.Struct, frozen=True):
    turn: Turn
    cursor: int  # follow the session's events after this position to see all of the turn
    is_repeat: bool = False  # the idempotency key was used before; this is the first answer
    is_steering: bool = False  # the message went into the running turn ``turn``


class TakenBack(msgspec.Struct, frozen=True):
    """A cancelled turn, and the messages that waited behind it, in the order in which they would have run."""

    turn: Turn
    messages: tuple[Message, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """A turn that this worker may run. Every write to it carries the epoch.

    ``journal`` holds the turn's events so far, in (epoch, number) order. The writer continues with
    ``number`` + 1.
    """

    turn: Turn
    session: Session
    epoch: int
    number: int
    reason: ClaimReason
    journal: tuple[Event, ...] = ()
    stopped_at: int | None = None
    message: Message | None = None  # the turn's current first message; None in a compaction


class TranscriptPage(msgspec.Struct, frozen=True):
    """One page of a session, in one consistent read.

    ``turns``: those of its messages and, on the newest page, the active one. ``queued``: on the newest page,
    the turns that wait to run, in order.
    """

    session: Session
    messages: Page[Message]
    turns: tuple[Turn, ...]
    queued: tuple[Turn, ...] = ()


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """An upload or an artifact. Its bytes are in the data folder, named by their hash."""

    id: str
    owner: str
    name: str
    media_type: str
    size: int
    sha256: str
    created_at: int
    kind: FileKind = FileKind.UPLOAD
    session_id: str | None = None


class Trouble(msgspec.Struct, frozen=True):
    """Why nothing can be stored at the moment. ``code`` is the code of the error that a write raises."""

    code: str
    message: str
    hint: str


class WriteCounts(msgspec.Struct, frozen=True):
    """What this process has written since the store was opened."""

    events: int
    writes: int  # appends, and on SQLite every other write too
    commits: int
    waiting: int  # writes that no commit has taken yet
    commit_seconds: tuple[float, ...]  # how long the last commits took
    is_log_stuck: bool  # SQLite's write-ahead log could not be checkpointed


class Finding(msgspec.Struct, frozen=True):
    """What a check found. ``is_repairable``: ``doctor --repair`` can rebuild it from the stored sessions."""

    what: str
    detail: str
    is_repairable: bool = False
    is_repaired: bool = False


class UsageEntry(msgspec.Struct, frozen=True):
    """The tokens of one ended turn (``purpose`` is ``turn``), or of a model call for another purpose."""

    model: str | None  # None: the default model at that time
    usage: Usage
    at: int
    purpose: str


class RetriedTurn(msgspec.Struct, frozen=True):
    """Which turn is asked again (None: the head), with which text, model and parameters (None: the same)."""

    turn_id: str | None = None
    text: str | None = None
    model: str | None = None
    parameters: Parameters | None = None


class ImportedSession(msgspec.Struct, frozen=True):
    """A session that comes from a document or another program.

    ``events``: events of newer kinds, kept in the journal. ``files``: checkpoints whose bytes are stored.
    ``purge_at`` makes the session ephemeral: no list shows it, and it is purged by then. ``is_once``: refuse
    it with AlreadyImported if its ids are taken, instead of importing it under new ones.
    """

    session: Session
    turns: Sequence[Turn]
    messages: Sequence[Message]
    events: Sequence[Event] = ()
    purge_at: int | None = None
    files: SessionCheckpoints = SessionCheckpoints()
    is_once: bool = False


class RecordName(NamedTuple):
    """By which the store keeps a record."""

    owner: str
    kind: str
    name: str
