"""What a sandboxed process may see and do: its folders, its network, its programs and its environment."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec

from everturn.tools.limits import ProcessLimits

TMP = "/tmp"  # noqa: S108 - private inside the sandbox
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SandboxView(msgspec.Struct, frozen=True):
    """What a process may see and do besides the system folders."""

    workspace: Path
    gate: Path | None = None  # the socket file that leads to the network
    host_network: bool = False  # everything that this machine can reach, including itself
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    real: tuple[Path, ...] = ()  # those of them whose paths must contain no link
    env: dict[str, str] = {}
    limits: ProcessLimits = ProcessLimits()
    is_read_only: bool = False  # the workspace too
    is_brief: bool = True  # one command, not a server that stays

    @property
    def is_gated(self) -> bool:
        """True if it reaches the network through a gate only."""
        return self.gate is not None and not self.host_network


def python_program() -> tuple[str, tuple[Path, ...]]:
    """Return a Python that works in the sandbox, and the folders that it needs besides the system's."""
    found = shutil.which("python3", path=_PATH)
    if found:
        return found, ()
    return os.path.realpath(sys.executable), (Path(sys.base_prefix),)


def program_folders(program: str) -> tuple[Path, ...]:
    """Return the folders that a program outside the system folders needs: its own, or its virtual
    environment's."""
    path = Path(program)
    if not path.is_absolute() or path.is_relative_to("/usr") or path.is_relative_to("/bin"):
        return ()
    settings = path.parent.parent / "pyvenv.cfg"
    if not settings.is_file():
        return (path.parent,)
    folders = [path.parent.parent]
    python = Path(os.path.realpath(path.parent / "python"))
    if not python.is_relative_to("/usr"):
        folders.append(python.parent.parent)
    return tuple(folders)


def environment(view: SandboxView) -> dict[str, str]:
    """Return the whole environment of a tool: an allow-list, never a filtered copy of ours."""
    return {
        "PATH": _PATH,
        "HOME": TMP,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # otherwise output appears only when it exits, and is lost if it is killed
        "NODE_USE_ENV_PROXY": "1",
        **view.env,
    }


def user_places() -> dict[str, str]:
    """Return where the user's programs and settings are, for processes outside the sandbox."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "USER") if name in os.environ}
