"""A worker that was stopped past its lease and comes back: nothing of it lands, and it says so.

Both workers are real processes. The first stops itself at an exact moment, as if its machine were suspended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.events import Event
from everturn.domain.messages import Outcome, Result
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission
from everturn.domain.turns import Turn, TurnState
from everturn.store import Store, open_store
from everturn.testing import count_effects

pytestmark = pytest.mark.anyio
OWNER = "local"
PATIENCE_S = 180.0
ROOT = Path(__file__).parents[2]

# Where the first worker stops, and what the model still has to say to the second.
STOPS = {
    "delta.offered": "work done",  # inside the first model call
    "delta.offered batch.written": "work done",  # inside a transaction, with the session locked
    "step.finished": "done",  # before the tool
    "tool.started": "done",  # "started" is journaled, the tool has not run
}


class Worker:
    """One worker process and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    async def says(self, words: str) -> None:
        """Wait for a line with these words."""
        stdout = self.process.stdout
        assert stdout is not None
        with anyio.fail_after(PATIENCE_S):
            while True:
                line = await anyio.to_thread.run_sync(stdout.readline, abandon_on_cancel=True)
                assert line, f"the worker ended without saying {words!r}: {self.said}"
                self.said.append(line.rstrip())
                if words in line:
                    return

    async def stops(self) -> None:
        """Wait until it has stopped itself."""
        with anyio.fail_after(PATIENCE_S):
            _, status = await anyio.to_thread.run_sync(
                os.waitpid, self.process.pid, os.WUNTRACED, abandon_on_cancel=True
            )
        assert os.WIFSTOPPED(status), f"it ended instead of stopping: {status}"

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.says("ended")
        assert await anyio.to_thread.run_sync(self.process.wait) == 0


@contextmanager
def worker(url: str, folder: Path, name: str, moments: str, steps: str) -> Iterator[Worker]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.race.zombie", url, str(folder), name, moments, steps],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Worker(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.send_signal(signal.SIGCONT)
        with process:
            process.wait()


async def ended(store: Store, turn_id: str) -> Turn:
    """Follow the session until the turn has ended."""
    turn = await store.turns.get(OWNER, turn_id)
    with anyio.fail_after(PATIENCE_S):
        async for batch in store.journal.follow(OWNER, turn.session_id, 0):
            if any(event.kind in ("turn.completed", "turn.failed", "turn.cancelled") for event in batch):
                return await store.turns.get(OWNER, turn_id)
    raise AssertionError("a stream has no end")


async def journal(store: Store, turn: Turn) -> list[Event]:
    return await store.journal.after(OWNER, turn.session_id, 0)


def model_calls(folder: Path) -> list[str]:
    return (folder / "model-calls").read_text().split()


@pytest.mark.parametrize("store_kind", ["postgresql"])
@pytest.mark.parametrize("moments", list(STOPS))
async def test_a_worker_stopped_past_its_lease_is_fenced(
    store_url: str, tmp_path: Path, data_dir: Path, moments: str
) -> None:
    async with open_store(store_url, data_dir=data_dir, clock=SystemClock()) as store:
        session = await store.sessions.create(OWNER)
        with worker(store_url, tmp_path / "a", "a", moments, "work done") as first:
            await first.says("ready")
            accepted = await store.turns.accept(OWNER, session.id, Submission(text="go"))
            await first.stops()
            assert model_calls(tmp_path) == ["a"]
            with worker(store_url, tmp_path / "b", "b", "", STOPS[moments]) as second:
                turn = await ended(store, accepted.turn.id)
                assert turn.state is TurnState.COMPLETED
                events = await journal(store, turn)
                calls = model_calls(tmp_path)
                assert calls == ["a", *("b" for _ in STOPS[moments].split())]
                assert list(count_effects(tmp_path / "effects").values()) == [1]

                first.go_on()
                await first.says("not ours any more")

                await first.end()
                assert await journal(store, turn) == events
                assert await store.turns.get(OWNER, turn.id) == turn
                assert model_calls(tmp_path) == calls
                assert list(count_effects(tmp_path / "effects").values()) == [1]
                await second.end()
        assert await store.upkeep.check() == []


@contextmanager
def stopped_worker_on_sqlite(tmp_path: Path, moment: Moment) -> Iterator[tuple[str, Path, Worker]]:
    folder = tmp_path / "a"
    url = f"sqlite://{folder / 'everturn.db'}"
    with worker(url, folder, "a", moment, "work done") as first:
        yield url, folder, first


@pytest.mark.parametrize("moment", [Moment.DELTA_OFFERED, Moment.STEP_FINISHED])
async def test_a_worker_whose_turn_was_cancelled_while_it_was_stopped_starts_nothing(
    tmp_path: Path, moment: Moment
) -> None:
    """On SQLite a stopped process keeps its turns, so another process cancels instead."""
    with stopped_worker_on_sqlite(tmp_path, moment) as (url, folder, first):
        await first.says("ready")
        async with open_store(url, data_dir=folder, clock=SystemClock()) as store:
            await _cancelled_while_stopped(store, first)
            assert model_calls(tmp_path) == ["a"]
            assert count_effects(tmp_path / "effects") == {}


async def test_a_call_that_was_started_when_its_turn_was_cancelled_has_an_unknown_outcome(
    tmp_path: Path,
) -> None:
    """Its start was durable before the cancel, so the tool may still run: the transcript does not claim that it
    did not."""
    with stopped_worker_on_sqlite(tmp_path, Moment.TOOL_STARTED) as (url, folder, first):
        await first.says("ready")
        async with open_store(url, data_dir=folder, clock=SystemClock()) as store:
            turn = await _cancelled_while_stopped(store, first)
            page = await store.transcript.messages(OWNER, turn.session_id)
            results = [part for m in page.items for part in m.parts if isinstance(part, Result)]
            assert [result.outcome for result in results] == [Outcome.UNKNOWN]
            assert model_calls(tmp_path) == ["a"]


async def _cancelled_while_stopped(store: Store, first: Worker) -> Turn:
    session = await store.sessions.create(OWNER)
    accepted = await store.turns.accept(OWNER, session.id, Submission(text="go"))
    await first.stops()
    turn = await store.turns.cancel(OWNER, accepted.turn.id, by="another process")
    assert turn.state is TurnState.CANCELLED
    events = await journal(store, turn)

    first.go_on()
    await first.says("not ours any more")

    await first.end()
    assert await journal(store, turn) == events
    assert await store.upkeep.check() == []
    return turn
