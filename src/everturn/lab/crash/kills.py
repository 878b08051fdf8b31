"""Kill a process at a random passing of a random moment, again and again in one folder; check each time."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from everturn.domain.probe import Moment
from everturn.lab.crash.checks import After
from everturn.lab.crash.engine_checks import check_engine_life
from everturn.lab.crash.notes import read_notes
from everturn.lab.crash.store_life import PASSES
from everturn.lab.trial import Trial, failure_of
from everturn.store import open_store
from everturn.testing.forks import run_command

KILLED = 137
DEATHS_IN_A_FOLDER = 10  # then a new one: the check of all that was acknowledged takes longer each time
_PASSING_MAX = 40
_LIFE_S_MAX = 300.0


def live_and_die(part: str, url: str, folder: Path, notes: Path, moment: Moment | None, nth: int) -> int:
    """Let a child live this part until it passes the moment for the ``nth`` time; return its exit code."""
    arguments = [part, url, str(folder), str(notes), moment or "", str(nth)]
    done = run_command(
        *arguments, environ=os.environ, stdin="", timeout_s=_LIFE_S_MAX, module="everturn.lab.crash.child"
    )
    assert done.returncode in (0, KILLED), done.stderr
    return done.returncode


async def kill(folder: Path, choice: random.Random, url: str = "") -> AsyncIterator[Trial]:
    """Die several times in one folder. A life that passed its moment too seldom does not count."""
    for _ in range(DEATHS_IN_A_FOLDER):
        part = choice.choice(["store", "engine"])
        moment = choice.choice(sorted(PASSES) if part == "store" else sorted(Moment))
        nth = 1 + int(_PASSING_MAX * choice.random() ** 3)  # most moments are passed a few times only
        trial = await _die_and_check(folder, part, url, moment, nth)
        if trial is not None:
            yield trial
            if trial.failure:
                return  # what is found after this says nothing about the next death


async def _die_and_check(folder: Path, part: str, url: str, moment: Moment, nth: int) -> Trial | None:
    notes, data = folder / "notes", folder / "data"
    started = time.monotonic()
    try:
        code = await anyio.to_thread.run_sync(live_and_die, part, url, data, notes, moment, nth)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return Trial("kill", str(moment), time.monotonic() - started, f"The life did not end: {error}")
    started = time.monotonic()
    failure = await failure_of(_check(part, url, data, notes))
    if code != KILLED and not failure:
        return None
    return Trial("kill", str(moment), time.monotonic() - started, failure)


async def _check(part: str, url: str, data: Path, notes: Path) -> None:
    if part == "engine":
        await check_engine_life(url, data, read_notes(notes))
        return
    async with open_store(url, data_dir=data) as store:
        await After(store, read_notes(notes)).check()
