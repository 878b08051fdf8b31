"""The tables of states in the domain, those in the schema and the constraints that keep them are one."""

from __future__ import annotations

import itertools

import apsw
import asyncpg
import pytest

from everturn.domain.delivery import INBOX_MOVES, OPEN, PART_MOVES, InboxState, PartState
from everturn.domain.notifications import NOTICE_MOVES, NoticeState
from everturn.domain.turns import ACTIVE, ENDED, MOVES, TurnState
from everturn.store import Store
from everturn.store.scripts.script import Script, Tx, q
from everturn.testing.acting import new_session

pytestmark = pytest.mark.anyio


def _moves(tx: Tx) -> Script[set[tuple[str, str]]]:
    return {(row[0], row[1]) for row in (yield q("moves"))}


async def test_the_schema_repeats_the_table_of_the_domain(store: Store) -> None:
    ours = {(old.value, new.value) for old, news in MOVES.items() for new in news}
    assert await store.database.read(_moves) == ours


def test_every_state_is_in_the_table_and_either_ended_active_or_queued() -> None:
    assert set(MOVES) == set(TurnState)
    assert ENDED | ACTIVE | {TurnState.QUEUED} == set(TurnState)
    assert not ENDED & ACTIVE
    assert {state for state in TurnState if not MOVES[state]} < ENDED


async def test_the_database_refuses_every_other_move(store: Store, store_url: str) -> None:
    session = await new_session(store)
    refused = set()
    for old, new in itertools.permutations(TurnState, 2):
        ended_at = "1" if new in ENDED else "NULL"
        change = f"UPDATE turns SET state = '{new}', ended_at = {ended_at} WHERE id = 'trn_x'"
        if await _is_refused(store_url, [_insert("trn_x", session.id, old), change]):
            refused.add((old, new))
    assert refused == {pair for pair in itertools.permutations(TurnState, 2) if pair[1] not in MOVES[pair[0]]}


async def test_a_session_has_at_most_one_active_turn(store: Store, store_url: str) -> None:
    session = await new_session(store)
    for one, two in itertools.product(ACTIVE, ACTIVE):
        both = [_insert("trn_x", session.id, one), _insert("trn_y", session.id, two)]
        assert await _is_refused(store_url, both)


async def test_the_database_refuses_every_other_move_of_an_inbox_row(store: Store, store_url: str) -> None:
    refused = set()
    for old, new in itertools.permutations(InboxState, 2):
        if await _is_refused(store_url, [_CHAT, _insert_inbox(old), f"UPDATE inbox SET {_inbox_facts(new)}"]):
            refused.add((old, new))
    pairs = itertools.permutations(InboxState, 2)
    assert refused == {(old, new) for old, new in pairs if new not in INBOX_MOVES[old]}


async def test_the_database_refuses_every_other_move_of_a_part(store: Store, store_url: str) -> None:
    refused = set()
    for old, new in itertools.permutations(PartState, 2):
        change = f"UPDATE outbox_parts SET state = '{new}'"
        if await _is_refused(store_url, [_CHAT, _MESSAGE, _insert_part(0, old), change]):
            refused.add((old, new))
    pairs = itertools.permutations(PartState, 2)
    assert refused == {(old, new) for old, new in pairs if new not in PART_MOVES[old]}


async def test_the_database_refuses_every_other_move_of_a_notification(store: Store, store_url: str) -> None:
    refused = set()
    for old, new in itertools.permutations(NoticeState, 2):
        change = f"UPDATE notifications SET state = '{new}'"
        if await _is_refused(store_url, [_CHAT, _MESSAGE, _DEVICE, _insert_notice(old), change]):
            refused.add((old, new))
    pairs = itertools.permutations(NoticeState, 2)
    assert refused == {(old, new) for old, new in pairs if new not in NOTICE_MOVES[old]}


async def test_a_chat_has_at_most_one_part_that_is_being_sent(store: Store, store_url: str) -> None:
    sending = _insert_part(0, PartState.SENDING)
    assert await _is_refused(store_url, [_CHAT, _MESSAGE, sending, _insert_part(1, PartState.SENDING)])
    for other in set(PartState) - {PartState.SENDING}:
        assert not await _is_refused(store_url, [_CHAT, _MESSAGE, sending, _insert_part(1, other)])


def test_every_state_of_delivery_is_in_its_table() -> None:
    assert set(INBOX_MOVES) == set(InboxState)
    assert set(PART_MOVES) == set(PartState)
    assert {state for state in PartState if not PART_MOVES[state]} == {PartState.SENT}
    assert PartState.SENT not in OPEN


_CHAT = """
    INSERT INTO chats (chat_no, id, owner, account, platform, kind, chat, thread, profile, title, created_at)
    VALUES (1, 'cht_x', 'local', 'main', 'telegram', 'dm', '42', '', 'default', '', 0)"""
_MESSAGE = """
    INSERT INTO outbox (outbox_no, id, chat_no, account, key, created_at) VALUES (1, 'out_x', 1, 'main', 'k', 0)"""


_DEVICE = """
    INSERT INTO push_subscriptions (device_no, id, owner, kind, name, kinds, address, has_buttons, mark, chat_no, created_at)
    VALUES (1, 'dev_x', 'local', 'webhook', '', '', '{}', 0, 'm', 1, 0)"""


def _inbox_facts(state: InboxState) -> str:
    settled_at = "NULL" if state is InboxState.RECEIVED else "1"
    refusal = "'{}'" if state is InboxState.REFUSED else "NULL"
    return f"state = '{state}', settled_at = {settled_at}, refusal = {refusal}"


def _insert_inbox(state: InboxState) -> str:
    settled_at = "NULL" if state is InboxState.RECEIVED else "1"
    refusal = "'{}'" if state is InboxState.REFUSED else "NULL"
    return f"""
        INSERT INTO inbox (id, account, update_id, chat_no, state, received_at, settled_at, is_late, body, refusal)
        VALUES ('inb_x', 'main', 'u1', 1, '{state}', 0, {settled_at}, 0, '', {refusal})"""


def _insert_part(number: int, state: PartState) -> str:
    return f"""
        INSERT INTO outbox_parts (id, outbox_no, chat_no, account, number, state, body, next_at, give_up_at, changed_at)
        VALUES ('prt_{number}', 1, 1, 'main', {number}, '{state}', '{{}}', 0, 0, 0)"""


def _insert_notice(state: NoticeState) -> str:
    return f"""
        INSERT INTO notifications (id, outbox_no, device_no, kind, cause, words, state, created_at, due_at)
        VALUES ('not_x', 1, 1, 'job', 'job_x', '{{}}', '{state}', 0, 0)"""


def _insert(turn_id: str, session_id: str, state: TurnState) -> str:
    ended_at = "1" if state in ENDED else "NULL"
    return f"""
        INSERT INTO turns (id, owner, session_no, has_parent, kind, state, epoch, is_ready, created_at,
          ended_at, first_position)
        SELECT '{turn_id}', 'local', session_no, 1, 'message', '{state}', 0, 0, 0, {ended_at}, 1
        FROM sessions WHERE id = '{session_id}'"""


async def _is_refused(url: str, statements: list[str]) -> bool:
    """Run the statements by hand, past the store, and take them back; whether the last was refused."""
    if url.startswith("sqlite://"):
        database = apsw.Connection(url.removeprefix("sqlite://"))
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements[:-1]:
                database.execute(statement)
            database.execute(statements[-1])
        except apsw.ConstraintError:
            return True
        finally:
            database.execute("ROLLBACK")
            database.close()
        return False
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        await connection.execute(statements[-1])
    except asyncpg.PostgresError:
        return True
    finally:
        await transaction.rollback()
        await connection.close()
    return False
