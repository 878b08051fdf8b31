"""A07: an answer is of one moment. Whatever commits while it is made, it is all before that or all after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.sessions import SessionPatch
from everturn.store import Store
from everturn.testing.acting import ME
from everturn.testing.models import Say, Wait
from everturn.testing.web_server import Running, run_web

pytestmark = pytest.mark.anyio
READS_MAX = 8  # more than any answer here takes


class BetweenReads:
    """Does something right after the n-th read that the store makes from now on."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read = store.database.read
        self._left = 0
        self._act: Callable[[], Awaitable[None]] | None = None
        monkeypatch.setattr(store.database, "read", self.read)

    def after(self, reads: int, act: Callable[[], Awaitable[None]]) -> None:
        self._left, self._act = reads, act

    def no_more(self) -> None:
        self._act = None

    async def read(self, script: Any, *args: Any) -> Any:
        found = await self._read(script, *args)
        self._left -= 1
        if self._left == 0 and self._act is not None:
            act, self._act = self._act, None
            await act()
        return found


@pytest.fixture
def between(store: Store, monkeypatch: pytest.MonkeyPatch) -> BetweenReads:
    return BetweenReads(store, monkeypatch)


async def _said_half(server: Running, session_id: str) -> dict[str, Any]:
    accepted = await server.send(session_id)
    await server.read_until(f"/api/sessions/{session_id}/events?after=0", "text.delta")
    turn: dict[str, Any] = accepted["turn"]
    return turn


@pytest.mark.parametrize("reads", range(1, READS_MAX))
async def test_a07_a_turn_is_listed_as_completed_only_with_its_answer(
    store: Store, tmp_path: Path, between: BetweenReads, reads: int
) -> None:
    """The turn completes after the n-th read of ``GET /messages``, for every n."""
    go_on = anyio.Event()
    async with run_web(store, tmp_path, [Say("Half"), Wait(go_on), Say(" and whole.")]) as server:
        session = await server.new_session()
        turn = await _said_half(server, session["id"])
        completed = f"/api/sessions/{session['id']}/events?after=0"

        async def complete() -> None:
            go_on.set()
            await server.read_until(completed, "turn.completed")

        between.after(reads, complete)
        page = (await server.http.get(f"/api/sessions/{session['id']}/messages")).json()
        between.no_more()
        (listed,) = page["turns"]
        answers = [message for message in page["messages"] if message["role"] == "assistant"]
        assert listed["id"] == turn["id"]
        assert (listed["state"] == "completed") == bool(answers)
        assert (listed["state"] == "completed") == (page["replay_from"] == page["position"])
        await complete()


@pytest.mark.parametrize("reads", range(1, READS_MAX))
async def test_a07_the_list_s_snapshot_and_its_totals_are_of_one_moment(
    store: Store, tmp_path: Path, between: BetweenReads, reads: int
) -> None:
    """A session is archived after the n-th read of the snapshot, for every n."""
    async with run_web(store, tmp_path) as server:
        ids = [(await server.new_session())["id"] for _ in range(3)]

        async def archive() -> None:
            await store.sessions.change(ME, ids[0], SessionPatch(archived=True))

        between.after(reads, archive)
        (*_, frame) = await server.read_until("/api/events", "sessions.snapshot")
        between.no_more()
        snapshot = frame.json
        assert len(snapshot["sessions"]) + snapshot["counts"]["archived"] == snapshot["counts"]["sessions"]
