"""CPU per streamed chunk: our adapters and the raw client, with one server, in one run.

    python -m everturn.speed.models [--chunks 3000] [--rounds 3]

The server is a separate process. "paced": it waits a moment between two chunks, so that each chunk wakes
this process, as the tokens of one turn do. "burst": it does not wait, so that many chunks are read at
once, as on a busy server; this shows the cost of the code itself. The figures are this process's
CPU time, including the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import httpx2
import msgspec

from everturn.domain.clock import SystemClock
from everturn.domain.messages import Message, Role, Text
from everturn.domain.model import Model, ModelRequest, TextChunk
from everturn.models.anthropic_wire import AnthropicModel
from everturn.models.gemini_wire import GeminiModel
from everturn.models.network import make_client
from everturn.models.openai_wire import OpenAIModel
from everturn.models.responses_wire import ResponsesModel
from everturn.models.wire import Target
from everturn.speed.figures import Report
from everturn.testing.wires import (
    anthropic_end,
    anthropic_start,
    anthropic_text,
    gemini_answer,
    openai_answer,
    responses_answer,
    sse,
)

REQUEST = ModelRequest("", (Message("m", "t", Role.USER, (Text("Hello"),), 0),))
GAP_S = 0.0003


def serve(connection: Connection, chunks: int, gap_s: float) -> None:
    bodies = {
        "/v1/chat/completions": openai_answer([" token"] * chunks),
        "/v1/messages": sse(anthropic_start(), *anthropic_text(0, *[" token"] * chunks), *anthropic_end()),
        "/v1/responses": responses_answer([" token"] * chunks),
        "/models/m:streamgeneratecontent?alt=sse": gemini_answer([" token"] * chunks),
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split()[0])
        await reader.readexactly(length)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
            b"connection: close\r\n\r\n"
        )
        for piece in bodies[head.split()[1]]:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if gap_s:
                await writer.drain()
                await asyncio.sleep(gap_s)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        connection.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def raw_bytes(client: httpx2.AsyncClient, url: str) -> int:
    reads = 0
    async with client.stream("POST", url + "/v1/chat/completions", content=b"{}") as response:
        async for _ in response.aiter_raw():
            reads += 1
    return reads


async def raw_lines(client: httpx2.AsyncClient, url: str) -> int:
    """A minimal hand-written loop: lines, then JSON."""
    texts = 0
    async with client.stream("POST", url + "/v1/chat/completions", content=b"{}") as response:
        async for line in response.aiter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                delta = msgspec.json.decode(line[6:])["choices"][0]["delta"]
                texts += "content" in delta
    return texts


async def adapter(model: Model) -> int:
    texts = 0
    async with model.stream(REQUEST) as chunks:
        async for chunk in chunks:
            texts += chunk.text.count("token") if isinstance(chunk, TextChunk) else 0
    return texts


async def measure(run: Callable[[], Awaitable[int]]) -> tuple[float, int]:
    before = time.process_time()
    count = await run()
    return (time.process_time() - before) / count * 1e6, count


async def compare(url: str, rounds: int, report: Report, title: str) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client, make_client(is_near=True) as ours:
        openai = OpenAIModel(Target("b:m", "m", url + "/v1"), ours, SystemClock())
        anthropic = AnthropicModel(Target("b:m", "m", url), ours, SystemClock())
        responses = ResponsesModel(Target("b:m", "m", url + "/v1"), ours, SystemClock())
        gemini = GeminiModel(Target("b:m", "m", url), ours, SystemClock())
        runs: dict[str, Callable[[], Awaitable[int]]] = {
            "raw client, bytes only": lambda: raw_bytes(client, url),
            "raw client, lines and JSON": lambda: raw_lines(client, url),
            "OpenAI wire": lambda: adapter(openai),
            "Anthropic wire": lambda: adapter(anthropic),
            "Responses wire": lambda: adapter(responses),
            "Gemini wire": lambda: adapter(gemini),
        }
        best: dict[str, tuple[float, int]] = {}
        for _ in range(rounds):
            for name, run in runs.items():
                figure = await measure(run)
                best[name] = min(best.get(name, figure), figure)
    raw = best["raw client, lines and JSON"][0]
    for name, (micros, _) in best.items():
        report.say(f"{title}: {name}", micros, "µs/chunk")
    for name in ("OpenAI wire", "Anthropic wire", "Responses wire", "Gemini wire"):
        report.at_most(f"{title}: {name} ÷ raw client with lines and JSON", best[name][0] / raw, "x", 1.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for CI")
    options = parser.parse_args()
    if options.quick:
        options.chunks, options.rounds = options.chunks // 10, 1
    report = Report("Model wires: CPU per streamed chunk")
    for title, gap_s in (("burst", 0.0), ("paced", GAP_S)):
        here, there = multiprocessing.Pipe()
        arguments = (there, options.chunks, gap_s)
        server = multiprocessing.Process(target=serve, args=arguments, daemon=True)
        server.start()
        try:
            asyncio.run(compare(f"http://127.0.0.1:{here.recv()}", options.rounds, report, title))
        finally:
            server.terminate()
            server.join()
    report.close()


if __name__ == "__main__":
    main()
