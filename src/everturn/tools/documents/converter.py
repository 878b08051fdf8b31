"""Converts one file in a child process with limits, and treats its answer as untrusted."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import anyio.to_thread
import msgspec

import everturn
from everturn.domain.clock import Clock
from everturn.tools.documents import program
from everturn.tools.documents.document import Document
from everturn.tools.limits import ProcessLimits
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView, program_folders
from everturn.tools.terminal.process import Command, run

BYTES_MAX: Final = 100_000_000  # larger documents are refused unread
_TIMEOUT_S = 120.0
_AT_ONCE = 2
_LEFT_BEHIND_S = 3600
_LIMITS = ProcessLimits(memory_mib=program.MEMORY_MIB + 128, processes=32, file_mib=1)
# Writes a document's bytes to the given file.
Copy = Callable[[BinaryIO], None]


class Converter:
    """``home`` is the data folder. The file is copied to a place there that only the child can read."""

    def __init__(self, sandbox: Sandbox, clock: Clock) -> None:
        self._sandbox = sandbox
        self._clock = clock
        self._folder = sandbox.home / "documents"
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def convert(self, kind: str, suffix: str, pieces: AsyncIterator[bytes]) -> Document:
        """Convert these bytes to a document, which has an ``error`` if it cannot be read.

        Raises what ``pieces`` raises, and OSError if the bytes cannot be copied.
        """
        async with self._limiter:
            await anyio.to_thread.run_sync(self._prepare)
            with _copy(self._folder, suffix) as copy:
                size = 0
                async for piece in pieces:
                    size += len(piece)
                    if size > BYTES_MAX:
                        return too_large(None)
                    await anyio.to_thread.run_sync(copy.write, piece)
                await anyio.to_thread.run_sync(copy.flush)
                return await self._run(kind, Path(copy.name))

    async def _run(self, kind: str, path: Path) -> Document:
        words = ("-I", "-m", program.__name__, kind, str(path))
        command = Command((sys.executable, *words), _TIMEOUT_S, is_sandboxed=self._sandbox.state.works)
        view = SandboxView(
            self._folder / "empty", read=(*_folders(), path), limits=_LIMITS, is_read_only=True
        )
        ran = await run(self._sandbox, command, view, emit=_ignore, clock=self._clock)
        if ran.is_timed_out:
            return Document(error=f"Reading it took longer than {_TIMEOUT_S:g} s, so it was stopped.")
        if ran.breach:
            return Document(error=f"Reading it was stopped: {ran.breach}.")
        try:
            return msgspec.json.decode(ran.output, type=Document)
        except msgspec.MsgspecError:
            said = ran.output[-300:].decode("utf-8", "replace").strip()
            # The kernel kills a child that uses too much memory or time, without any message.
            return Document(
                error=f"Reading it failed or hit a limit (exit {ran.exit_code}). {said}".strip(),
                is_passing=ran.exit_code == 1,
            )

    def _prepare(self) -> None:
        """Create the folders and remove leftovers of a crash."""
        (self._folder / "empty").mkdir(mode=0o700, parents=True, exist_ok=True)
        before = time.time() - _LEFT_BEHIND_S
        for path in self._folder.glob("document-*"):
            try:
                if path.stat().st_mtime < before:
                    path.unlink()
            except FileNotFoundError:
                continue  # another process removed it


def too_large(size: int | None) -> Document:
    found = "" if size is None else f" ({size:,} bytes)"
    return Document(
        error=f"It is too large to be read{found}: the limit is {BYTES_MAX // 1_000_000} MB. Attach the part "
        "that is needed."
    )


@contextmanager
def _copy(folder: Path, suffix: str):  # type: ignore[no-untyped-def]  # the wrapper of a named temporary file
    with tempfile.NamedTemporaryFile(dir=folder, prefix="document-", suffix=suffix) as file:
        yield file


def _folders() -> Sequence[Path]:
    """Return the folders that the child needs: Python, its packages, and this package."""
    package = Path(everturn.__file__).parent
    folders = list(program_folders(sys.executable))
    if not Path(os.path.realpath(sys.executable)).is_relative_to("/usr") and not folders:
        folders.append(Path(sys.base_prefix))
    if not any(package.is_relative_to(folder) for folder in (*folders, Path("/usr"))):
        folders.append(package.parent)
    return folders


async def _ignore(_: str) -> None:
    """Show nothing: the answer is data."""
