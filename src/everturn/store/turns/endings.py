"""How turns end: the scripts that fold a journal into the transcript and set the turn's final state."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain import events as ev
from everturn.domain.errors import SteeringWaits
from everturn.domain.fold import Folded
from everturn.domain.ids import message_id
from everturn.domain.messages import Attachment, Message, Role, Text
from everturn.domain.parameters import NO_PARAMETERS, Parameters
from everturn.domain.probe import Moment
from everturn.domain.sessions import SessionKind
from everturn.domain.turns import ACTIVE, ENDED, Completed, Failure, Recovery, Turn, TurnKind, TurnState
from everturn.store import ledger
from everturn.store.journal.fold import JournalFold
from everturn.store.notices import owe_for_end
from everturn.store.scripts.common import (
    EventPlace,
    add_change_event,
    add_events,
    add_messages,
    bump,
    delete_answers,
    get_turn,
    lock_turn,
    move_head,
    next_turn,
    refresh,
)
from everturn.store.scripts.queries.delivery import CHATS_OF_SESSION
from everturn.store.scripts.queries.sessions import SESSION_BY_NO
from everturn.store.scripts.queries.turns import QUEUE_PLACES, STEERING_OF_TURN, TURN_INSERT, WRITER
from everturn.store.scripts.rows import SessionRow, TurnRow, parameters_json, timeline_json, to_json
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turns.delegation import end_delegates, end_deleted_delegate
from everturn.store.turns.held import lock_held_turn
from everturn.store.working_copies import claim_files

# The number of an end that was not written by the turn's worker, whose events may still arrive: it comes
# after all of them and takes none of their numbers.
LAST_NUMBER = 1 << 30


class Ending(msgspec.Struct, frozen=True):
    """How a turn ends. ``by``: who or what cancelled it."""

    state: TurnState
    failure: Failure | None = None
    by: str = ""


class NewTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn to be queued. Unless ``has_parent``, it follows whatever the head is when it is claimed;
    ``is_first`` puts it at the front of the queue. ``is_imported``: its words came in with a document."""

    parts: Sequence[Text | Attachment]
    created_at: int
    model: str | None = None
    profile: str | None = None
    kind: TurnKind = TurnKind.MESSAGE
    note: str = ""
    parent_no: int | None = None
    has_parent: bool = False
    is_first: bool = False
    is_imported: bool = False
    parameters: Parameters | None = None  # the session's apply where they say nothing


_attachments: msgspec.json.Decoder[tuple[Attachment, ...]] = msgspec.json.Decoder(tuple[Attachment, ...])


class OwedTo(msgspec.Struct, frozen=True):
    """The memory provider that a completed turn is owed to (None: to none), and the handle that saw it."""

    provider: str | None
    handle: str


def complete(
    tx: Tx, turn_id: str, epoch: int, number: int, folded: Folded, owed_to: OwedTo
) -> Script[Completed]:
    session, turn = yield from lock_held_turn(tx, turn_id, epoch, number)
    if (yield q("steering_of_turn", turn.no)):  # guard: a08
        raise SteeringWaits(turn_id)
    yield from add_messages(tx, session, turn.no, folded.messages)
    version = yield from bump(tx, session)
    end = ev.TurnCompleted(usage=folded.usage, version=version)
    yield from add_events(tx, session, EventPlace(turn, epoch, number + 1), [end])
    yield q("writer_seal", turn.no, epoch)
    yield from _close(tx, turn, Ending(TurnState.COMPLETED), folded, Recovery.NONE, number + 1)
    yield from end_delegates(tx, session, turn, TurnState.COMPLETED, None, folded)
    if turn.is_late:  # guard: c09
        # They came while the worker ran and are not in its fold: the next read threads them in (C09).
        yield q("turn_late", turn.no)
    yield q("session_unread", session.no)
    yield from owe_for_end(tx, session, turn)  # guard: f10
    if (
        owed_to.provider is not None
        and not session.session.private  # guard: b01
        and session.kind != SessionKind.DELEGATE  # guard: e09
        and turn.turn.kind is TurnKind.MESSAGE
    ):
        worker = turn.worker or ""
        yield from ledger.owe(tx, session, turn.no, owed_to.provider, owed_to.handle, worker)  # guard: b02
    yield from refresh(tx, session)  # guard: a06
    tx.probe.pass_by(Moment.END_WRITTEN, turn_id)
    tx.moments.append((Moment.END_COMMITTED, turn_id))
    ended = (yield from get_turn(turn.no)).turn
    return Completed(ended, version_before=session.session.transcript_version, version_after=version)


def fail(
    tx: Tx, turn_id: str, epoch: int | None, failure: Failure, ahead: JournalFold | None = None
) -> Script[Turn]:
    if epoch is None:
        session, turn = yield from lock_turn(tx, turn_id)
        if turn.state in ENDED:
            return turn.turn
        if turn.state is TurnState.QUEUED:
            joins = session.active_no is None
            ending = Ending(TurnState.FAILED, failure)
            return (yield from end_queued(tx, session, turn, ending, joins=joins))
    else:
        session, turn = yield from lock_held_turn(tx, turn_id, epoch)
        yield q("writer_seal", turn.no, epoch)
    return (yield from end_active(tx, session, turn, Ending(TurnState.FAILED, failure), ahead))


def interrupt(
    tx: Tx,
    turn_id: str,
    epoch: int | None,
    failure: Failure,
    is_sealed: bool,
    ahead: JournalFold | None = None,
) -> Script[Turn]:
    if epoch is None:
        session, turn = yield from lock_turn(tx, turn_id)
        if turn.state not in ACTIVE:  # guard: c08
            return turn.turn
    else:
        session, turn = yield from lock_held_turn(tx, turn_id, epoch)
        if is_sealed:  # guard: c06
            yield q("writer_seal", turn.no, epoch)
    return (yield from end_active(tx, session, turn, Ending(TurnState.INTERRUPTED, failure), ahead))


def cancel(tx: Tx, owner: str, turn_id: str, by: str, ahead: JournalFold | None = None) -> Script[Turn]:
    session, turn = yield from lock_turn(tx, turn_id, owner)
    if turn.turn.is_ready and turn.state is TurnState.INTERRUPTED:
        # Resumed, and no worker has looked yet: it stays interrupted.
        yield q("turns_unready", session.no)
        yield from refresh(tx, session)
        return (yield from get_turn(turn.no)).turn
    if turn.state in ENDED:  # guard: a12
        return turn.turn
    if turn.state is TurnState.QUEUED:
        return (yield from _cancel_queued(tx, session, turn, by=by))
    return (yield from end_active(tx, session, turn, Ending(TurnState.CANCELLED, by=by), ahead))


def end_active(
    tx: Tx,
    session: SessionRow,
    turn: TurnRow,
    ending: Ending,
    ahead: JournalFold | None = None,
) -> Script[Turn]:
    """End a running or waiting turn with what its journal holds. Unless its worker has sealed the journal,
    spooled events may still arrive, and belong to the turn.

    ``ahead``: the journal as it was folded before this transaction. Only what came since is read here.
    """
    if ahead is None or ahead.turn_id != turn.id:
        ahead = JournalFold(turn.id)
    yield from ahead.catch_up(session, turn)
    is_interrupted = ending.state is TurnState.INTERRUPTED
    folded = ahead.result(is_recovered=is_interrupted)
    yield from delete_answers(tx, session, turn.no)
    yield from add_messages(tx, session, turn.no, folded.messages)  # guard: a12 c03
    recovery = Recovery.NONE
    if is_interrupted:
        unsealed = yield q("writers_unsealed", turn.no)
        is_final = not unsealed and bool(folded.messages)
        recovery = Recovery.FINAL if is_final else Recovery.PENDING
    version = yield from bump(tx, session)
    writer = yield from WRITER.first(turn.no, turn.turn.epoch)
    number = (writer.number if writer else 0) + 1
    if writer is not None and not writer.is_sealed:
        number = LAST_NUMBER
    event = _end_event(ending, recovery, version)
    yield from add_events(tx, session, EventPlace(turn, turn.turn.epoch, number), [event])
    yield from _close(tx, turn, ending, folded, recovery, number)
    yield from end_delegates(tx, session, turn, ending.state, ending.failure, folded)
    if ahead.has_unknown:
        # Shown as far as this version knows it. A newer one folds it again; until then it is not pruned.
        yield q("turn_late", turn.no)  # guard: g04
    yield from _steering_to_queue(tx, session, turn)  # guard: a16
    if ending.state is TurnState.FAILED and ending.failure is not None:
        yield q("session_unread", session.no)
        yield from owe_for_end(tx, session, turn, ending.failure.message)  # guard: f10
    yield from refresh(tx, session)
    tx.probe.pass_by(Moment.END_WRITTEN, turn.id)
    tx.moments.append((Moment.END_COMMITTED, turn.id))
    return (yield from get_turn(turn.no)).turn


def end_for_deletion(tx: Tx, session: SessionRow) -> Script[None]:
    """End the running turn without folding it: the session is about to be deleted. Its worker is fenced by
    its next write."""
    yield from end_deleted_delegate(tx, session)
    if session.active_no is not None:
        yield q("steering_delete", session.active_no)
        yield q("turn_end", session.active_no, "cancelled", tx.now, None, None, None, "none")


def _close(
    tx: Tx,
    turn: TurnRow,
    ending: Ending,
    folded: Folded,
    recovery: Recovery,
    number: int,
) -> Script[None]:
    yield q(
        "turn_end",
        turn.no,
        ending.state.value,
        tx.now,
        to_json(ending.failure) if ending.failure else None,
        to_json(folded.usage),
        timeline_json(folded.timeline),
        recovery.value,
    )
    if number < LAST_NUMBER:
        yield q("writer_number", turn.no, turn.turn.epoch, number)
    yield q("asks_close_turn", turn.no, tx.now)  # guard: a12


def _end_event(ending: Ending, recovery: Recovery, version: int) -> ev.Payload:
    if ending.state is TurnState.CANCELLED:
        return ev.TurnCancelled(by=ending.by, version=version)
    reason = ending.failure or Failure("failed", "The turn failed.")
    if ending.state is TurnState.FAILED:
        return ev.TurnFailed(failure=reason, version=version)
    return ev.TurnInterrupted(failure=reason, recovery=recovery.value, version=version)


def _cancel_queued(tx: Tx, session: SessionRow, turn: TurnRow, *, by: str) -> Script[Turn]:
    """Cancel a turn that no worker has claimed. If it was about to run, its message stays in the transcript:
    its sender cannot know whether the claim or the cancel came first. One that waits behind others leaves."""
    following = None if session.active_no is not None else (yield from next_turn(session))
    joins = following is not None and following.no == turn.no and turn.turn.kind is TurnKind.MESSAGE
    ended = yield from end_queued(tx, session, turn, Ending(TurnState.CANCELLED, by=by), joins=joins)
    if joins:
        # A page that showed it as waiting reads again where it is now.
        yield from add_change_event(tx, session, "queue", session.session.version + 1, turn.id)
    return ended


def end_queued(
    tx: Tx, session: SessionRow, turn: TurnRow, ending: Ending, *, joins: bool = False
) -> Script[Turn]:
    """End a turn that never began. ``joins``: the transcript ends with it, with its message and its reason.
    Otherwise it is in no place of the tree, nor a sibling of those that are."""
    parent = turn.parent_no if turn.has_parent else session.head_no
    encoded = to_json(ending.failure) if ending.failure else None
    place = (parent, 1) if joins else (None, 0)
    yield q("turn_end_queued", turn.no, ending.state.value, tx.now, encoded, *place)
    yield from end_delegates(tx, session, turn, ending.state, ending.failure)
    if joins:
        if turn.has_parent:
            yield from claim_files(tx, session, turn)  # the files go with the head, as if it had been claimed
        yield from move_head(tx, session, turn.no)
    version = yield from bump(tx, session)
    event = _end_event(ending, Recovery.NONE, version)
    yield from add_events(tx, session, EventPlace(turn, 0, 1), [event])
    if ending.state is TurnState.FAILED and ending.failure is not None:
        yield q("session_unread", session.no)  # guard: f10
        yield from owe_for_end(tx, session, turn, ending.failure.message)  # guard: f10
    yield from refresh(tx, session)
    return (yield from get_turn(turn.no)).turn


def _steering_to_queue(tx: Tx, session: SessionRow, turn: TurnRow) -> Script[None]:
    """Queue steering messages that the turn has not taken as turns of their own."""
    waiting = yield from STEERING_OF_TURN.all(turn.no)
    for sent in waiting:
        parts = steering_parts(sent.text, sent.attachments)
        new = NewTurn(
            parts=parts,
            created_at=sent.created_at,
            model=turn.turn.model,
            profile=turn.turn.profile,
            parameters=turn.turn.parameters,
        )
        own, _ = yield from queue_turn(tx, session, new)
        yield q("inbox_follow", turn.no, sent.created_at, own.no)
    if waiting:
        yield q("steering_delete", turn.no)


def steering_parts(text: str, attachments: str) -> tuple[Text | Attachment, ...]:
    files = _attachments.decode(attachments)
    return (*((Text(text),) if text else ()), *files)


def queue_turn(tx: Tx, session: SessionRow, new: NewTurn) -> Script[tuple[TurnRow, int]]:
    """Insert a queued turn with the user's message and its event; return it and the position before."""
    places = yield from QUEUE_PLACES.only(session.no)
    place = places.lowest - 1 if new.is_first else places.highest + 1
    position = (yield from SESSION_BY_NO.only(session.no)).position
    turn_id = tx.ids.turn()
    turn_no = yield from TURN_INSERT.only(
        turn_id,
        session.owner,
        session.no,
        new.parent_no,
        int(new.has_parent),
        place,
        new.kind.value,
        new.model,
        new.profile,
        new.note,
        new.created_at,
        position + 1,
    )
    parameters = new.parameters or NO_PARAMETERS
    if not new.has_parent:  # one that is asked again keeps its own
        parameters = parameters.over(session.session.parameters)
    if not parameters.is_empty:
        yield q("turn_parameters", turn_no, parameters_json(parameters))
    turn = yield from get_turn(turn_no)
    message = Message(
        id=message_id(turn_id, 0),
        turn_id=turn_id,
        role=Role.USER,
        parts=tuple(new.parts),
        created_at=new.created_at,
        is_imported=new.is_imported,
    )
    if new.kind is TurnKind.MESSAGE:
        yield from add_messages(tx, session, turn.no, [message])
        yield from _owe_replies(tx, session, turn)  # guard: f06
    accepted = ev.TurnAccepted(
        message=message, place=0 if new.is_first else places.count, parameters=turn.turn.parameters
    )
    yield from add_events(tx, session, EventPlace(turn, 0, 0), [accepted])
    return turn, position


def _owe_replies(tx: Tx, session: SessionRow, turn: TurnRow) -> Script[None]:
    """Owe the reply to every chat whose current session this is, wherever the turn was asked for (F06)."""
    for chat_no in (yield from CHATS_OF_SESSION.all(session.id, session.owner)):
        yield q("outbox_owe", tx.ids.make("out"), chat_no, f"turn:{turn.id}", session.no, turn.no, tx.now)
