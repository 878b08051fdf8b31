"""Starts the shim of a job."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from everturn.domain.errors import EverturnError
from everturn.jobs import shim
from everturn.jobs.folder import JobFolder
from everturn.jobs.watch import group_words, write_guard
from everturn.tools.sandbox.sandbox import DetachedCommand, Sandbox
from everturn.tools.sandbox.view import SandboxView

_STARTED = b"started\n"


class JobCommand(msgspec.Struct, frozen=True):
    """What a job runs. ``mark``: by which its processes are found if there is no sandbox."""

    argv: Sequence[str]
    view: SandboxView
    mark: str
    output_bytes_max: int
    is_sandboxed: bool = True


async def launch(sandbox: Sandbox, folder: JobFolder, lock: int, command: JobCommand) -> None:
    """Start the shim, and return when the command runs. Raises EverturnError if it could not be started.

    The shim inherits ``lock``. If the server dies before, the lock is free, and the job has never run.
    """
    async with sandbox.prepare_detached(
        command.argv, command.view, mark=command.mark, is_sandboxed=command.is_sandboxed
    ) as ready:
        own = (lock, *(ready.block or ()))
        spec = _spec(command, ready, own)
        await anyio.to_thread.run_sync(_write_spec, folder.path, ready, spec)
        answer = await anyio.to_thread.run_sync(_run_shim, folder.path, (*own, *ready.passed))
    if answer != _STARTED:
        end = folder.end()
        raise EverturnError(end.detail if end and end.detail else "The command could not be started.")


def _run_shim(folder: Path, passed: Sequence[int]) -> bytes:
    """Start the shim; return its answer. It forks, and the first process ends at once: the second is no
    server's child."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", shim.__file__, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=passed,
        env={},
        start_new_session=True,
        check=False,
    )
    return done.stdout


def _write_spec(folder: Path, ready: DetachedCommand, spec: bytes) -> None:
    write_guard(folder, ready.guard)
    path = folder / shim.SPEC
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as file:
        file.write(spec)


def _spec(command: JobCommand, ready: DetachedCommand, own: Sequence[int]) -> bytes:
    """What the shim reads, in Python's own format: both run on one interpreter, and it costs no import."""
    block = ready.block
    return marshal.dumps(
        {
            "words": ready.words,
            "env": ready.env,
            "folder": None if ready.folder is None else str(ready.folder),
            "passed": ready.passed,
            "own": tuple(own),
            "info": None if block is None else block.info,
            "hold": None if block is None else block.hold,
            "groups": group_words(ready.group),
            "processes": ready.processes,
            "limits": msgspec.structs.astuple(command.view.limits),
            "workspace": str(command.view.workspace),
            "mark": "" if block else command.mark,
            "output_bytes_max": command.output_bytes_max,
            "import_paths": _import_paths(),
        }
    )


def _import_paths() -> list[str]:
    """Where the shim finds what it imports, besides Python's own modules: it needs nothing that this process
    has not loaded.

    Not all of ``sys.path``: that can begin with the folder in which the server was started. If it is a
    project, a command there could write a module, which the shim would run outside the sandbox.
    """
    used = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and "." not in name and name != "__main__":
            folder = os.path.dirname(file)
            used.add(os.path.dirname(folder) if hasattr(module, "__path__") else folder)
    return [path for path in sys.path if path in used]
