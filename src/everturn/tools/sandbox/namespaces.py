"""The first level of the sandbox: bubblewrap, with its own namespaces.

Four things are easy to get wrong:

- ``--clearenv`` alone is not enough: inside, /proc/1/environ still shows bubblewrap's own environment.
  Therefore bubblewrap is started with an empty one.
- Started by root, bubblewrap keeps every capability, and a remount leaves the sandbox. So all are
  dropped, and where the kernel allows it the process is an ordinary user without nested namespaces.
- Without capabilities root is still the owner of the kernel's settings and of most files. So for root
  bubblewrap runs as another user (see ``idmap``), and those parts of /proc are read-only for every user.
- Options on the command line can be read by every user of the machine. So they go through a pipe.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from everturn.tools.limits import ProcessLimits
from everturn.tools.sandbox import bubblewrap, launch, seccomp, trial
from everturn.tools.sandbox.bubblewrap import (
    LEVELS,
    LEVELS_OF_ROOT,
    Level,
    Sources,
    account_files,
    forwarding_files,
    only_if,
    through_gate,
)
from everturn.tools.sandbox.idmap import UID, IdMap, UnmappedFolders
from everturn.tools.sandbox.level import Holds, Ready, Start
from everturn.tools.sandbox.memory_file import memory_file
from everturn.tools.sandbox.view import SandboxView


class Bubblewrap:
    """``home`` is the data folder. It is invisible inside, even if it lies in a system folder."""

    def __init__(self, home: Path, holds: Holds, program: str | None = None) -> None:
        self._home = home
        self._holds = holds
        self._folder = home / "sandbox"  # holds the sandbox's /etc/passwd and /etc/group
        self.program = program or shutil.which("bwrap")
        self._level = Level()  # the strongest that works here
        self._ids: IdMap | None = None  # for root only
        self._numbers = seccomp.machine()
        self._unmapped = UnmappedFolders(self._folder / "unmapped")

    @property
    def unmapped(self) -> list[Path]:
        """The folders in which commands run as root, because their file system cannot map owners."""
        return list(self._unmapped)

    @property
    def lacks(self) -> list[str]:
        """What is missing compared with a stronger way to run bubblewrap, in words."""
        lacks = [self._level.lacks] if self._level.lacks else []
        if self._numbers is None:
            lacks.append(f"There is no filter of system calls for {platform.machine()}.")
        return lacks

    @property
    def is_root(self) -> bool:
        """True if commands run as root."""
        return _is_root() and not self._level.is_dropped

    def try_it(self) -> str:
        """Find the strongest way that works here by trying; return what went wrong if none does."""
        if self.program is None:
            return "bubblewrap is not installed."
        passwd, group = account_files(self._home)
        passwd.write_text("agent:x:1000:1000::/tmp:/bin/sh\nroot:x:0:0::/:/bin/sh\n")
        group.write_text("agent:x:1000:\nroot:x:0:\n")
        workspace = self._folder / "trial"
        workspace.mkdir(mode=0o700, exist_ok=True)
        self._ids = _id_map() if _is_root() else None
        detail = ""
        for self._level in LEVELS_OF_ROOT if _is_root() else LEVELS:
            detail = self._run_trial(workspace)
            if not detail:
                self._unmapped.load(self._ids if self._level.is_dropped else None)
                return ""
        return f"bubblewrap does not work here: {detail}"

    def try_folder(self, folder: Path) -> None:
        """Find out whether commands can use a project's folder without root's rights."""
        if self._ids is not None and self._level.is_dropped:
            self._unmapped.try_folder(folder, self._ids)

    def close(self) -> None:
        if self._ids is not None:
            self._ids.close()
            self._ids = None

    @contextmanager
    def command(self, start: Start) -> Iterator[Ready]:
        """Yield the words that start bubblewrap."""
        with self._bubblewrap(start) as ready:
            before = (*start.first, *only_if(start.same), *through_gate(start.view))
            yield Ready([*ready.words, *before, *start.argv], ready.passed)

    @contextmanager
    def _bubblewrap(self, start: Start) -> Iterator[Ready]:
        view = start.view
        with ExitStack() as stack:
            passed = dict(zip(("--info-fd", "--block-fd"), start.pipes or (), strict=False))
            for fd in passed.values():
                stack.callback(os.close, fd)
            if self._numbers is not None:
                rules = seccomp.program(self._numbers, counts_memory=self._holds("memory"))
                passed["--seccomp"] = memory_file("filter", rules, stack)
            sources = Sources(self._mounts(view, stack))
            options = bubblewrap.options_of(self._level, view, sources, start.kept, self._home)
            for name, fd in passed.items():
                options += [name, str(fd)]
            content = b"".join(os.fsencode(option) + b"\0" for option in options)
            passed["--args"] = memory_file("options", content, stack)
            keyctl = self._numbers.keyctl if self._numbers else 0
            mounts = list(sources.mounts.values())
            uid = UID if mounts else 0
            limits = self._limits(view.limits, is_dropped=bool(mounts))
            words = (sys.executable, "-I", "-S", launch.__file__, limits, keyctl, uid, len(mounts))
            command = [
                *map(str, (*words, *mounts)),
                str(self.program),
                "--args",
                str(passed["--args"]),
                "--",
            ]
            yield Ready(command, [*passed.values(), *mounts])

    def _limits(self, limits: ProcessLimits, *, is_dropped: bool) -> str:
        values = limits.values()
        if is_dropped and not self._holds("pids"):
            # A limit set before the user namespace exists counts all sandboxes together. That beats no limit.
            values[resource.RLIMIT_NPROC] = limits.processes
        return ",".join(f"{kind}={most}" for kind, most in values.items())

    def _mounts(self, view: SandboxView, stack: ExitStack) -> dict[Path, int]:
        """Return the mounts through which the sandbox's user can reach everything in the view.

        Empty if bubblewrap runs as our own user, because that is not root or because a file system in this
        view cannot map owners.
        """
        if self._ids is None or not self._level.is_dropped:
            return {}
        mounts: dict[Path, int] = {}
        with ExitStack() as own:
            for path in dict.fromkeys(self._shown_paths(view)):
                try:
                    mounts[path] = self._ids.mount(path)
                except OSError as error:
                    self._unmapped.add(path, error)
                    return {}
                own.callback(os.close, mounts[path])
            stack.push(own.pop_all())
        return mounts

    def _shown_paths(self, view: SandboxView) -> tuple[Path, ...]:
        gate = (view.gate, *forwarding_files()) if view.gate and view.is_gated else ()
        return (*account_files(self._home), *view.read, *view.write, view.workspace, *gate)

    def _run_trial(self, workspace: Path) -> str:
        """Run the trial; return an empty string if the sandbox held, else what went wrong."""
        if self._level.is_dropped and self._ids is None:
            return "this kernel has no id-mapped mounts"
        words = ["dropped" if self._level.is_dropped else "", "filtered" if self._numbers else ""]
        start = Start(["/bin/sh", "-c", trial.SCRIPT, "sh", *words], SandboxView(workspace))
        with self.command(start) as ready:
            return trial.run_trial(ready).problem


def _is_root() -> bool:
    return os.geteuid() == 0


def _id_map() -> IdMap | None:
    try:
        return IdMap.open()
    except OSError:
        return None  # the levels that need it fail their trial, and the state reports that
