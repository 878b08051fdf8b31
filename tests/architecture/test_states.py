"""The turn-state table of the domain, the one in the schema and the constraint that keeps it are one."""

from __future__ import annotations

import itertools

import apsw
import asyncpg
import pytest

from everturn.domain.turns import ACTIVE, ENDED, MOVES, TurnState
from everturn.store import Store
from everturn.store.scripts.script import Script, Tx, q
from tests.acting import new_session

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
