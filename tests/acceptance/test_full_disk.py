"""The real server on a real disk of a few megabytes that fills up and is freed again."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import httpx2
import pytest

from everturn.testing.forks import open_command
from everturn.testing.web_server import StreamFrame, frames_of
from everturn.testing.wires import WireAnswer, WireServer, openai_answer, served
from tests.acceptance.command_line import PATIENCE_S, command, environment
from tests.small_disk import small_disk

pytestmark = pytest.mark.anyio

TURNS = 6
ENDS = ("turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled")


class HeldWires(WireServer):
    """A model that says the first word of each answer, and the others when it is told to."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.may_go_on = anyio.Event()

    async def _send(self, answer: WireAnswer, stream: anyio.abc.SocketStream) -> None:
        first, *rest = openai_answer(["one ", "two ", "three"])
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        await stream.send(head.encode())
        for piece in (first, *rest):
            await stream.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            await self.may_go_on.wait()
        await stream.send(b"0\r\n\r\n")


class Reader:
    """Follows one session to the end of its turn."""

    def __init__(self, http: httpx2.AsyncClient, session_id: str) -> None:
        self._http = http
        self.session_id = session_id
        self.frames: list[StreamFrame] = []
        self.has_text = anyio.Event()

    @property
    def text(self) -> str:
        return "".join(frame.json["event"]["text"] for frame in self.frames if frame.event == "text.delta")

    async def run(self) -> None:
        path = f"/api/sessions/{self.session_id}/events"
        async with self._http.stream("GET", path) as answer:
            async for frame in frames_of(answer.aiter_bytes()):
                self.frames.append(frame)
                if frame.event == "text.delta":
                    self.has_text.set()
                if frame.event in ENDS:
                    return


@asynccontextmanager
async def _serving(home: Path, wires: WireServer) -> AsyncIterator[httpx2.AsyncClient]:
    """``everturn serve`` in a process of its own, killed at the end."""
    async with open_command("serve", "--port", "0", environ=environment(home, wires)) as process:
        said = b""
        while (found := re.search(rb"http://[0-9.]+:[0-9]+", said)) is None:
            said += await process.stdout.receive()
        async with httpx2.AsyncClient(
            base_url=found.group().decode(), timeout=PATIENCE_S, trust_env=False
        ) as http:
            yield http


async def _until_ready(http: httpx2.AsyncClient, reason: str | None) -> None:
    """Wait until the server is unready for this reason, or ready."""
    while (await http.get("/readyz")).json().get("reason") != reason:
        await anyio.lowlevel.checkpoint()


async def test_turns_continue_by_themselves_when_the_disk_has_room_again(tmp_path: Path) -> None:
    with anyio.fail_after(2 * PATIENCE_S), small_disk(tmp_path / "disk", megabytes=8) as disk:
        async with (
            served(HeldWires) as wires,
            _serving(disk.root / "data", wires) as http,
            anyio.create_task_group() as group,
        ):
            readers: list[Reader] = []
            for _ in range(TURNS):
                session_id = (await http.post("/api/sessions", json={})).json()["id"]
                accepted = await http.post(f"/api/sessions/{session_id}/turns", json={"text": "Count"})
                assert accepted.status_code == 202
                readers.append(Reader(http, session_id))
                group.start_soon(readers[-1].run)
            for reader in readers:
                await reader.has_text.wait()
            asked = len(wires.requests)
            disk.fill()
            wires.may_go_on.set()
            await _until_ready(http, "disk_full")
            refused = await http.post(f"/api/sessions/{readers[0].session_id}/turns", json={"text": "More"})
            assert (refused.status_code, refused.json()["code"]) == (507, "disk_full")
            for reader in readers:
                page = (await http.get(f"/api/sessions/{reader.session_id}/messages")).json()
                assert [turn["state"] for turn in page["turns"]] == ["running"], "reads go on"
                assert reader.text == "one "
            assert len(wires.requests) == asked, "no model call starts"
            disk.free()
            for reader in readers:
                while not (reader.frames and reader.frames[-1].event in ENDS):
                    await anyio.lowlevel.checkpoint()
            await _until_ready(http, None)
        assert [reader.frames[-1].event for reader in readers] == ["turn.completed"] * TURNS
        assert [reader.text for reader in readers] == ["one two three"] * TURNS
        kinds = {frame.event for reader in readers for frame in reader.frames}
        assert not kinds & {"turn.resumed", "step.abandoned", "turn.interrupted"}


@pytest.mark.parametrize("free", [0, 8, 24, 40, 100, 300])
async def test_a_start_on_a_full_disk_says_so_in_a_sentence(tmp_path: Path, free: int) -> None:
    """Wherever the disk is full: making the schema, the log, its index, the worker's row."""
    with small_disk(tmp_path / "disk", megabytes=4) as disk:
        (disk.root / "data").mkdir()
        disk.fill(but=free * 1024)
        done = await command(disk.root / "data", "serve", "--port", "0")
        _assert_told(done.returncode, done.stderr, "Free space")
        disk.free()


@pytest.mark.parametrize("files", [2, 3, 4, 5, 6, 8, 10, 11])
async def test_a_start_where_no_more_files_fit_says_so_in_a_sentence(tmp_path: Path, files: int) -> None:
    with small_disk(tmp_path / "disk", megabytes=4, files=files) as disk:
        done = await command(disk.root / "data", "serve", "--port", "0")
        _assert_told(done.returncode, done.stderr, "Free space")


async def test_a_start_on_a_disk_that_became_full_says_so_and_works_when_there_is_room(
    tmp_path: Path, wires: WireServer
) -> None:
    """The database is whole, its last process was killed, and there is no room for the new worker's row."""
    with anyio.fail_after(2 * PATIENCE_S), small_disk(tmp_path / "disk", megabytes=4) as disk:
        home = disk.root / "data"
        async with _serving(home, wires) as http:
            session_id = (await http.post("/api/sessions", json={"title": "kept"})).json()["id"]
        disk.fill()
        for leftover in (None, home / "everturn.db-shm"):
            if leftover is not None:
                leftover.unlink()
                disk.fill()
            done = await command(home, "serve", "--port", "0")
            _assert_told(done.returncode, done.stderr, "Free space")
        disk.free()
        async with _serving(home, wires) as http:
            assert (await http.get(f"/api/sessions/{session_id}")).json()["title"] == "kept"


def _assert_told(code: int, said: str, hint: str) -> None:
    assert code == 1, said
    assert "Traceback" not in said
    message, told_hint = [line for line in said.splitlines() if not line.startswith("{")]
    assert "disk is full" in message or "disk has no room" in message, message
    assert hint in told_hint
