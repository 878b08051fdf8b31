"""The server dies, or is told to go, in the middle of 50 streams; no reader misses or repeats anything."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx2
import pytest

from everturn.testing.forks import Process, open_command
from everturn.testing.ports import free_port
from everturn.testing.web_server import StreamFrame, frames_of

pytestmark = pytest.mark.anyio

_STREAMS = 50
_PATIENCE_S = 180.0  # of a whole test
_LOST = (httpx2.TransportError,)


class Reader:
    """Follows one session as a browser does: it continues after the last event it saw."""

    def __init__(self, http: httpx2.AsyncClient, session_id: str) -> None:
        self._http = http
        self.session_id = session_id
        self.frames: list[StreamFrame] = []
        self.connections = 0
        self._texts = 0
        self.ends: list[str] = []
        self.has_seen_some = anyio.Event()
        self.has_seen_all = anyio.Event()

    async def run(self, is_up: list[anyio.Event]) -> None:
        while not self.frames or self.frames[-1].event != "turn.completed":
            await is_up[-1].wait()
            try:
                await self._read()
            except _LOST:
                await anyio.lowlevel.checkpoint()
        self.has_seen_all.set()

    async def _read(self) -> None:
        headers = {"Last-Event-ID": self.frames[-1].id} if self.frames else {}
        path = f"/api/sessions/{self.session_id}/events"
        async with self._http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200
            self.connections += 1
            async for frame in frames_of(answer.aiter_bytes()):
                if frame.event == "stream.end":
                    self.ends.append(frame.json["reason"])
                    return
                self.frames.append(frame)
                self._texts += frame.event == "text.delta"
                if self._texts >= 5:
                    self.has_seen_some.set()
                if frame.event == "turn.completed":
                    return


@asynccontextmanager
async def child(
    folder: Path, store_url: str, port: int, tokens: int, pause_s: float, grace_s: float = 0.2
) -> AsyncIterator[Process]:
    arguments = map(str, (folder, store_url, port, tokens, pause_s, grace_s))
    async with open_command(*arguments, environ=os.environ, module="tests.acceptance.http_child") as process:
        assert (await process.stdout.receive()).startswith(b"ready")
        yield process


async def start_turns(http: httpx2.AsyncClient, readers: list[Reader]) -> None:
    for _ in range(_STREAMS):
        session = (await http.post("/api/sessions", json={})).json()
        accepted = await http.post(f"/api/sessions/{session['id']}/turns", json={"text": "count"})
        assert accepted.status_code == 202
        readers.append(Reader(http, session["id"]))


async def check(http: httpx2.AsyncClient, reader: Reader) -> None:
    """What the reader saw is the journal: every event once, in order, with the same bytes."""
    positions = [int(frame.id) for frame in reader.frames]
    assert positions == list(range(1, len(positions) + 1))
    path = f"/api/sessions/{reader.session_id}/events?follow=0"
    async with http.stream("GET", path) as answer:
        journal = [frame async for frame in frames_of(answer.aiter_bytes()) if frame.id]
    assert reader.frames == journal
    page = (await http.get(f"/api/sessions/{reader.session_id}/messages")).json()
    assert page["turns"][0]["state"] == "completed"
    user = [message for message in page["messages"] if message["role"] == "user"]
    assert len(user) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_fifty_readers_survive_the_servers_end_without_gap_or_repeat(
    data_dir: Path, store_url: str, how: signal.Signals
) -> None:
    port = free_port()
    readers: list[Reader] = []
    up = [anyio.Event()]
    limits = httpx2.Limits(max_connections=None)
    with anyio.fail_after(_PATIENCE_S):
        async with (
            httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=_PATIENCE_S, trust_env=False
            ) as http,
            anyio.create_task_group() as group,
        ):
            async with child(data_dir, store_url, port, tokens=20_000, pause_s=0.1) as first:
                await start_turns(http, readers)
                up[-1].set()
                for reader in readers:
                    group.start_soon(reader.run, up)
                for reader in readers:
                    await reader.has_seen_some.wait()
                up.append(anyio.Event())
                first.send_signal(how)
                await first.wait()
            async with child(data_dir, store_url, port, tokens=30, pause_s=0.001):
                up[-1].set()
                async with anyio.create_task_group() as checks:
                    for reader in readers:
                        checks.start_soon(_checked, http, reader)
        assert len(readers) == _STREAMS
        assert all(reader.connections >= 2 for reader in readers)
        if how is signal.SIGTERM:
            assert all(reader.ends == ["shutdown"] for reader in readers)


async def _checked(http: httpx2.AsyncClient, reader: Reader) -> None:
    await reader.has_seen_all.wait()
    await check(http, reader)


async def test_a_stopping_server_refuses_work_and_a_second_signal_hurries_it(
    data_dir: Path, store_url: str
) -> None:
    port = free_port()
    with anyio.fail_after(_PATIENCE_S):
        async with (
            child(data_dir, store_url, port, tokens=100_000, pause_s=0.02, grace_s=600.0) as server,
            httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE_S, trust_env=False
            ) as http,
        ):
            session = (await http.post("/api/sessions", json={})).json()
            path = f"/api/sessions/{session['id']}"
            await http.post(f"{path}/turns", json={"text": "count"})
            async with http.stream("GET", f"{path}/events") as answer:
                frames = frames_of(answer.aiter_bytes())
                await anext(frames)
                await http.get("/readyz")
                server.send_signal(signal.SIGTERM)
                # The listening socket closes; a connection that is open is still answered.
                while (ready := await http.get("/readyz")).status_code == 200:
                    await anyio.lowlevel.checkpoint()
                assert ready.json()["code"] == "not_ready"
                refused = await http.post("/api/sessions", json={})
                assert (refused.status_code, refused.json()["code"]) == (503, "stopping")
                assert refused.headers["retry-after"] == "1"
                before = await anext(frames)  # running turns continue, and their readers see it
                assert before.event != "stream.end"
                server.send_signal(signal.SIGTERM)
                rest = [frame async for frame in frames]
                assert rest[-1].json == {"reason": "shutdown"}
            assert await server.wait() == 0
