"""Plug-ins are found by entry point, and their slowness and faults stay theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from everturn.domain.errors import NotFound
from everturn.domain.ids import Ids
from everturn.domain.runtime import Runtime
from everturn.memory import CommitOutcome, Memory, MemorySettings, Providers
from everturn.memory.provider_monitor import ProviderFailed, ProviderMonitor
from everturn.memory.threaded_provider import ThreadedProvider
from everturn.store import Store
from everturn.testing import FakeClock, ScriptedModel, acting, within
from everturn.testing.acting import ME
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.memory import RecordingProvider

pytestmark = pytest.mark.anyio


class Blocking(RecordingProvider):
    """Blocks its thread on request, as code that knows no event loop does."""

    def __init__(self, *blocks: str) -> None:
        super().__init__("blocking")
        self._blocks = blocks
        self.is_in = threading.Event()
        self.may_go = threading.Event()

    def _block(self, where: str) -> None:
        if where in self._blocks:
            self.is_in.set()
            self.may_go.wait(30)

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        self._block("recall")
        return "slow words"

    async def commit(self, segment: object) -> None:
        self._block("commit")

    async def close(self) -> None:
        self._block("close")
        self.closed += 1


@pytest.fixture
def blocked() -> Iterator[Callable[..., Blocking]]:
    made: list[Blocking] = []

    def make(*blocks: str) -> Blocking:
        made.append(Blocking(*blocks))
        return made[-1]

    yield make
    for provider in made:
        provider.may_go.set()


def memory_with(store: Store, clock: FakeClock, provider: Blocking) -> Memory:
    providers = Providers({"blocking": lambda: ThreadedProvider(lambda: provider, "blocking")}, {})
    settings = MemorySettings(provider="blocking", drain_s=3, recall_timeout_s=1.7)
    return Memory(store.ledger, providers, Runtime(clock, Ids(clock)), settings=settings)


async def owed(store: Store) -> str:
    session = await acting.new_session(store)
    held = await acting.start(store, session.id, "hello")
    number = await acting.append(store, held, acting.answer("hi"))
    await acting.complete(store, held, number, provider="blocking")
    return session.id


async def test_a_plug_in_that_blocks_its_thread_is_given_up_in_time_and_all_stays_owed(
    store: Store, clock: FakeClock, blocked: Callable[..., Blocking]
) -> None:
    provider = blocked("commit")
    memory = memory_with(store, clock, provider)
    session_id = await owed(store)
    results = []

    async def settle() -> None:
        results.append(await memory.commit_session(ME, session_id))

    async with anyio.create_task_group() as group:
        group.start_soon(settle)
        await anyio.to_thread.run_sync(provider.is_in.wait)
        # The loop is free: the store answers, other sessions go on.
        assert (await store.sessions.get(ME, session_id)).id == session_id
        assert memory.status()["under_way"] == 1
        await clock.advance(memory.settings.commit_timeout_s)
    assert results[0].outcome is CommitOutcome.FAILED
    assert "did not commit within 120 s" in results[0].error
    (state,) = memory.states()
    assert (state.state, state.failures) == ("silent", 1)
    (owing,) = await store.ledger.list_owing()
    assert owing.turns == 1
    assert "did not commit" in (owing.error or "")


async def test_a_recall_that_blocks_delays_a_turn_by_its_limit_and_no_more(
    store: Store, clock: FakeClock, blocked: Callable[..., Blocking]
) -> None:
    provider = blocked("recall")
    memory = memory_with(store, clock, provider)
    model = ScriptedModel(clock=clock, then="fine")
    async with open_harness(store, clock=clock, model=model, memory=memory) as h:
        session = await h.new_session()
        accepted = await h.send(session, "hello")
        await anyio.to_thread.run_sync(provider.is_in.wait)
        await clock.advance(1.7)  # for the agent
        await clock.someone_sleeps(1.7)
        await clock.advance(1.7)  # for the session
        turn = await h.settled(accepted.turn.id)
        assert turn.state == "completed"
        assert "slow words" not in str(model.requests[0])
        provider.may_go.set()
    assert provider.closed == 1


async def test_a_close_that_blocks_holds_up_shutdown_only_for_its_time(
    store: Store, clock: FakeClock, blocked: Callable[..., Blocking]
) -> None:
    provider = blocked("close")
    memory = memory_with(store, clock, provider)

    async def pass_time() -> None:
        await anyio.to_thread.run_sync(provider.is_in.wait)
        await clock.advance(10)

    async with (
        anyio.create_task_group() as group,
        open_harness(store, "fine", clock=clock, memory=memory) as h,
    ):
        await h.run(await h.new_session())
        group.start_soon(pass_time)
    assert await store.ledger.list_owing() == []


async def test_a_commit_with_a_spare_handle_that_blocks_holds_up_the_end_only_for_a_drain_s_time(
    store: Store, clock: FakeClock, blocked: Callable[..., Blocking]
) -> None:
    provider = blocked("commit")
    memory = memory_with(store, clock, provider)
    session_id = await owed(store)
    async with anyio.create_task_group() as group:
        group.start_soon(memory.commit_session, ME, session_id)
        await anyio.to_thread.run_sync(provider.is_in.wait)
        with within("memory is closed while a commit blocks"):
            async with anyio.create_task_group() as closing:
                closing.start_soon(memory.close)
                await clock.someone_sleeps(memory.settings.drain_s)
                await clock.advance(memory.settings.drain_s)
        assert memory.status()["under_way"] == 1
        group.cancel_scope.cancel()
    assert [owing.turns for owing in await store.ledger.list_owing()] == [1]


class Raising(RecordingProvider):
    """Raises what no code should raise."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("blocking")
        self._error = error

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        raise self._error

    async def observe(self, owner: str, session_id: str, messages: object) -> None:
        raise self._error

    async def commit(self, segment: object) -> None:
        raise self._error

    async def close(self) -> None:
        raise self._error


async def test_the_traceback_of_a_plug_in_is_in_the_log_once(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> None:
        raise ZeroDivisionError("a fault of the plug-in")

    watch = ProviderMonitor(clock)
    for _ in range(2):
        with pytest.raises(ProviderFailed):
            await watch.call("one", "commit", 10, fails)
    [record] = caplog.records
    assert record.exc_info
    assert record.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError()], ids=repr
)
async def test_a_plug_in_that_raises_an_interrupt_an_exit_or_a_cancellation_ends_nothing(
    store: Store, clock: FakeClock, error: BaseException
) -> None:
    provider = Raising(error)
    providers = Providers({"blocking": lambda: ThreadedProvider(lambda: provider, "blocking")}, {})
    settings = MemorySettings(provider="blocking")
    memory = Memory(store.ledger, providers, Runtime(clock, Ids(clock)), settings=settings)
    model = ScriptedModel(clock=clock, then="fine")
    async with open_harness(store, clock=clock, model=model, memory=memory) as h:
        session = await h.new_session()
        for text in ("one", "two"):
            assert (await h.run(session, text)).state == "completed"
        done = await memory.commit(OWNER, session.id)
        assert done.outcome is CommitOutcome.FAILED
        assert type(error).__name__ in done.error
    (owing,) = await store.ledger.list_owing()
    assert owing.turns == 2


class Odd(RecordingProvider):
    def __init__(self, recalls: object) -> None:
        super().__init__("odd")
        self.recalls = recalls  # type: ignore[assignment]  # a value that a provider must not return


@pytest.mark.parametrize(
    ("recalls", "sent"),
    [
        (42, ""),
        (None, ""),
        (b"bytes", ""),
        ("x" * 5_000_000, "x" * 4_000),
        ("a\x00b", "ab"),
        ("half \ud800", "half ?"),
    ],
    ids=["number", "nothing", "bytes", "huge", "nul", "surrogate"],
)
async def test_what_a_provider_recalls_is_a_text_that_fits_or_nothing(
    store: Store, clock: FakeClock, recalls: object, sent: str
) -> None:
    providers = Providers({"odd": lambda: Odd(recalls)}, {})
    settings = MemorySettings(provider="odd")
    memory = Memory(store.ledger, providers, Runtime(clock, Ids(clock)), settings=settings)
    model = ScriptedModel(clock=clock, then="fine")
    async with open_harness(store, clock=clock, model=model, memory=memory) as h:
        session = await h.new_session()
        for text in ("one", "two"):
            assert (await h.run(session, text)).state == "completed"
        first = model.requests[-1].messages[0].text
        assert first == (f"{sent}\none" if sent else "one")


async def test_a_plug_in_that_cannot_be_loaded_fails_its_commits_and_says_why(
    store: Store, clock: FakeClock
) -> None:
    entry = EntryPoint("blocking", "no_such_module:open", "everturn.memory")
    settings = MemorySettings(provider="blocking")
    memory = Memory(
        store.ledger, Providers({}, {"blocking": entry}), Runtime(clock, Ids(clock)), settings=settings
    )
    session_id = await owed(store)
    done = await memory.commit_session(ME, session_id)
    assert done.outcome is CommitOutcome.FAILED
    assert "no_such_module" in done.error
    assert memory.states()[0].state == "failing"


async def test_a_provider_that_is_not_installed_any_more_leaves_all_owed(
    store: Store, clock: FakeClock
) -> None:
    memory = Memory(store.ledger, Providers({}, {}), Runtime(clock, Ids(clock)))
    session_id = await owed(store)
    done = await memory.commit_session(ME, session_id)
    assert done.outcome is CommitOutcome.NO_HANDLE
    assert "blocking" in done.error
    assert len(await store.ledger.list_owing()) == 1


async def test_a_plug_in_is_found_by_its_entry_point_and_serves_a_turn(
    store: Store, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "site"
    example = Path(__file__).parents[3] / "docs" / "example_memory_provider.py"
    (place / "lines-1.0.dist-info").mkdir(parents=True)
    (place / "lines-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lines\nVersion: 1.0\n"
    )
    (place / "lines-1.0.dist-info" / "entry_points.txt").write_text(
        "[everturn.memory]\nlines = lines_plug_in:open_lines\n"
    )
    (place / "lines_plug_in.py").write_text(example.read_text())
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("HOME", str(tmp_path))
    providers = Providers({})
    assert "lines" in providers.names
    settings = MemorySettings(provider="lines")
    memory = Memory(store.ledger, providers, Runtime(clock, Ids(clock)), settings=settings)
    model = ScriptedModel(clock=clock, then="fine")
    async with open_harness(store, clock=clock, model=model, memory=memory) as h:
        first = await h.new_session()
        await h.run(first, "My bees live on the roof")
        await memory.commit_session(OWNER, first.id)
        second = await h.new_session()
        await h.run(second, "What do bees eat?")
        assert "- My bees live on the roof" in model.requests[-1].messages[0].text
    with pytest.raises(NotFound):
        providers.open("no such one")


async def test_a_provider_of_the_program_that_cannot_be_opened_fails_no_turn_and_is_tried_again(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    provider = RecordingProvider("fragile", recalls="Likes tea.")
    is_broken = True

    def open_fragile() -> RecordingProvider:
        if is_broken:
            raise OSError("the index is locked")
        return provider

    settings = MemorySettings(provider="fragile")
    providers = Providers({"fragile": open_fragile}, {})
    memory = Memory(store.ledger, providers, Runtime(clock, Ids(clock)), settings=settings)
    model = ScriptedModel(clock=clock, then="fine")
    async with open_harness(store, clock=clock, model=model, memory=memory) as h:
        session = await h.new_session()
        assert (await h.run(session, "one")).state == "completed"
        assert "could not be opened" in caplog.text
        (state,) = memory.status()["providers"]
        assert state["state"] == "failing"
        assert "the index is locked" in state["error"]
        assert (await memory.commit_session(OWNER, session.id)).outcome is CommitOutcome.FAILED
        assert await memory.has_uncommitted_work(OWNER, session.id)
        is_broken = False
        assert (await h.run(session, "two")).state == "completed"
        await memory.commit_session(OWNER, session.id)
        assert provider.words == ["one", "two"]
        (state,) = memory.status()["providers"]
        assert state["state"] == "ok"
    assert provider.closed == 1
