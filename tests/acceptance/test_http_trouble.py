"""A store that cannot write: /readyz and the list's stream report it, and its end."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from everturn.domain.sessions import NewSession
from everturn.store import Store, open_store
from everturn.store.files.disk import Disk
from everturn.testing.faulty_disk import FaultyVfs, Platter
from everturn.testing.postgres_proxy import PostgresProxy
from everturn.testing.web_server import PATIENCE_S, StreamFrame, run_web

pytestmark = pytest.mark.anyio


@pytest.fixture
async def faulty(anyio_backend: str, platter: Platter, vfs: FaultyVfs) -> AsyncIterator[Store]:
    """A store whose disk obeys the platter."""
    async with open_store(data_dir=platter.root, disk=Disk(vfs.name)) as store:
        yield store
        platter.heal()


async def next_of(frames: AsyncIterator[StreamFrame], *kinds: str) -> StreamFrame:
    async for frame in frames:
        if frame.event in kinds:
            return frame
    raise AssertionError("the stream ended")


async def test_a_full_disk_is_reported_while_it_lasts_and_no_longer(
    platter: Platter, faulty: Store, tmp_path: Path
) -> None:
    async with run_web(faulty, tmp_path) as server:
        with anyio.fail_after(PATIENCE_S):
            async with server.frames("/api/events") as frames:
                assert "trouble" not in (await next_of(frames, "sessions.snapshot")).json
                assert (await server.http.get("/readyz")).status_code == 200
                platter.fail("write", errno.ENOSPC)
                refused = await server.http.post("/api/sessions", json={"title": "lost"})
                assert (refused.status_code, refused.json()["code"]) == (507, "disk_full")
                begun = (await next_of(frames, "store.trouble")).json["trouble"]
                assert begun["code"] == "disk_full"
                assert "disk is full" in begun["message"]
                unready = await server.http.get("/readyz")
                assert (unready.status_code, unready.json()["code"]) == (503, "not_ready")
                assert unready.json()["reason"] == "disk_full"
                assert "disk is full" in unready.json()["detail"]
                health = (await server.http.get("/api/health")).json()
                assert (health["status"], health["problem"]) == ("failing", begun["message"])
                async with server.frames("/api/events") as others:
                    snapshot = await next_of(others, "sessions.snapshot")
                    assert snapshot.json["trouble"] == begun
                platter.heal()
                # No write is made: the store notices by itself.
                assert (await next_of(frames, "store.mended")).json == {"kind": "store.mended"}
                assert (await server.http.get("/readyz")).status_code == 200
                await server.new_session(title="kept")
                assert (await next_of(frames, "session.created")).json["session"]["title"] == "kept"


async def test_a_store_that_has_stopped_writing_stays_unready(
    platter: Platter, faulty: Store, tmp_path: Path
) -> None:
    async with run_web(faulty, tmp_path) as server:
        with anyio.fail_after(PATIENCE_S):
            async with server.frames("/api/events") as frames:
                await next_of(frames, "sessions.snapshot")
                platter.fail("sync", errno.EIO, times=1)
                assert (await server.http.post("/api/sessions", json={})).status_code == 503
                assert (await next_of(frames, "store.trouble")).json["trouble"]["code"] == "store_broken"
                platter.heal()
                again = await server.http.post("/api/sessions", json={})
                assert (again.status_code, again.json()["code"]) == (503, "store_broken")
                unready = await server.http.get("/readyz")
                assert (unready.status_code, unready.json()["reason"]) == (503, "store_broken")


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_an_unreachable_database_is_reported_and_streams_outlive_it(
    store: Store, spooling: Store, proxy: PostgresProxy, tmp_path: Path
) -> None:
    async with run_web(spooling, tmp_path, "One.") as server:
        session_id = (await server.new_session(title="before"))["id"]
        with anyio.fail_after(PATIENCE_S):
            async with (
                server.frames(f"/api/events?sessions={session_id}") as frames,
                server.frames(f"/api/sessions/{session_id}/events") as own,
            ):
                await next_of(frames, "sessions.snapshot")
                proxy.go_away()
                assert (await server.http.post("/api/sessions", json={})).status_code == 503
                begun = (await next_of(frames, "store.trouble")).json["trouble"]
                assert begun["code"] == "store_away"
                assert (await server.http.get("/readyz")).status_code == 503
                proxy.come_back()
                assert (await next_of(frames, "store.mended")).json == {"kind": "store.mended"}
                assert (await server.http.get("/readyz")).status_code == 200
                await store.sessions.create("local", NewSession(title="from elsewhere"))
                assert (await next_of(frames, "session.created")).json["session"]["title"] == "from elsewhere"
                await server.send(session_id)
                assert (await next_of(frames, "turn.completed")).json["session_id"] == session_id
                assert (await next_of(own, "turn.completed")).json["session_id"] == session_id
