"""PostgreSQL reads what was committed when each statement began: what was decided before a lock was held
must be looked at again under it. In each test another transaction holds the lock at that very moment."""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Gone, WrongState
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission
from everturn.store import Store
from everturn.store.turns.workers import release
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import (
    ME,
    answer,
    append,
    claim,
    complete,
    late,
    new_session,
    say,
    start,
    words,
)
from tests.blobs import content_of
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def store_kind() -> str:
    """On SQLite there is one writer: nothing comes between two statements."""
    return "postgresql"


Between = Callable[[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]], Awaitable[None]]


@pytest.fixture
async def held(open_another: OpenAnother) -> tuple[Store, HoldingProbe]:
    """Another process's store, and the probe that holds it before a commit."""
    probe = HoldingProbe()
    return await open_another(probe=probe), probe


@pytest.fixture
async def server(store: Store, postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
def between(held: tuple[Store, HoldingProbe], server: asyncpg.Connection) -> Between:
    """Run ``first`` up to its commit, let ``second`` run into its lock, then let both go on."""

    async def run(first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]]) -> None:
        probe = held[1]
        probe.hold(Moment.BATCH_WRITTEN)
        async with anyio.create_task_group() as group:
            group.start_soon(first)  # type: ignore[arg-type]  # any awaitable will do
            await probe.reached(Moment.BATCH_WRITTEN)
            group.start_soon(second)  # type: ignore[arg-type]  # any awaitable will do
            with anyio.fail_after(60):
                while not await server.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    " AND datname = current_database()"
                ):
                    await anyio.lowlevel.checkpoint()
            probe.release(Moment.BATCH_WRITTEN)

    return run


async def test_c09_late_events_that_come_while_pruning_waits_keep_the_answer(
    store: Store, held: tuple[Store, HoldingProbe], between: Between, clock: FakeClock
) -> None:
    session = await new_session(store)
    first = await start(store, session.id, "hello")
    number = await append(store, first, [ev.StepStarted(1, "m"), ev.TextDelta(1, "first ")])
    await store.database.write(release, "wrk_one", "crash", False)
    second = await claim(store, "wrk_two")
    ended = await append(store, second, [ev.StepAbandoned(1, "crash"), *answer("the answer")])
    await complete(store, second, ended)
    await clock.advance(3 * DAY_MS / 1000)
    spooled = late(first, number + 1, [ev.TextDelta(1, "attempt")])
    await between(
        lambda: held[0].journal.deliver_late(first.turn.id, first.epoch, spooled),
        lambda: store.upkeep.prune(older_than_ms=DAY_MS),
    )
    await store.journal.recover(ME, session.id)
    assert await words(store, session.id) == ["hello", "the answer"]


async def test_a17_a_session_that_is_deleted_while_its_worker_is_taken_over_is_no_error(
    store: Store, held: tuple[Store, HoldingProbe], between: Between
) -> None:
    deleted, other = await new_session(store), await new_session(store)
    await start(store, deleted.id, "hello")
    kept = await start(store, other.id, "hello")
    await between(
        lambda: held[0].sessions.delete(ME, deleted.id),
        lambda: store.database.write(release, "wrk_one", "crash", True),
    )
    assert (await claim(store, "wrk_two")).turn.id == kept.turn.id
    with pytest.raises(Gone):
        await store.sessions.get(ME, deleted.id)


async def test_a01_an_old_upload_that_is_attached_while_unused_ones_are_swept_stays(
    store: Store, held: tuple[Store, HoldingProbe], between: Between, clock: FakeClock
) -> None:
    session = await new_session(store)
    file = await store.files.put(ME, "cat.txt", "text/plain", b"a cat")
    await clock.advance(3 * DAY_MS / 1000)
    submission = Submission(text="look", attachments=(file.id,))
    await between(
        lambda: held[0].turns.accept(ME, session.id, submission),
        store.files.sweep,
    )
    assert (await store.files.get(ME, file.id)).id == file.id
    assert await content_of(store, ME, file.id) == b"a cat"
    assert await store.files.sweep() == 0


async def test_a01_a_message_whose_old_upload_is_swept_first_is_refused_whole(
    store: Store, held: tuple[Store, HoldingProbe], between: Between, clock: FakeClock
) -> None:
    session = await new_session(store)
    file = await store.files.put(ME, "cat.txt", "text/plain", b"a cat")
    await clock.advance(3 * DAY_MS / 1000)

    async def attach() -> None:
        with pytest.raises(WrongState):
            await say(store, session.id, "look", attachments=(file.id,))

    await between(held[0].files.sweep, attach)
    assert await store.turns.queue(ME, session.id) == []


async def test_a17_a_reader_of_a_session_that_another_process_deletes_learns_of_it(
    store: Store, held: tuple[Store, HoldingProbe]
) -> None:
    """Without a direct address there are no hints: the look at the positions finds no row."""
    session = await new_session(store)
    await say(store, session.id, "hello")
    has_read, has_heard = anyio.Event(), anyio.Event()

    async def read() -> None:
        with pytest.raises(Gone):
            async for _ in store.journal.follow(ME, session.id, 0):
                has_read.set()
        has_heard.set()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await has_read.wait()
        for _ in range(5):
            await store.journal.after(ME, session.id, 0)  # by now the reader waits for news
        await held[0].sessions.delete(ME, session.id)
        with anyio.fail_after(60):
            await has_heard.wait()
