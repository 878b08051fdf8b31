"""The outbox: parts are claimed before they are sent, and each has a stated fate (F03)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from everturn.domain.delivery import (
    AccountLease,
    AnswerDue,
    AskDue,
    NewPart,
    OutgoingPart,
    PartState,
    PartStatus,
    ReplyDue,
    ReplyUnderway,
    WhenUnknown,
    excerpt_of,
    next_after_unknown,
)
from everturn.domain.errors import NotFound, WrongState
from everturn.store.delivery import live, questions, replies
from everturn.store.delivery.chats import chat_of
from everturn.store.delivery.leases import lock_lease
from everturn.store.delivery.questions import status_of
from everturn.store.scripts.common import find_turn
from everturn.store.scripts.queries.delivery import (
    PART,
    PART_OUTGOING,
    PARTS_CLAIMABLE,
    PARTS_EXPIRED,
    PARTS_FOR_PEOPLE,
    PARTS_OF_TURN,
    PARTS_SENDING,
    PARTS_UNKNOWN,
    OutgoingColumns,
)
from everturn.store.scripts.rows import to_json
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.turn_replies import lock_replies, note_sent, note_trouble

FOR_PEOPLE_MAX = 200
AGAIN_MS = 24 * 3600 * 1000  # how long to try a part that a person sends again
AGAIN_PAUSE_MAX_MS = 300_000
ERROR_CHARS_MAX = 500
_NEVER_SENT = "The database did not say that it could be sent."
_TOO_OLD = "It could not be sent in time."
_part = msgspec.json.Decoder(NewPart)


class Outbox:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def replies_due(self, account: str, *, limit: int) -> list[ReplyDue]:
        return await self._db.read(replies.replies_due, account, limit)

    async def record_reply(self, due: ReplyDue, parts: Sequence[NewPart], *, age_max_ms: int) -> bool:
        return await self._db.write(replies.record_reply, due, parts, age_max_ms)

    async def is_asked_here(self, owner: str, chat_id: str, turn_id: str) -> bool:
        return await self._db.read(replies.is_asked_here, owner, chat_id, turn_id)

    async def asks_due(self, account: str, *, limit: int) -> list[AskDue]:
        return await self._db.read(questions.asks_due, account, limit)

    async def record_question(
        self, due: AskDue, parts: Sequence[NewPart], *, age_max_ms: int, words: Sequence[NewPart] = ()
    ) -> bool:
        return await self._db.write(questions.record_question, due, parts, age_max_ms, words)

    async def answers_due(self, account: str, *, limit: int) -> list[AnswerDue]:
        return await self._db.read(questions.answers_due, account, limit)

    async def record_answer(self, due: AnswerDue, parts: Sequence[NewPart], *, age_max_ms: int) -> bool:
        return await self._db.write(questions.record_answer, due, parts, age_max_ms)

    async def replies_underway(self, account: str, *, limit: int) -> list[ReplyUnderway]:
        return await self._db.read(live.replies_underway, account, limit)

    async def is_underway(self, lease: AccountLease, underway: ReplyUnderway) -> bool:
        return await self._db.read(live.is_underway, lease, underway)

    async def put_live(self, underway: ReplyUnderway, part: NewPart, *, age_max_ms: int) -> bool:
        return await self._db.write(live.put_live, underway, part, age_max_ms)

    async def find(self, owner: str, chat_id: str, key: str) -> list[PartStatus]:
        return await self._db.read(questions.find_parts, owner, chat_id, key)

    async def put(
        self, owner: str, chat_id: str, key: str, parts: Sequence[NewPart], *, age_max_ms: int
    ) -> bool:
        return await self._db.write(replies.put_message, owner, chat_id, key, parts, age_max_ms)

    async def claim(self, lease: AccountLease, *, limit: int) -> list[OutgoingPart]:
        # Looking first costs no write transaction when there is nothing to send (A03).
        if not await self._db.read(_has_work, lease.account):
            return []
        return await self._db.write(_claim, lease, limit)

    async def mark_sent(
        self, lease: AccountLease, part_id: str, external_id: str, *, spacing_ms: int = 0
    ) -> None:
        await self._db.write(_mark_sent, lease, part_id, external_id, spacing_ms)

    async def put_back(self, lease: AccountLease, part_id: str, error: str, *, retry_at: int) -> None:
        await self._db.write(_not_sent, lease, part_id, PartState.WAITING, error, retry_at)

    async def put_back_unsent(self, lease: AccountLease, sending: Collection[str]) -> int:
        return await self._db.write(_put_back_unsent, lease, frozenset(sending))

    async def mark_unknown(self, lease: AccountLease, part_id: str, error: str) -> None:
        await self._db.write(_not_sent, lease, part_id, PartState.UNKNOWN, error, 0)

    async def give_up(self, lease: AccountLease, part_id: str, error: str) -> None:
        await self._db.write(_not_sent, lease, part_id, PartState.UNDELIVERED, error, 0)

    async def send_as_new(self, lease: AccountLease, part: OutgoingPart) -> None:
        await self._db.write(_send_as_new, lease, part)

    async def settle_unknown(self, lease: AccountLease, policy: WhenUnknown) -> int:
        if not await self._db.read(_has_unknown, lease.account):
            return 0
        return await self._db.write(_settle_unknown, lease, policy)

    async def send_again(self, owner: str, part_id: str) -> PartStatus:
        return await self._db.write(_send_again, owner, part_id)

    async def confirm_arrived(self, owner: str, part_id: str) -> PartStatus:
        return await self._db.write(_confirm_arrived, owner, part_id)

    async def of_turn(self, owner: str, turn_id: str) -> list[PartStatus]:
        return await self._db.read(_of_turn, owner, turn_id)

    async def list_undecided(self, owner: str) -> list[PartStatus]:
        return await self._db.read(_list_undecided, owner)


# --- the sender ---------------------------------------------------------------------------------------


def _has_work(tx: Tx, account: str) -> Script[bool]:
    """Whether a part can be claimed, or is too old and waits to be given up."""
    if (yield q("parts_aged", account, tx.now)):
        return True
    return bool((yield from PARTS_CLAIMABLE.all(account, tx.now, 1)))


def _claim(tx: Tx, lease: AccountLease, limit: int) -> Script[list[OutgoingPart]]:
    yield from lock_lease(tx, lease)
    yield from _expire(tx, lease.account)
    claimed = []
    for part_no in (yield from PARTS_CLAIMABLE.all(lease.account, tx.now, limit)):
        yield q("part_claim", part_no, lease.epoch, tx.now)
        claimed.append(_to_outgoing((yield from PART_OUTGOING.only(part_no))))
    return claimed


def _expire(tx: Tx, account: str) -> Script[None]:
    """Give up the parts that are too old."""
    expired = yield from PARTS_EXPIRED.all(account, tx.now)
    if expired:
        replies = yield from lock_replies(tx, expired)
        yield q("parts_expire", account, tx.now, _TOO_OLD)
        yield from note_trouble(tx, replies)


def _mark_sent(tx: Tx, lease: AccountLease, part_id: str, external_id: str, spacing_ms: int) -> Script[None]:
    yield from lock_lease(tx, lease)
    replies = yield from lock_replies(tx, [part_id])
    if spacing_ms:
        yield q("parts_space", part_id, tx.now + spacing_ms)
    # It has no row any more if its session was purged meanwhile.
    if (yield q("part_sent", part_id, lease.epoch, external_id, tx.now)):
        yield from note_sent(tx, replies)


def _not_sent(
    tx: Tx, lease: AccountLease, part_id: str, state: PartState, error: str, retry_at: int
) -> Script[None]:
    yield from lock_lease(tx, lease)
    is_final = state is PartState.UNDELIVERED
    replies = (yield from lock_replies(tx, [part_id])) if is_final else []
    yield q("part_not_sent", part_id, lease.epoch, state.value, error[:ERROR_CHARS_MAX], retry_at, tx.now)
    yield from note_trouble(tx, replies)


def _put_back_unsent(tx: Tx, lease: AccountLease, sending: frozenset[str]) -> Script[int]:
    yield from lock_lease(tx, lease)
    found = set((yield from PARTS_SENDING.all(lease.account, lease.epoch))) - sending
    for part_id in sorted(found):
        state = PartState.WAITING.value
        yield q("part_not_sent", part_id, lease.epoch, state, _NEVER_SENT, tx.now, tx.now)
    return len(found)


def _send_as_new(tx: Tx, lease: AccountLease, part: OutgoingPart) -> Script[None]:
    yield from lock_lease(tx, lease)
    body = to_json(msgspec.structs.replace(part.body, replaces=""))
    yield q("part_send_as_new", part.id, lease.epoch, body, tx.now)


def _has_unknown(tx: Tx, account: str) -> Script[bool]:
    return bool((yield from PARTS_UNKNOWN.all(account)))


def _settle_unknown(tx: Tx, lease: AccountLease, policy: WhenUnknown) -> Script[int]:
    yield from lock_lease(tx, lease)
    found = yield from PARTS_UNKNOWN.all(lease.account)
    replies = yield from lock_replies(tx, [part.id for part in found])
    for part in found:
        is_edit = bool(_part.decode(part.body).replaces)
        rule = WhenUnknown.RESEND if is_edit else policy
        if part.is_live and rule is WhenUnknown.REPEAT:
            rule = WhenUnknown.HOLD  # a second line would say nothing new
        state, is_repeat = next_after_unknown(rule, is_repeat=bool(part.is_repeat))
        next_at = tx.now + _pause_ms(part.attempts)
        yield q("part_settle", part.part_no, state.value, int(is_repeat), next_at, tx.now)
    yield from note_trouble(tx, replies)
    return len(found)


def _pause_ms(attempts: int) -> int:
    """How long an unknown part waits: it is repeated at once and, if that fails too, less and less often."""
    return 0 if attempts < 2 else min(AGAIN_PAUSE_MAX_MS, 1_000 * 2 ** min(attempts - 2, 30))


# --- people -------------------------------------------------------------------------------------------


def _send_again(tx: Tx, owner: str, part_id: str) -> Script[PartStatus]:
    part = yield from _get(owner, part_id)
    if part.state not in (PartState.HELD, PartState.UNDELIVERED):
        raise WrongState(f"Part {part_id} is {part.state}.", hint="Only a held or undelivered part can be.")
    is_repeat = part.is_repeat or part.state is PartState.HELD
    yield q("part_again", part_id, int(is_repeat), tx.now, tx.now + AGAIN_MS, part.state.value)
    return (yield from _get(owner, part_id))


def _confirm_arrived(tx: Tx, owner: str, part_id: str) -> Script[PartStatus]:
    part = yield from _get(owner, part_id)
    if part.state is not PartState.HELD:
        raise WrongState(f"Part {part_id} is {part.state}.", hint="Only a held part can be confirmed.")
    replies = yield from lock_replies(tx, [part_id])
    if (yield q("part_arrived", part_id, tx.now)):
        yield from note_sent(tx, replies)
    return (yield from _get(owner, part_id))


def _get(owner: str, part_id: str) -> Script[PartStatus]:
    row = yield from PART.first(part_id, owner)
    if row is None:
        raise NotFound("part", part_id)
    return status_of(row)


def _of_turn(tx: Tx, owner: str, turn_id: str) -> Script[list[PartStatus]]:
    turn = yield from find_turn(turn_id)
    if turn is None or turn.turn.owner != owner:
        raise NotFound("turn", turn_id)
    return [status_of(row) for row in (yield from PARTS_OF_TURN.all(turn.no))]


def _list_undecided(tx: Tx, owner: str) -> Script[list[PartStatus]]:
    rows = yield from PARTS_FOR_PEOPLE.all(owner, FOR_PEOPLE_MAX)
    return [msgspec.structs.replace(status_of(row), excerpt=_excerpt(row.body)) for row in rows]


def _excerpt(body: str) -> str:
    return excerpt_of(_part.decode(body)) if body else ""


def _to_outgoing(row: OutgoingColumns) -> OutgoingPart:
    return OutgoingPart(
        id=row.part_id,
        chat=chat_of(row),
        body=_part.decode(row.body),
        number=row.number,
        attempts=row.attempts,
        is_repeat=bool(row.is_repeat),
        give_up_at=row.give_up_at,
        turn_id=row.turn_id,
    )
