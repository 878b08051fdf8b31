"""G06: every worker serves every stream, and soon. The fleet drill prints the figure under load; here are the facts that it rests on:
a hint alone brings an event to another worker, one poll alone does, and losing either loses nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.store_values import Claim
from everturn.store import Store, StoreSettings
from everturn.store.postgres import database as database_module
from everturn.store.postgres import notifications as notifications_module
from everturn.store.postgres.notifications import POLL_S, ChangeNotifier
from everturn.store.scripts.script import Rows
from everturn.testing.acting import ME, append, new_session, start
from tests.conftest import OpenAnother
from tests.waiting import until

pytestmark = pytest.mark.anyio
_BOUND_S = 0.25
_NEVER_S = 3_600.0
_LISTENING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
)


@pytest.fixture(params=["postgresql"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_S", "POLL_LISTENING_S", "POLL_LISTS_S"):
        monkeypatch.setattr(notifications_module, name, _NEVER_S)


class Gate:
    """Lets polls of positions through one by one."""

    def __init__(self) -> None:
        self.waiting = 0
        self._places = anyio.Semaphore(0)

    async def pass_through(self) -> None:
        self.waiting += 1
        await self._places.acquire()
        self.waiting -= 1

    def let_one_through(self) -> None:
        self._places.release()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Of stores that are opened from now on."""
    gate = Gate()

    class GatedNotifier(ChangeNotifier):
        def __init__(self, hub: Any, rows: Callable[..., Awaitable[Rows]], *more: Any) -> None:
            async def gated(name: str, given: list[str]) -> Rows:
                if name == "positions":
                    await gate.pass_through()
                return await rows(name, given)

            super().__init__(hub, gated, *more)

    monkeypatch.setattr(database_module, "ChangeNotifier", GatedNotifier)
    return gate


class Words:
    """What a reader on one worker has read of a session, word by word."""

    def __init__(self, store: Store, session_id: str) -> None:
        self.positions: list[int] = []
        self.texts: list[str] = []
        self._store = store
        self._session_id = session_id

    async def read(self) -> None:
        async for batch in self._store.journal.follow(ME, self._session_id, 0):
            self.positions += [event.position for event in batch]
            self.texts += [event.payload.text for event in batch if isinstance(event.payload, ev.TextDelta)]

    async def heard(self, count: int) -> None:
        await until(f"{count} words are read", lambda: len(self.texts) == count)


async def listening(store_url: str, count: int) -> None:
    connection = await asyncpg.connect(store_url)
    try:

        async def enough() -> bool:
            return bool(await connection.fetchval(_LISTENING) >= count)

        await until(f"{count} stores listen", enough)
    finally:
        await connection.close()


async def speak(store: Store, held: Claim, words: list[str], number: int | None = None) -> int:
    return await append(store, held, [ev.TextDelta(1, word) for word in words], number)


async def test_g06_a_hint_alone_brings_each_event_to_the_reader_on_another_worker(
    store_url: str, open_another: OpenAnother, never_polls: None
) -> None:
    """No poll ever happens, and the writer speaks its next word only when the reader has the last one: so no
    word waited for anything but its hint. Other sessions are written meanwhile."""
    settings = StoreSettings(direct_url=store_url)
    writer, reader = [await open_another(settings=settings) for _ in range(2)]
    await listening(store_url, 2)
    session = await new_session(writer)
    held = await start(writer, session.id, "hello")
    others = [
        await start(writer, (await new_session(writer)).id, "also", worker=f"wrk_{n}") for n in range(5)
    ]
    words = Words(reader, session.id)
    async with anyio.create_task_group() as group:
        group.start_soon(words.read)
        await until("the reader has what was there", lambda: words.positions)
        number, numbers = held.number, [other.number for other in others]
        for nth in range(40):
            number = await speak(writer, held, [f"{nth} "], number)
            for index, other in enumerate(others):
                numbers[index] = await speak(writer, other, ["noise "], numbers[index])
            await words.heard(nth + 1)
        group.cancel_scope.cancel()
    assert words.texts == [f"{nth} " for nth in range(40)]
    assert words.positions == list(range(1, len(words.positions) + 1))


async def test_g06_one_poll_brings_it_where_a_pooler_allows_no_listening(
    open_another: OpenAnother, gate: Gate
) -> None:
    """The first poll that begins after an event is durable finds it; polls are less than half the bound apart."""
    assert POLL_S <= _BOUND_S / 2
    writer, reader = [await open_another() for _ in range(2)]
    session = await new_session(writer)
    held = await start(writer, session.id, "hello")
    words = Words(reader, session.id)
    async with anyio.create_task_group() as group:
        group.start_soon(words.read)
        await until("the reader has what was there", lambda: words.positions)
        number = held.number
        for nth in range(5):
            await until("the reader's worker is about to poll", lambda: gate.waiting == 1)
            number = await speak(writer, held, [f"{nth} "], number)
            gate.let_one_through()
            await words.heard(nth + 1)
        group.cancel_scope.cancel()
    assert words.texts == [f"{nth} " for nth in range(5)]


async def test_g06_a_reader_goes_on_by_polls_when_its_listening_connection_is_lost(
    store_url: str, open_another: OpenAnother, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications_module, "RECONNECT_S", _NEVER_S)
    writer = await open_another()
    reader = await open_another(settings=StoreSettings(direct_url=store_url))
    await listening(store_url, 1)
    session = await new_session(writer)
    held = await start(writer, session.id, "hello")
    words = Words(reader, session.id)
    async with anyio.create_task_group() as group:
        group.start_soon(words.read)
        await until("the reader has what was there", lambda: words.positions)
        admin = await asyncpg.connect(store_url)
        ended = await admin.fetchval(_LISTENING.replace("count(*)", "count(pg_terminate_backend(pid))"))
        await admin.close()
        assert ended == 1
        await speak(writer, held, ["still ", "here"])
        await until("both words are read", lambda: words.texts == ["still ", "here"])
        group.cancel_scope.cancel()


async def test_g06_a_writer_that_sends_no_hints_is_noticed_and_followed_by_polls(
    store_url: str, open_another: OpenAnother, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """A worker without a direct address, or whose own has broken, sends no hints. One that listens would find its
    events by its slow polls only, of which each is late."""
    monkeypatch.setattr(notifications_module, "POLL_LISTENING_S", 0.3)
    writer = await open_another()
    reader = await open_another(settings=StoreSettings(direct_url=store_url))
    await listening(store_url, 1)
    session = await new_session(writer)
    held = await start(writer, session.id, "hello")
    words = Words(reader, session.id)
    async with anyio.create_task_group() as group:
        group.start_soon(words.read)
        await until("the reader has what was there", lambda: words.positions)
        number = held.number
        for nth in range(3):  # slow polls find these; the first one only learns where the journal ends
            await until("the reader's worker is about to poll", lambda: gate.waiting == 1)
            number = await speak(writer, held, [f"{nth} "], number)
            gate.let_one_through()
            await words.heard(nth + 1)
        monkeypatch.setattr(notifications_module, "POLL_LISTENING_S", _NEVER_S)
        for nth in range(3, 6):
            await until("the reader's worker polls often now", lambda: gate.waiting == 1)
            number = await speak(writer, held, [f"{nth} "], number)
            gate.let_one_through()
            await words.heard(nth + 1)
        group.cancel_scope.cancel()
