"""What traces cost a turn: ``python -m everturn.speed.tracing [--turns N]``.

The calls that every turn makes while traces are off, beside the whole turn with a model that answers at once;
and the CPU per turn with traces on, sent to a collector in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

from everturn.domain.clock import SystemClock
from everturn.domain.turn_traces import SentPart, TurnTraces
from everturn.domain.turns import Turn, TurnState
from everturn.speed.figures import Report
from everturn.store import open_store
from everturn.testing.harness import open_harness
from everturn.tracing import TraceSettings, open_traces

_CALLS = 200_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=300)
    turns = parser.parse_args().turns
    report = Report("Traces")
    off_ns = empty_calls_ns()
    report.say("the three calls of a turn while traces are off", off_ns, "ns")
    with tempfile.TemporaryDirectory() as folder:
        without_ms = asyncio.run(cpu_per_turn_ms(Path(folder) / "off", turns, ""))
        pipe, end = multiprocessing.Pipe()
        collector = multiprocessing.Process(target=collect, args=(end,), daemon=True)
        collector.start()
        with_ms = asyncio.run(cpu_per_turn_ms(Path(folder) / "on", turns, pipe.recv()))
        collector.terminate()
    report.say("CPU of a whole turn, traces off", without_ms, "ms")
    report.say("CPU of a whole turn, traces on", with_ms, "ms")
    report.at_most("share of a turn that the calls take while off", off_ns / 1e4 / without_ms, "%", 0.1)
    return report.close()


def empty_calls_ns() -> float:
    """The calls per turn that Everturn makes without traces."""
    traces, turn = TurnTraces(), Turn("trn_x", "ses_x", "local", TurnState.RUNNING, 1, 0)
    began = time.perf_counter_ns()
    for _ in range(_CALLS):
        traces.turn_accepted(turn, 0.1)
        traces.turn_left(turn.owner, turn.id)
        traces.part_sent(SentPart(turn.id, "prt_x", "telegram", "main", 1), 0.1)
    return (time.perf_counter_ns() - began) / _CALLS


async def cpu_per_turn_ms(folder: Path, turns: int, endpoint: str) -> float:
    """Run the turns one after the other; the sending that follows them counts too."""
    clock = SystemClock()
    async with open_store(None, data_dir=folder, clock=clock) as store:
        async with (
            open_traces(TraceSettings(endpoint=endpoint), store, clock) as traces,
            open_harness(store, *["done"] * (turns + 1), clock=clock, traces=traces) as harness,
        ):
            session = await harness.new_session()
            await harness.run(session)
            before = _cpu_s()
            for _ in range(turns):
                await harness.run(await harness.new_session())
        return (_cpu_s() - before) * 1000 / turns


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def collect(pipe: Connection) -> None:
    """Accept what is posted and discard it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(f"http://127.0.0.1:{server.server_port}/v1/traces")
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
