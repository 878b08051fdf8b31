"""The sandbox: bubblewrap around every process that a tool starts.

Inside are the system folders (read-only), the workspace (writable) and a private /tmp, and nothing else. Four
things are easy to get wrong:

- ``--clearenv`` alone is not enough: /proc/1/environ inside still shows what bubblewrap itself was
  started with. So bubblewrap gets an empty environment too.
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
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from everturn.tools.limits import ProcessLimits
from everturn.tools.paths import real_identity
from everturn.tools.policy.guarded import GuardedMount, ProjectGuard, foreign_sockets, socket_covers
from everturn.tools.policy.repositories import Repositories
from everturn.tools.sandbox import bubblewrap, launch, seccomp, trial
from everturn.tools.sandbox.bubblewrap import (
    AFTER_GO,
    LEVELS,
    LEVELS_OF_ROOT,
    Level,
    Sources,
    account_files,
    forwarding_files,
    only_if,
    through_gate,
)
from everturn.tools.sandbox.child import Child, first_process
from everturn.tools.sandbox.control_groups import Group, Groups
from everturn.tools.sandbox.idmap import UID, IdMap, UnmappedFolders
from everturn.tools.sandbox.launch import MARK
from everturn.tools.sandbox.trial import SandboxState, install_hint
from everturn.tools.sandbox.view import SandboxView, environment, user_places

_TRIAL_TIMEOUT_S = 60  # on a busy machine a trial takes seconds; giving up would lower the level
_PROJECTS_MAX = 8  # whose folders are remembered


class BlockPipes(NamedTuple):
    """``info`` tells bubblewrap's first process, which begins when ``hold`` is closed or written to."""

    info: int
    hold: int


class DetachedCommand(msgspec.Struct, frozen=True):
    """A command that another process starts: its words, the descriptors that it inherits, its limits.

    ``block`` None: it runs without a sandbox. ``scope_memory``: the limit that its scope has to have, or 0.
    ``processes``: their limit, if the starter has to set it.
    """

    words: tuple[str, ...]
    env: dict[str, str] = {}
    folder: Path | None = None
    passed: tuple[int, ...] = ()
    block: BlockPipes | None = None
    group: Group | None = None
    scope_memory: int = 0
    processes: int = 0
    guard: ProjectGuard | None = None


class _Plan(msgspec.Struct, frozen=True):
    """What of a project is guarded or covered while a command runs in it."""

    guard: ProjectGuard | None
    sockets: Mapping[str, str]
    kept: tuple[GuardedMount, ...]
    same: tuple[GuardedMount, ...]


class Sandbox:
    """Starts processes inside bubblewrap, or beside it where there is none.

    ``home`` is the data folder; nothing of it is visible inside, even where it lies in a system folder.
    """

    def __init__(self, home: Path, *, program: str | None = None, is_wanted: bool = True) -> None:
        self.home = home.resolve()
        self._folder = self.home / "sandbox"  # what the sandbox shows as /etc/passwd and /etc/group
        self._program = program or shutil.which("bwrap")
        self._is_wanted = is_wanted
        self._level = Level()  # the strongest that works here
        self._groups: Groups | None = None
        self._ids: IdMap | None = None  # for root only
        self._numbers = seccomp.machine()
        self._projects: dict[Path, Repositories] = {}
        self._unmapped = UnmappedFolders(self._folder / "unmapped")
        self._tried = SandboxState("none", "The sandbox was not tried yet.")

    @property
    def state(self) -> SandboxState:
        """How well it works, with every folder in which it works less well."""
        folders = [str(path) for path in self._unmapped]
        if not folders or not self._tried.works:
            return self._tried
        detail = (
            f"Commands that use {', '.join(folders)} run as root, without its capabilities, because the file "
            "system there cannot map owners. Run the server as an ordinary user, or move the folder."
        )
        return SandboxState("reduced", f"{self._tried.detail} {detail}", self._tried.hint)

    @property
    def needs_scope_memory(self) -> bool:
        """True if the sandbox counts on a group of the unified hierarchy, which a scope has to replace."""
        return self._groups is not None and self._groups.are_unified

    async def open(self) -> SandboxState:
        """Try the sandbox by running it; say how well it works."""
        self._tried = await anyio.to_thread.run_sync(self._try)
        if self._tried.works:
            self._unmapped.load(self._ids if self._level.is_dropped else None)
        return self.state

    def try_folder(self, folder: Path) -> None:
        """Find out whether commands can use a project's folder without root's rights; ``state`` tells."""
        if self._ids is not None and self._level.is_dropped:
            self._unmapped.try_folder(folder, self._ids)

    def close(self) -> None:
        """Release what ``open`` holds; running processes continue."""
        if self._ids is not None:
            self._ids.close()
            self._ids = None

    async def spawn(
        self,
        argv: Sequence[str],
        view: SandboxView,
        *,
        is_sandboxed: bool = True,
        stderr: int = subprocess.STDOUT,
    ) -> Child:
        """Start a process with pipes; ``Child.end`` ends it and everything that it started."""
        if not (is_sandboxed and self.state.works):
            mark = secrets.token_hex(12)
            env = {**environment(view), **user_places(), MARK: mark}
            process = await anyio.open_process(
                list(argv), cwd=view.workspace, env=env, stderr=stderr, start_new_session=True
            )
            return Child(process, mark=mark)
        plan = await self._plan(view)
        info, info_end = os.pipe()
        go, hold = os.pipe()  # bubblewrap begins when ``hold`` is closed
        try:
            with self._command(view, plan.kept, {"--info-fd": info_end, "--block-fd": go}) as (
                command,
                passed,
            ):
                process = await anyio.open_process(
                    [*command, *only_if(plan.same), *through_gate(view), *argv],
                    env={},
                    stderr=stderr,
                    start_new_session=True,
                    pass_fds=passed,
                )
            first = await first_process(info)
            child = Child(
                process, first=first, workspace=view.workspace, guard=plan.guard, sockets=plan.sockets
            )
            if first is not None:
                await self._set_limits(child, first[0], view.limits)
            return child
        finally:
            os.close(hold)
            os.close(info)

    @asynccontextmanager
    async def prepare_detached(
        self,
        argv: Sequence[str],
        view: SandboxView,
        *,
        mark: str,
        is_sandboxed: bool = True,
        has_scope: bool = False,
    ) -> AsyncIterator[DetachedCommand]:
        """What another process needs to start this command as ``spawn`` would.

        The command begins when it has read a line from its standard input, and ends if there is none. It has
        to be started within the block, which closes all descriptors at its end. ``mark``: by which its
        processes are found, in a sandbox those of bubblewrap. ``has_scope``: it is started in a scope of
        systemd, which limits it instead of a group below the server's: that would keep systemd from starting
        the service again.
        """
        if not (is_sandboxed and self.state.works):
            env = {**environment(view), **user_places(), MARK: mark}
            program = shutil.which(argv[0], path=env.get("PATH")) or argv[0]
            yield DetachedCommand((*AFTER_GO, program, *argv[1:]), env=env, folder=view.workspace)
            return
        plan = await self._plan(view)
        info, info_end = os.pipe()
        go, hold = os.pipe()
        groups = self._groups.outside_unified() if self._groups and has_scope else self._groups
        group = groups.make(view.limits.processes, view.limits.memory) if groups else None
        try:
            with self._command(view, plan.kept, {"--info-fd": info_end, "--block-fd": go}) as (
                command,
                passed,
            ):
                words = (*command, *AFTER_GO, *only_if(plan.same), *through_gate(view), *argv)
                yield DetachedCommand(
                    words,
                    env={MARK: mark},
                    passed=tuple(passed),
                    block=BlockPipes(info, hold),
                    group=group,
                    scope_memory=view.limits.memory if has_scope and self.needs_scope_memory else 0,
                    # It does not apply to root, and root may not be allowed to set it for others.
                    processes=0 if _is_root() else view.limits.processes,
                    guard=plan.guard,
                )
        except BaseException:
            if group is not None:
                group.remove()
            raise
        finally:
            os.close(hold)
            os.close(info)

    async def _plan(self, view: SandboxView) -> _Plan:
        guard = await self.guard(view)
        # The covers last: a socket may lie in a folder that is mounted itself.
        sockets = await self.foreign_sockets(view)
        kept = (*guard.places, *guard.covers) if guard else socket_covers(sockets)
        return _Plan(guard, sockets, kept, (*self.seen_folders(view), *kept))

    def is_project(self, workspace: Path) -> bool:
        """False for a session's own workspace, where only the agent works."""
        return not workspace.is_relative_to(self.home)

    def seen_folders(self, view: SandboxView) -> tuple[GuardedMount, ...]:
        """The project and the ``real`` folders as they are now, for ``only_if``. Raises OSError if there is a
        link on one of the paths.

        A command in a project around such a folder can put a link there until it is mounted. The data folder,
        with the sessions' own workspaces, lies in no project.
        """
        workspace = (view.workspace,) if self.is_project(view.workspace) else ()
        return tuple(GuardedMount("", str(path), real_identity(path)) for path in (*workspace, *view.real))

    async def guard(self, view: SandboxView) -> ProjectGuard | None:
        """The guard of a project while a command runs in it, see ``guarded``.

        None where nothing can be written, and for a session's own workspace, where only the agent works.
        """
        if view.is_read_only or not self.is_project(view.workspace):
            return None
        known = self._repositories(view.workspace)
        return await anyio.to_thread.run_sync(
            lambda: ProjectGuard(view.workspace, known, covers_sockets=not view.host_network)
        )

    def shows_sockets(self, view: SandboxView) -> bool:
        """True for a server in a project that it can only read: it can connect to the sockets there too."""
        is_server = view.is_read_only and not view.is_brief
        return is_server and not view.host_network and self.is_project(view.workspace)

    async def foreign_sockets(self, view: SandboxView) -> dict[str, str]:
        """What has to be covered there, by path, with versions. A command's own guard does that itself."""
        if not self.shows_sockets(view):
            return {}
        return await anyio.to_thread.run_sync(foreign_sockets, self._repositories(view.workspace))

    def _repositories(self, project: Path) -> Repositories:
        known = self._projects.pop(project, None) or Repositories(str(project))
        self._projects[project] = known  # the last one is the latest
        if len(self._projects) > _PROJECTS_MAX:
            del self._projects[next(iter(self._projects))]
        return known

    async def _set_limits(self, child: Child, pid: int, limits: ProcessLimits) -> None:
        """Set the limits on a sandbox's first process, before it starts."""
        try:
            if self._groups:
                child.group = self._groups.make(limits.processes, limits.memory)
                child.group.add(pid)
            if not _is_root():  # it does not apply to root, and root may not be allowed to set it for others
                limits.hold_processes(pid)
        except ProcessLookupError:
            return  # bubblewrap could not build the sandbox; it says why
        except OSError:
            await child.end()  # a command never runs without its limits
            raise

    @contextmanager
    def _command(
        self, view: SandboxView, kept: Sequence[GuardedMount] = (), pipes: Mapping[str, int] | None = None
    ) -> Iterator[tuple[list[str], list[int]]]:
        """The words that start bubblewrap, up to the command, and the descriptors that it inherits.

        All of them are closed at the end of the block, ``pipes`` too: descriptors by the option that names
        them.
        """
        with ExitStack() as stack:
            passed = dict(pipes or {})
            for fd in passed.values():
                stack.callback(os.close, fd)
            if self._numbers is not None:
                rules = seccomp.program(self._numbers, counts_memory=self._holds("memory"))
                passed["--seccomp"] = _memory_file("filter", rules, stack)
            sources = Sources(self._mounts(view, stack))
            options = bubblewrap.options_of(self._level, view, sources, kept, self.home)
            for name, fd in passed.items():
                options += [name, str(fd)]
            content = b"".join(os.fsencode(option) + b"\0" for option in options)
            passed["--args"] = _memory_file("options", content, stack)
            keyctl = self._numbers.keyctl if self._numbers else 0
            mounts = list(sources.mounts.values())
            uid = UID if mounts else 0
            limits = self._limits(view.limits, is_dropped=bool(mounts))
            words = (sys.executable, "-I", "-S", launch.__file__, limits, keyctl, uid, len(mounts))
            command = [
                *map(str, (*words, *mounts)),
                str(self._program),
                "--args",
                str(passed["--args"]),
                "--",
            ]
            yield command, [*passed.values(), *mounts]

    def _limits(self, limits: ProcessLimits, *, is_dropped: bool) -> str:
        values = limits.values()
        if is_dropped and not self._holds("pids"):
            # Set before the user namespace exists, it counts all sandboxes together. Better than no limit.
            values[resource.RLIMIT_NPROC] = limits.processes
        return ",".join(f"{kind}={most}" for kind, most in values.items())

    def _mounts(self, view: SandboxView, stack: ExitStack) -> dict[Path, int]:
        """For root: mounts through which an ordinary user can reach everything that the view shows.

        Empty if bubblewrap runs as our own user: because that is not root, or because a file system of this
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
        return (*account_files(self.home), *view.read, *view.write, view.workspace, *gate)

    def _holds(self, what: str) -> bool:
        """True if control groups limit this: ``pids`` or ``memory``."""
        return self._groups is not None and self._groups.holds(what)

    def _try(self) -> SandboxState:
        if not self._is_wanted:
            return SandboxState(
                "none", "The sandbox is switched off.", "Remove sandbox = false from config.toml."
            )
        if self._program is None:
            return SandboxState("none", "bubblewrap is not installed.", install_hint())
        self._folder.mkdir(parents=True, exist_ok=True)
        passwd, group = account_files(self.home)
        passwd.write_text("agent:x:1000:1000::/tmp:/bin/sh\nroot:x:0:0::/:/bin/sh\n")
        group.write_text("agent:x:1000:\nroot:x:0:\n")
        workspace = self._folder / "trial"
        workspace.mkdir(mode=0o700, exist_ok=True)
        self._groups = Groups.open()
        self._ids = _id_map() if _is_root() else None
        detail = ""
        for self._level in LEVELS_OF_ROOT if _is_root() else LEVELS:
            detail = self._run_trial(workspace)
            if not detail:
                return self._describe()
        return SandboxState(
            "none", f"bubblewrap does not work here: {detail}", trial.hint_for(detail, sys.executable)
        )

    def _describe(self) -> SandboxState:
        lacks = [self._level.lacks] if self._level.lacks else []
        if self._numbers is None:
            lacks.append(f"There is no filter of system calls for {platform.machine()}.")
        notes = []
        if not self._holds("memory"):
            notes.append(
                "There is no control group for memory: files in memory are refused or, in /tmp, counted ten "
                "times a second."
            )
        if _is_root() and not self._level.is_dropped and not self._holds("pids"):
            notes.append("The number of processes is looked at ten times a second.")
        works = "bubblewrap works: no capabilities, no access to the rest of the machine."
        return SandboxState("reduced" if lacks else "full", " ".join((works, *lacks, *notes)))

    def _run_trial(self, workspace: Path) -> str:
        """Run the trial; return an empty string if the sandbox held, else what went wrong."""
        if self._level.is_dropped and self._ids is None:
            return "this kernel has no id-mapped mounts"
        words = ["dropped" if self._level.is_dropped else "", "filtered" if self._numbers else ""]
        with self._command(SandboxView(workspace)) as (command, passed):
            try:
                done = subprocess.run(  # noqa: S603 - our own program and options
                    [*command, "/bin/sh", "-c", trial.SCRIPT, "sh", *words],
                    env={"EVERTURN_TRIAL": "leaked"},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_TRIAL_TIMEOUT_S,
                    pass_fds=passed,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
        if done.returncode == 0:
            return ""
        return (
            done.stderr.decode("utf-8", "replace").strip()[-300:] or f"its trial ended with {done.returncode}"
        )


def _is_root() -> bool:
    return os.geteuid() == 0


def _id_map() -> IdMap | None:
    try:
        return IdMap.open()
    except OSError:
        return None  # the levels that need it fail their trial, and the state says what that means


def _memory_file(name: str, content: bytes, stack: ExitStack) -> int:
    """A file in memory, read from its beginning, closed with the stack."""
    fd = os.memfd_create(name, 0)
    stack.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
