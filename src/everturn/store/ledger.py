"""The ledger: which completed turns a memory provider is owed, and the one commit of a session.

A turn is owed in the transaction that completes it. A commit is begun, durably and under the session's
lock, before its provider is called; so there is at most one per session, whoever asks, and after a crash
the same turns are offered again under the same key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from everturn.domain.memory import Begun, NextCommit, Owing, Recalled, Segment
from everturn.domain.messages import AnyPart, Message, Role, Text
from everturn.domain.probe import Moment
from everturn.domain.turns import TurnKind, TurnState, Usage
from everturn.store.scripts.common import locked_session, session_row
from everturn.store.scripts.rows import SessionRow, message_of, session_of, to_json, turn_of
from everturn.store.scripts.script import Database, Query, Row, Script, Tx, one, q

_OWING_MAX = 200
_SETTLED = ("memory", "settled")  # kind and name of the record about the owner's last commit
_FORGOTTEN = ("memory", "forgotten")  # how often the owner made memory forget something
_numbers: msgspec.json.Decoder[list[int]] = msgspec.json.Decoder(list[int])


class Ledger:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def owe(
        self, owner: str, session_id: str, turn_id: str | None, provider: str, handle: str, worker: str
    ) -> bool:
        return await self._db.write(_owe, owner, session_id, turn_id, provider, handle, worker)

    async def next(self, owner: str, session_id: str, holder: str) -> NextCommit | None:
        return await self._db.read(_next, owner, session_id, holder)

    async def begin(
        self, owner: str, session_id: str, found: NextCommit, handle: str, holder: str, held_ms: int
    ) -> Begun | None:
        return await self._db.write(_begin, owner, session_id, found, handle, holder, held_ms)

    async def settle(self, begun: Begun) -> int:
        return await self._db.write(_settle, begun)

    async def failed(self, begun: Begun, holder: str, error: str, retry_at: int) -> None:
        await self._db.write(_failed, begun, holder, error, retry_at)

    async def owing(
        self,
        owner: str = "",
        *,
        worker: str = "",
        handle: str = "",
        limit: int = _OWING_MAX,
        quiet_since: int | None = None,
        is_elsewhere: bool = True,
    ) -> list[Owing]:
        return await self._db.read(_owing, owner, worker, handle, limit, quiet_since, is_elsewhere)

    async def standing(self, owner: str) -> tuple[list[Owing], dict[str, Any] | None]:
        return await self._db.read(_standing, owner)

    async def recalled(self, owner: str, session_id: str) -> Recalled:
        return await self._db.read(_recalled, owner, session_id)

    async def keep_recalled(self, owner: str, session_id: str, text: str) -> str:
        return await self._db.write(_keep_recalled, owner, session_id, text)

    async def drop_recalled(self, owner: str) -> None:
        await self._db.write(_drop_recalled, owner)

    async def spend(self, owner: str, purpose: str, model: str, usage: Usage) -> None:
        await self._db.write(_spend, owner, purpose, model, to_json(usage))


# --- owing --------------------------------------------------------------------------------------------


def owe(tx: Tx, session: SessionRow, turn_no: int, provider: str, handle: str, worker: str) -> Script[bool]:
    """Owe a completed turn; a turn that was owed before, settled or not, stays as it is."""
    rows = yield q("owed_insert", turn_no, provider, session.owner, session.no, handle, worker, tx.now)
    return bool(rows)


def _owe(
    tx: Tx, owner: str, session_id: str, turn_id: str | None, provider: str, handle: str, worker: str
) -> Script[bool]:
    session = yield from _found(tx, owner, session_id)
    if session is None or session.session.private:
        return False
    wanted = turn_id or session.session.head
    row = one((yield q("turn_row", wanted))) if wanted else None
    if row is None:
        return False
    turn = turn_of(row)
    is_ours = turn.session_no == session.no
    if not is_ours or turn.state is not TurnState.COMPLETED or turn.turn.kind is not TurnKind.MESSAGE:
        return False
    return (yield from owe(tx, session, turn.no, provider, handle, worker))


# --- one commit ---------------------------------------------------------------------------------------


class _Plan(msgspec.Struct, frozen=True):
    """What the next commit of a session takes: the range of the last attempt, or the oldest segment."""

    provider: str
    handle: str
    rows: tuple[tuple[int, str], ...]  # (turn_no, turn id) of what is handed over now
    numbers: tuple[int, ...]
    from_turn: str
    to_turn: str
    is_held: bool


def _next(tx: Tx, owner: str, session_id: str, holder: str) -> Script[NextCommit | None]:
    row = one((yield q("session_row", session_id, owner)))
    plan = None if row is None else (yield from _plan(tx, session_of(row), holder))
    if plan is None:
        return None
    return NextCommit(plan.provider, plan.handle, len(plan.rows), plan.is_held)


def _plan(tx: Tx, session: SessionRow, holder: str) -> Script[_Plan | None]:
    if session.session.private:
        return None
    rows = [(row[0], row[1], row[2], row[3]) for row in (yield q("owed_open", session.no))]
    if not rows:
        return None
    commit = one((yield q("commit_get", session.no)))
    again = _again(rows, commit)
    is_held = commit is not None and _is_held(commit, holder, tx.now)
    if commit is not None and (again or is_held):
        handle = again[0][3] if again else commit[1]
        numbers = tuple(_numbers.decode(commit[4]))
        taken = tuple((row[0], row[1]) for row in again)
        return _Plan(commit[0], handle, taken, numbers, commit[2], commit[3], is_held)
    # No attempt, or one of which every turn was undone since: the oldest run of one handle.
    _, _, provider, handle = rows[0]
    end = next((i for i, row in enumerate(rows) if row[2:] != (provider, handle)), len(rows))
    segment = tuple((row[0], row[1]) for row in rows[:end])
    numbers = tuple(number for number, _ in segment)
    return _Plan(provider, handle, segment, numbers, segment[0][1], segment[-1][1], is_held=False)


def _again(rows: Sequence[tuple[int, str, str, str]], commit: Row | None) -> list[tuple[int, str, str, str]]:
    """Those turns of the attempt before that are still owed."""
    if commit is None:
        return []
    numbers = set(_numbers.decode(commit[4]))
    return [row for row in rows if row[0] in numbers and row[2] == commit[0]]


def _is_held(commit: Row, holder: str, now: int) -> bool:
    """Whether somebody else, who is not known to be dead, is at it within the time he said."""
    held_by, held_until, is_dead = commit[5], commit[6], bool(commit[10])
    return held_by not in ("", holder) and held_until > now and not is_dead


def _begin(
    tx: Tx, owner: str, session_id: str, found: NextCommit, handle: str, holder: str, held_ms: int
) -> Script[Begun | None]:
    session = yield from _found(tx, owner, session_id)
    plan = None if session is None else (yield from _plan(tx, session, holder))
    if session is None or plan is None or plan.is_held:
        return None
    if (plan.provider, plan.handle) != (found.provider, found.handle):
        return None
    rows = yield q(
        "commit_put",
        session.no,
        owner,
        plan.provider,
        handle,
        plan.from_turn,
        plan.to_turn,
        to_json(plan.numbers),
        holder,
        tx.now + held_ms,
        tx.now,
    )
    if handle != plan.handle:
        worker = holder if holder.startswith("wrk_") else ""
        yield Query("owed_handle", many=[(no, plan.provider, handle, worker) for no, _ in plan.rows])
    messages = yield from _spoken(plan.rows)
    tx.probe.pass_by(Moment.MEMORY_BEGUN, session_id)
    segment = Segment(
        owner=owner,
        session_id=session_id,
        session_key=session.session.key,
        from_turn=plan.from_turn,
        to_turn=plan.to_turn,
        turns=tuple(turn_id for _, turn_id in plan.rows),
        messages=messages,
    )
    return Begun(segment, plan.provider, rows[0][0])


def _spoken(rows: Sequence[tuple[int, str]]) -> Script[tuple[Message, ...]]:
    """The user's words and the agent's answers. Nothing that a tool, a page or a file said: it could
    plant a memory that the user never uttered. An answer after such text may repeat it: left out too."""
    spoken = []
    is_tainted = False
    for turn_no, turn_id in rows:
        for row in (yield q("messages_of_turn", turn_no)):
            message = message_of(row, turn_id)
            is_tainted = is_tainted or message.brings_outside_text
            parts: tuple[AnyPart, ...] = tuple(
                part for part in message.parts if isinstance(part, Text) and not part.is_abandoned
            )
            is_kept = message.role is Role.USER or (message.role is Role.ASSISTANT and not is_tainted)
            if is_kept and parts:
                spoken.append(msgspec.structs.replace(message, parts=parts))
    return tuple(spoken)


def _settle(tx: Tx, begun: Begun) -> Script[int]:
    segment = begun.segment
    session = yield from _found(tx, segment.owner, segment.session_id)
    if session is None:
        return 0
    for turn_id in segment.turns:
        row = one((yield q("turn_numbers", session.no, turn_id)))
        if row is not None:
            yield q("owed_settle", row[0], begun.provider, tx.now)
    yield q("commit_drop", session.no, segment.from_turn, segment.to_turn)
    about = {"at": tx.now, "session_id": session.id, "turns": len(segment.turns), "provider": begun.provider}
    yield q("record_put", segment.owner, *_SETTLED, to_json(about), tx.now)
    tx.probe.pass_by(Moment.MEMORY_WRITTEN, session.id)
    return len((yield q("owed_open", session.no)))


def _failed(tx: Tx, begun: Begun, holder: str, error: str, retry_at: int) -> Script[None]:
    session = yield from _found(tx, begun.segment.owner, begun.segment.session_id)
    if session is not None:
        yield q("commit_failed", session.no, holder, tx.now, retry_at, error)


def _found(tx: Tx, owner: str, session_id: str) -> Script[SessionRow | None]:
    """The session under its lock, or None: one that was deleted owes nothing and is no error here."""
    if one((yield q("session_row", session_id, owner))) is None:
        return None
    return (yield from locked_session(tx, owner, session_id))


# --- lists --------------------------------------------------------------------------------------------


def _owing(
    tx: Tx, owner: str, worker: str, handle: str, limit: int, quiet_since: int | None, is_elsewhere: bool
) -> Script[list[Owing]]:
    since = -1 if quiet_since is None else quiet_since
    rows = yield q("owing", owner, worker, limit, since, tx.now, handle, int(is_elsewhere))
    return [_owing_of(row, tx.now) for row in rows]


def _owing_of(row: Row, now: int) -> Owing:
    return Owing(
        session_id=row[0],
        owner=row[1],
        title=row[2],
        turns=row[3],
        since=row[4],
        provider=row[5],
        is_elsewhere=bool(row[6]),
        is_under_way=bool(row[7]) and row[8] > now and not row[13],
        attempts=row[9] or 0,
        failed_at=row[10],
        retry_at=row[11],
        error=row[12],
    )


def _standing(tx: Tx, owner: str) -> Script[tuple[list[Owing], dict[str, Any] | None]]:
    owing = yield from _owing(tx, owner, "", "", _OWING_MAX, None, True)
    row = one((yield q("record_get", owner, *_SETTLED)))
    return owing, None if row is None else msgspec.json.decode(row[0], type=dict[str, Any])


# --- recall -------------------------------------------------------------------------------------------


def _recalled(tx: Tx, owner: str, session_id: str) -> Script[Recalled]:
    session = yield from session_row(tx, owner, session_id)
    row = one((yield q("recall_get", session.no)))
    return Recalled(None if row is None else str(row[0]), (yield from _forgotten(owner)))


def _forgotten(owner: str) -> Script[int]:
    row = one((yield q("record_get", owner, *_FORGOTTEN)))
    return 0 if row is None else int(msgspec.json.decode(row[0]))


def _keep_recalled(tx: Tx, owner: str, session_id: str, text: str) -> Script[str]:
    session = yield from locked_session(tx, owner, session_id)
    yield q("recall_put", session.no, owner, text, tx.now)
    rows = yield q("recall_get", session.no)
    return str(rows[0][0])


def _drop_recalled(tx: Tx, owner: str) -> Script[None]:
    count = (yield from _forgotten(owner)) + 1
    yield q("record_put", owner, *_FORGOTTEN, to_json(count), tx.now)
    yield q("recalls_drop", owner)


def _spend(tx: Tx, owner: str, purpose: str, model: str, usage: str) -> Script[None]:
    yield q("spending_insert", owner, tx.now, purpose, model, usage)
