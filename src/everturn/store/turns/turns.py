"""Turns: accept, queue, claim, wait, end. Their transactions are in the modules beside this one."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.domain import events as ev
from everturn.domain.asks import Ask
from everturn.domain.errors import StoreAway
from everturn.domain.fold import Folded
from everturn.domain.machine import Machine
from everturn.domain.messages import Message
from everturn.domain.store_values import Accepted, Claim, Submission, TakenBack, WhenBusy
from everturn.domain.turns import Completed, Failure, Turn
from everturn.store.journal.fold import read_ahead
from everturn.store.scripts.queries.turns import ANY_MACHINE
from everturn.store.scripts.script import Database
from everturn.store.turns import claims, details, endings, queue, steering, submissions
from everturn.store.turns.asks import Waiting, wait_for_asks
from everturn.store.turns.submissions import check_submission


class Turns:
    def __init__(self, db: Database, machine: Machine, *, text_bytes_max: int) -> None:
        self._db = db
        # On SQLite there is one machine: it may claim every turn.
        self._machines = f"{machine.id}@%" if machine.id else ANY_MACHINE
        self._text_bytes_max = text_bytes_max
        # What only a newer version can run. Without them, each look for work would begin with a write (A03).
        self._refused: frozenset[int] = frozenset()
        self._has_locked = False

    async def accept(self, owner: str, session_id: str, submission: Submission) -> Accepted:
        check_submission(submission, self._text_bytes_max)
        ahead = None
        if submission.when_busy == WhenBusy.INTERRUPT:
            active = await self._db.read(submissions.active_turn_of, owner, session_id)
            ahead = None if active is None else await read_ahead(self._db, active)
        return await self._db.write(submissions.accept, owner, session_id, submission, ahead)

    async def accept_and_claim(
        self, worker: str, owner: str, session_id: str, submission: Submission
    ) -> tuple[Accepted, Claim | None]:
        check_submission(submission, self._text_bytes_max)
        return await self._db.write(submissions.accept_and_claim, worker, owner, session_id, submission)

    async def get(self, owner: str, turn_id: str) -> Turn:
        return await self._db.read(details.get, owner, turn_id)

    async def queue(self, owner: str, session_id: str) -> Sequence[Turn]:
        return await self._db.read(queue.list_queue, owner, session_id)

    async def edit_queued(
        self,
        owner: str,
        turn_id: str,
        text: str | None = None,
        *,
        place: int | None = None,
        version: int | None = None,
    ) -> Turn:
        if text is not None:
            check_submission(Submission(text=text), self._text_bytes_max)
        return await self._db.write(queue.edit_queued, owner, turn_id, text, place, version)

    async def remove_queued(self, owner: str, turn_id: str) -> None:
        await self._db.write(queue.remove_queued, owner, turn_id)

    async def claim(
        self,
        worker: str,
        *,
        limit: int = 1,
        session_id: str | None = None,
        without_owners: Sequence[str] = (),
    ) -> list[Claim]:
        # Looking first costs no write transaction when there is nothing to do (A03).
        wanted = claims.Wanted(self._machines, session_id, tuple(without_owners), self._refused)
        found = await self._db.read(claims.find_claimable, limit, wanted)
        self._has_locked = False
        if not found:  # guard: a03
            return []
        claimed = await self._db.write(claims.claim, worker, limit, wanted)
        self._refused |= claimed.refused
        self._has_locked = claimed.has_locked
        return claimed.claims

    @property
    def has_locked(self) -> bool:
        return self._has_locked

    async def find_lost(self, held: Sequence[tuple[str, int]]) -> list[str]:
        """Those of the held (turn, epoch) that this worker no longer holds."""
        return await self._db.read(claims.find_lost, tuple(held))

    async def list_held(self, worker: str) -> list[tuple[str, int]]:
        """What the worker holds, as (turn, epoch)."""
        return await self._db.read(claims.held_by, worker)

    async def take_steering(self, turn_id: str, epoch: int, number: int) -> list[Message]:
        if not await self._db.read(steering.has_steering, turn_id):  # guard: a03
            return []
        return await self._db.write(steering.take_steering, turn_id, epoch, number)

    async def wait(
        self,
        turn_id: str,
        epoch: int,
        number: int,
        asks: Sequence[Ask],
        payloads: Sequence[ev.Payload],
        *,
        worked_ms: int | None = None,
    ) -> Turn:
        waiting = Waiting(tuple(asks), tuple(payloads), worked_ms)
        return await self._db.write(wait_for_asks, turn_id, epoch, number, waiting)

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
        owed_to = endings.OwedTo(provider, handle)
        return await self._db.write(endings.complete, turn_id, epoch, number, folded, owed_to)

    async def fail(self, turn_id: str, epoch: int | None, failure: Failure) -> Turn:
        self._refuse_undelivered(epoch)
        ahead = await read_ahead(self._db, turn_id)
        return await self._db.write(endings.fail, turn_id, epoch, failure, ahead)

    async def interrupt(
        self, turn_id: str, epoch: int | None, failure: Failure, *, is_sealed: bool = True
    ) -> Turn:
        self._refuse_undelivered(epoch)
        ahead = await read_ahead(self._db, turn_id)
        return await self._db.write(endings.interrupt, turn_id, epoch, failure, is_sealed, ahead)

    async def cancel(self, owner: str, turn_id: str, *, by: str = "") -> Turn:
        ahead = await read_ahead(self._db, turn_id)
        return await self._db.write(endings.cancel, owner, turn_id, by, ahead)

    async def take_back(self, owner: str, turn_id: str, *, by: str = "", key: str | None = None) -> TakenBack:
        ahead = await read_ahead(self._db, turn_id)
        return await self._db.write(queue.take_back, owner, turn_id, by, key, ahead)

    async def hand_over(self, turn_id: str, epoch: int) -> Turn:
        self._refuse_undelivered(epoch)
        return await self._db.write(claims.hand_over, turn_id, epoch)

    async def resume(self, owner: str, turn_id: str) -> Turn:
        return await self._db.write(claims.resume, owner, turn_id)

    def _refuse_undelivered(self, epoch: int | None) -> None:
        """Refuse to end or release a turn while its worker's spool is not delivered: that seals the journal,
        and the spooled events would then be dropped as repeats."""
        if epoch is not None and self._db.is_away:
            raise StoreAway(
                "Some events of the turn may not be in the database yet. Nothing was written.",
                hint="It is tried again once everything is delivered.",
            )
