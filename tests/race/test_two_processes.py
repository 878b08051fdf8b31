"""Two real processes on one database: what both were told is there, once, and each sees the other's work."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.domain import events as ev
from everturn.store import open_store
from everturn.testing.acting import ME, answer, append, complete, new_session, positions, say

pytestmark = pytest.mark.anyio
ROUNDS = 30


async def work(url: str, folder: str, session_id: str, name: str) -> None:
    """In the child: talk to the shared session, run every turn that can be claimed, report what was done."""
    done: dict[str, list[str]] = {"said": [], "completed": []}
    async with open_store(url, data_dir=folder) as store:
        await store.workers.register(f"wrk_{name}")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for count in range(ROUNDS):
            text = f"{name} {count}"
            await say(store, session_id, text, key=text)
            done["said"].append(text)
            for held in await store.turns.claim(f"wrk_{name}"):
                number = await append(store, held, [ev.TextDelta(1, "working ")])
                number = await append(store, held, answer(f"re: {held.turn.text}", step=2), number)
                await complete(store, held, number)
                done["completed"].append(held.turn.id)
        await store.workers.unregister(f"wrk_{name}")
    print(json.dumps(done), flush=True)


async def test_two_processes_share_one_session(store_url: str, data_dir: Path) -> None:
    async with open_store(store_url, data_dir=data_dir) as store:
        session = await new_session(store)
    command = [sys.executable, "-m", "tests.race.test_two_processes", store_url, str(data_dir), session.id]
    racers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("ada", "bob")
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    outputs = [racer.communicate("go\n", timeout=180)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    reports = [json.loads(output) for output in outputs]
    async with open_store(store_url, data_dir=data_dir) as store:
        now, turns, messages = await store.transcript.export(ME, session.id)
        said = [message.text for message in messages if message.ordinal == 0]
        assert sorted(said) == sorted(text for report in reports for text in report["said"])
        completed = [turn_id for report in reports for turn_id in report["completed"]]
        assert len(completed) == len(set(completed)), "no turn was run by both"
        states = {turn.id: turn.state for turn in turns}
        assert all(states[turn_id] == "completed" for turn_id in completed)
        assert len([turn for turn in turns if turn.state == "queued"]) == len(turns) - len(completed)
        assert await positions(store, session.id) == list(range(1, now.position + 1))
        assert await store.upkeep.check() == []


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
