"""D01-D11: the agent cache is coherent, and the prompt cache is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import NotFound
from everturn.domain.messages import Message, Role, Text
from everturn.domain.model import ModelRequest, ToolSchema
from everturn.domain.sessions import NewSession, Session, SessionPatch
from everturn.domain.store_values import Request, RetriedTurn, Submission
from everturn.domain.tool import ToolResult
from everturn.domain.turns import FinishReason, Usage
from everturn.engine import EngineSettings
from everturn.engine.agent_cache import AgentCache, CacheBounds, CacheEntry, VersionSpan
from everturn.engine.agents import WarmAgent, _signature, key_of
from everturn.engine.settings import TurnProfile
from everturn.memory import Memory
from everturn.store import Store
from everturn.testing import CallTool, FakeClock, FakeTool, ScriptedModel, ScriptedModels, acting, within
from everturn.testing.harness import OWNER, Harness, open_harness, quiet_settings
from everturn.testing.memory import RecordingProvider
from everturn.testing.models import Answer, End, Say
from tests.contracts.memory_acting import memory_over
from tests.waiting import until

pytestmark = pytest.mark.anyio

OpenAnother = Callable[..., Awaitable[Store]]
KEY = "agent:main:telegram:dm:ada"


@asynccontextmanager
async def engine(
    store: Store,
    clock: FakeClock,
    *,
    bounds: CacheBounds | None = None,
    memory: Memory | None = None,
    settings: EngineSettings | None = None,
    model: ScriptedModel | None = None,
    **more: Any,
) -> AsyncIterator[Harness]:
    used = settings or quiet_settings(cache=bounds or CacheBounds())
    model = model or ScriptedModel(clock=clock, then="fine")
    async with open_harness(store, clock=clock, model=model, memory=memory, settings=used, **more) as h:
        yield h


def count(h: Harness, name: str) -> int:
    return int(h.engine.status()["cache"].get(name, 0))


def builds(h: Harness) -> int:
    return count(h, "builds_new") + count(h, "builds_changed")


def prefix_bytes(request: ModelRequest) -> bytes:
    return msgspec.json.encode((request.system, request.tools))


def said_to(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


# --- D01, D02: reuse ------------------------------------------------------------------------------------


async def test_d01_switching_sessions_under_one_key_reuses_the_agent_with_the_same_bytes(
    store: Store, clock: FakeClock
) -> None:
    handle = RecordingProvider(recalls="The user is called Ada.")
    memory = memory_over(store, clock, opened=[handle])
    async with engine(store, clock, memory=memory, tools=[FakeTool("look"), FakeTool("act")]) as h:
        a, b = await h.new_session(key=KEY), await h.new_session(key=KEY)
        for session in (a, b, a, b):
            await h.run(session)
        assert builds(h) == 1
        assert count(h, "hits") == 3
        assert len({prefix_bytes(request) for request in h.model.requests}) == 1
        assert "called Ada" in h.model.requests[0].system


async def test_d01_two_owners_never_share_an_agent_though_their_keys_are_equal(
    store: Store, clock: FakeClock
) -> None:
    ada, eve = RecordingProvider(recalls="Ada's secret."), RecordingProvider(recalls="Eve's own.")
    memory = memory_over(store, clock, opened=[ada, eve])
    async with engine(store, clock, memory=memory) as h:
        mine = await h.new_session(key=KEY)
        await h.run(mine)
        theirs = await h.engine.create_session("eve", NewSession(key=KEY))
        await h.engine.submit("eve", theirs.id, Submission(text="hello"))
        with within("Eve's turn completes"):
            async for batch in h.engine.follow("eve", theirs.id, 0):
                if any(event.kind == "turn.completed" for event in batch):
                    break
        assert builds(h) == 2
        assert "Ada's secret" in h.model.requests[0].system
        assert "Ada's secret" not in str(h.model.requests[1])


def test_d01_no_name_and_no_place_read_as_those_of_another_owner() -> None:
    def key(owner: str, place: str, *, private: bool = False) -> str:
        session = Session("ses_1", owner, 1, 0, 0, 0, key=place, private=private)
        return key_of(session, None)

    places = [key("a", "b\nc"), key("a\nb", "c"), key("a", "b\nc", private=True), key("a", "b\nc\nprivate")]
    assert len(set(places)) == 4


async def test_d02_consecutive_turns_reuse_the_agent_and_its_history(store: Store, clock: FakeClock) -> None:
    async with engine(store, clock) as h:
        session = await h.new_session()
        for text in ("one", "two", "three"):
            await h.run(session, text)
        assert builds(h) == 1
        assert count(h, "reloads_first") == 1
        assert count(h, "reloads_foreign") == 0
        assert count(h, "histories_kept") == 2
        assert said_to(h.model.requests[2]) == ["one", "fine", "two", "fine", "three"]


async def test_d02_the_history_is_read_from_the_store_once(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    context = store.transcript.context

    async def counted(owner: str, session_id: str, **more: Any) -> Any:
        reads.append(session_id)
        return await context(owner, session_id, **more)

    monkeypatch.setattr(store.transcript, "context", counted)
    async with engine(store, clock) as h:
        session = await h.new_session()
        for text in ("one", "two", "three"):
            await h.run(session, text)
    assert reads == [session.id]


async def test_d02_a_generated_title_and_a_queued_message_do_not_look_foreign(
    store: Store, clock: FakeClock
) -> None:
    async with engine(store, clock) as h:
        session = await h.new_session()
        await h.run(session, "one")
        await store.sessions.set_title(OWNER, session.id, "A title")
        first, second = await h.send(session, "two"), await h.send(session, "three")
        await h.settled(first.turn.id)
        await h.settled(second.turn.id)
        assert count(h, "reloads_foreign") == 0
        assert said_to(h.model.requests[2]) == ["one", "fine", "two", "fine", "three"]


async def test_d02_the_kept_history_is_what_the_store_would_give(store: Store, clock: FakeClock) -> None:
    model = ScriptedModel(
        [CallTool("look")], "first", [CallTool("look")], "second", then="third", clock=clock
    )
    async with engine(store, clock, model=model, tools=[FakeTool("look", "seen")]) as h:
        session = await h.new_session()
        for text in ("one", "two", "three"):
            await h.run(session, text)
        kept = h.model.requests[-1].messages
        assert count(h, "histories_kept") == 2
    again = ScriptedModel(then="third", clock=clock)
    async with engine(store, clock, model=again, tools=[FakeTool("look", "seen")]) as h:
        await h.run(session, "four")
        loaded = again.requests[-1].messages
        assert count(h, "reloads_first") == 1
    assert msgspec.json.encode(loaded[: len(kept)]) == msgspec.json.encode(kept)


# --- D03, D04, D05: foreign writes ----------------------------------------------------------------------


async def test_d03_undo_and_a_new_turn_leave_the_number_of_messages_and_are_seen(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    other = await open_another()
    async with engine(store, clock) as h:
        session = await h.new_session()
        await h.run(session, "one")
        await h.run(session, "two")
        # A rewrite by another process: the same number of messages, other words.
        await other.transcript.undo(OWNER, session.id, Request())
        await other.transcript.undo(OWNER, session.id, Request())
        await other.transcript.redo(OWNER, session.id, Request())
        await h.run(session, "three")
        assert said_to(h.model.requests[-1]) == ["one", "fine", "three"]
        assert count(h, "reloads_foreign") == 1
        assert builds(h) == 1, "the agent itself is reused"
        await h.run(session, "four")
        assert count(h, "reloads_foreign") == 1


async def test_d03_what_another_process_threads_into_an_older_turn_is_seen(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    other = await open_another()
    session = await store.sessions.create(OWNER)
    accepted = await store.turns.accept(OWNER, session.id, Submission(text="one"))
    (held,) = await store.turns.claim(acting.WORKER, session_id=session.id)
    number = await acting.append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "half")])
    await store.turns.interrupt(accepted.turn.id, None, acting.CRASHED)
    async with engine(store, clock) as h:
        await h.run(session, "two")
        before = await store.sessions.get(OWNER, session.id)
        # The head stays where it is; only the words of the turn before it become more.
        spooled = acting.late(held, number + 1, [ev.TextDelta(1, " and the rest")])
        await other.journal.deliver_late(accepted.turn.id, held.epoch, spooled)
        assert await other.journal.recover(OWNER, session.id)
        assert (await store.sessions.get(OWNER, session.id)).head == before.head
        await h.run(session, "three")
        assert "half and the rest" in str(h.model.requests[-1].messages)
        assert count(h, "reloads_foreign") == 1


async def test_d04_going_a_b_a_sees_that_a_was_changed_meanwhile_and_that_it_was_not(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    other = await open_another()
    async with engine(store, clock) as h:
        a, b = await h.new_session(key=KEY), await h.new_session(key=KEY)
        await h.run(a, "a1")
        await h.run(b, "b1")
        await h.run(a, "a2")
        assert count(h, "reloads_foreign") == 0
        await h.run(b, "b2")
        await other.transcript.undo(OWNER, a.id, Request())
        await h.run(a, "a3")
        assert count(h, "reloads_foreign") == 1
        assert said_to(h.model.requests[-1]) == ["a1", "fine", "a3"]
        await h.run(b, "b3")
        assert count(h, "reloads_foreign") == 1
        assert said_to(h.model.requests[-1]) == ["b1", "fine", "b2", "fine", "b3"]
        assert builds(h) == 1


async def test_d05_the_refresh_after_a_turn_touches_only_its_own_session(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    other = await open_another()
    async with engine(store, clock) as h:
        a, b = await h.new_session(key=KEY), await h.new_session(key=KEY)
        for text in ("a1", "a2", "a3"):
            await h.run(a, text)
        await other.transcript.undo(OWNER, a.id, Request())
        await other.transcript.undo(OWNER, a.id, Request())
        for text in ("b1", "b2", "b3", "b4"):
            await h.run(b, text)
        versions = [(await store.sessions.get(OWNER, each.id)).transcript_version for each in (a, b)]
        assert versions[0] == versions[1], "b's refresh would make a look up to date, if it touched a"
        await h.run(a, "a4")
        assert count(h, "reloads_foreign") == 1
        assert said_to(h.model.requests[-1]) == ["a1", "fine", "a4"]


async def test_d06_a_turn_writes_only_to_its_own_session(store: Store, clock: FakeClock) -> None:
    tool = FakeTool("look", "seen")
    script: list[Answer] = [
        [CallTool("look")],
        "for a",
        [CallTool("look")],
        "for b",
        [CallTool("look")],
        "for a again",
    ]
    async with engine(store, clock, model=ScriptedModel(*script, clock=clock), tools=[tool]) as h:
        a, b = await h.new_session(key=KEY), await h.new_session(key=KEY)
        turns = [await h.run(a, "a1"), await h.run(b, "b1"), await h.run(a, "a2")]
        assert builds(h) == 1
        assert [turn.session_id for turn in turns] == [a.id, b.id, a.id]
        assert [call.session_id for call in tool.calls] == [a.id, b.id, a.id]
        asked = [[m.text for m in each.messages if m.role is Role.USER] for each in h.model.requests]
        assert asked == [["a1"], ["a1"], ["b1"], ["b1"], ["a1", "a2"], ["a1", "a2"]]
        assert [t for t in await h.texts(a) if "b" in t.split(": ")[1]] == []
        assert (await h.texts(b))[0] == "user: b1"
        assert (await h.texts(b))[-1] == "assistant: for b"
        assert len(await h.messages(b)) == 4


async def test_d06_turns_of_two_sessions_at_once_on_one_agent_do_not_mix(
    store: Store, clock: FakeClock
) -> None:
    gates: dict[str, anyio.Event] = {}

    async def slow(call: Any, emit: Any) -> Any:
        gates.setdefault(call.session_id, anyio.Event())
        await gates[call.session_id].wait()
        return ToolResult(call.session_id)

    script: list[Answer] = [[CallTool("slow")], [CallTool("slow")], "one done", "other done"]
    async with engine(
        store,
        clock,
        model=ScriptedModel(*script, clock=clock),
        tools=[FakeTool("slow", slow)],
    ) as h:
        a, b = await h.new_session(key=KEY), await h.new_session(key=KEY)
        sent_a, sent_b = await h.send(a, "a1"), await h.send(b, "b1")
        await h.seen(a, "tool.started")
        await h.seen(b, "tool.started")
        await until("both tools run", lambda: len(gates) == 2)
        gates[b.id].set()
        await h.settled(sent_b.turn.id)
        gates[a.id].set()
        await h.settled(sent_a.turn.id)
        for session in (a, b):
            (result,) = [m for m in await h.messages(session) if m.role is Role.TOOL]
            assert session.id in str(result.parts)
        assert builds(h) == 1


async def test_d06_a_turn_is_not_repeated_or_shown_in_another_session(store: Store) -> None:
    held = await acting.answered(store, (await acting.new_session(store)).id, "for a", "A")
    other = await acting.answered(store, (await acting.new_session(store)).id, "for b", "B")
    for act in (store.transcript.select, store.transcript.branch):
        with pytest.raises(NotFound):
            await act(acting.ME, other.session.id, held.turn.id, Request())
    with pytest.raises(NotFound):
        await store.transcript.retry(acting.ME, other.session.id, RetriedTurn(held.turn.id), Request())
    assert await acting.words(store, other.session.id) == ["for b", "B"]


# --- D07, D08: pending entries and old ones --------------------------------------------------------------


class Bench:
    """A cache of plain strings, whose retirements are written down."""

    def __init__(self, clock: FakeClock, **bounds: Any) -> None:
        self.retired: list[str] = []
        self.gate: anyio.Event | None = None  # a retirement waits for it
        self.started: list[tuple[Any, ...]] = []
        self.cache: AgentCache[str] = AgentCache(
            clock=clock,
            retire=self._retire,
            start=lambda name, act, *args: self.started.append((act, *args)),
            bounds=CacheBounds(**bounds),
        )

    async def _retire(self, agent: str) -> None:
        if self.gate is not None:
            await self.gate.wait()
        self.retired.append(agent)

    async def work_off(self) -> None:
        while self.started:
            act, *args = self.started.pop(0)
            await act(*args)

    async def turn(self, key: str, signature: str = "same", agent: str = "", size: int = 0) -> str:
        async def build() -> tuple[str, int]:
            return agent or key, size

        async with self.cache.bind(key, signature, build) as entry:
            return str(entry.agent)


async def test_d07_a_pending_entry_is_visible_and_neither_reused_evicted_nor_rebaselined(
    clock: FakeClock,
) -> None:
    bench, gate, built = Bench(clock, agents_max=1, idle_s=1), anyio.Event(), []

    async def build() -> tuple[str, int]:
        built.append(1)
        await gate.wait()
        return "slow", 10

    used: list[str] = []

    async def turn() -> None:
        async with bench.cache.bind("a", "same", build) as entry:
            used.append(str(entry.agent))

    async with anyio.create_task_group() as group:
        group.start_soon(turn)
        group.start_soon(turn)
        await anyio.wait_all_tasks_blocked()
        entry = bench.cache.peek("a")
        assert entry is not None
        assert entry.is_pending
        assert used == []
        assert not bench.cache.evict("a", "asked")
        await clock.advance(100)
        bench.cache.look()
        bench.cache.refresh(entry, "s", VersionSpan(seen=1, before=1, after=2), history=())
        assert not entry.baselines
        await bench.turn("b")  # one too many: it is b that has to go
        assert bench.cache.peek("a") is entry
        gate.set()
    assert used == ["slow", "slow"]
    assert built == [1], "two that asked at once got one agent"


async def test_d07_when_a_build_fails_the_one_who_waits_builds(clock: FakeClock) -> None:
    bench, gate, tries = Bench(clock), anyio.Event(), []

    async def build() -> tuple[str, int]:
        tries.append(1)
        if len(tries) == 1:
            await gate.wait()
            raise ConnectionError("no")
        return "second", 1

    outcomes: list[str] = []

    async def turn() -> None:
        try:
            async with bench.cache.bind("a", "same", build) as entry:
                outcomes.append(str(entry.agent))
        except ConnectionError:
            outcomes.append("failed")

    with within("the one who waits builds, after the build before it failed"):
        async with anyio.create_task_group() as group:
            group.start_soon(turn)
            group.start_soon(turn)
            await anyio.wait_all_tasks_blocked()
            gate.set()
    assert outcomes == ["failed", "second"]


async def test_d07_when_a_build_is_cancelled_the_one_who_waits_builds(clock: FakeClock) -> None:
    bench, tries = Bench(clock), []

    async def build() -> tuple[str, int]:
        tries.append(1)
        if len(tries) == 1:
            await anyio.sleep_forever()
        return "second", 1

    outcomes: list[str] = []

    async def turn(scope: anyio.CancelScope) -> None:
        with scope:
            async with bench.cache.bind("a", "same", build) as entry:
                outcomes.append(str(entry.agent))

    with within("the one who waits builds, after the turn of the one before it was cancelled"):
        async with anyio.create_task_group() as group:
            first = anyio.CancelScope()
            group.start_soon(turn, first)
            group.start_soon(turn, anyio.CancelScope())
            await anyio.wait_all_tasks_blocked()
            first.cancel()
    assert outcomes == ["second"]
    assert len(bench.cache) == 1


async def test_d09_closing_retires_an_agent_that_was_not_built_to_its_end(clock: FakeClock) -> None:
    bench = Bench(clock)
    bench.cache.discard("half-built")
    assert bench.cache.status()["leaving"] == 1
    bench.started.clear()  # the background was gone
    await bench.cache.close()
    assert (bench.retired, bench.cache.status()["leaving"]) == (["half-built"], 0)


async def history_of(bench: Bench, entry: CacheEntry[str], session_id: str, version: int | None) -> str:
    async def load() -> list[Message]:
        return [_message("loaded")]

    return (await bench.cache.history(entry, session_id, version, load))[0].text


def _message(text: str) -> Message:
    return Message("msg_1", "trn_1", Role.USER, (Text(text),), 0)


async def test_d08_an_entry_without_a_recorded_session_is_checked_strictly_until_its_refresh(
    clock: FakeClock,
) -> None:
    bench = Bench(clock)
    entry = bench.cache.put("a", "same", "old release", version=7)
    assert await bench.turn("a") == "old release"
    assert not entry.is_foreign("s", 7)
    assert entry.is_foreign("s", 8)
    assert entry.is_foreign("other", 3), "of which session it was is unknown, so any other version is foreign"
    assert await history_of(bench, entry, "s", 8) == "loaded"
    bench.cache.refresh(entry, "s", VersionSpan(seen=8, before=8, after=9), history=[_message("kept")])
    assert not entry.is_foreign("s", 9)
    assert entry.is_foreign("s", 10)
    assert not entry.is_foreign("other", 3), "a baseline now belongs to its session alone"
    assert await history_of(bench, entry, "s", 9) == "kept"


async def test_d08_an_entry_without_any_baseline_is_reused_and_left_alone(clock: FakeClock) -> None:
    bench = Bench(clock)
    entry = bench.cache.put("a", "same", "old release")
    assert await bench.turn("a") == "old release"
    assert not entry.is_foreign("s", 5)
    bench.cache.refresh(entry, "s", VersionSpan(seen=5, before=5, after=6), history=[_message("kept")])
    assert not entry.baselines
    assert not entry.is_foreign("s", 99)
    assert await bench.turn("a") == "old release"


@pytest.mark.parametrize("unknown", [None, 0])
async def test_d08_an_unknown_version_reuses_and_never_invents_a_mismatch(
    clock: FakeClock, unknown: int | None
) -> None:
    bench = Bench(clock)
    await bench.turn("a")
    entry = bench.cache.peek("a")
    assert entry is not None
    bench.cache.refresh(entry, "s", VersionSpan(seen=1, before=1, after=2), history=[_message("kept")])
    assert not entry.is_foreign("s", unknown)
    assert await history_of(bench, entry, "s", unknown) == "kept"


async def test_d03_a_write_that_came_while_our_turn_ran_is_noticed_by_the_next(clock: FakeClock) -> None:
    bench = Bench(clock)
    await bench.turn("a")
    entry = bench.cache.peek("a")
    assert entry is not None
    bench.cache.refresh(entry, "s", VersionSpan(seen=1, before=1, after=2), history=[_message("kept")])
    # The next turn began at 2; another process wrote 3; our own end is 4.
    bench.cache.refresh(entry, "s", VersionSpan(seen=2, before=3, after=4), history=[_message("lacks 3")])
    assert await history_of(bench, entry, "s", 4) == "loaded"


# --- D09: bounds ------------------------------------------------------------------------------------------


async def test_d09_the_number_is_bounded_and_the_least_recently_used_goes(clock: FakeClock) -> None:
    bench = Bench(clock, agents_max=2)
    for key in ("a", "b", "a", "c"):
        await bench.turn(key)
    await bench.work_off()
    assert bench.retired == ["b"]
    assert len(bench.cache) == 2


async def test_d09_bytes_are_bounded_histories_going_before_agents(clock: FakeClock) -> None:
    bench = Bench(clock, bytes_max=2_000)
    await bench.turn("a", size=500)
    entry = bench.cache.peek("a")
    assert entry is not None
    bench.cache.refresh(entry, "s1", VersionSpan(seen=1, before=1, after=2), history=[_message("x" * 800)])
    bench.cache.refresh(entry, "s2", VersionSpan(seen=1, before=1, after=2), history=[_message("y" * 800)])
    assert list(entry.baselines) == ["s2"]
    await bench.turn("b", size=1_900)
    await bench.work_off()
    assert bench.retired == ["a"]
    assert bench.cache.bytes <= 2_000


async def test_d09_an_idle_agent_goes_and_one_in_a_turn_never_does(clock: FakeClock) -> None:
    bench = Bench(clock, idle_s=60, agents_max=1)
    await bench.turn("idle")

    async def build() -> tuple[str, int]:
        return "busy", 1

    async with bench.cache.bind("busy", "same", build):
        await bench.work_off()
        assert bench.retired == ["idle"]
        await clock.advance(1000)
        bench.cache.look()
        await bench.turn("other")
        await bench.work_off()
        assert bench.retired == ["idle", "other"]
        assert bench.cache.peek("busy") is not None
    await clock.advance(59)
    bench.cache.look()
    assert bench.cache.peek("busy") is not None
    await clock.advance(1)
    bench.cache.look()
    await bench.work_off()
    assert bench.retired == ["idle", "other", "busy"]


async def test_d09_an_agent_evicted_in_its_turn_serves_it_to_the_end_and_is_retired_once(
    clock: FakeClock,
) -> None:
    bench = Bench(clock)

    async def build() -> tuple[str, int]:
        return "old", 1

    async with bench.cache.bind("a", "same", build) as entry:
        assert bench.cache.evict("a", "asked")
        await bench.work_off()
        assert bench.retired == []
        assert entry.agent == "old"
        assert await bench.turn("a", agent="new") == "new"
    await bench.work_off()
    assert bench.retired == ["old"], "at the end of its turn, not at the end of the cache"
    await bench.cache.close()
    assert bench.retired == ["old", "new"]


async def test_d09_closing_waits_for_a_retirement_under_way_and_does_not_repeat_it(clock: FakeClock) -> None:
    bench, gate = Bench(clock), anyio.Event()
    bench.gate = gate
    await bench.turn("a")
    bench.cache.evict("a", "asked")
    closed: list[str] = []

    async def close() -> None:
        await bench.cache.close()
        closed.append("closed")

    async with anyio.create_task_group() as group:
        group.start_soon(bench.work_off)
        group.start_soon(close)
        await anyio.wait_all_tasks_blocked()
        assert (bench.retired, closed) == ([], [])
        gate.set()
    assert (bench.retired, closed) == (["a"], ["closed"])


async def test_d09_the_engine_looks_for_idle_agents_by_itself(store: Store, clock: FakeClock) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    async with engine(store, clock, memory=memory, bounds=CacheBounds(idle_s=60, look_s=43)) as h:
        await h.run(await h.new_session())
        await clock.someone_sleeps(43)
        await clock.advance(43)
        await clock.someone_sleeps(43)
        assert count(h, "agents") == 1
        await clock.advance(43)
        await handle.until("the idle agent's handle is closed", lambda: handle.closed)
        assert count(h, "agents") == 0


async def test_d09_closing_retires_what_the_background_could_not(clock: FakeClock) -> None:
    bench = Bench(clock, agents_max=1)
    await bench.turn("a")
    await bench.turn("b")
    bench.started.clear()  # the background was gone
    await bench.cache.close()
    assert sorted(bench.retired) == ["a", "b"]


async def test_d09_the_engine_keeps_the_bound_and_memory_releases_evicted_agents(
    store: Store, clock: FakeClock
) -> None:
    handles = [RecordingProvider() for _ in range(4)]
    memory = memory_over(store, clock, opened=handles)
    async with engine(store, clock, memory=memory, bounds=CacheBounds(agents_max=2)) as h:
        for name in "abcd":
            await h.run(await h.new_session(key=f"agent:main:telegram:dm:{name}"), name)
        await handles[1].until("the second agent is retired", lambda: handles[1].closed)
        assert count(h, "agents") == 2
        assert [handle.words for handle in handles[:2]] == [["a"], ["b"]]
        assert [handle.closed for handle in handles] == [1, 1, 0, 0]
    assert [handle.closed for handle in handles] == [1, 1, 1, 1]


# --- D10: what changes the prefix -------------------------------------------------------------------------


async def test_d10_what_changes_the_prefix_builds_a_new_agent_and_what_does_not_does_not(
    store: Store, clock: FakeClock
) -> None:
    first, second = (ScriptedModel(name=name, clock=clock, then="fine") for name in ("s:one", "s:two"))
    models = ScriptedModels(first, second)
    tool = FakeTool("look")
    async with engine(store, clock, models=models, tools=[tool]) as h:
        session = await h.new_session(key=KEY)
        await h.run(session)
        await store.sessions.change(
            OWNER, session.id, SessionPatch(title="renamed", pinned=True, tags=("x",))
        )
        await h.run(session)
        assert builds(h) == 1, "a name, a pin and a tag are not in the prefix"
        await h.run(session, model="s:two")
        assert builds(h) == 2
        await h.run(session, model="s:two")
        assert builds(h) == 2
        h.toolbox.add(FakeTool("act"))
        await h.run(session, model="s:two")
        assert builds(h) == 3
        assert len(second.requests[-1].tools) == 2


async def test_d10_another_system_prompt_is_another_agent(store: Store, clock: FakeClock) -> None:
    profiles = {"terse": TurnProfile("terse", system_prompt="Be terse.")}
    async with engine(store, clock, settings=quiet_settings(profiles=profiles)) as h:
        session = await h.new_session(key=KEY)
        await h.run(session)
        await h.run(session, profile="terse")
        assert builds(h) == 2
        assert h.model.requests[-1].system == "Be terse."


@pytest.mark.parametrize(
    "change",
    [{"profile_facts_max": 3}, {"recall_chars_max": 99}, {"provider": ""}],
    ids=["facts", "chars", "provider"],
)
async def test_d10_another_policy_of_what_memory_shows_is_another_agent(
    store: Store, clock: FakeClock, change: dict[str, Any]
) -> None:
    handles = [RecordingProvider(recalls="Likes tea."), RecordingProvider(recalls="Likes coffee.")]
    memory = memory_over(store, clock, opened=handles)
    async with engine(store, clock, memory=memory) as h:
        session = await h.new_session(key=KEY)
        await h.run(session)
        memory.settings = msgspec.structs.replace(memory.settings, idle_s=601)
        await h.run(session)
        assert builds(h) == 1, "when something is remembered is not in the prefix"
        memory.settings = msgspec.structs.replace(memory.settings, **change)
        await h.run(session)
        assert builds(h) == 2
        assert "Likes tea." not in h.model.requests[-1].system


@pytest.mark.parametrize("part", ["system", "small", "schemas"])
def test_d10_every_part_of_the_prefix_is_in_the_signature(part: str) -> None:
    plain = WarmAgent("Be kind.", "Be brief.", (ToolSchema("look", "Looks.", {}),))
    other = {"system": "Be terse.", "small": "Be terse.", "schemas": ()}
    changed = msgspec.structs.replace(plain, **{part: other[part]})
    assert _signature(plain, "m", None, 0) == _signature(msgspec.structs.replace(plain), "m", None, 0)
    assert _signature(plain, "m", None, 0) != _signature(changed, "m", None, 0)


async def test_d10_forgetting_something_builds_again_so_that_nothing_forgotten_is_sent(
    store: Store, clock: FakeClock
) -> None:
    before, after = RecordingProvider(recalls="Likes tea."), RecordingProvider(recalls="")
    memory = memory_over(store, clock, opened=[before, after])
    async with engine(store, clock, memory=memory) as h:
        session = await h.new_session(key=KEY)
        await h.run(session)
        assert "Likes tea" in str(h.model.requests[-1])
        await store.ledger.drop_recalled(OWNER)
        await h.run(session)
        assert builds(h) == 2
        assert "Likes tea" not in str(h.model.requests[-1])


async def test_what_was_recalled_for_a_session_is_frozen_across_a_restart(
    store: Store, clock: FakeClock
) -> None:
    first = RecordingProvider(recalls="As of Monday.")
    async with engine(store, clock, memory=memory_over(store, clock, opened=[first])) as h:
        session = await h.new_session(key=KEY)
        await h.run(session, "hello")
        assert said_to(h.model.requests[0])[0] == "As of Monday.\nhello"
        assert first.prompts == ["", "hello"]
    second = RecordingProvider(recalls="As of Tuesday.")
    async with engine(store, clock, memory=memory_over(store, clock, opened=[second])) as h:
        await h.run(session, "again")
        assert said_to(h.model.requests[0])[0] == "As of Monday.\nhello"
        assert second.prompts == [""]


# --- D11: the provider's cache ----------------------------------------------------------------------------


async def test_d11_a_prefix_that_should_have_been_cached_and_was_not_is_recorded_and_visible(
    store: Store, clock: FakeClock
) -> None:
    def answer(cached: int | None) -> list[Any]:
        return [
            Say("fine"),
            End(FinishReason.STOP, Usage(input_tokens=5000, output_tokens=5, cached_tokens=cached)),
        ]

    script: list[Answer] = [answer(0), answer(4000), answer(0), answer(None), answer(0)]
    async with engine(store, clock, model=ScriptedModel(*script, clock=clock)) as h:
        session = await h.new_session()
        turns = []
        for number in range(5):
            if number == 4:
                await clock.advance(301)  # longer than a provider keeps it: nothing was to be expected
            turns.append(await h.run(session, f"turn {number}"))
        usages = [event.payload for event in await h.events(session) if event.kind == "usage"]
        assert [usage.missed_cache for usage in usages] == [False, False, True, False, False]
        assert [any(bar.missed_cache for bar in turn.timeline) for turn in turns] == [
            *(False, False, True, False, False),
        ]
        assert (count(h, "provider_hits"), count(h, "provider_misses")) == (1, 1)


async def test_d11_another_session_of_the_place_shares_only_the_prefix(
    store: Store, clock: FakeClock
) -> None:
    def answer(cached: int) -> list[Any]:
        return [
            Say("fine"),
            End(FinishReason.STOP, Usage(input_tokens=5000, output_tokens=5, cached_tokens=cached)),
        ]

    script: list[Answer] = [answer(0), answer(0), answer(0)]
    async with engine(store, clock, model=ScriptedModel(*script, clock=clock)) as h:
        a, b = await h.new_session(key=KEY), await h.new_session(key=KEY)
        await h.run(a)
        # What the two have in common, the system prompt, is too short to be cached anywhere.
        await h.run(b)
        assert count(h, "provider_misses") == 0
        await h.run(b)
        assert count(h, "provider_misses") == 1


@pytest.mark.parametrize("bytes_max", [64_000_000, 1], ids=["kept", "dropped"])
async def test_d11_after_an_undo_only_the_prefix_is_shared_with_what_was_sent_before(
    store: Store, clock: FakeClock, bytes_max: int
) -> None:
    usage = Usage(input_tokens=5000, output_tokens=5, cached_tokens=0)
    model = ScriptedModel(then="fine", usage=usage, clock=clock)
    async with engine(store, clock, model=model, bounds=CacheBounds(bytes_max=bytes_max)) as h:
        session = await h.new_session()
        await h.run(session, "one")
        await store.transcript.undo(OWNER, session.id, Request())
        await h.run(session, "another beginning")
        assert count(h, "provider_misses") == 0
        if bytes_max > 1:
            await h.run(session, "and it goes on")
            assert count(h, "provider_misses") == 1


async def test_d11_a_short_prefix_is_nowhere_cached_and_its_absence_is_no_news(
    store: Store, clock: FakeClock
) -> None:
    usage = Usage(input_tokens=100, output_tokens=5, cached_tokens=0)
    async with engine(store, clock, model=ScriptedModel(then="fine", usage=usage, clock=clock)) as h:
        session = await h.new_session()
        for _ in range(3):
            await h.run(session)
        assert count(h, "provider_misses") == 0
