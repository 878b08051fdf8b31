"""Memory and the agent cache: recall at 10,000 facts, memory kept after sessions, warm and cold turns.

``python -m everturn.speed.memory [--sessions 10000] [--facts 10000]``
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import tempfile
import time
from pathlib import Path

import msgspec

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids, message_id
from everturn.domain.runtime import Runtime
from everturn.domain.store_values import ImportedSession
from everturn.engine.agent_cache import CacheBounds
from everturn.memory import Memory, MemorySettings, Providers, build_memory
from everturn.speed.figures import Report, median, percentile
from everturn.store import Store, open_store
from everturn.testing import ScriptedModel, ScriptedModels
from everturn.testing.harness import OWNER, Harness, open_harness, quiet_settings
from everturn.testing.memory import RecordingProvider

# Nouns of a household and an office; every fact also has words that few others have.
_NOUNS = """
garden viola harbour recipe budget invoice lantern museum tractor novel orchard kernel compiler meeting
deadline allergy cousin bicycle mountain pottery telescope railway violin parser database cluster backup
holiday ferry library coffee walnut saffron Lisbon Oslo Kyoto Nairobi printer keyboard sensor mortgage
"""
_WORDS = [
    *_NOUNS.split(),
    *(f"{a}{b}" for a in _NOUNS.split() for b in ("shop", "plan", "fund", "room", "map")),
]


def rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def recall(report: Report, folder: Path, count: int) -> None:
    choice = random.Random(7)
    clock = SystemClock()
    async with open_store(data_dir=folder) as store:
        models = ScriptedModels(ScriptedModel())
        built = build_memory(store, models, folder, Runtime(clock, Ids(clock)))
        books, day = built.notebooks, 86_400_000
        now = clock.now_ms()
        # Four years of notes, at random dates.
        facts = [
            books.new(
                f"The user's {choice.choice(_WORDS)} number {n} needs a {choice.choice(_WORDS)} "
                f"and a {choice.choice(_WORDS)}.",
                now - choice.randrange(1460) * day,
                f"from ses_{n:026d} trn_{n:026d}",
            )
            for n in range(count)
        ]
        await books.record_turns(OWNER, "bench", facts)
        fresh = build_memory(store, models, folder, Runtime(clock, Ids(clock)))
        started = time.perf_counter()
        await fresh.notebooks.find(OWNER, "garden", 8)
        report.say(
            f"first recall in a process, {count:,} facts read", (time.perf_counter() - started) * 1e3, "ms"
        )
        handle = fresh.memory.providers.open("notes")
        taken = []
        for _ in range(300):
            prompt = "Please tell me what my " + " and my ".join(choice.sample(_WORDS, 6)) + " need next week"
            started = time.perf_counter()
            found = await handle.recall(OWNER, "key", prompt)
            taken.append((time.perf_counter() - started) * 1e3)
            assert found
        report.at_most(f"recall for a prompt, {count:,} facts, p50", median(taken), "ms", 20)
        cpu = time.process_time()
        for _ in range(50):
            await handle.recall(OWNER, "key", prompt)
        report.say("of it CPU", (time.process_time() - cpu) * 1e3 / 50, "ms")
        report.say(f"recall for a prompt, {count:,} facts, p99", percentile(taken, 0.99), "ms")
        taken = []
        for _ in range(100):
            started = time.perf_counter()
            await handle.holds(OWNER, found)  # type: ignore[attr-defined]  # the built-in provider has it
            taken.append((time.perf_counter() - started) * 1e3)
        report.say("looking whether what was recalled still holds, p50", median(taken), "ms")
        started = time.perf_counter()
        await fresh.notebooks.remember(OWNER, "Something new.", now)
        report.say(
            f"noting one more fact, durable, {count:,} facts", (time.perf_counter() - started) * 1e3, "ms"
        )


def recording_memory(store: Store) -> Memory:
    clock = SystemClock()
    providers = Providers({"recorder": Quiet}, {})
    settings = MemorySettings(provider="recorder", look_s=3600.0)
    return Memory(store.ledger, providers, Runtime(clock, Ids(clock)), settings=settings)


class Quiet(RecordingProvider):
    """Accepts everything and keeps nothing, so that only our own memory grows."""

    async def commit(self, segment: object) -> None:
        pass

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        return ""

    async def observe(self, owner: str, session_id: str, messages: object) -> None:
        pass


class Forgetful(ScriptedModel):
    """Keeps no requests."""

    def stream(self, request: object) -> object:  # type: ignore[override]  # a stand-in that counts
        self.requests.clear()
        return super().stream(request)  # type: ignore[arg-type]  # passed on as it came


async def measure_touched(report: Report, folder: Path, count: int) -> None:
    """How much memory is kept for sessions that had a turn and were left."""
    model = Forgetful(then="fine")
    async with open_store(data_dir=folder) as store:
        memory = recording_memory(store)
        async with open_harness(
            store, clock=SystemClock(), model=model, memory=memory, settings=quiet_settings()
        ) as h:
            await _touch(h, memory, 300)  # warm up: build what is built once
            gc.collect()
            before = rss_mb()
            started = time.perf_counter()
            await _touch(h, memory, count)
            seconds = time.perf_counter() - started
            gc.collect()
            after = rss_mb()
            cache = h.engine.status()["cache"]
            report.say(f"{count:,} sessions touched, each with a turn and a commit", count / seconds, "/s")
            report.at_most(f"RSS that {count:,} touched sessions leave", after - before, "MB", 100)
            report.say("RSS after", after, "MB")
            report.at_most("handles, sessions and commits kept track of", memory.tracked, "", 4)
            report.say("of it the cache: histories and prefixes", cache["bytes"] / 1e6, "MB")
            report.say("agents built", cache.get("builds_new", 0), "")


async def _touch(h: Harness, memory: Memory, count: int) -> None:
    left = iter(range(count))

    async def one() -> None:
        for _ in left:
            session = await h.new_session()
            await h.run(session, "hello there, this is a message of ordinary length")
            await memory.commit_session(OWNER, session.id)

    await asyncio.gather(*(one() for _ in range(16)))


async def warm_and_cold(report: Report, folder: Path, messages: int) -> None:
    """The time until the model is called, in a long session, with and without the agent cache."""
    async with open_store(data_dir=folder) as store:
        session_id = await _long_session(store, messages)
        for name, bounds in (
            ("warm", CacheBounds(bytes_max=1 << 30)),
            ("cold", CacheBounds(agents_max=0)),
        ):
            model = Timed(then="fine")
            settings = quiet_settings(cache=bounds)
            async with open_harness(store, clock=SystemClock(), model=model, settings=settings) as h:
                session = await store.sessions.get(OWNER, session_id)
                await h.run(session, "first")
                taken = []
                for number in range(20):
                    started = time.perf_counter()
                    await h.run(session, f"turn {number}")
                    taken.append((model.called_at - started) * 1e3)
            target = 30.0 if name == "warm" else None
            what = f"to the model call, {messages:,}-message session, {name} agent, p50"
            if target is None:
                report.say(what, median(taken), "ms")
            else:
                report.at_most(what, median(taken), "ms", target)


class Timed(ScriptedModel):
    called_at = 0.0

    def stream(self, request: object) -> object:  # type: ignore[override]  # a stand-in that counts
        self.called_at = time.perf_counter()
        return super().stream(request)  # type: ignore[arg-type]  # passed on as it came


async def _long_session(store: Store, messages: int) -> str:
    session = await store.sessions.create(OWNER)
    async with open_harness(store, clock=SystemClock(), model=Forgetful(then="fine " * 20)) as h:
        for number in range(10):
            await h.run(session, f"message {number} of ordinary length, about something")
    session, turns, said = await store.transcript.export(OWNER, session.id)
    ids = Ids(SystemClock())
    copied_turns, copied_messages, parent = [], [], None
    for number in range(messages // 2):
        turn = turns[number % len(turns)]
        new = msgspec.structs.replace(turn, id=ids.turn(), parent_id=parent)
        own = [m for m in said if m.turn_id == turn.id]
        copied_messages += [
            msgspec.structs.replace(m, turn_id=new.id, id=message_id(new.id, m.ordinal)) for m in own
        ]
        copied_turns.append(new)
        parent = new.id
    whole = msgspec.structs.replace(session, id=ids.session(), head=parent, messages=len(copied_messages))
    imported = await store.transcript.import_session(
        OWNER, ImportedSession(whole, copied_turns, copied_messages)
    )
    return imported.id


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the work, for CI")
    given = parser.parse_args()
    if given.quick:
        given.facts, given.sessions, given.messages = (
            given.facts // 50,
            given.sessions // 50,
            given.messages // 50,
        )
    report = Report("Memory and the agent cache")
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        for name in ("recall", "touched", "warm"):
            (Path(folder) / name).mkdir()
        await recall(report, Path(folder) / "recall", given.facts)
        await warm_and_cold(report, Path(folder) / "warm", given.messages)
        await measure_touched(report, Path(folder) / "touched", given.sessions)
    report.close()


if __name__ == "__main__":
    asyncio.run(main())
