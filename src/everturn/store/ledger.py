"""The ledger: which completed turns a memory provider is owed, and the one commit of a session.

A turn is owed in the transaction that completes it. A commit is begun, durably and under the session's
lock, before its provider is called. So a session has at most one commit at a time, and after a crash the same
turns are offered again under the same key. docs/memory.md explains the words: owed, segment, handle, commit.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import takewhile

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.memory import Begun, NextCommit, Owing, Recalled, Segment
from everturn.domain.messages import AnyPart, Message, Role, Text
from everturn.domain.probe import Moment
from everturn.domain.turns import TurnKind, TurnState, Usage
from everturn.store.scripts.common import find_turn, get_session, get_turn, lock_session
from everturn.store.scripts.queries.memory import (
    COMMIT,
    COMMIT_PUT,
    OWED_OPEN,
    OWING,
    RECALL,
    CommitColumns,
    OwedColumns,
    OwingColumns,
)
from everturn.store.scripts.queries.messages import MESSAGES_OF_TURN, OUTSIDE_MESSAGES
from everturn.store.scripts.queries.records import RECORD
from everturn.store.scripts.queries.sessions import SESSION
from everturn.store.scripts.queries.turns import TURN_NUMBERS
from everturn.store.scripts.rows import SessionRow, message_of, session_of, to_json
from everturn.store.scripts.script import Database, Query, Script, Tx, q

_OWING_MAX = 200
_OUTSIDE_MAX = 100
_SETTLED = ("memory", "settled")  # kind and name of the record about the owner's last commit
_FORGOTTEN = ("memory", "forgotten")  # how often the owner made memory forget something
_numbers: msgspec.json.Decoder[list[int]] = msgspec.json.Decoder(list[int])


class Ledger:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def owe(
        self, owner: str, session_id: str, turn_id: str | None, provider: str, handle: str, worker: str
    ) -> bool:
        return await self._db.write(_owe, owner, session_id, turn_id, _Observer(provider, handle, worker))

    async def next(self, owner: str, session_id: str, holder: str) -> NextCommit | None:
        return await self._db.read(_next, owner, session_id, holder)

    async def begin(
        self, owner: str, session_id: str, found: NextCommit, handle: str, holder: str, held_ms: int
    ) -> Begun | None:
        return await self._db.write(_begin, owner, session_id, found, _Hold(handle, holder, held_ms))

    async def settle(self, begun: Begun) -> int:
        return await self._db.write(_settle, begun)

    async def record_failure(self, begun: Begun, holder: str, error: str, retry_at: int) -> None:
        await self._db.write(_record_failure, begun, holder, error, retry_at)

    async def list_owing(
        self,
        owner: str = "",
        *,
        worker: str = "",
        handle: str = "",
        limit: int = _OWING_MAX,
        quiet_since: int | None = None,
        is_elsewhere: bool = True,
    ) -> list[Owing]:
        wanted = _OwingFilter(owner, worker, handle, limit, quiet_since, is_elsewhere)
        return await self._db.read(_list_owing, wanted)

    async def read_status(self, owner: str) -> tuple[list[Owing], JsonObject | None]:
        return await self._db.read(_read_status, owner)

    async def get_recalled(self, owner: str, session_id: str) -> Recalled:
        return await self._db.read(_get_recalled, owner, session_id)

    async def keep_recalled(self, owner: str, session_id: str, text: str) -> str:
        return await self._db.write(_keep_recalled, owner, session_id, text)

    async def drop_recalled(self, owner: str) -> None:
        await self._db.write(_drop_recalled, owner)

    async def spend(self, owner: str, purpose: str, model: str, usage: Usage) -> None:
        await self._db.write(_spend, owner, purpose, model, to_json(usage))


class _Observer(msgspec.Struct, frozen=True):
    """The handle that saw a turn, with its provider and the worker it belongs to."""

    provider: str
    handle: str
    worker: str


class _Hold(msgspec.Struct, frozen=True):
    """Which handle takes a commit, and which process holds it for how long."""

    handle: str
    holder: str
    held_ms: int


class _OwingFilter(msgspec.Struct, frozen=True):
    owner: str = ""
    worker: str = ""
    handle: str = ""
    limit: int = _OWING_MAX
    quiet_since: int | None = None
    is_elsewhere: bool = True


# --- owing --------------------------------------------------------------------------------------------


def owe(tx: Tx, session: SessionRow, turn_no: int, provider: str, handle: str, worker: str) -> Script[bool]:
    """Owe a completed turn; a turn that was owed before, settled or not, stays as it is."""
    rows = yield q("owed_insert", turn_no, provider, session.owner, session.no, handle, worker, tx.now)
    return bool(rows)


def _owe(tx: Tx, owner: str, session_id: str, turn_id: str | None, seen_by: _Observer) -> Script[bool]:
    """Owe a turn on request. The engine does not need this: ``endings.complete`` calls ``owe`` itself."""
    session = yield from _lock_if_there(tx, owner, session_id)
    if session is None:
        return False
    if session.session.private:  # guard: b01
        return False
    wanted = turn_id or session.session.head
    turn = (yield from find_turn(wanted)) if wanted else None
    if turn is None:
        return False
    if (
        turn.session_no != session.no  # guard: b01
        or turn.state is not TurnState.COMPLETED  # guard: b01
        or turn.turn.kind is not TurnKind.MESSAGE  # guard: b01
    ):
        return False
    return (yield from owe(tx, session, turn.no, seen_by.provider, seen_by.handle, seen_by.worker))


# --- one commit ---------------------------------------------------------------------------------------


class _Plan(msgspec.Struct, frozen=True):
    """What the next commit of a session takes: the turns of the last attempt, or the oldest segment.

    ``numbers``, ``from_turn`` and ``to_turn`` are those of the first attempt; ``rows`` are those of its turns
    that are still owed.
    """

    provider: str
    handle: str
    rows: tuple[OwedColumns, ...]
    numbers: tuple[int, ...]
    from_turn: str
    to_turn: str
    is_held: bool


def _next(tx: Tx, owner: str, session_id: str, holder: str) -> Script[NextCommit | None]:
    row = yield from SESSION.first(session_id, owner)
    plan = None if row is None else (yield from _plan(tx, session_of(row), holder))
    if plan is None:
        return None
    return NextCommit(plan.provider, plan.handle, len(plan.rows), plan.is_held)


def _plan(tx: Tx, session: SessionRow, holder: str) -> Script[_Plan | None]:
    if session.session.private:  # guard: b01
        return None
    rows = yield from OWED_OPEN.all(session.no)
    if not rows:
        return None
    commit = yield from COMMIT.first(session.no)
    again = _again(rows, commit)
    is_held = commit is not None and _is_held(commit, holder, tx.now)
    if commit is not None and (again or is_held):  # guard: b05 b16
        return _Plan(
            provider=commit.provider,
            handle=again[0].handle if again else commit.handle,
            rows=tuple(again),
            numbers=tuple(_numbers.decode(commit.turns)),
            from_turn=commit.from_turn,
            to_turn=commit.to_turn,
            is_held=is_held,
        )
    # There was no attempt, or all of its turns were undone since. The oldest segment: the first owed turns
    # that have the same provider and handle.
    provider, handle = rows[0].provider, rows[0].handle
    segment = tuple(takewhile(lambda row: (row.provider, row.handle) == (provider, handle), rows))
    return _Plan(
        provider=provider,
        handle=handle,
        rows=segment,
        numbers=tuple(row.turn_no for row in segment),
        from_turn=segment[0].turn_id,
        to_turn=segment[-1].turn_id,
        is_held=False,
    )


def _again(rows: Sequence[OwedColumns], commit: CommitColumns | None) -> list[OwedColumns]:
    """The turns of the last attempt that are still owed."""
    if commit is None:
        return []
    numbers = set(_numbers.decode(commit.turns))
    return [row for row in rows if row.turn_no in numbers and row.provider == commit.provider]


def _is_held(commit: CommitColumns, holder: str, now: int) -> bool:
    """Whether another holder, not known to be dead, is committing and still within its time."""
    return (
        commit.holder not in ("", holder)  # guard: b05
        and commit.held_until > now  # guard: b10
        and not commit.is_dead  # guard: b16
    )


def _begin(tx: Tx, owner: str, session_id: str, found: NextCommit, hold: _Hold) -> Script[Begun | None]:
    session = yield from _lock_if_there(tx, owner, session_id)
    plan = None if session is None else (yield from _plan(tx, session, hold.holder))
    if session is None or plan is None:
        return None
    if plan.is_held:  # guard: b10
        return None
    if (plan.provider, plan.handle) != (found.provider, found.handle):
        return None
    attempts = yield from COMMIT_PUT.only(
        session.no,
        owner,
        plan.provider,
        hold.handle,
        plan.from_turn,
        plan.to_turn,
        to_json(plan.numbers),
        hold.holder,
        tx.now + hold.held_ms,
        tx.now,
    )
    if hold.handle != plan.handle:  # guard: b05
        # From now on the turns are owed to this handle. Its worker is the holder, unless that is a process
        # without a worker, whose id starts with "mem_".
        worker = hold.holder if hold.holder.startswith("wrk_") else ""
        turns = [(row.turn_no, plan.provider, hold.handle, worker) for row in plan.rows]
        yield Query("owed_handle", many=turns)
    messages = yield from _select_spoken(plan.rows)
    tx.probe.pass_by(Moment.MEMORY_BEGUN, session_id)
    segment = Segment(
        owner=owner,
        session_id=session_id,
        session_key=session.session.key,
        from_turn=plan.from_turn,
        to_turn=plan.to_turn,
        turns=tuple(row.turn_id for row in plan.rows),
        messages=messages,
    )
    return Begun(segment, plan.provider, attempts)


def _select_spoken(owed: Sequence[OwedColumns]) -> Script[tuple[Message, ...]]:
    """The user's messages and the agent's answers, without text from tools, pages, files and imports: it
    could plant a memory that the user never stated. An answer after such text may repeat it: left out too."""
    spoken = []
    is_tainted = False
    looked_at: set[int] = set()
    for turn in owed:
        is_tainted = is_tainted or (yield from _follows_outside_text(turn.turn_no, looked_at))
        looked_at.add(turn.turn_no)
        for row in (yield from MESSAGES_OF_TURN.all(turn.turn_no)):
            message = message_of(row, turn.turn_id)
            is_tainted = is_tainted or message.brings_outside_text
            parts: tuple[AnyPart, ...] = tuple(
                part for part in message.parts if isinstance(part, Text) and not part.is_abandoned
            )
            is_said = message.role is Role.USER and not message.is_imported
            is_kept = is_said or (message.role is Role.ASSISTANT and not is_tainted)
            if is_kept and parts:
                spoken.append(msgspec.structs.replace(message, parts=parts))
    return tuple(spoken)


def _follows_outside_text(turn_no: int, looked_at: Set[int]) -> Script[bool]:
    """Whether text from outside stands before this turn, in turns that owe nothing: committed earlier,
    failed or imported. ``looked_at``: turns whose messages are known."""
    parent_no = (yield from get_turn(turn_no)).parent_no
    if parent_no is None or parent_no in looked_at:
        return False
    rows = yield from OUTSIDE_MESSAGES.all(parent_no, _OUTSIDE_MAX)
    # Of so many, one will be from outside: older ones are not worth reading.
    return len(rows) == _OUTSIDE_MAX or any(message_of(row, row.turn_id).brings_outside_text for row in rows)


def _settle(tx: Tx, begun: Begun) -> Script[int]:
    segment = begun.segment
    session = yield from _lock_if_there(tx, segment.owner, segment.session_id)
    if session is None:
        return 0
    for turn_id in segment.turns:
        turn_no = yield from TURN_NUMBERS.first(session.no, turn_id)
        if turn_no is not None:
            yield q("owed_settle", turn_no, begun.provider, tx.now)  # guard: b03
    yield q("commit_drop", session.no, segment.from_turn, segment.to_turn)  # guard: b16
    about = {"at": tx.now, "session_id": session.id, "turns": len(segment.turns), "provider": begun.provider}
    yield q("record_put", segment.owner, *_SETTLED, to_json(about), tx.now)
    tx.probe.pass_by(Moment.MEMORY_WRITTEN, session.id)
    return len((yield from OWED_OPEN.all(session.no)))


def _record_failure(tx: Tx, begun: Begun, holder: str, error: str, retry_at: int) -> Script[None]:
    session = yield from _lock_if_there(tx, begun.segment.owner, begun.segment.session_id)
    if session is not None:
        yield q("commit_failed", session.no, holder, tx.now, retry_at, error)


def _lock_if_there(tx: Tx, owner: str, session_id: str) -> Script[SessionRow | None]:
    """The session under its lock, or None: one that was deleted owes nothing and is no error here."""
    if not (yield q("session_row", session_id, owner)):  # guard: b15
        return None
    return (yield from lock_session(tx, owner, session_id))


# --- lists --------------------------------------------------------------------------------------------


def _list_owing(tx: Tx, wanted: _OwingFilter) -> Script[list[Owing]]:
    rows = yield from OWING.all(
        wanted.owner,
        wanted.worker,
        wanted.limit,
        -1 if wanted.quiet_since is None else wanted.quiet_since,
        tx.now,
        wanted.handle,
        int(wanted.is_elsewhere),
    )
    return [_owing_of(row, tx.now) for row in rows]


def _owing_of(row: OwingColumns, now: int) -> Owing:
    return Owing(
        session_id=row.session_id,
        owner=row.owner,
        title=row.title,
        turns=row.turns,
        since=row.since,
        provider=row.provider,
        is_elsewhere=bool(row.elsewhere),
        is_under_way=bool(row.holder) and (row.held_until or 0) > now and not row.is_dead,
        attempts=row.attempts or 0,
        failed_at=row.failed_at,
        retry_at=row.retry_at,
        error=row.error,
    )


def _read_status(tx: Tx, owner: str) -> Script[tuple[list[Owing], JsonObject | None]]:
    owing = yield from _list_owing(tx, _OwingFilter(owner))
    kind, name = _SETTLED
    settled = yield from RECORD.first(owner, kind, name)
    return owing, None if settled is None else msgspec.json.decode(settled, type=JsonObject)


# --- recall -------------------------------------------------------------------------------------------


def _get_recalled(tx: Tx, owner: str, session_id: str) -> Script[Recalled]:
    session = yield from get_session(tx, owner, session_id)
    text = yield from RECALL.first(session.no)
    return Recalled(text, (yield from _count_forgotten(owner)))


def _count_forgotten(owner: str) -> Script[int]:
    kind, name = _FORGOTTEN
    count = yield from RECORD.first(owner, kind, name)
    return 0 if count is None else msgspec.json.decode(count, type=int)


def _keep_recalled(tx: Tx, owner: str, session_id: str, text: str) -> Script[str]:
    session = yield from lock_session(tx, owner, session_id)
    yield q("recall_put", session.no, owner, text, tx.now)
    return (yield from RECALL.only(session.no))


def _drop_recalled(tx: Tx, owner: str) -> Script[None]:
    count = (yield from _count_forgotten(owner)) + 1
    yield q("record_put", owner, *_FORGOTTEN, to_json(count), tx.now)
    yield q("recalls_drop", owner)


def _spend(tx: Tx, owner: str, purpose: str, model: str, usage: str) -> Script[None]:
    yield q("spending_insert", owner, tx.now, purpose, model, usage)
