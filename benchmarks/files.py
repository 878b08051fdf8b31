"""What checkpoints cost: ``python -m benchmarks.files [--files 10000] [--quick]``.

A folder of 10,000 files is scanned without a change, with one changed file, and restored. The floor is git in
the same run, on a copy of the folder: ``git add -A && git write-tree`` with ``core.fsync=all``, and
``git checkout``. Both write their objects with a sync; runs alternate, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.printing import Report, median
from everturn.domain.store_values import Submission
from everturn.domain.trees import Tree, decode_tree
from everturn.store import open_store
from everturn.workspace import (
    FilesSettings,
    Folder,
    IgnoreRules,
    Limits,
    Recorder,
    Restore,
    Scan,
    load_index,
    save_index,
)
from everturn.workspace.diff import diff
from everturn.workspace.scan import Source

OWNER = "local"
SIZES = (200, 1000, 4000, 20_000)


class Packs:
    """Bytes in synced files, one for each call, found through a dict."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._places: dict[str, tuple[Path, int, int]] = {}

    def put(self, sources: Sequence[Source]) -> list[tuple[str, int]]:
        pack = self._folder / str(len(list(self._folder.iterdir())))
        found = []
        with pack.open("wb") as file:
            for source in sources:
                data = source if isinstance(source, bytes) else source().read()
                sha256 = hashlib.sha256(data).hexdigest()
                self._places[sha256] = (pack, file.tell(), len(data))
                file.write(data)
                found.append((sha256, len(data)))
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return found

    def fetch(self, sha256: str) -> Iterator[bytes]:
        pack, start, size = self._places[sha256]
        with pack.open("rb") as file:
            file.seek(start)
            yield file.read(size)

    def load(self, sha256: str) -> Tree:
        return decode_tree(b"".join(self.fetch(sha256)), sha256)


class Ours:
    """A checkpoint as the engine makes it: the index is read from disk, and written if something changed."""

    def __init__(self, root: Path, beside: Path) -> None:
        self.root = root
        self.packs = Packs(beside / "packs")
        self._index = beside / "index"

    def checkpoint(self) -> str:
        return self._scan().tree

    def restore(self, tree: str) -> None:
        present = self._scan()
        changes = diff(self.packs.load, present.tree, tree)
        handle = os.open(self.root, os.O_RDONLY)
        try:
            result = Restore(handle, self.packs.fetch, seen=present).run(changes)
        finally:
            os.close(handle)
        if result.kept:
            raise SystemExit(f"not restored: {list(result.kept.items())[:3]}")

    def _scan(self) -> Folder:
        handle = os.open(self.root, os.O_RDONLY)
        try:
            known = load_index(self._index)
            found = Scan(IgnoreRules.of_workspace(), Limits(), self.packs.put).run(handle, known)
        finally:
            os.close(handle)
        if found is not known:
            save_index(self._index, found)
        return found


class Git:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.run("git init -q . && git config core.fsync all && git config core.fsyncMethod fsync")
        self.run(
            "git config user.name bench && git config user.email bench@localhost && git config gc.auto 0"
        )

    def checkpoint(self) -> None:
        self.run("git add -A && git write-tree")

    def run(self, command: str) -> None:
        subprocess.run(command, shell=True, cwd=self.root, check=True, stdout=subprocess.DEVNULL)


def make_files(root: Path, count: int) -> None:
    random.seed(1)
    for number in range(count):
        folder = root / f"d{number // 50 % 20}" / f"e{number // 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.txt").write_bytes(random.randbytes(random.choice(SIZES)))


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * 1000


def alternating(
    rounds: int, one: Callable[[], object], other: Callable[[], object], before: Callable[[int], None]
) -> tuple[float, float, float]:
    """The medians of both, and the median of their ratio in each round."""
    pairs = []
    for number in range(rounds):
        before(number)
        pairs.append((timed(one), timed(other)))
    return (
        median([pair[0] for pair in pairs]),
        median([pair[1] for pair in pairs]),
        median([pair[0] / pair[1] for pair in pairs]),
    )


def change_one(*roots: Path) -> Callable[[int], None]:
    def change(number: int) -> None:
        for root in roots:
            (root / "d0" / "e0" / "f0.txt").write_text(f"changed {number} {time.time_ns()}")

    return change


def empty(root: Path) -> None:
    for entry in root.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry)


async def recorded_ms(folder: Path, files: int, rounds: int) -> tuple[float, float]:
    """What a tool call gains in a workspace of so many files: one that changed nothing, one that wrote a
    file."""
    workspace = folder / "workspace"
    make_files(workspace, files)
    async with open_store(data_dir=folder / "data") as store:
        session = await store.sessions.create(OWNER)
        await store.turns.accept(OWNER, session.id, Submission(text="go"))
        (claim,) = await store.turns.claim("wrk_bench", session_id=session.id)
        recorder = Recorder(store, folder / "indexes", FilesSettings())
        await recorder.record(claim, workspace, None)
        await recorder.record(claim, workspace, None)
        took: tuple[list[float], list[float]] = ([], [])
        for number in range(2 * rounds):
            if number % 2:
                change_one(workspace)(number)
            begun = time.perf_counter()
            await recorder.record(claim, workspace, f"call_{number}")
            took[number % 2].append((time.perf_counter() - begun) * 1000)
    return median(took[0]), median(took[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    files, rounds = (200, 3) if chosen.quick else (chosen.files, 15)
    report = Report(f"Checkpoints of {files:,} files")
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as made:
        first, second = Path(made, "ours"), Path(made, "git")
        make_files(first, files)
        shutil.copytree(first, second)
        Path(made, "session").mkdir()
        ours, git = Ours(first, Path(made)), Git(second)
        measure(report, ours, git, rounds)
        idle, changed = asyncio.run(recorded_ms(Path(made).resolve() / "session", 500, rounds))
        report.at_most("a tool call gains, 500 files, nothing changed", idle, "ms", 10)
        report.say("a tool call gains, 500 files, one changed", changed, "ms")
    return 1 if report.close() and not chosen.quick else 0


def measure(report: Report, ours: Ours, git: Git, rounds: int) -> None:
    report.say("first checkpoint", timed(ours.checkpoint), "ms")
    report.say("first checkpoint, git", timed(git.checkpoint), "ms")
    git.run("git commit -qm first")
    tree = ours.checkpoint()
    mine, floor, ratio = alternating(rounds, ours.checkpoint, git.checkpoint, lambda _: None)
    report.at_most("no change", mine, "ms", 60)
    report.say("no change, git", floor, "ms")
    report.at_most("no change, times git", ratio, "x", 1.5)
    mine, floor, ratio = alternating(rounds, ours.checkpoint, git.checkpoint, change_one(ours.root, git.root))
    report.say("one changed file", mine, "ms")
    report.say("one changed file, git", floor, "ms")
    report.at_most("one changed file, times git", ratio, "x", 1.5)

    def clear(_: int) -> None:
        empty(ours.root)
        empty(git.root)
        git.checkpoint()  # its index knows, like ours, that the files are gone

    mine, floor, ratio = alternating(
        min(rounds, 5), lambda: ours.restore(tree), lambda: git.run("git checkout -q HEAD -- ."), clear
    )
    report.say("restore all files", mine, "ms")
    report.say("restore all files, git checkout", floor, "ms")
    report.at_most("restore all files, times git", ratio, "x", 3)


if __name__ == "__main__":
    sys.exit(main())
