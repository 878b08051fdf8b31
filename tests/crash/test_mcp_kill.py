"""A worker is killed in each phase of a call to an MCP server. What the server did is counted there: each effect
once, or the user is asked whether it happened."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest

from everturn.domain.asks import AskTopic, DoubtAnswer
from everturn.domain.probe import Moment
from everturn.domain.turns import TurnState
from everturn.engine import Engine
from everturn.store import Store, open_store
from everturn.testing.acting import ME, new_session
from everturn.tools import EverturnToolbox
from tests.crash.mcp_work import open_engine, open_toolbox, prepare
from tests.crash.test_kill import KILLED
from tests.mcp_service import McpService, serve_mcp, sign_in_there
from tests.waiting import until

pytest.importorskip("mcp")
pytestmark = pytest.mark.anyio


class Place:
    """Where the killed worker and the next one work."""

    def __init__(self, url: str, folder: Path, service: McpService) -> None:
        self.store_url, self.folder, self.service = url, folder, service
        self.session = ""

    async def begin(self) -> None:
        async with open_store(self.store_url, data_dir=self.folder) as store:
            async with open_toolbox(store, self.folder, self.service.url) as toolbox:
                if self.service.server.settings.auth is not None:
                    await sign_in(toolbox)
                await prepare(toolbox)
            self.session = (await new_session(store)).id

    def command(self, tool: str, moment: str = "") -> list[str]:
        work = [self.store_url, str(self.folder), self.session, self.service.url, tool, moment]
        return [sys.executable, "-m", "tests.crash.mcp_work", *work]

    @contextmanager
    def worker(self, tool: str) -> Iterator[subprocess.Popen[bytes]]:
        """One that is killed at the end of the block, at the latest."""
        worker = subprocess.Popen(self.command(tool))
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait()


async def sign_in(toolbox: EverturnToolbox) -> None:
    sign_ins, server = toolbox.mcp.sign_ins, await toolbox.mcp.book.get("shelf")
    back = sign_in_there(await sign_ins.begin(server, "http://127.0.0.1:8420/api/mcp/callback"))
    await sign_ins.finish(back["state"], back["code"], None, dict(await toolbox.mcp.book.refresh()))
    toolbox.mcp.servers.forget("shelf")
    toolbox.mcp.servers.start_again(server)


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


@pytest.fixture
def service() -> Iterator[McpService]:
    with serve_mcp(has_sign_in=True) as service:
        yield service


@pytest.fixture
async def place(store_url: str, data_dir: Path, service: McpService) -> Place:
    place = Place(store_url, data_dir, service)
    await place.begin()
    return place


async def test_killed_before_the_call_the_user_is_asked_and_nothing_was_done(place: Place) -> None:
    died = subprocess.run(
        place.command("put", Moment.TOOL_STARTED), capture_output=True, text=True, timeout=180, check=False
    )
    assert died.returncode == KILLED, died.stderr
    async with next_worker(place) as (engine, store):
        await asked(store, place, AskTopic.DOUBT)
        assert place.service.effects == []
        await answer(engine, store, place, DoubtAnswer.RUN_AGAIN)
        assert place.service.effects == ["Emma"]


async def test_killed_during_the_call_its_effect_is_not_repeated(place: Place) -> None:
    with place.worker("wait"):
        assert await anyio.to_thread.run_sync(place.service.in_call.wait, 120)
    async with next_worker(place) as (engine, store):
        await asked(store, place, AskTopic.DOUBT)
        await answer(engine, store, place, DoubtAnswer.TAKE_AS_DONE)
    assert place.service.effects == ["Emma"]


async def test_killed_while_the_server_waits_for_the_user_the_call_is_in_doubt(place: Place) -> None:
    with place.worker("place"):
        async with open_store(place.store_url, data_dir=place.folder) as store:
            await asked(store, place, AskTopic.QUESTION)
    async with next_worker(place) as (engine, store):
        (ask,) = await store.asks.open(ME, place.session)
        await engine.answer(ME, ask.id, "the top", by="test")
        await asked(store, place, AskTopic.DOUBT)
        assert place.service.effects == []
        await answer(engine, store, place, DoubtAnswer.CHECK)
    assert place.service.effects == []


async def test_killed_while_its_token_is_refreshed_the_effect_happens_once(place: Place) -> None:
    oauth = place.service.oauth
    oauth.may_refresh.clear()
    oauth.in_refresh.clear()
    oauth.end_access()
    with place.worker("put"):
        assert await anyio.to_thread.run_sync(oauth.in_refresh.wait, 120)
    oauth.may_refresh.set()
    async with next_worker(place) as (engine, store):
        await asked(store, place, AskTopic.DOUBT)
        assert place.service.effects == []
        (ask,) = await store.asks.open(ME, place.session)
        await engine.answer(ME, ask.id, DoubtAnswer.RUN_AGAIN, by="test")
        # The answer with the new tokens came to a process that was dead, so the old ones are worth nothing.
        await asked(store, place, AskTopic.SIGN_IN)
        assert place.service.effects == []
        async with open_toolbox(store, place.folder, place.service.url) as toolbox:
            await sign_in(toolbox)
        await answer(engine, store, place, "signed in")
    assert place.service.effects == ["Emma"]


async def test_the_sign_in_question_outlives_the_worker(place: Place) -> None:
    place.service.oauth.end_all()
    with place.worker("put"):
        async with open_store(place.store_url, data_dir=place.folder) as store:
            await asked(store, place, AskTopic.SIGN_IN)
    async with next_worker(place) as (engine, store):
        (ask,) = await store.asks.open(ME, place.session)
        assert (ask.label, ask.choices) == ("shelf", ("signed in", "go on without it"))
        async with open_toolbox(store, place.folder, place.service.url) as toolbox:
            await sign_in(toolbox)
        await answer(engine, store, place, "signed in")
    assert place.service.effects == ["Emma"]


# --- the next worker ------------------------------------------------------------------------------------


@asynccontextmanager
async def next_worker(place: Place) -> AsyncIterator[tuple[Engine, Store]]:
    """Another process takes over, as at a restart."""
    async with (
        open_store(place.store_url, data_dir=place.folder) as store,
        open_toolbox(store, place.folder, place.service.url) as toolbox,
        open_engine(store, toolbox) as engine,
    ):
        yield engine, store


async def asked(store: Store, place: Place, topic: AskTopic) -> None:
    async def is_asked() -> bool:
        return [ask.topic for ask in await store.asks.open(ME, place.session)] == [topic]

    await until(f"the user is asked ({topic})", is_asked)


async def answer(engine: Engine, store: Store, place: Place, text: str) -> None:
    """Answer the open question, and wait until the turn has completed."""
    (ask,) = await store.asks.open(ME, place.session)
    await engine.answer(ME, ask.id, text, by="test")

    async def is_over() -> bool:
        return (await store.turns.get(ME, ask.turn_id)).state is TurnState.COMPLETED

    await until("the turn has completed", is_over)
