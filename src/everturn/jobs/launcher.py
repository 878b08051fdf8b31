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
from everturn.jobs.scopes import ScopeLimits, Scopes
from everturn.jobs.watch import group_words, write_guard
from everturn.tools.sandbox.sandbox import DetachedCommand, Sandbox
from everturn.tools.sandbox.view import SandboxView

_STARTED = b"started\n"


class JobCommand(msgspec.Struct, frozen=True):
    """What a job runs. ``mark``: by which its processes are found if there is no sandbox. ``scopes``: how it
    gets a scope of systemd; None: it stays in the server's control group."""

    argv: Sequence[str]
    view: SandboxView
    mark: str
    output_bytes_max: int
    is_sandboxed: bool = True
    scopes: Scopes | None = None


async def launch(sandbox: Sandbox, folder: JobFolder, lock: int, command: JobCommand) -> None:
    """Start the shim, and return when the command runs. Raises EverturnError if it could not be started.

    The shim inherits ``lock``. If the server dies before, the lock is free, and the job has never run.
    """
    async with sandbox.prepare_detached(
        command.argv,
        command.view,
        mark=command.mark,
        is_sandboxed=command.is_sandboxed,
        has_scope=command.scopes is not None,
    ) as ready:
        own = (lock, *(ready.block or ()))
        spec = _spec(command, ready, own)
        await anyio.to_thread.run_sync(_write_spec, folder.path, ready, spec)
        words = _scope_words(command, ready)
        environ = command.scopes.environ if command.scopes else {}
        answer, said = await anyio.to_thread.run_sync(
            _run_shim, folder.path, words, environ, (*own, *ready.passed)
        )
    if answer != _STARTED:
        end = folder.end()
        detail = end.detail if end and end.detail else said
        raise EverturnError(detail or "The command could not be started.")


def _scope_words(command: JobCommand, ready: DetachedCommand) -> Sequence[str]:
    """What starts the shim in a scope of its own; nothing where there are none."""
    if command.scopes is None:
        return ()
    limits = ScopeLimits(command.view.limits.processes, ready.scope_memory) if ready.block else None
    return command.scopes.words(f"everturn-{command.mark}", limits)


def _run_shim(
    folder: Path, scope: Sequence[str], environ: dict[str, str], passed: Sequence[int]
) -> tuple[bytes, str]:
    """Start the shim; return its answer, and what systemd said if it gave no scope. The shim forks, and the
    first process ends at once: the second is no server's child."""
    done = subprocess.run(  # noqa: S603 - our own program
        [*scope, sys.executable, "-I", "-S", shim.__file__, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if scope else None,
        pass_fds=passed,
        env=environ,
        start_new_session=True,
        check=False,
    )
    refusal = (done.stderr or b"").decode(errors="replace").strip()
    return done.stdout, f"systemd gave the job no scope of its own: {refusal}" if refusal else ""


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
            "is_kept": ready.is_kept,
            "groups": group_words(ready.group),
            "scope_memory": ready.scope_memory,
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
