"""``everturn serve`` with shorter times than the settings allow, so that a soak sees them pass.

python -m everturn.testing.hurried_server --port 8420
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from msgspec.structs import replace

from everturn.cli.main import main as run_command
from everturn.config import Config, read_config
from everturn.domain.blobs import Collected, Roots
from everturn.domain.clock import SystemClock
from everturn.store.blobs.collector import Collector
from everturn.store.blobs.files import Files

COLLECTED: Final = "soak-collected"  # the file in the data folder that counts what was collected

_JUMP_MS = 3_600_000


# ``Any``: passed on to ``read_config`` as they came.
def read_short_times(*args: Any, **given: Any) -> Config:
    """The configuration, with sessions purged, events pruned and bytes collected after seconds, and a short
    grace for turns at the end. Some lives last less than a second, and they have to sweep, too."""
    config = read_config(*args, **given)
    engine = replace(config.engine, prune_s=2.0, prune_grace_s=20.0, stop_grace_s=1.0, sweep_s=0.3)
    return replace(config, engine=engine, web=replace(config.web, undo_delete_s=1.0))


def collect_soon() -> None:
    """Bytes are collected after seconds instead of a day, and a file in the data folder counts them."""
    defaults = Files.sweep.__kwdefaults__
    assert defaults is not None
    defaults.update(grace_ms=10_000, wait_ms=2_000)
    run = Collector.run

    async def counted(self: Collector, roots: Iterable[Roots]) -> Collected:
        done = await run(self, roots)
        if done.marked or done.deleted:
            with Path(os.environ["EVERTURN_HOME"], COLLECTED).open("a") as file:
                file.write(f"{done.marked} {done.deleted} {done.deleted_bytes}\n")
        return done

    Collector.run = counted  # type: ignore[method-assign]  # counts and calls the original


def obey_clock_signals() -> None:
    """SIGUSR1 sets this process's clock an hour later, SIGUSR2 an hour earlier, as an administrator might."""
    offset_ms = 0
    read = SystemClock.now_ms

    def jump(number: int, frame: FrameType | None) -> None:
        nonlocal offset_ms
        offset_ms += _JUMP_MS if number == signal.SIGUSR1 else -_JUMP_MS

    def now_ms(self: SystemClock) -> int:
        return read(self) + offset_ms

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]  # reads the original
    signal.signal(signal.SIGUSR1, jump)
    signal.signal(signal.SIGUSR2, jump)


def main() -> None:
    obey_clock_signals()
    collect_soon()
    importlib.import_module("everturn.cli.serve").read_config = read_short_times  # type: ignore[attr-defined]  # a module's own name
    run_command(["serve", *sys.argv[1:]])


if __name__ == "__main__":
    main()
