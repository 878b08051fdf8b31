"""B16 with real processes: killed at every moment of a commit, and two that share one store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.probe import Moment
from everturn.memory import CommitOutcome
from everturn.store import open_store
from everturn.testing import ScriptedModel
from everturn.testing.harness import OWNER, open_harness, quiet_settings
from tests.contracts.memory_child import memory_into, taken_in

pytestmark = pytest.mark.anyio

KILLED = 137


class Child:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def does(self, command: str) -> bool:
        """Whether the child lived to say that it has done it."""
        self.begins(command)
        return self.has_done_it()

    def begins(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def has_done_it(self) -> bool:
        assert self.process.stdout is not None
        return self.process.stdout.readline() == "done\n"

    def stops(self) -> None:
        """Return when it has stopped."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def goes_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def child(
    url: str, folder: Path, taken: Path, moment: Moment | None = None, fate: str = "killed"
) -> Iterator[Child]:
    command = [
        sys.executable,
        "-m",
        "tests.contracts.memory_child",
        url,
        str(folder),
        str(taken),
        moment or "",
        fate,
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Child(process)
    finally:
        process.kill()
        process.communicate()


def words_taken(taken: Path) -> list[object]:
    return [word for line in taken_in(taken) if line["is_new"] for word in line["words"]]  # type: ignore[attr-defined]  # lists of words, read from JSON


COMMIT = [moment for moment in Moment if moment.startswith("memory.")]
BEFORE_THE_PROVIDER = (Moment.MEMORY_BEGUN, Moment.MEMORY_STARTED)


@pytest.mark.parametrize("moment", COMMIT, ids=str)
async def test_b16_killed_during_a_commit_every_turn_reaches_the_provider_once(
    store_url: str, data_dir: Path, tmp_path: Path, moment: Moment
) -> None:
    taken = tmp_path / "taken"
    async with open_store(store_url, data_dir=data_dir) as store:
        session = await store.sessions.create(OWNER)
    with child(store_url, data_dir, taken, moment) as first:
        assert first.does(f"say {session.id} one")
        assert first.does(f"say {session.id} two")
        assert not first.does(f"leave {session.id}")
        assert first.process.wait() == KILLED
    keys_before = [line["key"] for line in taken_in(taken)]
    assert len(keys_before) == (0 if moment in BEFORE_THE_PROVIDER else 1)

    async with open_store(store_url, data_dir=data_dir) as store:
        still_owed = [owing.turns for owing in await store.ledger.list_owing()]
        assert still_owed == ([] if moment is Moment.MEMORY_SETTLED else [2])
        memory = memory_into(store, taken)
        # A plain commit opens no handle; the engine's start-up does.
        assert (await memory.commit(OWNER, session.id)).turns == 0
        async with open_harness(store, clock=SystemClock(), memory=memory):
            pass  # start-up and shutdown both settle
        assert await store.ledger.list_owing() == []
    assert words_taken(taken) == ["one", "two"]
    assert len({line["key"] for line in taken_in(taken)}) == 1, "every attempt had the same key"


@pytest.mark.parametrize("lives_on", [True, False])
@pytest.mark.parametrize("moment", [Moment.MEMORY_STARTED, Moment.MEMORY_RETURNED], ids=str)
async def test_b10_b16_what_another_process_commits_is_left_to_it_until_it_is_dead(
    store_url: str, data_dir: Path, tmp_path: Path, moment: Moment, lives_on: bool
) -> None:
    taken = tmp_path / "taken"
    async with open_store(store_url, data_dir=data_dir) as store:
        session = await store.sessions.create(OWNER)
        memory = memory_into(store, taken)
        with child(store_url, data_dir, taken, moment, "stopped") as other:
            assert other.does(f"say {session.id} one")
            other.begins(f"leave {session.id}")
            other.stops()
            before = taken_in(taken)
            assert (await memory.commit_session(OWNER, session.id)).outcome is CommitOutcome.BUSY
            assert taken_in(taken) == before, "no other provider was called meanwhile"
            if lives_on:
                other.goes_on()
                assert other.has_done_it()
            else:
                other.kill()
                await store.workers.take_over("wrk_none")
        await memory.commit_session(OWNER, session.id)
        assert await store.ledger.list_owing() == []
        await memory.close()
    assert words_taken(taken) == ["one"]
    assert len({line["key"] for line in taken_in(taken)}) == 1, "every attempt had the same key"
    assert len(taken_in(taken)) == (2 if moment is Moment.MEMORY_RETURNED and not lives_on else 1)


@pytest.mark.parametrize("moment", [Moment.END_WRITTEN, Moment.END_COMMITTED], ids=str)
async def test_b02_killed_while_completing_a_turn_is_completed_and_owed_or_neither(
    store_url: str, data_dir: Path, tmp_path: Path, moment: Moment
) -> None:
    taken = tmp_path / "taken"
    async with open_store(store_url, data_dir=data_dir) as store:
        session = await store.sessions.create(OWNER)
    with child(store_url, data_dir, taken, moment) as first:
        assert not first.does(f"say {session.id} one")
        assert first.process.wait() == KILLED
    async with open_store(store_url, data_dir=data_dir) as store:
        _, (turn,), _ = await store.transcript.export(OWNER, session.id)
        owed = sum(owing.turns for owing in await store.ledger.list_owing())
        assert owed == (1 if turn.state == "completed" else 0)
        assert (turn.state == "completed") == (moment is Moment.END_COMMITTED)
        # Resumed where it was not completed; in the end it is taken in, once.
        model = ScriptedModel(then="fine")
        memory = memory_into(store, taken)
        async with open_harness(store, clock=SystemClock(), memory=memory, model=model) as h:
            await h.settled(turn.id)
    assert words_taken(taken) == ["one"]


async def test_b16_d03_two_processes_share_a_store_and_the_survivor_settles_for_the_dead(
    store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    taken, model = tmp_path / "taken", ScriptedModel(then="fine")
    async with open_store(store_url, data_dir=data_dir) as store:
        memory = memory_into(store, taken, idle_s=0.0, look_s=3600.0)
        settings = quiet_settings()
        async with open_harness(
            store, clock=SystemClock(), memory=memory, model=model, settings=settings
        ) as h:
            session = await h.new_session()
            await h.run(session, "here first")
            with child(store_url, data_dir, taken) as other:
                assert other.does(f"say {session.id} there")
                # D03: what the other process wrote is in the next request, read again because of its version.
                turn = await h.run(session, "here again")
                assert turn.state == "completed"
                assert [m.text for m in model.requests[-1].messages] == [
                    *("here first", "fine", "there", "fine", "here again"),
                ]
                reloads = h.engine.status()["cache"]["reloads_foreign"]
                await h.run(session, "and again")
                assert h.engine.status()["cache"]["reloads_foreign"] == reloads
                # The other one lives: what it saw is left to it.
                await memory.commit_due()
                assert words_taken(taken) == []
                other.kill()
            await store.workers.take_over("wrk_none")
            await memory.commit_due()
        assert await store.ledger.list_owing() == []
    assert words_taken(taken) == ["here first", "there", "here again", "and again"]
