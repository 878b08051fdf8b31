"""The server's figures over real HTTP: ``python -m everturn.speed.http [--quick]``.

The server runs in its own process and the readers in another, on the same cores. Figures of similar
projects are shown where there are any.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import httpx2

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids, message_id
from everturn.domain.messages import Message, Role, Text
from everturn.domain.model import Abilities, Chunk, Finish, ModelRequest, TextChunk
from everturn.domain.runtime import Runtime
from everturn.domain.sessions import NewSession, Session
from everturn.domain.store_values import ImportedSession
from everturn.domain.turns import FinishReason, Turn, TurnState, Usage
from everturn.engine import Engine, EngineParts, EngineSettings
from everturn.speed.figures import Report, median, percentile
from everturn.store import open_store
from everturn.testing import FakeToolbox
from everturn.web import LOCAL_OWNER, WebServices, WebSettings, build_web, serve
from everturn.web.heap import collect_rarely

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
CLOCK_MS = 10_000_000  # a token says when it was made: the time modulo this
_TURNS_MAX = 10_000  # the default is 1,000: more would wait in the queue


# --- the server, in a process of its own ---------------------------------------------------------------


class PacedModel:
    """Sends as many tokens as the message asks for: ``tokens/per_second``, e.g. ``500/50``.

    ``500/50/1735689600.25`` begins at that time, so that many turns can be accepted before their tokens come.
    """

    name = "paced:one"
    abilities = Abilities(tools=False)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        yield self._chunks(request.messages[-1].text)

    async def _chunks(self, wish: str) -> AsyncIterator[Chunk]:
        count, pace, *start = wish.split("/")
        begin = time.perf_counter() + (max(0.0, float(start[0]) - time.time()) if start else 0.0)
        for index in range(int(count)):
            wait = begin + index / float(pace) - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            yield TextChunk(f" word{time.time() * 1000 % CLOCK_MS:07.0f}")
        yield Finish(FinishReason.STOP)


class PacedModels:
    default = PacedModel.name

    async def get(self, name: str | None) -> PacedModel:
        return PacedModel()

    async def cost(self, name: str, usage: Usage) -> float | None:
        return None


def run_server(folder: str, pipe: Connection, sessions: int, messages: int) -> None:
    asyncio.run(_server(Path(folder), pipe, sessions, messages))


async def _server(folder: Path, pipe: Connection, sessions: int, messages: int) -> None:
    clock = SystemClock()
    ids = Ids(clock)
    models = PacedModels()
    settings = WebSettings(home=folder, port=0, page=folder / "no-page", grace_s=0.0)
    async with open_store(data_dir=folder, clock=clock) as store:
        await asyncio.gather(
            *(store.sessions.create(LOCAL_OWNER, NewSession(title=f"Session {n}")) for n in range(sessions))
        )
        long = await store.transcript.import_session(
            LOCAL_OWNER, ImportedSession(*long_session(ids, clock, messages))
        )
        engine_settings = EngineSettings(
            makes_titles=False, server_turns_max=_TURNS_MAX, owner_turns_max=_TURNS_MAX
        )
        async with (
            Engine(EngineParts(store, models, FakeToolbox()), Runtime(clock, ids), engine_settings) as engine,
            build_web(WebServices(engine=engine, store=store, models=models), settings) as web,
        ):
            collect_rarely()
            await serve(
                web, settings, drain=engine.stop, on_ready=lambda address: pipe.send((address, long.id))
            )


def long_session(ids: Ids, clock: SystemClock, messages: int) -> tuple[Session, list[Turn], list[Message]]:
    now = clock.now_ms()
    turns: list[Turn] = []
    said: list[Message] = []
    for _ in range(messages // 2):
        parent = turns[-1].id if turns else None
        turn = Turn(ids.turn(), "", LOCAL_OWNER, TurnState.COMPLETED, 1, now, parent_id=parent, ended_at=now)
        turns.append(turn)
        for ordinal, role in enumerate((Role.USER, Role.ASSISTANT)):
            text = (Text("Some words that a person might have written. " * 5),)
            said.append(Message(message_id(turn.id, ordinal), turn.id, role, text, now, ordinal))
    session = Session(ids.session(), LOCAL_OWNER, 1, 0, now, now, title="Long", head=turns[-1].id)
    return session, turns, said


def rss_kb(pid: int | None) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1024


class SpeedServer:
    def __init__(self, process: multiprocessing.process.BaseProcess, address: str, long_id: str) -> None:
        self._process = process
        self.address = address
        self.port = int(address.rsplit(":", 1)[1].strip("/"))
        self.long_id = long_id

    @property
    def rss_kb(self) -> float:
        return rss_kb(self._process.pid)

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK


@asynccontextmanager
async def open_server(sessions: int = 10, messages: int = 10) -> AsyncIterator[SpeedServer]:
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        near, far = spawn.Pipe()
        process = spawn.Process(target=run_server, args=(folder, far, sessions, messages))
        process.start()
        address, long_id = await asyncio.to_thread(near.recv)
        try:
            yield SpeedServer(process, address, long_id)
        finally:
            process.terminate()
            await asyncio.to_thread(process.join, 20)
            if process.is_alive():
                process.kill()


# --- cheap readers ------------------------------------------------------------------------------------


class Reader:
    """One event stream over a raw socket; records when each event's last byte arrived."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self.delays_ms: list[float] = []
        self.deltas = 0
        self.is_open = asyncio.Event()
        self.is_done = asyncio.Event()

    async def run(self) -> None:
        stream, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        request = f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n"
        writer.write(request.encode())
        try:
            await stream.readuntil(b"retry: 1000\n\n")
            self.is_open.set()
            while line := await stream.readline():
                if line.startswith(b"data: "):
                    self._take(line)
                    if b'"kind":"turn.completed"' in line or b'"kind":"turn.failed"' in line:
                        break
            self.is_done.set()
        finally:
            writer.close()

    def _take(self, line: bytes) -> None:
        if b'"kind":"text.delta"' not in line:
            return
        at = int(line.split(b'"at":', 1)[1].split(b",", 1)[0])
        self.delays_ms.append(time.time() * 1000 - at)
        self.deltas += line.count(b" word")


@asynccontextmanager
async def open_readers(readers: list[Reader]) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = []
    for start in range(0, len(readers), 100):
        tasks += [asyncio.create_task(reader.run()) for reader in readers[start : start + 100]]
        await asyncio.gather(*(reader.is_open.wait() for reader in readers[start : start + 100]))
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def client(server: SpeedServer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=server.address, timeout=120, trust_env=False)


async def new_session(http: httpx2.AsyncClient) -> str:
    return str((await http.post("/api/sessions", json={})).json()["id"])


async def send(http: httpx2.AsyncClient, session_id: str, wish: str) -> None:
    answer = await http.post(f"/api/sessions/{session_id}/turns", json={"text": wish})
    answer.raise_for_status()


async def times_ms(http: httpx2.AsyncClient, path: str, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        answer = await http.get(path)
        taken.append((time.perf_counter() - begin) * 1000)
        answer.raise_for_status()
    return taken


# --- the figures --------------------------------------------------------------------------------------


async def start_and_idle(report: Report) -> None:
    environ = {**os.environ, "EVERTURN_MODEL": "openai:none", "OPENAI_API_KEY": "none"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled too
    starts, rss = [], 0.0
    for _ in range(4):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            process = subprocess.Popen(  # noqa: ASYNC220 - starting it is what is measured
                [sys.executable, "-m", "everturn", "serve", "--port", "0"],
                env={**environ, "EVERTURN_HOME": folder},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            await asyncio.to_thread(process.stdout.readline)  # type: ignore[union-attr]  # opened with a pipe
            starts.append(time.perf_counter() - begin)
            await asyncio.sleep(1)
            rss = rss_kb(process.pid) / 1024
            process.terminate()
            await asyncio.to_thread(process.communicate)
    report.at_most("server ready after start (Hermes WebUI: 0.75-0.9)", min(starts), "s", 0.8)
    report.at_most("idle RSS (Hermes WebUI: 94)", rss, "MB", 80)


async def lists(report: Report, quick: bool) -> None:
    sessions, messages = (200, 200) if quick else (10_000, 10_000)
    async with open_server(sessions, messages) as server, client(server) as http:
        await times_ms(http, "/api/sessions", 20)
        taken = await times_ms(http, "/api/sessions", 200)
        report.at_most(f"session list of {sessions:,}, first page, p50 (WebUI: 639)", median(taken), "ms", 5)
        taken = await times_ms(http, f"/api/sessions/{server.long_id}/messages", 200)
        report.at_most(f"open a session of {messages:,} messages, last page, p50", median(taken), "ms", 8)
        taken = await first_tokens(http, server, 40, await new_session(http))
        report.at_most("added time to first token, p50", median(taken), "ms", 10)
        taken = await first_tokens(http, server, 10, server.long_id)
        report.at_most(f"the same in a session of {messages:,} messages, warm, p50", median(taken), "ms", 30)
        running = [await new_session(http) for _ in range(100)]
        readers = [Reader(server.port, f"/api/sessions/{one}/events") for one in running]
        async with open_readers(readers):
            for one in running:
                await send(http, one, "100000/50")
            taken = await times_ms(http, "/api/sessions", 200)
            delays = [delay for reader in readers for delay in reader.delays_ms]
        report.at_most("session list while 100 turns stream at 50/s, p99", percentile(taken, 0.99), "ms", 30)
        report.say("event time to reader, 100 turns at 50/s, p50", median(delays), "ms")
        report.say("event time to reader, 100 turns at 50/s, p99", percentile(delays, 0.99), "ms")


async def first_tokens(
    http: httpx2.AsyncClient, server: SpeedServer, count: int, session_id: str
) -> list[float]:
    """From sending the message to its first word on the stream; the model itself takes no time."""
    taken = []
    for _ in range(count):
        position = (await http.get(f"/api/sessions/{session_id}")).json()["position"]
        reader = Reader(server.port, f"/api/sessions/{session_id}/events?after={position}")
        task = asyncio.create_task(reader.run())
        await reader.is_open.wait()
        begin = time.perf_counter()
        await send(http, session_id, "1/1000")
        while not reader.deltas:  # noqa: ASYNC110 - an event would add its own wake-up to the time
            await asyncio.sleep(0)
        taken.append((time.perf_counter() - begin) * 1000)
        await task
    return taken[len(taken) // 5 :]


async def fan_out(report: Report, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        async with open_server() as server, client(server) as http:
            session_id = await new_session(http)
            await times_ms(http, "/api/sessions", 20)
            before = server.rss_kb
            readers = [Reader(server.port, f"/api/sessions/{session_id}/events") for _ in range(size)]
            async with open_readers(readers):
                await asyncio.sleep(1)
                report.at_most(f"{size:,} idle streams, RSS each", (server.rss_kb - before) / size, "kB", 40)
                cpu = server.cpu_s
                await send(http, session_id, "100/20")
                await asyncio.gather(*(reader.is_done.wait() for reader in readers))
                cpu = server.cpu_s - cpu
            delays = [delay for reader in readers for delay in reader.delays_ms]
            missing = sum(reader.deltas != 100 for reader in readers)
            report.say(f"{size:,} readers of one session at 20/s, p50", median(delays), "ms")
            report.say(f"{size:,} readers of one session at 20/s, p99", percentile(delays, 0.99), "ms")
            report.say(f"{size:,} readers: server CPU per event and reader", cpu / (size * 100) * 1e6, "µs")
            report.at_most(f"{size:,} readers: readers that missed something", missing, "", 0)


async def one_stream(report: Report, tokens: int) -> None:
    """CPU per token where nothing shares a commit: ten turns at full speed."""
    async with open_server() as server, client(server) as http:
        sessions = [await new_session(http) for _ in range(10)]
        readers = [Reader(server.port, f"/api/sessions/{one}/events") for one in sessions]
        async with open_readers(readers):
            cpu = server.cpu_s
            for one in sessions:
                await send(http, one, f"{tokens}/1e9")
            await asyncio.gather(*(reader.is_done.wait() for reader in readers))
            cpu = server.cpu_s - cpu
        report.at_most("server CPU per token, model to wire, unpaced", cpu / (10 * tokens) * 1e6, "µs", 60)


async def main(quick: bool) -> int:
    report = Report("HTTP")
    await start_and_idle(report)
    await lists(report, quick)
    await one_stream(report, 2_000 if quick else 10_000)
    await fan_out(report, (100,) if quick else (100, 1_000, 5_000))
    return report.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    from everturn.web.server import raise_file_limit

    raise_file_limit()
    asyncio.run(main(parser.parse_args().quick))
