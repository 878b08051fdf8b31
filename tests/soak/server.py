"""``everturn serve`` with shorter times than the settings allow, so that a soak sees them pass.

python -m tests.soak.server --port 8420
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from msgspec.structs import replace

from everturn.cli.main import main
from everturn.config import Config, read_config
from everturn.store.blobs.files import Files


def read_short_times(*args: Any, **given: Any) -> Config:
    """The configuration, with events pruned and bytes collected after seconds, and a short grace for turns at
    the end."""
    config = read_config(*args, **given)
    engine = replace(config.engine, prune_s=2.0, prune_grace_s=20.0, stop_grace_s=1.0, sweep_s=1.0)
    return replace(config, engine=engine)


def collect_soon() -> None:
    """Bytes are collected after seconds instead of a day."""
    Files.sweep.__kwdefaults__.update(grace_ms=20_000, wait_ms=3_000)


if __name__ == "__main__":
    collect_soon()
    importlib.import_module("everturn.cli.serve").read_config = read_short_times  # type: ignore[attr-defined]  # a module's own name
    main(["serve", *sys.argv[1:]])
