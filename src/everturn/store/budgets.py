"""Budgets: an amount is reserved before a model call and settled with its usage (E10).

A transaction locks the session first, then budgets in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain.budgets import (
    Budget,
    BudgetKey,
    BudgetLimit,
    BudgetScope,
    CallEstimate,
    ModelCall,
    OverBudget,
    Settled,
    Spent,
    Unit,
    WaitingTurn,
    period_at,
)
from everturn.domain.errors import NotFound, WrongState
from everturn.domain.events import Payload
from everturn.domain.ids import check_id
from everturn.domain.turns import WriterPosition
from everturn.store.scripts.common import EventPlace, add_events, lock_turn, shown_session
from everturn.store.scripts.queries.budgets import (
    BUDGET,
    BUDGET_ASKS,
    BUDGET_BY_KEY,
    BUDGETS,
    BUDGETS_OF_TURN,
    BUDGETS_OWNERS,
    RESERVATIONS,
    RESERVATIONS_HELD,
    BudgetColumns,
    ReservationColumns,
)
from everturn.store.scripts.queries.delegates import RUN_BEGAN
from everturn.store.scripts.queries.schedules import SCHEDULE
from everturn.store.scripts.queries.turns import WRITER
from everturn.store.scripts.rows import SessionRow, TurnRow, read_ask_body
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.turns.held import lock_held_turn


class Budgets:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def owners(self) -> frozenset[str]:
        return frozenset(await self._db.read(_owners))

    async def list(self, owner: str) -> Sequence[Budget]:
        return await self._db.read(_list, owner)

    async def put(self, owner: str, limit: BudgetLimit) -> Budget:
        return await self._db.write(_put, owner, limit)

    async def remove(self, owner: str, key: BudgetKey) -> None:
        await self._db.write(_remove, owner, key)

    async def reserve(
        self, call: ModelCall, estimate: CallEstimate, *, defaults: Sequence[BudgetLimit] = ()
    ) -> int:
        return _require_grant(await self._db.write(_reserve, call, estimate, tuple(defaults), is_held=True))

    async def reserve_aside(
        self, call: ModelCall, estimate: CallEstimate, *, defaults: Sequence[BudgetLimit] = ()
    ) -> int:
        return _require_grant(await self._db.write(_reserve, call, estimate, tuple(defaults), is_held=False))

    async def settle(self, settled: Settled) -> None:
        await self._db.write(_settle_alone, settled)

    async def append_settled(
        self, position: WriterPosition, settled: Sequence[Settled], payloads: Sequence[Payload]
    ) -> None:
        await self._db.write(_append_settled, position, tuple(settled), tuple(payloads))

    async def waiting_turns(self) -> Sequence[WaitingTurn]:
        return await self._db.read(_find_waiting)


def _require_grant(result: int | OverBudget) -> int:
    if isinstance(result, OverBudget):
        raise result
    return result


def _budget_of(row: BudgetColumns) -> Budget:
    key = BudgetKey(BudgetScope(row.scope), Unit(row.unit), row.subject)
    return Budget(
        row.id,
        row.owner,
        BudgetLimit(key, row.amount, row.timezone),
        row.period_start,
        row.extra,
        row.spent,
        row.estimated,
        row.reserved,
        row.unpriced_tokens,
        bool(row.is_default),
    )


def _now(tx: Tx, row: BudgetColumns) -> Budget:
    """The budget in its present period. A schedule's budget starts a new period with its next run."""
    budget = _budget_of(row)
    return budget.at(period_at(budget.limit, tx.now).start)


# --- reading ------------------------------------------------------------------------------------------


def _owners(tx: Tx) -> Script[list[str]]:
    return (yield from BUDGETS_OWNERS.all())


def _list(tx: Tx, owner: str) -> Script[list[Budget]]:
    rows = yield from BUDGETS.all(owner)
    held = {
        (amount.budget_no, amount.period_start): amount.amount
        for amount in ((yield from RESERVATIONS_HELD.all(owner)) if rows else [])
    }
    return [_with_left(_now(tx, row), held.get((row.budget_no, row.period_start), 0)) for row in rows]


def _with_left(budget: Budget, held: int) -> Budget:
    """``held`` is reserved for calls under way. The other reservations were left by workers that have
    died."""
    left = max(0, budget.reserved - held)
    return msgspec.structs.replace(
        budget, spent=budget.spent + left, estimated=budget.estimated + left, reserved=budget.reserved - left
    )


def _find_waiting(tx: Tx) -> Script[list[WaitingTurn]]:
    found = []
    for ask in (yield from BUDGET_ASKS.all()):
        about = read_ask_body(ask.body).budget
        row = None if about is None else (yield from BUDGET.first(about.budget_id))
        budget = None if row is None else _now(tx, row)
        found.append(WaitingTurn(ask.owner, ask.id, 0 if about is None else about.needed, budget))
    return found


# --- setting ------------------------------------------------------------------------------------------


def _put(tx: Tx, owner: str, limit: BudgetLimit) -> Script[Budget]:
    key = limit.key
    session_no = schedule_no = None
    if key.scope is BudgetScope.SESSION:
        session_no = (yield from shown_session(tx, owner, key.subject)).no
    elif key.scope is BudgetScope.SCHEDULE:
        schedule = yield from SCHEDULE.first(key.subject)
        if schedule is None or schedule.owner != owner:
            check_id(key.subject, "sch")
            raise NotFound("schedule", key.subject)
        schedule_no = schedule.schedule_no
    yield from insert_limit(tx, owner, limit, session_no, schedule_no, is_default=False)
    row = yield from _lock(tx, owner, key)
    yield from _change(tx, row, limit, is_default=False)
    return _budget_of((yield from BUDGET.only(row.id)))


def insert_limit(
    tx: Tx,
    owner: str,
    limit: BudgetLimit,
    session_no: int | None,
    schedule_no: int | None,
    *,
    is_default: bool,
) -> Script[None]:
    """Add the budget, unless it is there already."""
    key = limit.key
    yield q(
        "budget_insert",
        tx.ids.make("bgt"),
        owner,
        key.scope.value,
        key.unit.value,
        key.subject,
        session_no,
        schedule_no,
        limit.amount,
        limit.timezone,
        int(is_default),
        period_at(limit, tx.now).start,
        tx.now,
    )


def _change(tx: Tx, row: BudgetColumns, limit: BudgetLimit, *, is_default: bool) -> Script[None]:
    """Change the limit and keep what was spent in this period, also if another time zone moves its start."""
    budget = _now(tx, row)
    if budget.period_start != row.period_start:
        yield from _write(row, budget)
    start = budget.period_start
    if row.timezone != limit.timezone:
        start = period_at(limit, tx.now).start
        yield q("reservations_move", row.budget_no, budget.period_start, start)
    yield q("budget_change", row.budget_no, limit.amount, limit.timezone, int(is_default), start)


def _lock(tx: Tx, owner: str, key: BudgetKey) -> Script[BudgetColumns]:
    found = (owner, key.scope.value, key.unit.value, key.subject)
    if tx.dialect == "postgresql":
        yield q("budget_lock", *found)
    row = yield from BUDGET_BY_KEY.first(*found)
    if row is None:
        raise NotFound("budget", " ".join(filter(None, (key.scope, key.unit, key.subject))))
    return row


def _remove(tx: Tx, owner: str, key: BudgetKey) -> Script[None]:
    row = yield from _lock(tx, owner, key)
    yield q("budget_delete", row.budget_no)


def _write(row: BudgetColumns, budget: Budget) -> Script[None]:
    yield q(
        "budget_write",
        row.budget_no,
        budget.period_start,
        budget.extra,
        budget.spent,
        budget.estimated,
        budget.reserved,
        budget.unpriced_tokens,
    )


# --- reserving ----------------------------------------------------------------------------------------


def _reserve(
    tx: Tx, call: ModelCall, estimate: CallEstimate, defaults: Sequence[BudgetLimit], *, is_held: bool
) -> Script[int | OverBudget]:
    """A refusal is returned, not raised: a default that was added here must be committed."""
    if is_held:
        session, turn = yield from lock_held_turn(tx, call.turn_id, call.epoch)
    else:
        session, turn = yield from lock_turn(tx, call.turn_id)
    rows = yield from _find_applying(tx, session, turn, call, defaults)
    run_at = (yield from RUN_BEGAN.first(session.no)) or turn.turn.created_at
    starts = [period_at(_budget_of(row).limit, tx.now, run_at=run_at).start for row in rows]
    budgets = [_budget_of(row).at(start) for row, start in zip(rows, starts, strict=True)]
    output_tokens = estimate.output_tokens
    for budget in budgets:
        unit = budget.limit.key.unit
        fitting = estimate.output_within(unit, budget.room)
        if fitting is None:  # guard: e10
            until = period_at(budget.limit, tx.now).end
            return OverBudget(budget, estimate.least(unit), until)
        output_tokens = min(output_tokens, fitting)
    for row, budget in zip(rows, budgets, strict=True):
        amount = estimate.amount(budget.limit.key.unit, output_tokens)
        reserved = budget.reserved + amount
        yield from _write(row, msgspec.structs.replace(budget, reserved=reserved))
        key = (turn.no, call.epoch, call.step, call.name)
        yield q("reservation_insert", *key, row.budget_no, budget.period_start, amount)
    return output_tokens


def _find_applying(
    tx: Tx, session: SessionRow, turn: TurnRow, call: ModelCall, defaults: Sequence[BudgetLimit]
) -> Script[list[BudgetColumns]]:
    """The budgets that apply to the turn, locked. Where the owner has set none, those of the present
    settings apply."""
    found = (session.owner, session.no, turn.no)
    for limit in defaults:
        session_no = session.no if limit.key.scope is BudgetScope.SESSION else None
        yield from insert_limit(tx, session.owner, limit, session_no, None, is_default=True)
    if tx.dialect == "postgresql":
        yield q("budgets_of_turn_lock", *found)  # guard: e10 postgresql
    yield from _settle_left(turn, call)
    rows = _without_former((yield from BUDGETS_OF_TURN.all(*found)), session, defaults)
    outdated = [
        (row, limit)
        for row in rows
        for limit in defaults
        if row.is_default and (known := _budget_of(row).limit).key == limit.key and known != limit
    ]
    for row, limit in outdated:
        yield from _change(tx, row, limit, is_default=True)
    if not outdated:
        return rows
    return _without_former((yield from BUDGETS_OF_TURN.all(*found)), session, defaults)


def _without_former(
    rows: Sequence[BudgetColumns], session: SessionRow, defaults: Sequence[BudgetLimit]
) -> list[BudgetColumns]:
    """Without a default of this session that its profile does not have any more. It stays, with what was
    spent, in case the profile gets it again."""
    present = {(limit.key.scope.value, limit.key.unit.value) for limit in defaults}
    return [
        row
        for row in rows
        if not row.is_default or row.subject != session.session.id or (row.scope, row.unit) in present
    ]


def _settle_left(turn: TurnRow, call: ModelCall) -> Script[None]:
    """What an earlier epoch left reserved counts as spent: its worker died before it knew the usage. If the
    same call reserves again, the answer to its first attempt was lost, and no model was called."""
    for row in (yield from RESERVATIONS.all(turn.no)):
        if row.epoch < call.epoch:
            yield from _count(row, row.amount, estimated=row.amount)
        elif (row.epoch, row.step, row.call) == (call.epoch, call.step, call.name):
            yield from _count(row, 0)
        else:
            continue
        yield q("reservation_delete", turn.no, row.epoch, row.step, row.call)


def _count(row: ReservationColumns, spent: int, *, estimated: int = 0, unpriced: int = 0) -> Script[None]:
    yield q("budget_settle", row.budget_no, row.period_start, row.amount, spent, estimated, unpriced)


# --- settling -----------------------------------------------------------------------------------------


def _append_settled(
    tx: Tx, position: WriterPosition, settled: Sequence[Settled], payloads: Sequence[Payload]
) -> Script[None]:
    turn_id, epoch = position.turn_id, position.epoch
    session, turn = yield from lock_held_turn(tx, turn_id, epoch)
    writer = yield from WRITER.first(turn.no, epoch)
    last = writer.number if writer else 0
    newest = position.number + len(payloads)
    if last == newest:
        return  # a repeat: the first answer was lost
    if last != position.number:
        raise WrongState(
            f"Turn {turn_id} has event {last} in its journal, its worker counted up to {position.number}.",
            hint="The writer must be quiet before usage is settled.",
        )
    yield from add_events(tx, session, EventPlace(turn, epoch, position.number + 1), payloads)
    yield q("writer_number", turn.no, epoch, newest)
    for one in settled:
        yield from _settle(tx, turn, one)


def _settle_alone(tx: Tx, settled: Settled) -> Script[None]:
    _, turn = yield from lock_turn(tx, settled.call.turn_id)
    yield from _settle(tx, turn, settled)


def _settle(tx: Tx, turn: TurnRow, settled: Settled) -> Script[None]:
    call, spent = settled.call, settled.spent
    if tx.dialect == "postgresql":
        yield q("budgets_reserved_lock", turn.no)
    for row in (yield from RESERVATIONS.all(turn.no)):
        if (row.epoch, row.step, row.call) == (call.epoch, call.step, call.name):
            yield from _count_spent(row, spent)
    yield q("reservation_delete", turn.no, call.epoch, call.step, call.name)


def _count_spent(row: ReservationColumns, spent: Spent) -> Script[None]:
    unit = Unit(row.unit)
    amount = spent.amount(unit)
    estimated = amount if spent.is_estimated else 0
    yield from _count(row, amount, estimated=estimated, unpriced=spent.unpriced_tokens(unit))
