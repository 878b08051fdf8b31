"""The engine's figures: ``python -m everturn.speed.engine [--quick]``.

CPU per streamed token, end to end (socket, wire, engine, store, follower), compared with a raw client that
only reads the same stream; and a thousand turns at once with a reader each.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import httpx2
import msgspec

from everturn.app import engine_settings
from everturn.config import read_config
from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.model import Abilities, Chunk, Finish, Model, ModelRequest, Models, TextChunk
from everturn.domain.runtime import Runtime
from everturn.domain.store_values import Submission
from everturn.domain.turns import FinishReason, Usage
from everturn.engine import Engine, EngineParts
from everturn.models.keys import Keys
from everturn.models.registry import ModelRegistry
from everturn.models.settings import ModelsSettings
from everturn.models.weights import PipDownload, Shelf
from everturn.speed.figures import Report, percentile
from everturn.store import SecretsFile, Store, open_store
from everturn.testing import FakeToolbox

OWNER = "local"
UNPACED = 1e9


# --- a model server in a process of its own, so that its CPU is not ours -------------------------------


def serve_tokens(pipe: Connection, tokens: int, per_second: float) -> None:
    """Answers every request with this many tokens at this pace, as an OpenAI-compatible server would."""
    chunk = b'data: {"id":"c","object":"chat.completion.chunk",'
    piece = chunk + b'"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
    last = chunk + b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    last += chunk + b'"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":5}}\n\ndata: [DONE]\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _read_request(reader):
                writer.write(head)
                begin = time.perf_counter()
                for index in range(tokens):
                    wait = begin + index / per_second - time.perf_counter()
                    if wait > 0:
                        await asyncio.sleep(wait)
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has read enough and disconnected
        finally:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
        pipe.send(server.sockets[0].getsockname()[1])
        async with server:
            await server.serve_forever()

    asyncio.run(run())


async def _read_request(reader: asyncio.StreamReader) -> bool:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            await reader.readexactly(int(line.split(b":")[1]))
    return True


@asynccontextmanager
async def token_server(tokens: int, per_second: float) -> AsyncIterator[str]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve_tokens, args=(theirs, tokens, per_second), daemon=True)
    process.start()
    port = await asyncio.to_thread(ours.recv)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.join()


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def raw_client(url: str, turns: int) -> float:
    """CPU seconds that only reading the streams takes."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(limits=limits, trust_env=False, timeout=120) as http:

        async def read() -> None:
            async with http.stream("POST", f"{url}/chat/completions", json={"stream": True}) as answer:
                async for _ in answer.aiter_bytes():
                    pass

        before = cpu()
        await asyncio.gather(*(read() for _ in range(turns)))
        return cpu() - before


@asynccontextmanager
async def engine_on(folder: Path, models: Models) -> AsyncIterator[tuple[Engine, Store]]:
    clock = SystemClock()
    ids = Ids(clock)
    settings = engine_settings(read_config(folder, {}))
    settings = msgspec.structs.replace(settings, makes_titles=False)
    async with (
        open_store(data_dir=folder, clock=clock) as store,
        Engine(EngineParts(store, models, FakeToolbox()), Runtime(clock, ids), settings) as engine,
    ):
        yield engine, store


async def follow_turn(
    engine: Engine, session_id: str, cursor: int, delays: list[float] | None = None
) -> None:
    async for batch in engine.follow(OWNER, session_id, cursor):
        now = time.time() * 1000
        for event in batch:
            if delays is not None and event.kind == "text.delta":
                delays.append(now - event.at)
            if event.kind.startswith("turn.") and event.kind not in ("turn.accepted", "turn.started"):
                return


async def cpu_per_token(report: Report, base: Path, turns: int, tokens: int, per_second: float) -> None:
    async with token_server(tokens, per_second) as url:
        raw = await raw_client(url, turns)
        environ = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-bench-0000000000"}
        folder = Path(tempfile.mkdtemp(dir=base))
        async with (
            ModelRegistry(
                ModelsSettings(),
                Keys(SecretsFile(folder), environ),
                SystemClock(),
                environ,
                Shelf(folder / "models", PipDownload(environ)),
                default="openai:bench",
            ) as models,
            engine_on(folder, models) as (engine, _),
        ):
            sessions = [await engine.create_session(OWNER) for _ in range(turns)]
            before = cpu()

            async def one(session_id: str) -> None:
                accepted = await engine.submit(OWNER, session_id, Submission(text="go"))
                await follow_turn(engine, session_id, accepted.cursor)

            await asyncio.gather(*(one(session.id) for session in sessions))
            whole = cpu() - before
    count = turns * tokens
    if per_second >= UNPACED:
        report.say("CPU per token, raw client, as fast as it comes", raw / count * 1e6, "µs")
        report.at_most("CPU per token, end to end, as fast as it comes", whole / count * 1e6, "µs", 60)
        return
    # When paced, each token causes a wake-up, which costs even the raw client far more than the token.
    label = f"{turns} turns x {per_second:g} tokens/s"
    report.say(f"CPU per token, raw client, {label}", raw / count * 1e6, "µs")
    report.at_most(f"CPU per token, what we add to it, {label}", (whole - raw) / count * 1e6, "µs", 60)


class PacedModel:
    """A model in this process that sends a word now and then."""

    name = "bench:paced"
    abilities = Abilities(tools=False)

    def __init__(self, tokens: int, per_second: float) -> None:
        self._tokens = tokens
        self._per_second = per_second

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        yield self._chunks()

    async def _chunks(self) -> AsyncIterator[Chunk]:
        begin = time.perf_counter()
        for index in range(self._tokens):
            await asyncio.sleep(max(0.0, begin + index / self._per_second - time.perf_counter()))
            yield TextChunk(" word")
        yield Finish(FinishReason.STOP)


class OneModel:
    default = "bench:paced"

    def __init__(self, model: Model) -> None:
        self._model = model

    async def get(self, name: str | None) -> Model:
        return self._model

    async def cost(self, name: str, usage: Usage) -> float | None:
        return None


async def many_turns(report: Report, base: Path, turns: int, seconds: float) -> None:
    """Every event of every turn durable and delivered, one reader each."""
    tokens = int(10 * seconds)
    folder = Path(tempfile.mkdtemp(dir=base))
    async with engine_on(folder, OneModel(PacedModel(tokens, 10))) as (engine, store):
        sessions = [await engine.create_session(OWNER) for _ in range(turns)]
        delays: list[float] = []

        async def one(session_id: str) -> None:
            accepted = await engine.submit(OWNER, session_id, Submission(text="go"))
            await follow_turn(engine, session_id, accepted.cursor, delays)

        await asyncio.gather(*(one(session.id) for session in sessions))
        for session in sessions[:: max(1, turns // 50)]:
            [_, said] = (await store.transcript.messages(OWNER, session.id)).items
            assert said.text == " word" * tokens
    label = f"{turns:,} turns at once, 10 tokens/s"
    report.at_most(f"{label}: written to read, p99", percentile(delays, 0.99), "ms", 300)
    report.say(f"{label}: written to read, p50", percentile(delays, 0.5), "ms")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.at_most(f"{label}: memory, peak", memory, "MB", 400)


async def run(arguments: argparse.Namespace) -> int:
    base = Path(arguments.folder)
    report = Report("Engine" + (" (short)" if arguments.quick else ""))
    if arguments.quick:
        await many_turns(report, base, 100, 2)
        await cpu_per_token(report, base, 10, 1_000, UNPACED)
    else:
        await many_turns(report, base, 1_000, 10)
        await cpu_per_token(report, base, 10, 5_000, UNPACED)
        await cpu_per_token(report, base, 100, 250, 50)
    return report.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for CI")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where to write: a real disk")
    asyncio.run(run(parser.parse_args()))
    sys.exit(0)


if __name__ == "__main__":
    main()
