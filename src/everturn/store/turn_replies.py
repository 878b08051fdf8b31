"""Where the answers of turns were delivered: for pages of messages, and for the journals of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from everturn.domain.delivery import OPEN, PartState
from everturn.domain.errors import Gone, NotFound
from everturn.domain.events import Payload, ReplySent, ReplyUnknown
from everturn.domain.notifications import NoticeKind
from everturn.domain.replies import ReplyDelivery, ReplyState
from everturn.store.notices import NoticeCause, owe_notices
from everturn.store.scripts.common import OF_SESSION, add_events, lock_session
from everturn.store.scripts.queries.delivery import (
    REPLIES_OF_PARTS,
    REPLIES_OF_TURNS,
    TURN_NUMBERS_BY_ID,
    ReplyPartColumns,
)
from everturn.store.scripts.rows import SessionRow
from everturn.store.scripts.script import Script, Tx, encode_list

REMOVED_MARK = "~"  # in the account's name in rows of an account that was removed; no account can have it


def replies_of_turns(turn_ids: Iterable[str]) -> Script[dict[str, tuple[ReplyDelivery, ...]]]:
    """By turn, one for each chat that the answer goes to; turns without one are not in it."""
    rows = yield from REPLIES_OF_TURNS.all(encode_list(turn_ids))
    found: dict[str, tuple[ReplyDelivery, ...]] = {}
    for (turn_id, _), parts in groupby(rows, lambda row: (row.turn_id, row.chat_id)):
        found[turn_id] = (*found.get(turn_id, ()), _delivery_of(list(parts)))
    return found


class LockedReply(NamedTuple):
    """A reply whose session is locked in this transaction."""

    session: SessionRow
    turn_id: str
    chat_id: str


def lock_replies(tx: Tx, part_ids: Sequence[str]) -> Script[list[LockedReply]]:
    """Lock the sessions of the replies that these parts belong to, always in the same order.

    Call it before the parts are changed: purging a session locks the session first as well.
    """
    locked = []
    for reply in (yield from REPLIES_OF_PARTS.all(encode_list(part_ids))):
        try:
            session = yield from lock_session(tx, reply.owner, reply.session_id)
        except (Gone, NotFound):
            continue  # it was purged between the two statements, with its replies
        locked.append(LockedReply(session, reply.turn_id, reply.chat_id))
    return locked


def note_sent(tx: Tx, replies: Sequence[LockedReply]) -> Script[None]:
    """Tell the sessions of those replies whose parts have all arrived."""
    for reply in replies:
        delivery = yield from _find(reply)
        if delivery is not None and delivery.state is ReplyState.SENT:
            yield from _tell(tx, reply, ReplySent(reply.turn_id, delivery))


def note_trouble(tx: Tx, replies: Sequence[LockedReply]) -> Script[None]:
    """Tell the sessions of those replies that a person has to decide about."""
    for reply in replies:
        delivery = yield from _find(reply)
        if delivery is not None and delivery.state in (ReplyState.UNKNOWN, ReplyState.UNDELIVERED):
            yield from _tell(tx, reply, ReplyUnknown(reply.turn_id, delivery))
            yield from _notify(tx, reply, delivery)


def _find(reply: LockedReply) -> Script[ReplyDelivery | None]:
    found = (yield from replies_of_turns([reply.turn_id])).get(reply.turn_id, ())
    return next((delivery for delivery in found if delivery.chat_id == reply.chat_id), None)


def _tell(tx: Tx, reply: LockedReply, event: Payload) -> Script[None]:
    yield from add_events(tx, reply.session, OF_SESSION, [event], is_activity=False)
    tx.touch(reply.session.owner, reply.turn_id)  # its owner may have to decide, or no longer


def _notify(tx: Tx, reply: LockedReply, delivery: ReplyDelivery) -> Script[None]:
    turn = yield from TURN_NUMBERS_BY_ID.first(reply.turn_id)
    if turn is not None:
        words = f"{delivery.account}\n{delivery.error}"
        cause = NoticeCause(NoticeKind.DELIVERY, reply.turn_id, turn.session_no, turn.turn_no, words)
        yield from owe_notices(tx, reply.session.owner, cause)  # guard: f10


def _delivery_of(parts: Sequence[ReplyPartColumns]) -> ReplyDelivery:
    states = {part.state for part in parts}
    if PartState.HELD in states:
        state = ReplyState.UNKNOWN
    elif PartState.UNDELIVERED in states:
        state = ReplyState.UNDELIVERED
    else:
        state = ReplyState.WAITING if states & OPEN else ReplyState.SENT
    first = parts[0]
    account, removed, _ = first.account.partition(REMOVED_MARK)
    undecided = [part for part in parts if part.state in (PartState.HELD, PartState.UNDELIVERED)]
    return ReplyDelivery(
        chat_id=first.chat_id,
        account=account,
        platform=first.platform,
        title=first.title,
        state=state,
        at=max(part.changed_at for part in parts),
        is_repeat=any(part.is_repeat for part in parts),
        parts=() if removed else tuple(part.part_id for part in undecided),
        error=next((part.error for part in undecided if part.error), ""),
    )
