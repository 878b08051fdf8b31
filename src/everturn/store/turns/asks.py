"""Asks: approvals and questions, durable until they are answered."""

from __future__ import annotations

import msgspec

from everturn.domain import events as ev
from everturn.domain.asks import Ask, AskTopic, BudgetAnswer, Decision
from everturn.domain.errors import Gone, Invalid, NotFound, WrongState
from everturn.domain.probe import Moment
from everturn.domain.turns import Turn
from everturn.store.notices import owe_for_ask
from everturn.store.scripts.common import EventPlace, add_events, get_turn, lock_turn, refresh
from everturn.store.scripts.queries.turns import (
    ASK,
    ASKS_ANSWERED,
    ASKS_EXPIRED,
    ASKS_OPEN,
    ASKS_OPEN_OF_TURN,
    WRITER,
    ExpiredAsk,
)
from everturn.store.scripts.rows import ask_body, ask_of, with_edited
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.turns.held import lock_held_turn

ANSWER_BYTES_MAX = 64_000
ARGUMENTS_BYTES_MAX = 1_000_000


class Asks:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def open(self, owner: str, session_id: str | None = None) -> list[Ask]:
        return await self._db.read(_open, owner, session_id or "")

    async def list_answered(self, owner: str, *, since_ms: int, limit: int) -> list[Ask]:
        return await self._db.read(_list_answered, owner, since_ms, limit)

    async def get(self, owner: str, ask_id: str) -> Ask:
        return await self._db.read(_get, owner, ask_id)

    async def answer(
        self, owner: str, ask_id: str, answer: str, *, by: str, arguments: str | None = None
    ) -> Ask:
        if not answer.strip() or len(answer.encode()) > ANSWER_BYTES_MAX:
            raise Invalid("The answer is empty or too long.", hint=f"At most {ANSWER_BYTES_MAX} bytes.")
        if arguments is not None and len(arguments.encode("utf-8", "surrogatepass")) > ARGUMENTS_BYTES_MAX:
            raise Invalid("The arguments are too long.", hint=f"At most {ARGUMENTS_BYTES_MAX} bytes.")
        given = _GivenAnswer(answer, by, is_from_user=True, edited=arguments)
        return await self._db.write(_answer, owner, ask_id, given)

    async def resume(self, owner: str, ask_id: str) -> bool:
        given = _GivenAnswer(BudgetAnswer.RESUME, by="budget", is_from_user=False)
        try:
            await self._db.write(_answer, owner, ask_id, given)
        except (WrongState, NotFound, Gone):
            return False  # it was answered, or its session deleted
        return True

    async def expire(self, now_ms: int) -> int:
        count = 0
        for ask in await self._db.read(_list_expired, now_ms):
            try:
                given = _GivenAnswer("expired", by="expiry", is_from_user=False)
                await self._db.write(_answer, ask.owner, ask.id, given)
                count += 1
            except (WrongState, NotFound, Gone):
                continue  # it was answered, or its session deleted, since the read
        return count


def _open(tx: Tx, owner: str, session_id: str) -> Script[list[Ask]]:
    return [ask_of(row) for row in (yield from ASKS_OPEN.all(owner, session_id))]


def _list_answered(tx: Tx, owner: str, since_ms: int, limit: int) -> Script[list[Ask]]:
    return [ask_of(row) for row in (yield from ASKS_ANSWERED.all(owner, since_ms, limit))]


def _get(tx: Tx, owner: str, ask_id: str) -> Script[Ask]:
    row = yield from ASK.first(ask_id, owner)
    if row is None:
        raise NotFound("approval or question", ask_id)
    return ask_of(row)


def _list_expired(tx: Tx, now_ms: int) -> Script[list[ExpiredAsk]]:
    return (yield from ASKS_EXPIRED.all(now_ms))


class _GivenAnswer(msgspec.Struct, frozen=True):
    """``is_from_user``: only the offered answers are possible. ``edited``: changed arguments of the call."""

    answer: str
    by: str
    is_from_user: bool
    edited: str | None = None


def _answer(tx: Tx, owner: str, ask_id: str, given: _GivenAnswer) -> Script[Ask]:
    answer, by, edited = given.answer, given.by, given.edited
    asked = yield from _get(tx, owner, ask_id)
    if asked.topic == AskTopic.DELEGATE:  # guard: e09
        raise NotFound("approval or question", ask_id)  # no person answers it
    session, turn = yield from lock_turn(tx, asked.turn_id, owner)
    # Read again under the lock: two surfaces may answer at once, and the first one holds.
    ask = yield from _get(tx, owner, ask_id)
    if ask.answer is not None:
        if ask.answer == answer and ask.edited == edited:
            return ask
        raise WrongState(
            f"This was answered already, with {ask.answer[:80]!r}, by {ask.by}.",
            hint="Nothing more to do.",
            answer=ask.answer,
        )
    if given.is_from_user and ask.topic != AskTopic.QUESTION and ask.choices and answer not in ask.choices:
        # Only the model's own questions take any words. Elsewhere a word that was not offered would be taken
        # for one that was: it must decide nothing.
        offered = ", ".join(ask.choices)
        raise Invalid(f"{answer[:40]!r} is not offered here.", hint=f"Choose one of: {offered}.")
    if edited is not None:
        _refuse_edit(ask, answer)
        ask = msgspec.structs.replace(ask, edited=edited)
    row = yield from ASK.only(ask_id, owner)
    body = row.body if edited is None else with_edited(row.body, edited)
    yield q("ask_answer", ask_id, answer, by, tx.now, body)
    if ask.budget is not None and answer == BudgetAnswer.RAISE:
        yield q("budget_raise", ask.budget.budget_id, owner, ask.budget.offered)
    writer = yield from WRITER.first(turn.no, turn.turn.epoch)
    number = (writer.number if writer else 0) + 1
    yield from add_events(tx, session, EventPlace(turn, turn.turn.epoch, number), [_event(ask, answer, by)])
    yield q("writer_number", turn.no, turn.turn.epoch, number)
    still_open = yield from ASKS_OPEN_OF_TURN.only(turn.no)
    if still_open == 0 and turn.state == "waiting":
        yield q("turn_ready", turn.no, "answered", tx.now)
    yield from refresh(tx, session)
    tx.moments.append((Moment.ANSWER_COMMITTED, turn.id))
    return (yield from _get(tx, owner, ask_id))


def _refuse_edit(ask: Ask, answer: str) -> None:
    """A changed call is allowed once: what else was offered was offered for the call as it was asked."""
    if ask.topic != AskTopic.APPROVAL:
        raise WrongState(f"{ask.id} is a question: there are no arguments to change.")
    if answer != Decision.ONCE:
        raise Invalid("A changed call can only be allowed once.", hint="Decide once, or leave it unchanged.")


def _event(ask: Ask, answer: str, by: str) -> ev.Payload:
    if ask.topic == AskTopic.APPROVAL:
        return ev.ApprovalResolved(ask.id, ask.call_id or "", Decision(answer), by, ask.edited)
    return ev.QuestionAnswered(ask_id=ask.id, answer=answer, by=by, topic=ask.topic, call_id=ask.call_id)


class Waiting(msgspec.Struct, frozen=True):
    """What a turn waits for, with the events that show it."""

    asks: tuple[Ask, ...]
    payloads: tuple[ev.Payload, ...]
    worked_ms: int | None


def wait_for_asks(tx: Tx, turn_id: str, epoch: int, number: int, waiting: Waiting) -> Script[Turn]:
    asks, payloads = waiting.asks, waiting.payloads
    session, turn = yield from lock_held_turn(tx, turn_id, epoch, number - 1)
    if not asks:
        raise WrongState(f"Turn {turn_id} has nothing to wait for.")
    for ask in asks:
        yield q(
            "ask_insert",
            ask.id,
            session.owner,
            session.no,
            turn.no,
            ask.topic,
            ask.call_id,
            ask_body(ask),
            tx.now,
            ask.expires_at,
        )
        if ask.topic == AskTopic.DELEGATE:
            yield q("delegate_await", ask.text, ask.id)
        yield from owe_for_ask(tx, session, turn, ask)  # guard: f10
    event = ev.TurnWaiting(tuple(ask.id for ask in asks), waiting.worked_ms)
    yield from add_events(tx, session, EventPlace(turn, epoch, number), [*payloads, event])
    yield q("writer_number", turn.no, epoch, number + len(payloads))
    yield q("turn_wait", turn.no)
    yield q("writer_seal", turn.no, epoch)  # all it had to say is here: its count was checked
    yield from refresh(tx, session)
    return (yield from get_turn(turn.no)).turn
