"""The second level of the sandbox, for machines where bubblewrap cannot run: Landlock and a system call
filter.

It needs no namespaces, no mounts and no rights that a container lacks. The command gets the same view as
under bubblewrap, as far as path rules allow: Landlock can allow a folder, but cannot exclude anything below
it. ``gaps`` lists the protections that are missing as a result. Users see them, and the policy asks where a
rule relied on one.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import platform
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from everturn.tools.sandbox import bubblewrap, scratch, seccomp, start_keeper
from everturn.tools.sandbox.level import Holds, Ready, Start
from everturn.tools.sandbox.memory_file import memory_file
from everturn.tools.sandbox.outer_calls import OuterNumbers, Outside, outer_numbers, outer_steps, passed_on
from everturn.tools.sandbox.trial import CONFINED_SCRIPT, GATE_PROGRAM, TrialEnd, run_trial
from everturn.tools.sandbox.view import SandboxView, environment, python_program

_CREATE_RULESET, _VERSION = 444, 1
# Rights on files and folders, from linux/landlock.h.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REMOVE, _MAKE_CHAR, _MAKE_BLOCK = 0x30, 0x40, 0x800
_MAKE = 0x80 | 0x100 | 0x400 | 0x1000  # folders, files, named pipes, links; no sockets, no devices
_REFER, _TRUNCATE, _IOCTL_DEVICE = 0x2000, 0x4000, 0x8000
_FIRST_RIGHTS = 0x1FFF
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE | _MAKE | _REFER | _TRUNCATE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_DEVICE = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE
_DEVICES = ("null", "zero", "full", "random", "urandom")
_ACCOUNTS = ("passwd", "group")  # programs look up their user's name here
_TCP = 3  # to bind and to connect
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
# The Landlock versions that introduced each feature.
_KNOWS_REFER, _KNOWS_TRUNCATE, _KNOWS_TCP, _KNOWS_IOCTL, _KNOWS_SCOPES = 2, 3, 4, 5, 6


class Rule(NamedTuple):
    """What a command may do below a path. ``identity``: the only file or folder that the path may name."""

    path: str
    rights: int
    identity: str = ""
    is_needed: bool = False


class LandlockFinding(NamedTuple):
    """The result of a trial. ``problem`` says why this level cannot be used; empty if it can."""

    problem: str
    has_gate: bool = False
    has_chmod: bool = False


class Landlock:
    """Builds the command lines that start commands under Landlock.

    ``version_max`` makes it behave as on an older kernel.
    """

    def __init__(self, home: Path, holds: Holds, *, version_max: int = 1000) -> None:
        self._home = home
        self._holds = holds
        self._folder = home / "sandbox"
        self._version_max = version_max
        self.version = 0
        self._found = LandlockFinding("Landlock was not tried yet.")
        numbers = seccomp.machine(), outer_numbers(platform.machine())
        self._numbers: tuple[seccomp.CallNumbers, OuterNumbers] | None = (
            (numbers[0], numbers[1]) if numbers[0] and numbers[1] else None
        )

    @property
    def has_gate(self) -> bool:
        return self._found.has_gate

    def try_it(self) -> str:
        """Run a trial; return why this level cannot be used, or an empty string."""
        self.version = min(landlock_version(), self._version_max)
        if not self.version:
            return "this kernel has no Landlock, or it is switched off"
        if self._numbers is None:
            return f"there is no filter of system calls for {platform.machine()}"
        if any(self._home.is_relative_to(os.path.realpath(folder)) for folder in bubblewrap.SYSTEM):
            return "the data folder lies in a system folder, and Landlock could not hide it"
        folder = self._folder / "scratch"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch.sweep(str(folder))
        self._found = self._run_trials()
        return self._found.problem

    def gaps(self) -> tuple[str, ...]:
        """Return the protections that bubblewrap would give and this level lacks here, one sentence each."""
        gaps = [
            "Commands in a project ask: files that other programs run there (Git settings and hooks, "
            "editor folders) cannot be made read-only. They are watched, and a command that changes one is "
            "ended.",
            "Commands see what /proc shows to every user (command lines of other programs, no environment), "
            "the names of accounts, and size and times of a file whose path they know. They can change the "
            "times of files of the server's user.",
            "There is no network of their own: they cannot listen, nor use sockets with a path, shared "
            "memory or watches on files. /tmp and /dev/shm cannot be used; TMPDIR names a folder on disk.",
        ]
        if not self.has_gate:
            gaps.append("Commands reach no network, also in profiles that have one.")
        if os.geteuid() == 0:
            gaps.append("Commands run as root, without its capabilities.")
        if not self._holds("memory"):
            gaps.append("Memory and the number of threads are looked at ten times a second.")
        if self.version < _KNOWS_REFER:
            gaps.append("Files cannot be moved from one folder to another, only copied.")
        if not self._found.has_chmod:
            gaps.append("Commands cannot change the mode of a file.")
        return tuple(gaps)

    @contextmanager
    def command(self, start: Start) -> Iterator[Ready]:
        """Yield the words that start a keeper for the command."""
        with ExitStack() as stack:
            passed = list(start.pipes or ())
            for fd in passed:
                stack.callback(os.close, fd)
            file = memory_file("spec", marshal.dumps(self._spec(start)), stack)
            yield Ready([sys.executable, "-I", "-S", start_keeper.__file__, str(file)], [*passed, file])

    # ``Any``: the keeper reads this and imports no library that could validate it.
    def _spec(self, start: Start) -> dict[str, Any]:
        if self._numbers is None:
            raise OSError(errno.ENOSYS, f"there is no filter of system calls for {platform.machine()}")
        view = start.view
        calls, outer = self._numbers
        network = "host" if view.host_network else "gate" if view.is_gated and self.has_gate else "none"
        outside = Outside(
            os.geteuid(),
            os.getegid(),
            keeps_signals=self.version >= _KNOWS_SCOPES,
            keeps_sizes=self.version >= _KNOWS_TRUNCATE,
            network=network,
        )
        handled, handled_net, scoped = self._handled_rights(network)
        write = [] if view.is_read_only else [view.workspace]
        limits = view.limits.values()
        if os.geteuid():  # it never applies to root
            limits[resource.RLIMIT_NPROC] = view.limits.processes + _tasks_of_user()
        return {
            "words": [*start.first, *start.argv],
            # If Git may not read the machine's settings, it fails instead of going on without them.
            "env": {"GIT_CONFIG_NOSYSTEM": "1", **environment(view)},
            "workspace": str(view.workspace),
            "write": [str(path) for path in (*write, *view.write)],
            "scratch": str(self._folder / "scratch"),
            "scratch_rights": _WRITE & handled,
            "rules": [
                (rule.path, rule.rights & handled, rule.identity, rule.is_needed)
                for rule in self._rules(start)
            ],
            "handled": handled,
            "handled_net": handled_net,
            "scoped": scoped,
            "size": 8 if self.version < _KNOWS_TCP else 16 if self.version < _KNOWS_SCOPES else 24,
            "file_rights": _OF_FILES,
            "filter": seccomp.program(
                calls, counts_memory=self._holds("memory"), more=outer_steps(outer, outside)
            ),
            "calls": passed_on(outer, outside),
            "seccomp": outer.seccomp,
            "keyctl": calls.keyctl,
            "limits": limits,
            "processes": view.limits.processes,
            "gate": str(view.gate) if network == "gate" else "",
            "proxies": bubblewrap.PROXIES,
            "port": bubblewrap.GATE_PORT,
            "info": start.pipes.info if start.pipes else -1,
            "hold": start.pipes.hold if start.pipes else -1,
            "parent": start.parent,
        }

    def _handled_rights(self, network: str) -> tuple[int, int, int]:
        """Return what Landlock refuses unless a rule allows it: on files, on the network, outside the
        command."""
        files = _FIRST_RIGHTS
        for version, right in (
            (_KNOWS_REFER, _REFER),
            (_KNOWS_TRUNCATE, _TRUNCATE),
            (_KNOWS_IOCTL, _IOCTL_DEVICE),
        ):
            files |= right if self.version >= version else 0
        net = _TCP if self.version >= _KNOWS_TCP and network != "host" else 0
        scoped = _ABSTRACT_SOCKETS | _SIGNALS if self.version >= _KNOWS_SCOPES else 0
        return files, net, scoped

    def _rules(self, start: Start) -> Iterator[Rule]:
        """Return the rules for this view. Raises OSError if one would expose the data folder."""
        view, identities = start.view, {place.path: place.identity for place in start.same}
        names = (*bubblewrap.ETC, *_ACCOUNTS, *(bubblewrap.ETC_NETWORK if view.host_network else ()))
        for path in (*bubblewrap.SYSTEM, *(f"/etc/{name}" for name in names), "/proc"):
            yield Rule(path, _READ if path != "/proc" else _READ_FILE | _READ_DIR)
        for name in _DEVICES:
            yield Rule(f"/dev/{name}", _DEVICE)
        shown = [(each, _READ) for each in view.read]
        shown += [(each, _WRITE) for each in view.write]
        shown.append((view.workspace, _READ if view.is_read_only else _WRITE))
        for place, rights in shown:
            if self._home.is_relative_to(place):  # access to the folder would give access to the data folder
                raise OSError(
                    errno.EACCES, f"It holds Everturn's data folder, which Landlock cannot hide: {place}"
                )
            yield Rule(str(place), rights, identities.get(str(place), ""), is_needed=True)

    # --- trials ------------------------------------------------------------------------------------------

    def _run_trials(self) -> LandlockFinding:
        workspace = self._folder / "trial"
        workspace.mkdir(mode=0o700, exist_ok=True)
        view = SandboxView(workspace)
        words = ["/bin/sh", "-c", CONFINED_SCRIPT, "sh", str(os.getpid())]
        trial = self._run(words, view)
        if trial.problem:
            return LandlockFinding(trial.problem)
        self._found = LandlockFinding("", has_gate=True)
        gated = SandboxView(workspace, gate=self._folder / "no-gate")
        words = [python_program()[0], "-I", "-S", "-c", GATE_PROGRAM]
        return LandlockFinding("", not self._run(words, gated).problem, "mode" in trial.said)

    def _run(self, words: Sequence[str], view: SandboxView) -> TrialEnd:
        with self.command(Start(words, view, parent=os.getpid())) as ready:
            return run_trial(ready)


def landlock_version() -> int:
    """Return the Landlock version of this kernel, 0 if it has none."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version: int = libc.syscall(
        ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION)
    )
    return max(0, version)


def _tasks_of_user() -> int:
    """Count this user's processes and threads, because the kernel's limit counts them all."""
    count, user = 0, os.geteuid()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user:
                    count += len(os.listdir(f"{entry.path}/task"))
            except OSError:
                continue  # it has ended
    return count
