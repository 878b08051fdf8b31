"""Delegates: made by one transaction of the parent, ended by their own, given to the parent by a third (E09).

A transaction locks one session: the parent's to start and to give, the delegate's own to end; to start, the
one at the top of the tree before it. Rows of the table are written under one of these locks.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import msgspec

from everturn.domain.budgets import BudgetKey, BudgetLimit, BudgetScope, Unit, to_micros
from everturn.domain.delegates import (
    NAME_CHARS_MAX,
    Delegate,
    DelegateName,
    DelegateRights,
    DelegateTask,
    DueDelegates,
    NewDelegates,
    describe_result,
)
from everturn.domain.errors import DelegatesTooDeep, Gone, NotFound, TooManyDelegates, WrongState
from everturn.domain.events import DelegateEnded, DelegateStarted
from everturn.domain.ids import check_id
from everturn.domain.messages import Source, Text
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission, WhenBusy
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.turns import Turn, TurnState
from everturn.store.budgets import insert_limit
from everturn.store.scripts.common import (
    OF_SESSION,
    EventPlace,
    add_events,
    find_turn,
    get_session,
    get_session_by_no,
    get_turn,
    lock_session,
    lock_turn,
    refresh,
    shown_session,
)
from everturn.store.scripts.queries.delegates import (
    DELEGATE,
    DELEGATE_RIGHTS,
    DELEGATES_AT_WORK,
    DELEGATES_OF_CALL,
    DELEGATES_OF_SESSION,
    DELEGATES_OF_TURN,
    DELEGATES_ORPHANED,
    DELEGATES_TO_GIVE,
    DELEGATES_TO_STOP,
    DelegateColumns,
    DelegateNameColumns,
)
from everturn.store.scripts.queries.sessions import SESSION_INSERT, SESSION_OF_TURN
from everturn.store.scripts.queries.turns import ASK, ASKS_OPEN_OF_TURN, WRITER
from everturn.store.scripts.rows import SessionRow, TurnRow, parameters_json, to_json, usage_of
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.sessions.titles import put_title, title_text
from everturn.store.turns import endings, submissions
from everturn.store.turns.delegation import results
from everturn.store.working_copies import begin_with_tree, present_tree

_DUE_MAX = 100
_ACTIVITY_CHARS_MAX = 160
_tools: msgspec.json.Decoder[tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...])


class DelegateRows:
    """Implements ``domain.delegates.DelegateStore``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def start(self, new: NewDelegates) -> Sequence[Delegate]:
        return [delegate_of(row) for row in await self._db.write(_start, new)]

    async def get(self, owner: str, delegate_id: str) -> Delegate:
        return delegate_of(await self._db.read(_get, owner, delegate_id))

    async def of_turn(self, owner: str, turn_id: str) -> Sequence[Delegate]:
        return [delegate_of(row) for row in await self._db.read(_of_turn, owner, turn_id)]

    async def of_session(self, owner: str, session_id: str) -> Sequence[Delegate]:
        return [delegate_of(row) for row in await self._db.read(_of_session, owner, session_id)]

    async def rights(self, delegate_id: str) -> DelegateRights:
        return await self._db.read(_rights, delegate_id)

    async def ask_to_stop(self, owner: str, delegate_id: str) -> Delegate:
        return delegate_of(await self._db.write(_ask_to_stop, owner, delegate_id))

    async def settle_files(self, owner: str, delegate_id: str, *, is_applied: bool) -> None:
        await self._db.write(_settle_files, owner, delegate_id, is_applied)

    async def due(self, *, orphans: bool = True) -> DueDelegates:
        return await self._db.read(_due, orphans)

    async def give(self, delegate_id: str) -> Turn | None:
        return await self._db.write(_give, delegate_id)


def delegate_of(row: DelegateColumns) -> Delegate:
    result = None if row.result is None else results.decode(row.result)
    state = TurnState.CANCELLED if row.state is None else TurnState(row.state)
    if result is not None:
        state = result.state
    said = result.text if result is not None else row.preview or ""
    return Delegate(
        id=row.session_id,
        owner=row.owner,
        turn_id=row.turn_id,
        parent_session=row.parent_session,
        parent_turn=row.parent_turn,
        call_id=row.call_id,
        root_session=row.root_id,
        name=row.name,
        depth=row.depth,
        state=state,
        is_waited=bool(row.is_waited),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        stop_asked_at=row.stop_asked_at,
        model=row.model,
        profile=row.profile,
        usage=usage_of(row.usage) if result is None else result.usage,
        asks=row.asks,
        activity=" ".join(said.split())[:_ACTIVITY_CHARS_MAX],
        base=row.base,
        result=result,
        is_given=row.given_at is not None,
        applied_at=row.applied_at,
        refused_at=row.refused_at,
    )


# --- reading ------------------------------------------------------------------------------------------


def _get(tx: Tx, owner: str, delegate_id: str) -> Script[DelegateColumns]:
    row = yield from DELEGATE.first(check_id(delegate_id, "ses"))
    if row is None or row.owner != owner:
        raise NotFound("delegate", delegate_id)
    if row.parent_deleted_at is not None:
        raise Gone("session", row.parent_session)
    return row


def _of_turn(tx: Tx, owner: str, turn_id: str) -> Script[list[DelegateColumns]]:
    turn = yield from find_turn(turn_id)
    if turn is None or turn.turn.owner != owner:
        raise NotFound("turn", check_id(turn_id, "trn"))
    yield from shown_session(tx, owner, turn.turn.session_id)
    return (yield from _with_own((yield from DELEGATES_OF_TURN.all(turn_id))))


def _of_session(tx: Tx, owner: str, session_id: str) -> Script[list[DelegateColumns]]:
    session = yield from get_session(tx, owner, session_id)
    return (yield from _with_own((yield from DELEGATES_OF_SESSION.all(session.no))))


def _with_own(rows: Sequence[DelegateColumns]) -> Script[list[DelegateColumns]]:
    """These and, after each, its own delegates."""
    found: list[DelegateColumns] = []
    for row in rows:
        found.append(row)
        found += yield from _with_own((yield from DELEGATES_OF_TURN.all(row.turn_id)))
    return found


def _rights(tx: Tx, delegate_id: str) -> Script[DelegateRights]:
    row = yield from DELEGATE_RIGHTS.first(delegate_id)
    if row is None:
        raise NotFound("delegate", delegate_id)
    return DelegateRights(row.depth, None if row.tools is None else _tools.decode(row.tools))


def _due(tx: Tx, orphans: bool) -> Script[DueDelegates]:
    left = (yield from DELEGATES_ORPHANED.all(_DUE_MAX)) if orphans else ()
    return DueDelegates(
        tuple(map(_name_of, (yield from DELEGATES_TO_STOP.all(_DUE_MAX)))),
        tuple((yield from DELEGATES_TO_GIVE.all(_DUE_MAX))),
        tuple(map(_name_of, left)),
    )


def _name_of(row: DelegateNameColumns) -> DelegateName:
    return DelegateName(row.owner, row.session_id, row.turn_id)


# --- starting -----------------------------------------------------------------------------------------


class _Place(msgspec.Struct, frozen=True):
    """Where a new delegate stands in its tree, and what its parent may use."""

    depth: int
    root_no: int
    root_id: str
    root_turn_no: int
    tools: tuple[str, ...] | None


def _start(tx: Tx, new: NewDelegates) -> Script[list[DelegateColumns]]:
    yield from _lock_root(tx, new.turn_id)
    session, turn = yield from lock_turn(tx, new.turn_id)
    known = yield from DELEGATES_OF_CALL.all(new.turn_id, new.call_id)
    if known:  # guard: e09
        return known
    if turn.state is not TurnState.RUNNING:
        raise WrongState(f"Turn {turn.id} is {turn.state}: nothing was delegated.")
    place = yield from _place(session, turn)
    yield from _refuse_too_many(new, place)
    present = yield from present_tree(session)
    for ordinal, task in enumerate(new.tasks):
        child = yield from _make_session(tx, session, turn, task)
        tree = (task.tree or present) if task.has_files else EMPTY_TREE
        if tree != EMPTY_TREE:
            yield from begin_with_tree(tx, child, tree)
        yield from _make_turn(tx, child, (turn, place, new), ordinal, tree)
    started = yield from DELEGATES_OF_CALL.all(new.turn_id, new.call_id)
    events = [
        DelegateStarted(row.session_id, new.turn_id, new.call_id, row.name, bool(row.is_waited))
        for row in started
    ]
    yield from add_events(tx, session, OF_SESSION, events)
    return started


def _lock_root(tx: Tx, turn_id: str) -> Script[None]:
    """Lock the session at the top of the tree before the one below it that delegates. Otherwise two delegates
    that delegate at the same moment would count the same number at work, and both fill the last place."""
    if tx.dialect != "postgresql":
        return  # one writer
    found = yield from SESSION_OF_TURN.first(turn_id)
    above = None if found is None else (yield from DELEGATE_RIGHTS.first(found.id))
    if found is not None and above is not None:
        yield q("session_lock", above.root_id, found.owner)  # guard: e09 postgresql


def _place(session: SessionRow, turn: TurnRow) -> Script[_Place]:
    above = yield from DELEGATE_RIGHTS.first(session.id)
    if above is None:
        return _Place(1, session.no, session.id, turn.no, None)
    tools = None if above.tools is None else _tools.decode(above.tools)
    return _Place(above.depth + 1, above.root_no, above.root_id, above.root_turn_no, tools)


def _refuse_too_many(new: NewDelegates, place: _Place) -> Script[None]:
    bounds = new.bounds
    if place.depth > bounds.depth_max:  # guard: e09
        raise DelegatesTooDeep(bounds.depth_max)
    at_work = yield from DELEGATES_AT_WORK.only(place.root_no)
    if at_work + len(new.tasks) > bounds.at_once_max:  # guard: e09
        raise TooManyDelegates(len(new.tasks), at_work, bounds.at_once_max)


def _make_session(tx: Tx, parent: SessionRow, turn: TurnRow, task: DelegateTask) -> Script[SessionRow]:
    name = _name(task.name) or _name(task.text)
    session_id = tx.ids.session()
    session_no = yield from SESSION_INSERT.only(
        session_id,
        parent.owner,
        "",
        tx.now,
        name,
        1,
        int(parent.session.private),
        None,
        task.profile or turn.turn.profile or parent.session.profile,
        task.model or turn.turn.model or parent.session.model,
        None,
    )
    yield q("tail_insert", session_no, parent.owner, tx.now)
    yield q("session_delegate", session_no, turn.id)
    if task.model is None and turn.turn.parameters is not None:
        yield q("session_parameters", session_no, parameters_json(turn.turn.parameters))
    yield q("tail_listed", session_no, 0)
    yield from put_title(tx, session_no, title_text(name, ()))
    return (yield from get_session_by_no(session_no))


def _name(text: str) -> str:
    """A title of the first words: one line without control characters, as a user's must be. A model wrote
    them, and a title with others could not be imported again."""
    kept = "".join(" " if unicodedata.category(char) in ("Cc", "Cs") else char for char in text)
    words = " ".join(kept.split())
    return words if len(words) <= NAME_CHARS_MAX else f"{words[: NAME_CHARS_MAX - 1].rstrip()}…"


def _make_turn(
    tx: Tx, child: SessionRow, parent: tuple[TurnRow, _Place, NewDelegates], ordinal: int, base: str
) -> Script[None]:
    parent_turn, place, new = parent
    task = new.tasks[ordinal]
    # The parent's model wrote it, so it is as trusted as what was in that model's context.
    source = Source("delegate", "", is_trusted=True)
    if new.is_tainted:  # guard: e09
        source = Source("delegate", "", is_trusted=False)
    asked = endings.NewTurn(parts=(Text(task.text, source=source),), created_at=tx.now)
    turn, _ = yield from endings.queue_turn(tx, child, asked)
    tools = _both(place.tools, task.tools)
    yield q(
        "delegate_insert",
        child.id,
        child.no,
        turn.id,
        turn.no,
        parent_turn.session_no,
        parent_turn.id,
        new.call_id,
        ordinal,
        place.root_no,
        place.root_id,
        place.root_turn_no,
        child.session.title,
        place.depth,
        None if tools is None else to_json(tools),
        base,
        int(new.is_waited),
        int(new.is_tainted),
        tx.now,
    )
    yield from _limit(tx, child, task)
    yield from refresh(tx, child)


def _both(allowed: tuple[str, ...] | None, wanted: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The tools that are in both; None stands for all."""
    if allowed is None or wanted is None:
        return allowed if wanted is None else wanted
    return tuple(name for name in wanted if name in allowed)  # guard: e09


def _limit(tx: Tx, child: SessionRow, task: DelegateTask) -> Script[None]:
    """The budget of a delegate is that of its session, and holds for its own delegates, too."""
    amounts = {
        Unit.TOKENS: task.budget_tokens,
        Unit.USD: None if task.budget_usd is None else to_micros(task.budget_usd),
    }
    for unit, amount in amounts.items():
        if amount is not None:
            limit = BudgetLimit(BudgetKey(BudgetScope.SESSION, unit, child.id), amount)
            yield from insert_limit(tx, child.owner, limit, child.no, None, is_default=False)


# --- stopping and giving ------------------------------------------------------------------------------


def _ask_to_stop(tx: Tx, owner: str, delegate_id: str) -> Script[DelegateColumns]:
    yield from _get(tx, owner, delegate_id)
    yield q("delegate_stop", delegate_id, tx.now)
    return (yield from DELEGATE.only(delegate_id))


def _settle_files(tx: Tx, owner: str, delegate_id: str, is_applied: bool) -> Script[None]:
    yield from _get(tx, owner, delegate_id)
    yield q("delegate_files", delegate_id, int(is_applied), tx.now)


def _give(tx: Tx, delegate_id: str) -> Script[Turn | None]:
    found = yield from DELEGATE.first(delegate_id)
    if found is None:
        return None
    parent = yield from lock_session(tx, found.owner, found.parent_session)
    # Read again under the lock: another worker may have given it meanwhile.
    row = yield from DELEGATE.first(delegate_id)
    if row is None or row.result is None or row.given_at is not None:  # guard: e09
        return None
    turn = yield from find_turn(row.parent_turn)
    is_open = turn is not None and turn.turn.ended_at is None
    if row.is_waited and is_open and row.ask_id is None:
        return None  # the parent has not begun to wait
    if parent.is_deleted and not row.is_waited:  # guard: e09
        return None  # it can be restored, and is woken then
    yield q("delegate_given", delegate_id, tx.now)
    if turn is not None and row.is_waited and turn.state is TurnState.WAITING:
        return (yield from _answer(tx, parent, turn, row))
    yield from add_events(tx, parent, OF_SESSION, [_make_ended(row, is_told=False)], is_activity=False)
    tx.touch(parent.owner, parent.id)
    if row.is_waited:
        return None
    return (yield from _wake(tx, parent, row, None if turn is None else turn.turn.profile))


def _make_ended(row: DelegateColumns, *, is_told: bool) -> DelegateEnded:
    result = results.decode(row.result or "")
    return DelegateEnded(
        row.session_id,
        row.parent_turn,
        row.call_id,
        result.state.value,
        text=describe_result(row.session_id, row.name, result) if is_told else "",
        usage=result.usage,
        is_untrusted=result.is_tainted,
    )


def _answer(tx: Tx, parent: SessionRow, turn: TurnRow, row: DelegateColumns) -> Script[Turn | None]:
    ask = yield from ASK.first(row.ask_id or "", parent.owner)
    if ask is None or ask.answer is not None:
        return None
    yield q("ask_answer", ask.id, "ended", "delegate", tx.now, ask.body)
    writer = yield from WRITER.first(turn.no, turn.turn.epoch)
    number = (writer.number if writer else 0) + 1
    place = EventPlace(turn, turn.turn.epoch, number)
    yield from add_events(tx, parent, place, [_make_ended(row, is_told=True)])
    yield q("writer_number", turn.no, turn.turn.epoch, number)
    if (yield from ASKS_OPEN_OF_TURN.only(turn.no)) == 0:
        yield q("turn_ready", turn.no, "answered", tx.now)
    yield from refresh(tx, parent)
    tx.moments.append((Moment.ANSWER_COMMITTED, turn.id))
    return (yield from get_turn(turn.no)).turn


def _wake(tx: Tx, parent: SessionRow, row: DelegateColumns, profile: str | None) -> Script[Turn | None]:
    """A report, like that of a job's end: a trusted message with only our own words. ``delegate_result``
    returns the delegate's own, marked. ``profile``: of the turn that delegated, if that named one."""
    result = results.decode(row.result or "")
    text = (
        f"Delegate {row.session_id} has ended: {result.state}.\n"
        "This report is automatic; the user may be away. Read its answer with delegate_result, and go on."
    )
    asked = Submission(
        text=text,
        profile=profile,
        when_busy=WhenBusy.STEER,
        key=f"delegate:{row.session_id}",
        source=Source("delegate", row.session_id, is_trusted=True),
    )
    return (yield from submissions.accept(tx, parent.owner, parent.id, asked)).turn
