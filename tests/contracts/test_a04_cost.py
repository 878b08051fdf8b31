"""A04: making progress durable costs what the new events cost, whatever the session's length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from everturn.domain import events as ev
from everturn.domain.ids import Ids, message_id
from everturn.domain.messages import Message, Role, Text
from everturn.domain.store_values import ImportedSession
from everturn.domain.turns import Turn, TurnState
from everturn.store import Store, open_store
from everturn.store.files.disk import Disk
from everturn.testing import FakeClock
from everturn.testing.acting import ME, append, complete, new_session, start
from everturn.testing.faulty_disk import FaultyVfs, Platter

pytestmark = pytest.mark.anyio
EVENTS = 50


async def long_session(store: Store, turns: int) -> str:
    """A session with so many turns of two messages."""
    session = await new_session(store)
    ids, parent = Ids(FakeClock()), None
    tree: list[Turn] = []
    messages: list[Message] = []
    for _ in range(turns):
        turn = Turn(ids.turn(), session.id, ME, TurnState.COMPLETED, 1, 1, parent_id=parent, ended_at=2)
        tree.append(turn)
        parent = turn.id
        for ordinal, role in enumerate((Role.USER, Role.ASSISTANT)):
            name = message_id(turn.id, ordinal)
            messages.append(Message(name, turn.id, role, (Text("some words " * 20),), 1, ordinal))
    asked = replace(session, head=parent)
    return (await store.transcript.import_session(ME, ImportedSession(asked, tree, messages))).id


async def cost_of_a_turn(store: Store, platter: Platter, session_id: str) -> tuple[int, int]:
    """(bytes written for its events, bytes written for its end)."""
    held = await start(store, session_id, "one more")
    begun = len(platter.log)
    number = held.number
    for count in range(EVENTS):
        number = await append(store, held, [ev.TextDelta(1, f"word {count} ")], number)
    streamed = len(platter.log)
    await complete(store, held, number)
    return _written(platter, begun, streamed), _written(platter, streamed, len(platter.log))


def _written(platter: Platter, start: int, end: int) -> int:
    return sum(len(operation.data) for operation in platter.log[start:end] if operation.kind == "write")


async def test_a04_one_more_turn_writes_as_much_in_a_long_session_as_in_a_short_one(tmp_path: Path) -> None:
    platter = Platter(tmp_path)
    vfs = FaultyVfs(platter)
    async with open_store(data_dir=tmp_path, disk=Disk(vfs.name)) as store:
        short, long = await long_session(store, 5), await long_session(store, 1500)
        await cost_of_a_turn(store, platter, short)  # the first one also fills caches
        few = await cost_of_a_turn(store, platter, short)
        many = await cost_of_a_turn(store, platter, long)
    vfs.unregister()
    assert many[0] <= few[0] * 1.05
    assert many[1] <= few[1] * 1.5


class Effort:
    """Counts the steps that SQLite's machine takes, on every connection opened while it is in place."""

    def __init__(self) -> None:
        self.steps = 0

    def watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._add, id=self)

    def _add(self, event: dict[str, Any]) -> None:
        self.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@pytest.fixture
def effort() -> Iterator[Effort]:
    counting = Effort()
    apsw.connection_hooks.append(counting.watch)
    yield counting
    apsw.connection_hooks.remove(counting.watch)


async def test_a04_one_more_turn_takes_as_many_steps_in_a_long_session_as_in_a_short_one(
    tmp_path: Path, effort: Effort
) -> None:
    async def steps_of_a_turn(session_id: str) -> int:
        before = effort.steps
        held = await start(store, session_id, "one more")
        number = await append(store, held, [ev.TextDelta(1, "a word")])
        await store.journal.after(ME, session_id, held.session.position)
        await complete(store, held, number)
        await store.sessions.list(ME)
        await store.transcript.messages(ME, session_id, limit=4)
        return effort.steps - before

    async with open_store(data_dir=tmp_path) as store:
        short, long = await long_session(store, 5), await long_session(store, 1500)
        await steps_of_a_turn(short)
        assert await steps_of_a_turn(long) <= await steps_of_a_turn(short) * 1.05
