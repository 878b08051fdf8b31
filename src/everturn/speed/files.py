"""What checkpoints cost: ``python -m everturn.speed.files [--files 10000] [--quick]``.

A folder of 10,000 files is scanned without a change, with one changed file, and restored, with a store of
SQLite. The floor is git in the same run, on a copy of the folder: ``git add -A && git write-tree`` with
``core.fsync=all``, and ``git checkout``. Both write their objects with a sync; runs alternate, so that both
see the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from everturn.domain.store_values import Claim, Submission
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.working_copies import WorkingCopy
from everturn.speed.figures import Report, median
from everturn.store import Store, open_store
from everturn.workspace import FilesSettings, Recorder

OWNER = "local"
SIZES = (200, 1000, 4000, 20_000)
SETTLED_S = 0.05  # a file that was just written is read again by the next scan


class Cost(NamedTuple):
    """Milliseconds by the clock, and of this process and its children on a processor."""

    wall: float
    cpu: float


class Ours:
    """A checkpoint as the engine makes it; the index is read from disk, as after a start of the server."""

    def __init__(self, store: Store, claim: Claim, root: Path, indexes: Path) -> None:
        self._store = store
        self._claim = claim
        self.root = root
        self._indexes = indexes

    async def checkpoint(self, _: int = 0) -> None:
        await self._recorder().record(self._claim, self.root, "call_bench")

    async def restore(self, tree: str, folder: Path) -> None:
        copy = WorkingCopy(present=EMPTY_TREE, wanted=tree)
        brought = await self._recorder().bring(self._claim.session, folder, copy)
        if brought.kept:
            raise SystemExit(f"not restored: {list(brought.kept.items())[:3]}")

    async def last_tree(self) -> str:
        last = await self._store.checkpoints.last(OWNER, self._claim.session.id)
        return EMPTY_TREE if last is None else last.tree

    def _recorder(self) -> Recorder:
        return Recorder(self._store, self._indexes, FilesSettings())


class Git:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.run("git init -q . && git config core.fsync all && git config core.fsyncMethod fsync")
        self.run(
            "git config user.name bench && git config user.email bench@localhost && git config gc.auto 0"
        )

    async def checkpoint(self, _: int = 0) -> None:
        self.run("git add -A && git write-tree")

    async def restore(self, folder: Path) -> None:
        self.run(f"GIT_INDEX_FILE={folder}.index git --work-tree={folder} checkout -q HEAD -- .")

    def run(self, command: str) -> None:
        subprocess.run(command, shell=True, cwd=self.root, check=True, stdout=subprocess.DEVNULL)


def make_files(root: Path, count: int) -> None:
    random.seed(1)
    for number in range(count):
        folder = root / f"d{number // 50 % 20}" / f"e{number // 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.txt").write_bytes(random.randbytes(random.choice(SIZES)))


def used_ms() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both) * 1000


async def time_act(act: Callable[[], Awaitable[None]]) -> Cost:
    begun, used = time.perf_counter(), used_ms()
    await act()
    return Cost((time.perf_counter() - begun) * 1000, used_ms() - used)


async def time_alternately(
    rounds: int,
    one: Callable[[int], Awaitable[None]],
    other: Callable[[int], Awaitable[None]],
    before: Callable[[int], Awaitable[None]],
) -> list[tuple[Cost, Cost]]:
    """Either is first in every second round: the first one can find the disk busy with what was prepared."""
    pairs = []
    for number in range(rounds):
        await before(number)
        if number % 2:
            floor = await time_act(partial(other, number))
            pairs.append((await time_act(partial(one, number)), floor))
        else:
            mine = await time_act(partial(one, number))
            pairs.append((mine, await time_act(partial(other, number))))
    return pairs


def say_pairs(
    report: Report, what: str, pairs: list[tuple[Cost, Cost]], times: float, ms: float | None = None
) -> None:
    mine = median([mine.wall for mine, _ in pairs])
    if ms is None:
        report.say(what, mine, "ms")
    else:
        report.at_most(what, mine, "ms", ms)
    report.say(f"{what}, git", median([floor.wall for _, floor in pairs]), "ms")
    ratios = median([mine.wall / floor.wall for mine, floor in pairs])
    report.at_most(f"{what}, times git", ratios, "x", times)
    report.say(f"{what}, processor time", median([mine.cpu for mine, _ in pairs]), "ms")
    used = median([mine.cpu / floor.cpu for mine, floor in pairs])
    report.say(f"{what}, times git in processor time", used, "x")


def change_one(*roots: Path) -> Callable[[int], Awaitable[None]]:
    async def change(number: int) -> None:
        for root in roots:
            (root / "d0" / "e0" / "f0.txt").write_text(f"changed {number} {time.time_ns()}")
        await asyncio.sleep(SETTLED_S)

    return change


async def time_recording(
    store: Store, folder: Path, files: int, rounds: int
) -> tuple[list[Cost], list[Cost]]:
    """What a tool call gains in a workspace of so many files: one that changed nothing, one that wrote a
    file."""
    workspace = folder / "workspace"
    make_files(workspace, files)
    claim = await claim_turn(store)
    recorder = Recorder(store, folder / "indexes", FilesSettings())
    await recorder.record(claim, workspace, None)
    await asyncio.sleep(SETTLED_S)
    await recorder.record(claim, workspace, None)
    took: tuple[list[Cost], list[Cost]] = ([], [])
    for number in range(2 * rounds):
        if number % 2:
            await change_one(workspace)(number)

        async def record(number: int = number) -> None:
            await recorder.record(claim, workspace, f"call_{number}")

        took[number % 2].append(await time_act(record))
    return took


async def claim_turn(store: Store) -> Claim:
    session = await store.sessions.create(OWNER)
    await store.turns.accept(OWNER, session.id, Submission(text="go"))
    (claim,) = await store.turns.claim("wrk_bench", session_id=session.id)
    return claim


async def measure(report: Report, made: Path, files: int, rounds: int) -> None:
    first, second = made / "ours", made / "git"
    make_files(first, files)
    shutil.copytree(first, second)
    async with open_store(data_dir=made / "data") as store:
        ours, git = Ours(store, await claim_turn(store), first, made / "indexes"), Git(second)
        await compare(report, ours, git, rounds)
        (made / "session").mkdir()
        idle, changed = await time_recording(store, made / "session", 500, rounds)
    gains = "a tool call gains, 500 files"
    report.at_most(f"{gains}, nothing changed", median([cost.wall for cost in idle]), "ms", 10)
    report.at_most(f"{gains}, one changed", median([cost.wall for cost in changed]), "ms", 10)
    report.say(f"{gains}, one changed, processor time", median([cost.cpu for cost in changed]), "ms")


async def compare(report: Report, ours: Ours, git: Git, rounds: int) -> None:
    os.sync()
    report.say("first checkpoint", (await time_act(ours.checkpoint)).wall, "ms")
    os.sync()
    report.say("first checkpoint, git", (await time_act(git.checkpoint)).wall, "ms")
    git.run("git commit -qm first")
    tree = await ours.last_tree()

    async def change_nothing(_: int) -> None:
        """Nothing is changed."""

    await ours.checkpoint()
    pairs = await time_alternately(rounds, ours.checkpoint, git.checkpoint, change_nothing)
    say_pairs(report, "no change", pairs, 1.5, 60)
    pairs = await time_alternately(rounds, ours.checkpoint, git.checkpoint, change_one(ours.root, git.root))
    say_pairs(report, "one changed file", pairs, 1.5)

    # Into new folders of one parent: what a new file costs depends on where the file system puts it, and on
    # what was deleted there.
    parent = ours.root.parent / "restored"

    async def begin(number: int) -> None:
        for name in ("ours", "git"):
            (parent / f"{number}-{name}").mkdir(parents=True)
        os.sync()

    pairs = await time_alternately(
        min(rounds, 6),
        lambda number: ours.restore(tree, parent / f"{number}-ours"),
        lambda number: git.restore(parent / f"{number}-git"),
        begin,
    )
    say_pairs(report, "restore all files", pairs, 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    files, rounds = (200, 3) if chosen.quick else (chosen.files, 15)
    report = Report(f"Checkpoints of {files:,} files")
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as made:
        asyncio.run(measure(report, Path(made).resolve(), files, rounds))
    return 1 if report.close() and not chosen.quick else 0


if __name__ == "__main__":
    sys.exit(main())
