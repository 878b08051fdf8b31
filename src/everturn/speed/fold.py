"""What ending a long turn costs: ``python -m everturn.speed.fold [--deltas 40000] [--quick]``.

The fold by itself, at two sizes (linear: four times the deltas cost four times as much), and its effect on
others: the longest wait of a small write in another session while the long turn is cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from everturn.domain import events as ev
from everturn.domain.events import Event
from everturn.domain.fold import fold
from everturn.domain.store_values import Claim, Submission
from everturn.speed.figures import Report, median
from everturn.store import Store, open_store

OWNER = "local"
TEXT = "twenty characters :)"
BATCH = 1000
ROUNDS = 3


def journal(deltas: int) -> list[Event]:
    payloads = [ev.StepStarted(1, "m"), *(ev.TextDelta(1, TEXT) for _ in range(deltas))]
    return [
        Event("s", number, "t", ev.kind_of(payload), 0, ev.encode(payload), 1, number)
        for number, payload in enumerate(payloads, start=1)
    ]


def fold_ms(deltas: int) -> float:
    events = journal(deltas)
    took = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        fold("t", events, is_ended=True)
        took.append((time.perf_counter() - begun) * 1000)
    return median(took)


async def start_turn(store: Store, deltas: int) -> Claim:
    session = await store.sessions.create(OWNER)
    await store.turns.accept(OWNER, session.id, Submission(text="go"))
    (held,) = await store.turns.claim("wrk_bench", session_id=session.id)
    number = held.number + 1
    for first in range(0, deltas, BATCH):
        count = min(BATCH, deltas - first)
        await store.journal.append(held.turn.id, held.epoch, number, [ev.TextDelta(1, TEXT)] * count)
        number += count
    return held


async def longest_wait_ms(deltas: int) -> tuple[float, float]:
    """How long the cancel took, and the longest write in another session meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(data_dir=Path(folder)) as store:
            held, other = await start_turn(store, deltas), await start_turn(store, 1)
            waits, number = [0.0], other.number + 2
            begun = time.perf_counter()
            cancel = asyncio.create_task(store.turns.cancel(OWNER, held.turn.id))
            while not cancel.done():
                asked = time.perf_counter()
                await store.journal.append(other.turn.id, other.epoch, number, [ev.TextDelta(1, TEXT)])
                waits.append((time.perf_counter() - asked) * 1000)
                number += 1
            await cancel
            return (time.perf_counter() - begun) * 1000, max(waits)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deltas", type=int, default=40_000)
    parser.add_argument("--quick", action="store_true", help="a quarter of that")
    asked = parser.parse_args()
    deltas = asked.deltas // 4 if asked.quick else asked.deltas
    report = Report(f"The fold of {deltas:,} deltas of {len(TEXT)} characters")
    quarter, whole = fold_ms(deltas // 4), fold_ms(deltas)
    report.say("fold, a quarter of the deltas", quarter, "ms")
    report.say("fold, all of them", whole, "ms")
    report.at_most("all ÷ a quarter (linear: 4)", whole / quarter, "", 6)
    took, waited = asyncio.run(longest_wait_ms(deltas))
    report.say("cancel of that turn", took, "ms")
    report.at_most("longest write in another session meanwhile", waited, "ms", 50)
    return report.close()


if __name__ == "__main__":
    main()  # figures, not a verdict: tests check that it is linear
