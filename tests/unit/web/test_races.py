"""Small parts of the server, in the interleavings that would harm them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import WrongState
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.web.deletion import Deletions
from everturn.web.http.idempotency import FirstAnswers
from everturn.web.http.page_files import FileAnswer
from everturn.web.openai import completions
from everturn.web.openai.pieces import AnswerEnd
from everturn.web.uploads import Uploads
from tests.waiting import until

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


async def test_a_third_request_with_a_key_waits_for_the_second_that_waited_for_the_first(
    store: Store, clock: FakeClock
) -> None:
    answers = FirstAnswers(store.records, clock)
    inside: list[str] = []
    ends = {name: anyio.Event() for name in ("first", "second", "third")}
    changed = [anyio.Event()]

    async def request(name: str) -> None:
        async with answers.only_one("ada", "key"):
            inside.append(name)
            changed[-1].set()
            changed.append(anyio.Event())
            await ends[name].wait()
            inside.remove(name)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            first = changed[-1]
            group.start_soon(request, "first")
            await first.wait()
            second = changed[-1]
            group.start_soon(request, "second")
            await anyio.wait_all_tasks_blocked()
            ends["first"].set()
            await second.wait()
            group.start_soon(request, "third")
            await anyio.wait_all_tasks_blocked()
            assert inside == ["second"]
            for end in ends.values():
                end.set()
    assert len(answers) == 0, "unused keys leave nothing behind"


class Meanwhile:
    """The store's sessions; what ``act`` does happens after the deletions were read, before they are heard."""

    def __init__(self, store: Store) -> None:
        self._sessions = store.sessions
        self.act: Any = None

    async def deletions(self) -> Any:
        found = await self._sessions.deletions()
        act, self.act = self.act, None
        if act is not None:
            await act()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)


async def test_sessions_deleted_and_restored_while_the_deletions_are_read_are_as_they_became(
    store: Store, clock: FakeClock
) -> None:
    purged: list[str] = []

    async def purge(owner: str, session_id: str) -> None:
        purged.append(session_id)

    sessions = Meanwhile(store)
    deletions = Deletions(sessions, clock, purge, undo_s=10)
    old, new, kept = [(await store.sessions.create("ada")).id for _ in range(3)]
    async with deletions:
        await deletions.delete("ada", old)
        await clock.someone_sleeps(10)
        await clock.jump(5)

        async def act() -> None:
            await deletions.delete("ada", new)
            await deletions.restore("ada", old)

        sessions.act = act
        with pytest.raises(WrongState):
            await deletions.restore("ada", kept)  # reads the deletions first
        for _ in range(2):  # when the old one would have been due, and when the new one is
            await clock.someone_sleeps(5)
            await clock.jump(5)
        await until("the session is purged", lambda: purged == [new])


async def test_a_session_that_another_process_restores_before_the_purge_is_kept(
    store: Store, clock: FakeClock
) -> None:
    ended = anyio.Event()

    async def purge(owner: str, session_id: str) -> None:
        await store.sessions.restore(owner, session_id)
        try:
            await store.sessions.delete(owner, session_id, is_purge=True)
        finally:
            ended.set()

    session = await store.sessions.create("ada")
    async with Deletions(store.sessions, clock, purge, undo_s=10) as deletions:
        await deletions.delete("ada", session.id)
        await clock.someone_sleeps(10)
        await clock.jump(10)
        with anyio.fail_after(PATIENCE_S):
            await ended.wait()
    assert (await store.sessions.get("ada", session.id)).id == session.id


async def test_a_wall_clock_that_is_set_purges_nothing_early_and_nothing_late(
    store: Store, clock: FakeClock
) -> None:
    purged: list[str] = []

    async def purge(owner: str, session_id: str) -> None:
        purged.append(session_id)

    session = await store.sessions.create("ada")
    async with Deletions(store.sessions, clock, purge, undo_s=10) as deletions:
        await deletions.delete("ada", session.id)
        clock.set_wall(24 * 3600)
        await clock.jump(5)
        assert (await deletions.restore("ada", session.id)).id == session.id
        await deletions.delete("ada", session.id)
        clock.set_wall(-48 * 3600)
        await clock.someone_sleeps(10)
        await clock.jump(10)
        await until("the session is purged", lambda: purged == [session.id])


async def test_an_upload_that_ends_while_leftovers_are_cleared_is_not_an_error(tmp_path: Path) -> None:
    class Vanishing(type(tmp_path)):  # type: ignore[misc]  # the class of the paths of this system
        def glob(self, pattern: str) -> Any:
            yield self / "upload-gone"
            yield from super().glob(pattern)

    (tmp_path / "upload-old").write_bytes(b"x")
    assert await Uploads(Vanishing(tmp_path), 10, 1.0).clear(2**50) == 1
    assert list(tmp_path.iterdir()) == []


async def test_a_reader_that_takes_nothing_of_a_file_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1000))
    is_cut_off = anyio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await anyio.sleep_forever()

    scope = {"method": "GET", "extensions": {"everturn.abort": is_cut_off.set}}
    answer = FileAnswer(tmp_path / "large", 1000, "text/plain", (), send_timeout_s=0.01)
    with anyio.fail_after(PATIENCE_S):
        await answer(scope, None, send)  # type: ignore[arg-type]  # nothing is received here
    assert is_cut_off.is_set()


async def test_an_approval_answered_first_by_another_client_is_not_reported_as_denied() -> None:
    class Answered:
        async def answer(self, *args: Any, **more: Any) -> None:
            raise WrongState("This was answered already, with 'once', by ada.")

    listener = completions._Listener(Answered(), "ada", "trn_1")  # type: ignore[arg-type]  # has the one method that is called
    asked = ev.ApprovalRequested("ask_1", "call_1", "deploy", "{}", "digest", "reason")
    pieces = [piece for payload in (asked, ev.TurnCompleted()) async for piece in listener.take(payload)]
    assert pieces == [AnswerEnd()]
