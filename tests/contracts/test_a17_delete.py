"""A17: deleting a session ends its turn first; nothing of it reappears or stays behind."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import apsw
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import EverturnError, Gone, NotFound
from everturn.domain.probe import Moment
from everturn.domain.sessions import NewSession
from everturn.domain.store_values import Submission
from everturn.store import Store, open_store
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, answered, append, ask, late, new_session, say, start, wish
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio
SECRET = "xyzzyplugh"


async def rows_naming(url: str, word: str) -> list[str]:
    """Every table that still holds the word in any of its rows."""
    if url.startswith("sqlite://"):
        database = apsw.Connection(url.removeprefix("sqlite://"))
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = []
        for name in names:
            rows = database.execute(f'SELECT * FROM "{name}"').fetchall()
            if word.encode() in b" ".join(repr(row).encode() for row in rows):
                found.append(name)
        database.close()
        return found
    connection = await asyncpg.connect(url)
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    found = []
    for (name,) in await connection.fetch(query):
        rows = await connection.fetch(f'SELECT * FROM "{name}"')
        if word in " ".join(repr(tuple(row)) for row in rows):
            found.append(name)
    await connection.close()
    return found


async def full_session(store: Store) -> str:
    """A session that has left something everywhere."""
    session = await store.sessions.create(ME, NewSession(title=SECRET, key=SECRET))
    await answered(store, session.id, f"about {SECRET}", f"{SECRET} indeed")
    await store.search.index()
    held = await start(store, session.id, f"more {SECRET}")
    number = await append(store, held, [*wish(), ev.TextDelta(1, SECRET)])
    await say(store, session.id, f"queued {SECRET}", key=SECRET)
    await say(store, session.id, f"steered {SECRET}", when_busy="steer")
    question = ask(f"ask_{SECRET}", held.turn.id, session.id, label=SECRET)
    await store.turns.wait(held.turn.id, held.epoch, number + 1, [question], [])
    return session.id


async def test_a17_nothing_of_a_deleted_session_is_left_in_any_table(store: Store, store_url: str) -> None:
    session_id = await full_session(store)
    assert await rows_naming(store_url, SECRET) != []
    await store.sessions.delete(ME, session_id)
    assert await rows_naming(store_url, SECRET) == []
    assert await store.upkeep.check() == []
    assert await store.search.find(ME, SECRET) == []
    assert (await store.sessions.list(ME)).items == ()


async def test_a17_a_batch_on_its_way_to_a_session_being_deleted_leaves_nothing(
    store: Store, store_url: str, probe: HoldingProbe, held_up: HeldUp
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    outcomes: list[str] = []

    async def write() -> None:
        try:
            await append(store, held, [ev.TextDelta(1, SECRET)])
            outcomes.append("written")
        except EverturnError as error:
            outcomes.append(error.code)

    probe.hold(Moment.BATCH_WRITTEN)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await probe.reached(Moment.BATCH_WRITTEN)
            await held_up.start(group, store, store.sessions.delete, ME, session.id)
            await held_up.start(group, store, write)
            probe.release(Moment.BATCH_WRITTEN)
    assert set(outcomes) <= {"written", "not_found", "fenced", "deleted"}
    assert outcomes.count("written") <= 1 or outcomes == ["written", "written"]
    with pytest.raises(Gone):
        await store.sessions.get(ME, session.id)
    assert await rows_naming(store_url, SECRET) == []


async def test_a17_everything_that_comes_late_is_refused(store: Store, store_url: str) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.sessions.delete(ME, session.id)
    for act in (
        store.journal.append(held.turn.id, held.epoch, 2, [ev.TextDelta(1, SECRET)]),
        store.journal.deliver_late(held.turn.id, held.epoch, late(held, 2, [ev.TextDelta(1, SECRET)])),
        store.turns.cancel(ME, held.turn.id),
        store.turns.hand_over(held.turn.id, held.epoch),
        store.turns.resume(ME, held.turn.id),
    ):
        with pytest.raises(NotFound):
            await act
    for refused in (
        store.turns.accept(ME, session.id, Submission(text=SECRET)),
        store.sessions.delete(ME, session.id),
        store.journal.after(ME, session.id, 0),
        store.journal.recover(ME, session.id),
    ):
        with pytest.raises(Gone):
            await refused
    assert await rows_naming(store_url, SECRET) == []


async def test_a17_the_files_of_the_database_keep_nothing_of_a_deleted_session(data_dir: Path) -> None:
    """Neither its free pages nor its log. PostgreSQL's own files are its administrator's."""
    async with open_store(data_dir=data_dir) as store:
        session = await new_session(store, SECRET)
        await answered(store, session.id, f"{SECRET} " * 2000, f"{SECRET} " * 2000)
        await store.search.index()
        database = apsw.Connection(str(data_dir / "everturn.db"))
        database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        database.close()
        other = await new_session(store)
        await answered(store, other.id, "hello", "Hi.")
        assert SECRET.encode() in (data_dir / "everturn.db").read_bytes()
        assert SECRET.encode() in (data_dir / "everturn.db-wal").read_bytes()
        await store.sessions.delete(ME, session.id)
        with anyio.fail_after(60):
            while any(SECRET.encode() in path.read_bytes() for path in data_dir.glob("everturn.db*")):
                await anyio.lowlevel.checkpoint()
        assert (await store.sessions.get(ME, other.id)).messages == 2
