"""The contract of the store, split by noun. SQLite and PostgreSQL implement it.

Every write is one transaction and is durable when its call returns. A refused write has changed
nothing. Every read names its owner. Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Protocol

from everturn.domain.asks import Ask, Asks
from everturn.domain.blobs import Blobs
from everturn.domain.budgets import Budgets
from everturn.domain.checkpoints import Checkpoints
from everturn.domain.delegates import DelegateStore
from everturn.domain.delivery_store import Delivery
from everturn.domain.events import Event, Payload
from everturn.domain.fold import Folded
from everturn.domain.jobs import JobStore
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.machine import Machine
from everturn.domain.memory import Ledger, NotePages
from everturn.domain.messages import Message
from everturn.domain.schedules import Schedules
from everturn.domain.sessions import (
    ANY_MESSAGE,
    NEW_SESSION,
    ORDINARY_SESSIONS,
    Deletion,
    Hit,
    Labels,
    MessageFilter,
    NewSession,
    Overview,
    Page,
    Session,
    SessionFilter,
    SessionPatch,
)
from everturn.domain.store_values import (
    NO_REQUEST,
    Accepted,
    Claim,
    File,
    FileKind,
    Finding,
    RecordName,
    Request,
    SearchOrder,
    Submission,
    TakenBack,
    Trouble,
    UsageEntry,
    WriteCounts,
)
from everturn.domain.transcript import Transcript
from everturn.domain.turns import Completed, Failure, Turn
from everturn.domain.working_copies import WorkingCopies


class Sessions(Protocol):
    async def create(
        self, owner: str, new: NewSession = NEW_SESSION, *, request: Request = NO_REQUEST
    ) -> Session: ...

    async def get(self, owner: str, session_id: str) -> Session:
        """Raises NotFound, and Gone if the session is deleted, as all user requests about a session do."""
        ...

    async def list(
        self,
        owner: str,
        wanted: SessionFilter = ORDINARY_SESSIONS,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        """Ordinary sessions that are not deleted, newest activity first."""
        ...

    async def overview(self, owner: str, *, limit: int, also: Collection[str] = ()) -> Overview:
        """The first page and totals. ``also``: more sessions to look up, which may not be on the page."""
        ...

    async def on_key(self, owner: str, key: str) -> Sequence[str]:
        """Ids of the sessions that share a session key, oldest first."""
        ...

    async def change(
        self, owner: str, session_id: str, patch: SessionPatch, *, version: int | None = None
    ) -> Session:
        """Does not move ``updated_at``: renaming is not activity. Raises Stale."""
        ...

    async def set_title(self, owner: str, session_id: str, title: str) -> Session:
        """Write a generated title, unless a user has named the session meanwhile (A11)."""
        ...

    async def mark_deleted(self, owner: str, session_id: str, *, due_at: int) -> Session:
        """Hide the session until it is restored or, from ``due_at`` on, purged. Its turns continue."""
        ...

    async def restore(self, owner: str, session_id: str) -> Session:
        """Undo ``mark_deleted``. Raises WrongState if the session is not deleted, Gone if it was purged."""
        ...

    async def labels(self, owner: str) -> Labels:
        """The tags and projects in use. Reads every session that has one."""
        ...

    async def count_with_profile(self, profile: str) -> int:
        """How many sessions, of all owners, name this profile."""
        ...

    async def discard_empty(self, *, before: int, limit: int = 500) -> int:
        """Mark sessions as deleted that were made before this time (milliseconds) and never used: without a
        turn, and without a title or setting. Looks at each session once; returns how many it has
        looked at."""
        ...

    async def deletions(self) -> Sequence[Deletion]:
        """Sessions of all owners that wait to be purged, including ephemeral ones, earliest due first."""
        ...

    async def delete(self, owner: str, session_id: str, *, is_purge: bool = False) -> None:
        """End the running turn, then remove all live data of the session (A17).

        ``is_purge``: only if the session is still deleted; raises WrongState if it was restored."""
        ...


class Turns(Protocol):
    async def accept(self, owner: str, session_id: str, submission: Submission) -> Accepted:
        """Queue a turn with the message, or give the message to the running turn (``when_busy``)."""
        ...

    async def accept_and_claim(
        self, worker: str, owner: str, session_id: str, submission: Submission
    ) -> tuple[Accepted, Claim | None]:
        """Accept, and claim the turn in the same transaction if it can run at once.

        The caller must run the claimed turn, so the call must not be cancelled.
        """
        ...

    async def get(self, owner: str, turn_id: str) -> Turn: ...

    async def queue(self, owner: str, session_id: str) -> Sequence[Turn]: ...

    async def edit_queued(
        self,
        owner: str,
        turn_id: str,
        text: str | None = None,
        *,
        place: int | None = None,
        version: int | None = None,
    ) -> Turn:
        """Change the text of a queued turn, or its place in the queue.

        ``place`` is the number of turns that run before it; with fewer turns, it comes last. Raises Stale if
        the session is no longer at ``version``."""
        ...

    async def remove_queued(self, owner: str, turn_id: str) -> None: ...

    async def claim(
        self,
        worker: str,
        *,
        limit: int = 1,
        session_id: str | None = None,
        without_owners: Sequence[str] = (),
    ) -> list[Claim]:
        """Take turns that are ready to run: the oldest queued turn of each free session, and turns that were
        answered or handed over. Appends ``turn.started`` or ``turn.resumed``."""
        ...

    @property
    def has_locked(self) -> bool:
        """True if the last claim left out a turn because another transaction was writing its session."""
        ...

    async def find_lost(self, held: Sequence[tuple[str, int]]) -> list[str]:
        """Those of the held (turn, epoch) that are no longer running at that epoch. Writes nothing."""
        ...

    async def list_held(self, worker: str) -> list[tuple[str, int]]:
        """The turns that the worker holds, as (turn, epoch). It may not know about some of them, if the
        answer to a claim was lost."""
        ...

    async def take_steering(self, turn_id: str, epoch: int, number: int) -> list[Message]:
        """Move the steering messages that wait for this turn into its journal, numbered from
        ``number``; return them."""
        ...

    async def wait(
        self,
        turn_id: str,
        epoch: int,
        number: int,
        asks: Sequence[Ask],
        payloads: Sequence[Payload],
        *,
        worked_ms: int | None = None,
    ) -> Turn:
        """Make the asks durable with their events and set the turn to waiting, in one transaction."""
        ...

    async def complete(
        self,
        turn_id: str,
        epoch: int,
        number: int,
        folded: Folded,
        *,
        provider: str | None = None,
        handle: str = "",
    ) -> Completed:
        """Write the messages, the usage, the debt to memory and the end of the turn, in one transaction.

        ``number`` is the last event that the writer made durable. Raises WrongState if the journal holds
        more, SteeringWaits if a steering message waits. ``provider``: the memory provider that the turn is
        owed to; ``handle``: the provider's handle that observed it.
        """
        ...

    async def fail(self, turn_id: str, epoch: int | None, failure: Failure) -> Turn:
        """End the turn as failed, with the messages in its journal.

        ``epoch`` None: the caller is not the turn's worker, for example because the turn is still queued."""
        ...

    async def interrupt(
        self, turn_id: str, epoch: int | None, failure: Failure, *, is_sealed: bool = True
    ) -> Turn:
        """End the turn as interrupted, with the messages in its journal; the user can resume it.

        ``is_sealed``: the worker will send nothing more, so the store does not wait for late events.
        ``epoch``: as for ``fail``."""
        ...

    async def cancel(self, owner: str, turn_id: str, *, by: str = "") -> Turn:
        """End the turn as cancelled, with the messages in its journal. An ended turn is returned as it is."""
        ...

    async def take_back(self, owner: str, turn_id: str, *, by: str = "", key: str | None = None) -> TakenBack:
        """Cancel the turn and take back what waits behind it, in one transaction, so that none of it can be
        claimed: the steering messages that it has not taken in, and the queue of its session.

        ``key``: an idempotency key; a repeated call returns the same messages."""
        ...

    async def hand_over(self, turn_id: str, epoch: int) -> Turn:
        """Release a running turn. It keeps its place and can be claimed at once."""
        ...

    async def resume(self, owner: str, turn_id: str) -> Turn:
        """Make an interrupted turn at the head claimable again."""
        ...


class Journal(Protocol):
    async def append(self, turn_id: str, epoch: int, first_number: int, payloads: Sequence[Payload]) -> int:
        """Make events durable; return the position of the last. Numbers that are already in the journal are
        skipped, so a batch can be sent again unchanged. Raises Fenced.

        Returns 0 if the database is away: the events are synced to this worker's spool, but not published
        and not visible to readers. They are delivered later, in order. Until ``wait_delivered`` returns, the
        turn must not do anything that other workers have to know about: no model call, no tool (C04).
        """
        ...

    async def wait_delivered(self, turn_id: str, epoch: int) -> None:
        """Wait until this writer has no events in the spool. Call it before a model call or a tool.

        Raises Fenced if another worker has the turn; the spooled events were then stored beside the
        journal (C09)."""
        ...

    async def after(self, owner: str, session_id: str, position: int, *, limit: int = 500) -> list[Event]:
        """Events after the position; one ``snapshot`` in place of pruned ones."""
        ...

    async def of_turn(self, owner: str, turn_id: str) -> list[Event]:
        """A turn's events in (epoch, number) order."""
        ...

    async def of_newer_kinds(self, owner: str, session_id: str) -> list[Event]:
        """The session's events of kinds that this version does not know (G04)."""
        ...

    def follow(self, owner: str, session_id: str, after: int) -> AsyncGenerator[Sequence[Event], None]:
        """Replay, then follow, in batches, without end. A reader that lags is not sent a backlog: it reads
        the journal again from its own position, so it misses nothing and slows no turn."""
        ...

    async def deliver_late(self, turn_id: str, epoch: int, events: Sequence[Event]) -> int:
        """Store spooled events of a former worker beside the journal; return how many were new."""
        ...

    async def seal(self, turn_id: str, epoch: int) -> None:
        """Record that this epoch's worker will send nothing more."""
        ...

    async def read_pending(self, owner: str, session_id: str) -> tuple[Session, bool]:
        """The session, and whether ``recover`` has something to do. Writes nothing."""
        ...

    async def recover(self, owner: str, session_id: str) -> bool:
        """Put late events of ended turns into the transcript, and settle whether more can come (C05-C08);
        True if something changed. Resuming a turn is ``Turns.claim``, not this."""
        ...


class Files(Protocol):
    """Uploads and artifacts. Their bytes are blobs, durable before the transaction that names them."""

    async def put(
        self,
        owner: str,
        name: str,
        media_type: str,
        content: bytes | Path,
        *,
        kind: FileKind = FileKind.UPLOAD,
        session_id: str | None = None,
    ) -> File: ...

    async def get(self, owner: str, file_id: str) -> File: ...

    async def list_uploads(self, owner: str, session_id: str, *, limit: int = 200) -> list[File]:
        """What was attached to the session's messages, newest first; nothing of a session that is not
        there."""
        ...

    def read(self, file: File, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        """The file's bytes, in bounded pieces, each verified.

        Raises FileMissing if they are missing or damaged, FileUnreadable, StoreAway, StorageAway; also after
        the first pieces.
        """
        ...

    async def sweep(self) -> int: ...


class Search(Protocol):
    async def find(
        self,
        owner: str,
        query: str,
        *,
        limit: int = 20,
        order: SearchOrder = SearchOrder.NEWEST,
        within: MessageFilter = ANY_MESSAGE,
        reader: str | None = None,
    ) -> list[Hit]:
        """``reader``: the session that searches; messages of other private sessions are not shown to it.
        None: the owner searches, and sees everything."""
        ...

    async def index(self, *, limit: int = 2000) -> int:
        """Add up to this many messages to the index; return how many were added."""
        ...

    async def rebuild(self) -> None: ...


class Workers(Protocol):
    async def register(self, worker: str) -> None: ...

    async def heartbeat(self, worker: str) -> bool:
        """Renew the lease; False if it was lost. SQLite has no leases: always True."""
        ...

    async def take_over(self, worker: str) -> int:
        """Release the turns of workers that are certainly dead (their lock can be taken) or whose
        lease ran out; return how many."""
        ...

    async def unregister(self, worker: str) -> None: ...


class Records(Protocol):
    """Small durable things by (owner, kind, name): settings, rules, tokens, sign-ins."""

    async def put(self, owner: str, kind: str, name: str, value: Json) -> None: ...

    async def replace(self, owner: str, kind: str, name: str, value: Json) -> bool:
        """Like ``put``, but only if the record exists; otherwise do nothing and return False."""
        ...

    async def get(self, owner: str, kind: str, name: str) -> Json | None: ...

    async def list(self, owner: str, kind: str) -> JsonObject: ...

    def of_kind(self, kind: str) -> AsyncIterator[Sequence[Json]]:
        """The values of all owners, in batches."""
        ...

    async def delete(self, owner: str, kind: str, name: str) -> bool: ...

    async def trade(self, given: RecordName, taken: RecordName, value: Json) -> bool:
        """Delete one record and put another, in one transaction. False if the first does not exist; then
        nothing has changed."""
        ...


class Upkeep(Protocol):
    async def check(self) -> list[Finding]: ...

    async def repair(self) -> list[Finding]: ...

    async def backup(self, target: Path) -> Path:
        """Make a consistent copy, the database first, then the files, and verify it by opening it."""
        ...

    async def prune(self, *, older_than_ms: int, limit: int = 200) -> int: ...

    async def stats(self) -> JsonObject: ...

    async def usage(self, owner: str, since_ms: int) -> list[UsageEntry]: ...


class StoreHealth(Protocol):
    """Whether writes can be stored at the moment, for parts that wait until they can."""

    @property
    def trouble(self) -> Trouble | None:
        """Why the last write failed; None as soon as one succeeds."""
        ...

    async def health_changed(self, known: Trouble | None) -> Trouble | None:
        """Wait until ``trouble`` differs from ``known``, then return it."""
        ...


class StoreLeases(Protocol):
    """How long a worker keeps its turns."""

    @property
    def has_leases(self) -> bool:
        """True if a worker keeps its turns only while it renews its lease. On SQLite a worker keeps them as
        long as its process lives."""
        ...

    @property
    def lease_s(self) -> float:
        """How long a worker keeps its turns without renewing its lease, if the store has leases."""
        ...


class Store(StoreHealth, StoreLeases, Protocol):
    """The nouns over one database. A part that needs one or two of them is given those alone."""

    @property
    def sessions(self) -> Sessions: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def transcript(self) -> Transcript: ...

    @property
    def journal(self) -> Journal: ...

    @property
    def asks(self) -> Asks: ...

    @property
    def files(self) -> Files: ...

    @property
    def blobs(self) -> Blobs: ...

    @property
    def checkpoints(self) -> Checkpoints: ...

    @property
    def delivery(self) -> Delivery: ...

    @property
    def budgets(self) -> Budgets: ...

    @property
    def schedules(self) -> Schedules: ...

    @property
    def jobs(self) -> JobStore: ...

    @property
    def delegates(self) -> DelegateStore: ...

    @property
    def working_copies(self) -> WorkingCopies: ...

    @property
    def search(self) -> Search: ...

    @property
    def workers(self) -> Workers: ...

    @property
    def records(self) -> Records: ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def notes(self) -> NotePages | None:
        """The pages of memory; None if they are files of the data folder."""
        ...

    @property
    def upkeep(self) -> Upkeep: ...

    @property
    def kind(self) -> str:
        """``sqlite`` or ``postgresql``."""
        ...

    @property
    def machine(self) -> Machine:
        """The machine that this store is opened on."""
        ...

    @property
    def has_certain_commits(self) -> bool:
        """True if a commit always either succeeds or raises. On PostgreSQL the connection can break during a
        commit, and a claim with an unknown outcome would leave its turn without a worker."""
        ...

    @property
    def is_away(self) -> bool:
        """True while the database cannot be reached: appends go to the spool, everything else raises
        StoreAway. Never on SQLite."""
        ...

    async def wait_for_change(self, known: int) -> int:
        """Wait until the number of changes of any session differs from ``known``, then return it. A hint:
        what another process changed may be noticed late, or not at all."""
        ...

    def changes(self, owner: str) -> AsyncGenerator[list[tuple[str, Session | None]] | None, None]:
        """Sessions whose row in the list changed, in batches, without end; (id, None) for a deleted one. A
        None instead of a batch means that any session may have changed: read the list again."""
        ...

    def counts(self) -> WriteCounts: ...
