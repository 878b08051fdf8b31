"""Everturn's commands as processes of their own, with nothing of ours in their environment but what is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio.to_thread

from everturn.testing.wires import WireServer

PATIENCE_S = 120


def environment(home: Path, wires: WireServer | None = None, **more: str) -> dict[str, str]:
    """An environment with the data folder and, if ``wires`` is given, the model."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN", "OPENAI"))}
    kept["EVERTURN_HOME"] = str(home)
    if wires is not None:
        kept |= {"OPENAI_BASE_URL": wires.url + "/v1", "OPENAI_API_KEY": "sk-test-000000000000"}
        kept["EVERTURN_MODEL"] = "openai:test-model"
    return kept | more


async def command(
    home: Path, *arguments: str, wires: WireServer | None = None, stdin: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. ``more``: variables of its environment."""

    def call() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "everturn", *arguments],
            env=environment(home, wires, **{"COLUMNS": "100", **more}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return await anyio.to_thread.run_sync(call)
