"""Debian's programs as child processes of the drill, as an ordinary user, ended with it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import anyio

INSTALL = "apt-get update && apt-get install --no-install-recommends haproxy pgbouncer patroni etcd-server postgresql-15"
_PLACES = "/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin"
_NEEDED = ("haproxy", "pgbouncer", "patroni", "etcd", "postgres")
_OPEN_S = 60.0
_LOOK_S = 0.05


class _RunsAs(TypedDict, total=False):
    """The user of a program, for ``subprocess``."""

    user: int
    group: int
    extra_groups: list[int]


def path_of(program: str) -> str | None:
    """Debian's own first, as another one may lack a part."""
    return shutil.which(program, path=_PLACES) or shutil.which(program)


def missing() -> list[str]:
    """What the full drill needs and this machine lacks."""
    return [name for name in _NEEDED if path_of(name) is None]


def ordinary_user() -> _RunsAs:
    """PostgreSQL and PgBouncer refuse to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def give(path: Path) -> None:
    """Let the ordinary user own it."""
    if user := ordinary_user():
        os.chown(path, user["user"], user["group"])


class Program:
    """One program with its log in the folder. It gets no variable of ours: no other Python's path, no key."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environ: Mapping[str, str] = {}
    ) -> None:
        found = path_of(command[0])
        assert found is not None, f"{command[0]} is not installed: {INSTALL}"
        self.name = name
        self._command = [found, *command[1:]]
        self._folder = folder
        self._environ = {"PATH": _PLACES, "HOME": str(folder), "LC_ALL": "C.UTF-8", **environ}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environ,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the drill, which then ends this
                **ordinary_user(),
            )

    def refuse_ended(self) -> None:
        assert self._process is not None, f"{self.name} was not started"
        if self._process.poll() is not None:
            text = (self._folder / f"{self.name}.log").read_text(errors="replace")
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}: {text[-2000:]}")

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait()


def tree_of(pid: int) -> list[int]:
    """The process and everything below it, itself first."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        below.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += below.get(one, [])
    return found


async def wait_until_open(port: int) -> None:
    with anyio.fail_after(_OPEN_S):
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            except OSError:
                await anyio.sleep(_LOOK_S)
            else:
                return
