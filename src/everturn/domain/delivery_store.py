"""The contract of the store for what enters and leaves on its own. SQLite and PostgreSQL implement it.

As everywhere in the store, each write is one transaction and is durable when its call returns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from everturn.domain.delivery import (
    AccountLease,
    AnswerDue,
    AskDue,
    Chat,
    DeliveryTotals,
    NewPart,
    OutgoingPart,
    PartStatus,
    Received,
    Refusal,
    ReplyDue,
    ReplyUnderway,
    SeenChat,
    Update,
    WhenUnknown,
)
from everturn.domain.gateway import AccountFigures
from everturn.domain.notifications import Devices, Notices
from everturn.domain.store_values import Accepted, RecordName, Submission


class Chats(Protocol):
    async def get(self, owner: str, chat_id: str) -> Chat:
        """Raises NotFound."""
        ...

    async def list(self, owner: str) -> Sequence[Chat]:
        """Oldest first."""
        ...

    async def list_seen(self, account: str, *, limit: int) -> Sequence[SeenChat]:
        """The account's chats whose platform numbers its messages, those with the highest number first."""
        ...

    async def list_working(self, account: str, *, limit: int) -> Sequence[Chat]:
        """Chats of the account that wait for the answer of a turn that runs now."""
        ...

    async def switch(self, owner: str, chat_id: str, session_id: str | None) -> Chat:
        """Make this the chat's current session; with None the next message starts a new one.

        Raises NotFound, Gone.
        """
        ...


class Inbox(Protocol):
    async def receive(self, owner: str, update: Update, *, profile: str) -> Received:
        """Store an update from an allowed sender; acknowledge it to the platform only after this returns.

        A repeated update changes nothing: its row is returned. ``owner`` and ``profile``
        are those of a chat that is new; a known chat keeps its own. A guest's chat passes to the account's
        owner once its sender is no longer a guest. Raises Denied for a guest in a chat of another owner,
        NotFound if the account was removed.
        """
        ...

    async def list_waiting(self, account: str, *, limit: int) -> Sequence[Received]:
        """The oldest received update of each chat. Only these can be accepted or refused."""
        ...

    async def accept(self, inbox_id: str, submission: Submission) -> tuple[Received, Accepted | None]:
        """Make the update a turn, in the chat's current session or a new one, and owe the chat its reply.

        One transaction. Repeated for a settled row, it changes nothing and returns the row, with None if the
        row has no turn. Raises WrongState if an earlier update of the chat is not settled, and what
        ``Turns.accept`` raises; then nothing has changed.
        """
        ...

    async def refuse(self, inbox_id: str, refusal: Refusal, *, turn_id: str | None = None) -> Received:
        """Settle the update without making it a turn: it is a command, for example. ``turn_id``: the turn
        that it has started or answered. A settled row is returned as it is."""
        ...

    async def prune(self, before_ms: int) -> int:
        """Delete a batch of settled rows received before this time, with what their chats were told about
        them; return how many, until it is 0. A repeat of a deleted row would look new."""
        ...


class AccountLeases(Protocol):
    async def take(self, account: str, worker: str) -> AccountLease | None:
        """The right to send for the account; None if another living worker has it, or if it was removed.

        The parts that a former worker was sending become unknown in the same transaction. A worker that
        already has the lease starts a new one, and what it was sending becomes unknown too.
        """
        ...

    async def holder(self, account: str) -> str | None:
        """The living worker that has the lease."""
        ...

    async def release(self, lease: AccountLease) -> None:
        """Give the lease up. Parts that were being sent become unknown."""
        ...


class Outbox(Protocol):
    """Methods that take a lease raise LeaseLost once another worker has taken the account."""

    async def replies_due(self, account: str, *, limit: int) -> Sequence[ReplyDue]:
        """Turns of the account's chats that have ended and whose replies are not recorded, oldest first. An
        interrupted turn is due once per epoch: it may be resumed, and then its reply is still owed."""
        ...

    async def record_reply(self, due: ReplyDue, parts: Sequence[NewPart], *, age_max_ms: int) -> bool:
        """Make the parts rows, in order behind those of the chat's earlier messages; False if that was done
        before, or if the turn's live message has changed since the reply was looked for.
        Without parts the reply is settled with nothing to send."""
        ...

    async def is_asked_here(self, owner: str, chat_id: str, turn_id: str) -> bool:
        """True if the chat has seen what the turn was asked, and is told how it ends."""
        ...

    async def asks_due(self, account: str, *, limit: int) -> Sequence[AskDue]:
        """Approvals and questions in the current sessions of the account's chats that were not asked there
        yet, oldest first."""
        ...

    async def record_question(
        self, due: AskDue, parts: Sequence[NewPart], *, age_max_ms: int, words: Sequence[NewPart] = ()
    ) -> bool:
        """Ask in the chat, once; False if that was done before. From then on the chat is owed the answer.
        ``words``: what led to the question, a message of its own above it, once for a turn.
        Raises NotFound if the session was purged."""
        ...

    async def answers_due(self, account: str, *, limit: int) -> Sequence[AnswerDue]:
        """What was asked in the account's chats and has been answered since, anywhere."""
        ...

    async def record_answer(self, due: AnswerDue, parts: Sequence[NewPart], *, age_max_ms: int) -> bool:
        """Show the answer in the chat, once. Without parts nothing is sent."""
        ...

    async def replies_underway(self, account: str, *, limit: int) -> Sequence[ReplyUnderway]:
        """Turns that run and whose answers go to chats of the account."""
        ...

    async def is_underway(self, lease: AccountLease, underway: ReplyUnderway) -> bool:
        """Whether the turn still runs, and the lease is the present one."""
        ...

    async def put_live(self, underway: ReplyUnderway, part: NewPart, *, age_max_ms: int) -> bool:
        """Show in the chat that the turn runs, once. False if that was done before, or if it has ended. Its
        fate is never a question to a person: if it is lost, the answer still arrives."""
        ...

    async def find(self, owner: str, chat_id: str, key: str) -> Sequence[PartStatus]:
        """The parts of the chat's message with this key, in order; none if there is no such message."""
        ...

    async def put(
        self, owner: str, chat_id: str, key: str, parts: Sequence[NewPart], *, age_max_ms: int
    ) -> bool:
        """Send a message of its own to the chat, once per key; False if that was done before."""
        ...

    async def claim(self, lease: AccountLease, *, limit: int) -> Sequence[OutgoingPart]:
        """Parts to send now, at most one per chat, each the first open one of its chat. From now on they
        are being sent. Parts that are too old become undelivered first."""
        ...

    async def mark_sent(
        self, lease: AccountLease, part_id: str, external_id: str, *, spacing_ms: int = 0
    ) -> None:
        """The platform has the part. The chat's next one is sent after ``spacing_ms`` at the earliest."""
        ...

    async def put_back(self, lease: AccountLease, part_id: str, error: str, *, retry_at: int) -> None:
        """The platform certainly did not take the part: send it again from ``retry_at`` on."""
        ...

    async def put_back_unsent(self, lease: AccountLease, sending: Collection[str]) -> int:
        """Put back the parts that were claimed under this lease and are not being sent; return how many.
        ``sending``: the ids of those that are."""
        ...

    async def mark_unknown(self, lease: AccountLease, part_id: str, error: str) -> None:
        """The part may or may not have arrived."""
        ...

    async def give_up(self, lease: AccountLease, part_id: str, error: str) -> None:
        """The platform will never take the part: it is undelivered."""
        ...

    async def send_as_new(self, lease: AccountLease, part: OutgoingPart) -> None:
        """The message that the part was to replace is gone: send it as a new one."""
        ...

    async def settle_unknown(self, lease: AccountLease, policy: WhenUnknown) -> int:
        """Decide what becomes of the account's unknown parts; return how many there were. An edit is always
        retried, because it can be repeated."""
        ...

    async def send_again(self, owner: str, part_id: str) -> PartStatus:
        """A person wants a held or undelivered part to be sent again. Raises NotFound, WrongState."""
        ...

    async def confirm_arrived(self, owner: str, part_id: str) -> PartStatus:
        """A person has seen that a held part arrived. Raises NotFound, WrongState."""
        ...

    async def of_turn(self, owner: str, turn_id: str) -> Sequence[PartStatus]:
        """The parts of the turn's replies, in order."""
        ...

    async def list_undecided(self, owner: str) -> Sequence[PartStatus]:
        """Parts that are held or undelivered, oldest first."""
        ...


class Delivery(Protocol):
    async def remove_account(self, account: str, records: Sequence[RecordName]) -> None:
        """Delete these records and end everything of the account, in one transaction.

        Updates that are not turns yet are refused. Answers that wait or are owed are undelivered; those that
        are being sent may have arrived. A worker that still serves the account loses its lease, and nothing
        can be received for it until ``readmit_account``. A new account of the name has none of its chats.
        """
        ...

    async def readmit_account(self, account: str) -> None:
        """Allow an account of this name again."""
        ...

    async def totals(self) -> DeliveryTotals: ...

    async def figures(self, account: str, *, since_ms: int) -> AccountFigures:
        """How much the account has received since this moment, and what waits."""
        ...

    @property
    def chats(self) -> Chats: ...

    @property
    def inbox(self) -> Inbox: ...

    @property
    def leases(self) -> AccountLeases: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def devices(self) -> Devices: ...

    @property
    def notices(self) -> Notices: ...
