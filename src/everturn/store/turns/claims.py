"""Claims: a worker takes a turn, keeps it, loses it or releases it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from everturn.domain import events as ev
from everturn.domain.errors import (
    JournalCorrupt,
    WrongState,
)
from everturn.domain.probe import Moment
from everturn.domain.store_values import Claim
from everturn.domain.turns import ClaimReason, Failure, Turn, TurnState
from everturn.store.scripts.common import (
    EventPlace,
    add_events,
    delete_answers,
    get_session_by_no,
    get_turn,
    journal_of,
    lock_turn,
    move_head,
    refresh,
    refuse_busy,
)
from everturn.store.scripts.queries.messages import MESSAGE_FIRST
from everturn.store.scripts.queries.sessions import SESSION_NO_OF_ID
from everturn.store.scripts.queries.turns import (
    APPEND_STATE,
    CLAIMABLE,
    CLAIMABLE_IN_SESSION,
    HELD_EPOCHS,
    TURN_CLAIM,
    TURNS_OF_WORKER,
    WORKER_CLAIMS,
)
from everturn.store.scripts.rows import (
    SessionRow,
    TurnRow,
    make_events,
    message_of,
)
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turns import endings
from everturn.store.turns.held import lock_held_turn
from everturn.store.working_copies import claim_files

_DELTAS = frozenset({"text.delta", "reasoning.delta", "tool.output"})


class Wanted(msgspec.Struct, frozen=True):
    """Which turns to claim. ``machines``: a pattern; a session that has a machine must match it (G01)."""

    machines: str
    session_id: str | None = None
    without_owners: tuple[str, ...] = ()
    without_turns: frozenset[int] = frozenset()  # what this version cannot run (G04)


class ClaimResult(msgspec.Struct, frozen=True):
    claims: list[Claim]
    refused: frozenset[int] = frozenset()  # turns that this version cannot run (G04)
    has_locked: bool = False  # a turn was left out because another transaction is writing its session


def find_claimable(tx: Tx, limit: int, wanted: Wanted) -> Script[list[tuple[int, int]]]:
    """Candidates as (session_no, turn_no), in the order in which to claim them."""
    only = None
    if wanted.session_id is not None:
        only = yield from SESSION_NO_OF_ID.first(wanted.session_id)
        if only is None:
            return []
    is_choosy = only is not None or bool(wanted.without_owners or wanted.without_turns)
    found = [
        (turn.session_no, turn.turn_no)
        for turn in (yield from CLAIMABLE.all(10_000 if is_choosy else limit, wanted.machines))
        if turn.owner not in wanted.without_owners
        and turn.turn_no not in wanted.without_turns
        and (only is None or turn.session_no == only)
    ]
    return found[:limit]


def claim(tx: Tx, worker: str, limit: int, wanted: Wanted) -> Script[ClaimResult]:
    if tx.dialect == "postgresql" and (yield from WORKER_CLAIMS.first(worker)) == 0:
        # Its lease expired and its turns were taken: it must find that out before it claims others.
        return ClaimResult([])
    claims: list[Claim] = []
    refused: set[int] = set()
    tried: set[int] = set()
    has_locked = False
    while True:
        room = limit - len(claims)
        candidates = yield from find_claimable(tx, room + len(tried), wanted)
        new = dict.fromkeys(session_no for session_no, _ in candidates if session_no not in tried)
        sessions = sorted(islice(new, room))  # the oldest, locked in the order of all transactions
        tried.update(sessions)
        found = yield from _claim_in(tx, worker, sessions, wanted.machines)
        claims += found.claims
        refused |= found.refused
        has_locked = has_locked or found.has_locked
        if len(found.claims) == len(sessions) or len(claims) >= limit:
            return ClaimResult(claims, frozenset(refused), has_locked)


def _claim_in(tx: Tx, worker: str, sessions: Sequence[int], machines: str) -> Script[ClaimResult]:
    """Claim the next turn of each session."""
    claims: list[Claim] = []
    refused: set[int] = set()
    has_locked = False
    for session_no in sessions:
        if tx.dialect == "postgresql" and not (yield q("session_lock_skip", session_no)):
            has_locked = True  # waiting for it here would hold up the turns of all other sessions
            continue
        turn_no = yield from CLAIMABLE_IN_SESSION.first(session_no, machines)
        if turn_no is None:
            continue
        claim = yield from take(tx, worker, session_no, turn_no)
        if claim is not None:
            claims.append(claim)
        elif (yield from CLAIMABLE_IN_SESSION.first(session_no, machines)) == turn_no:
            refused.add(turn_no)  # only a newer version can run it; one that is damaged was given up
    return ClaimResult(claims, frozenset(refused), has_locked)


def take(tx: Tx, worker: str, session_no: int, turn_no: int) -> Script[Claim | None]:
    """Claim one turn: begin an epoch and append ``turn.started`` or ``turn.resumed``.

    None if it cannot run here: its journal is damaged, or only a newer version can read it.
    """
    session = yield from get_session_by_no(session_no)
    turn = yield from get_turn(turn_no)
    reason = ClaimReason(turn.ready_reason or ClaimReason.NEW)
    is_queued = turn.state is TurnState.QUEUED
    parent = turn.parent_no if turn.has_parent else session.head_no
    try:
        journal = [] if is_queued else (yield from journal_of(session, turn))
    except JournalCorrupt as damage:
        yield from _give_up_damaged(tx, session, turn, damage)
        return None
    if any(map(_is_newer, journal)):  # guard: g04
        return None  # a newer version began it and goes on with it (G04)
    if not turn.turn.kind.is_known:  # guard: g04
        return None
    if turn.state is TurnState.INTERRUPTED:
        # Its messages were folded at the interruption; the turn is live again and is folded again at its end.
        yield from delete_answers(tx, session, turn.no)  # guard: c08
    steps = [step.step for step in map(_finished_step, journal) if step is not None]
    epoch = yield from TURN_CLAIM.only(turn.no, worker, tx.now, parent, int(reason == ClaimReason.CRASH))
    yield q("writer_insert", turn.no, epoch, worker, 1)
    if is_queued:
        if turn.has_parent:
            yield from claim_files(tx, session, turn)
        yield from move_head(tx, session, turn.no)
        event: ev.Payload = ev.TurnStarted(epoch=epoch, worker=worker)
    else:
        attempt = turn.turn.attempts + (reason == ClaimReason.CRASH)
        event = ev.TurnResumed(epoch, worker, reason, attempt, turn.stopped_at, max(steps, default=0))
    yield from add_events(tx, session, EventPlace(turn, epoch, 1), [event])
    if is_queued:
        journal = yield from journal_of(session, turn, skips_damage=True)
    else:
        journal += make_events(tx.events[-1])
    yield from refresh(tx, session)
    now_row = yield from get_turn(turn_no)
    session_now = yield from get_session_by_no(session_no)
    first = yield from MESSAGE_FIRST.first(turn_no)
    message = None if first is None else message_of(first, turn.id)
    return Claim(
        turn=msgspec.structs.replace(now_row.turn, text=first.text if first else ""),
        session=session_now.session,
        epoch=epoch,
        number=1,
        reason=reason,
        journal=tuple(journal),
        stopped_at=turn.stopped_at,
        message=message,
    )


def _is_newer(event: ev.Event) -> bool:
    """Whether only a newer version can read the event. Deltas, of which there are many, hold plain text."""
    if event.kind in _DELTAS:
        return False
    return event.kind not in ev.KINDS or isinstance(event.payload, ev.Unknown)


def _finished_step(event: ev.Event) -> ev.StepFinished | None:
    if event.kind != "step.finished":
        return None
    payload = event.payload
    return payload if isinstance(payload, ev.StepFinished) else None


def _give_up_damaged(tx: Tx, session: SessionRow, turn: TurnRow, damage: JournalCorrupt) -> Script[None]:
    """Fail a turn whose damaged journal cannot be resumed, so that it does not block the queue."""
    if turn.state is TurnState.INTERRUPTED:
        yield q("turns_unready", session.no)
        yield from refresh(tx, session)
        return
    failure = Failure.from_error(damage)
    yield from endings.end_active(tx, session, turn, endings.Ending(TurnState.FAILED, failure))


def find_lost(tx: Tx, held: tuple[tuple[str, int], ...]) -> Script[list[str]]:
    if tx.dialect == "postgresql":
        rows = yield from HELD_EPOCHS.all([turn_id for turn_id, _ in held])
        still = {(turn.id, turn.epoch) for turn in rows}
        return [turn_id for turn_id, epoch in held if (turn_id, epoch) not in still]
    gone = []
    for turn_id, epoch in held:
        now = yield from APPEND_STATE.first(turn_id, epoch)
        if now is None or now.state != "running" or now.epoch != epoch:
            gone.append(turn_id)
    return gone


def held_by(tx: Tx, worker: str) -> Script[list[tuple[str, int]]]:
    return [(turn.id, turn.epoch) for turn in (yield from TURNS_OF_WORKER.all(worker))]


def hand_over(tx: Tx, turn_id: str, epoch: int) -> Script[Turn]:
    session, turn = yield from lock_held_turn(tx, turn_id, epoch)
    yield q("turn_ready", turn.no, "handed_over", tx.now)
    yield q("writer_seal", turn.no, epoch)
    yield from refresh(tx, session)
    tx.moments.append((Moment.HANDED_OVER, turn_id))
    return (yield from get_turn(turn.no)).turn


def resume(tx: Tx, owner: str, turn_id: str) -> Script[Turn]:
    session, turn = yield from lock_turn(tx, turn_id, owner)
    if turn.state is not TurnState.INTERRUPTED:
        raise WrongState(
            f"Turn {turn_id} is {turn.state}; only an interrupted turn can be resumed.",
            hint="Send a new message instead.",
        )
    if session.active_no is not None or not turn.turn.is_ready:
        yield from refuse_busy(session)
    if session.head_no != turn.no:
        raise WrongState(
            f"Turn {turn_id} is no longer the last one of its session.", hint="Branch from it, or ask again."
        )
    if turn.is_pruned:
        raise WrongState(
            f"The journal of turn {turn_id} was pruned: its text is in the transcript, its steps are not.",
            hint="Retry the message, or send a new one.",
        )
    if not turn.turn.is_ready:
        yield q("turn_ready", turn.no, "manual", tx.now)
        yield from refresh(tx, session)
    return (yield from get_turn(turn.no)).turn
