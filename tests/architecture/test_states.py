"""The turn-state table of the domain, the one in the schema and the constraint that keeps it are one."""

from __future__ import annotations

import itertools

import apsw
import pytest

from everturn.domain.turns import ACTIVE, ENDED, MOVES, TurnState
from everturn.store import Store
from everturn.store.script import Script, Tx, q
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


@pytest.mark.parametrize(
    ("old", "new"), [pair for pair in itertools.product(TurnState, TurnState) if pair[0] is not pair[1]]
)
async def test_the_database_refuses_every_other_move(
    store: Store, store_url: str, old: TurnState, new: TurnState
) -> None:
    session = await new_session(store)
    insert = f"""INSERT INTO turns (id, owner, session_no, has_parent, kind, state, epoch, is_ready, created_at,
        ended_at, first_position) SELECT 'trn_x', 'local', session_no, 1, 'message', '{old}', 0, 0, 0,
        {"1" if old in ENDED else "NULL"}, 1 FROM sessions WHERE id = '{session.id}'"""
    update = (
        f"UPDATE turns SET state = '{new}', ended_at = {'1' if new in ENDED else 'NULL'} WHERE id = 'trn_x'"
    )
    is_refused = await _tries(store_url, insert, update)
    assert is_refused == (new not in MOVES[old])


async def test_a_session_has_at_most_one_active_turn(store: Store, store_url: str) -> None:
    session = await new_session(store)
    insert = """INSERT INTO turns (id, owner, session_no, has_parent, kind, state, epoch, is_ready, created_at,
        first_position) SELECT '{}', 'local', session_no, 1, 'message', '{}', 0, 0, 0, 1 FROM sessions"""
    first = insert.format("trn_x", "running") + f" WHERE id = '{session.id}'"
    second = insert.format("trn_y", "waiting") + f" WHERE id = '{session.id}'"
    assert await _tries(store_url, first, second)


async def _tries(url: str, prepare: str, attempt: str) -> bool:
    """Run both statements by hand, past the store; whether the database refused the second."""
    if url.startswith("sqlite://"):
        database = apsw.Connection(url.removeprefix("sqlite://"))
        try:
            database.execute(prepare)
            database.execute(attempt)
        except apsw.ConstraintError:
            return True
        finally:
            database.close()
        return False
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(prepare)
        await connection.execute(attempt)
    except asyncpg.PostgresError:
        return True
    finally:
        await connection.close()
    return False
