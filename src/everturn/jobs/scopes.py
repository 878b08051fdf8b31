"""Scopes of systemd: a job in a scope of its own does not end with the service in which the server runs."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

_log = logging.getLogger("everturn.jobs")
_TRIAL_S = 15.0
_TRIAL_BYTES = 64 * 1024**2
# What a scope holds besides the command: the shim and the programs that build the sandbox.
_OWN_PROCESSES = 8
_READ_LIMIT = 'group=$(grep ^0:: /proc/self/cgroup) && cat "/sys/fs/cgroup${group#0::}/memory.max"'
_WITHOUT = (
    "systemd gives jobs no scope of their own here: %s. So they end with this service, unless its unit says "
    "KillMode=process. With that, it must not say Delegate=: while a job runs, systemd could not start the "
    "service again."
)


class ScopeLimits(msgspec.Struct, frozen=True):
    """What a scope must limit for the sandbox in it. ``memory`` 0: not by the scope."""

    processes: int
    memory: int


class Scopes(msgspec.Struct, frozen=True):
    """How a process is started in a scope of its own: by the manager of the system, or that of the user."""

    program: str
    is_user: bool = False

    @property
    def environ(self) -> dict[str, str]:
        if not self.is_user:
            return {}
        return {"XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")}

    def words(self, unit: str, limits: ScopeLimits | None = None) -> list[str]:
        """What has to be put before a command. The process becomes the command and keeps its descriptors."""
        options = ["--scope", "--quiet", "--collect", f"--unit={unit}.scope", "--description=Everturn job"]
        if limits is not None:
            options.append(f"--property=TasksMax={limits.processes + _OWN_PROCESSES}")
            if limits.memory:
                options += [f"--property=MemoryMax={limits.memory}", "--property=MemorySwapMax=0"]
        return [self.program, *(["--user"] if self.is_user else []), *options, "--"]


def find_scopes(*, needs_memory: bool, proc: Path = Path("/proc/self")) -> Scopes | None:
    """How jobs get scopes, found by trying. None outside a service, and, logged, where systemd refuses.

    ``needs_memory``: the sandbox counts on a control group for memory, so a scope must have one too.
    """
    groups = _groups_of((proc / "cgroup").read_text()) if (proc / "cgroup").exists() else []
    # The innermost unit: every session of a user is below the service of the user's manager.
    units = [name for name in groups if name.endswith((".service", ".scope"))]
    if not units or units[-1].endswith(".scope"):
        return None
    program = shutil.which("systemd-run")
    if program is None:
        _log.warning(_WITHOUT, "systemd-run is not installed")
        return None
    is_user = any(name.startswith("user@") for name in units[:-1])
    scopes = Scopes(program, is_user)
    refused = _try(scopes, needs_memory=needs_memory)
    if refused:
        _log.warning(_WITHOUT, refused)
        return None
    return scopes


def _groups_of(text: str) -> Sequence[str]:
    """The names on the path of the control group that systemd made for this process."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "name=systemd") and path != "/":
            return path.split("/")
    return []


def _try(scopes: Scopes, *, needs_memory: bool) -> str:
    """Start a process in a scope; return why that does not work, or nothing."""
    limits = ScopeLimits(1, _TRIAL_BYTES) if needs_memory else None
    command = ["/bin/sh", "-c", _READ_LIMIT if needs_memory else ":"]
    try:
        done = subprocess.run(  # noqa: S603 - systemd's own program
            [*scopes.words(f"everturn-trial-{os.getpid()}", limits), *command],
            env=scopes.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0:
        return done.stderr.strip().rstrip(".") or f"systemd-run ended with exit code {done.returncode}"
    if needs_memory and done.stdout.strip() != str(_TRIAL_BYTES):
        return "a scope does not limit memory"
    return ""
