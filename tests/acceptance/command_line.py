"""Everturn's commands as processes of their own, with nothing of ours in their environment but what is said."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.streams.text import TextReceiveStream

from everturn.testing.forks import Process, open_command, run_command
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
        environ = environment(home, wires, **{"COLUMNS": "100", **more})
        return run_command(*arguments, environ=environ, stdin=stdin, timeout_s=PATIENCE_S)

    return await anyio.to_thread.run_sync(call)


class Program:
    """A running command whose output can be waited for."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._out = TextReceiveStream(process.stdout)
        self.text = ""

    async def until(self, words: str) -> str:
        with anyio.fail_after(PATIENCE_S):
            while words not in self.text:
                self.text += await self._out.receive()
        return self.text

    async def rest(self) -> str:
        with anyio.fail_after(PATIENCE_S):
            async for piece in self._out:
                self.text += piece
            await self.process.wait()
        return self.text

    async def type(self, line: str) -> None:
        await self.process.stdin.send(line.encode() + b"\n")

    async def leave(self) -> None:
        await self.process.stdin.aclose()


@asynccontextmanager
async def program(environ: dict[str, str], *arguments: str) -> AsyncIterator[Program]:
    async with open_command(*arguments, environ=environ) as process:
        yield Program(process)


@asynccontextmanager
async def server(environ: dict[str, str], port: int) -> AsyncIterator[Program]:
    async with program(environ, "serve", "--port", str(port)) as running:
        await running.until("is ready")
        yield running
