"""The same figures for other projects: ``python -m everturn.speed.peers [--quick]``.

One more message in a short and in a long conversation, committed, and the bytes on disk per byte of text.
EVERTURN_PEERS_PYTHON names an interpreter in which they are installed (``pip install hermes-agent langgraph
langgraph-checkpoint-sqlite``); without it, our own. Those that are not installed are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from everturn.domain import events as ev
from everturn.speed import peer_program
from everturn.speed.figures import Report, median
from everturn.speed.store import OWNER, claims
from everturn.store import open_store

PYTHON = "EVERTURN_PEERS_PYTHON"


async def own(many: int) -> tuple[float, float, float]:
    """Everturn: one event of the same text appended, durable on return; and the bytes with all of them."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(data_dir=Path(folder)) as store:
            await store.workers.register("wrk_bench")
            [claim] = await claims(store, 1)
            times = []
            for index in range(many):
                started = time.perf_counter()
                payload = ev.TextDelta(index + 1, peer_program.TEXT)
                await store.journal.append(claim.turn.id, claim.epoch, claim.number + 1 + index, [payload])
                times.append((time.perf_counter() - started) * 1000)
            assert (await store.sessions.get(OWNER, claim.session.id)).position >= many
        size = sum(path.stat().st_size for path in Path(folder).glob("everturn.db*"))
    last = max(10, many // 10)
    return (
        median(times[10 : 10 + last]),
        median(times[-last:]),
        size / (many * len(peer_program.TEXT)),
    )


def others(many: int) -> list[dict[str, float | str]]:
    python = os.environ.get(PYTHON, sys.executable)
    ran = subprocess.run(
        [python, "-P", peer_program.__file__, str(many)], check=True, stdout=subprocess.PIPE, text=True
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def measure(report: Report, many: int) -> None:
    short, long, size = asyncio.run(own(many))
    report.say("Everturn: one more event in a short session", short, "ms")
    report.say(f"Everturn: one more event after {many:,}", long, "ms")
    report.say("Everturn: bytes on disk ÷ bytes of text, before pruning", size, "x")
    found = others(many)
    for peer in found:
        name = f"{peer['name']} {peer['version']}"
        report.say(f"{name}: one more message in a short session", float(peer["short_ms"]), "ms")
        report.say(f"{name}: one more message after {many:,}", float(peer["long_ms"]), "ms")
        report.say(f"{name}: bytes on disk ÷ bytes of text", float(peer["bytes_ratio"]), "x")
    missing = sorted(set(peer_program.PEERS) - {str(peer["name"]) for peer in found})
    if missing:
        print(f"  (not installed, so not measured: {', '.join(missing)})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    figures = Report("Peers")
    measure(figures, 100 if parser.parse_args().quick else 1_000)
    figures.close()
