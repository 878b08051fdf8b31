"""The sandbox around every process that a tool starts: the strongest level that works here.

Inside are the system folders (read-only), the workspace (writable) and temporary files of its own, and
nothing else. Bubblewrap (``namespaces``) is tried first, then Landlock with a filter of system calls
(``landlock``). Without either commands run beside the server, and the policy asks.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from everturn.tools.limits import ProcessLimits
from everturn.tools.paths import real_identity
from everturn.tools.policy.guarded import GuardedMount, ProjectGuard, foreign_sockets, socket_covers
from everturn.tools.policy.repositories import Repositories
from everturn.tools.sandbox import trial
from everturn.tools.sandbox.bubblewrap import AFTER_GO
from everturn.tools.sandbox.child import Child, InSandbox, first_process
from everturn.tools.sandbox.control_groups import Group, Groups
from everturn.tools.sandbox.landlock import Landlock
from everturn.tools.sandbox.launch import MARK
from everturn.tools.sandbox.level import BlockPipes, SandboxLevel, Start
from everturn.tools.sandbox.namespaces import Bubblewrap
from everturn.tools.sandbox.trial import SandboxState
from everturn.tools.sandbox.view import SandboxView, environment, user_places

BUBBLEWRAP, LANDLOCK = "bubblewrap", "landlock"
LEVELS = (BUBBLEWRAP, LANDLOCK)  # in the order in which they are tried
_PROJECTS_MAX = 8  # whose folders are remembered


class DetachedCommand(msgspec.Struct, frozen=True):
    """A command that another process starts: its words, the descriptors that it inherits, its limits.

    ``block`` None: it runs without a sandbox. ``is_kept``: the words start a keeper, which ends the command
    with all that it started when it is asked to end. ``scope_memory``: the limit that its scope has to
    have, or 0. ``processes``: their limit, if the starter has to set it.
    """

    words: tuple[str, ...]
    env: dict[str, str] = {}
    folder: Path | None = None
    passed: tuple[int, ...] = ()
    block: BlockPipes | None = None
    is_kept: bool = False
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

    def __init__(
        self,
        home: Path,
        *,
        program: str | None = None,
        is_wanted: bool = True,
        levels: Sequence[str] = LEVELS,
        landlock_version_max: int = 1000,
    ) -> None:
        self.home = home.resolve()
        self._folder = self.home / "sandbox"
        self._is_wanted = is_wanted
        self._levels = levels
        self._groups: Groups | None = None
        self._bubblewrap = Bubblewrap(self.home, self._holds, program)
        self._landlock = Landlock(self.home, self._holds, version_max=landlock_version_max)
        self._level: SandboxLevel = self._bubblewrap
        self._projects: dict[Path, Repositories] = {}
        self._tried = SandboxState("none", "The sandbox was not tried yet.")

    @property
    def state(self) -> SandboxState:
        """How well it works, with every folder in which it works less well."""
        folders = [str(path) for path in self._bubblewrap.unmapped]
        if not folders or self.is_kept or not self._tried.works:
            return self._tried
        detail = (
            f"Commands that use {', '.join(folders)} run as root, without its capabilities, because the file "
            "system there cannot map owners. Run the server as an ordinary user, or move the folder."
        )
        return SandboxState("reduced", f"{self._tried.detail} {detail}", self._tried.hint)

    @property
    def is_kept(self) -> bool:
        """True if a keeper starts each command: nothing is mounted then, and there is no namespace."""
        return self._level is self._landlock

    @property
    def has_gate(self) -> bool:
        """False if commands can reach no network, not even through a gate."""
        return not self.is_kept or self._landlock.has_gate

    def guards(self, workspace: Path) -> bool:
        """True if the sandbox keeps commands from what other programs run in this workspace."""
        return not self.is_kept or not self.is_project(workspace)

    @property
    def needs_scope_memory(self) -> bool:
        """True if the sandbox counts on a group of the unified hierarchy, which a scope has to replace."""
        return self._groups is not None and self._groups.are_unified

    async def open(self) -> SandboxState:
        """Try the sandbox by running it; say how well it works."""
        self._tried = await anyio.to_thread.run_sync(self._try)
        return self.state

    def try_folder(self, folder: Path) -> None:
        """Find out whether commands can use a project's folder without root's rights; ``state`` tells."""
        if not self.is_kept:
            self._bubblewrap.try_folder(folder)

    def close(self) -> None:
        """Release what ``open`` holds; running processes continue."""
        self._bubblewrap.close()

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
            start = Start(argv, view, (), plan.kept, plan.same, BlockPipes(info_end, go), os.getpid())
            with self._level.command(start) as ready:
                process = await anyio.open_process(
                    ready.words, env={}, stderr=stderr, start_new_session=True, pass_fds=ready.passed
                )
            first = await first_process(info)
            child = Child(
                process,
                inside=InSandbox(first, self.is_kept, plan.sockets),
                workspace=view.workspace,
                guard=plan.guard,
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
            start = Start(argv, view, AFTER_GO, plan.kept, plan.same, BlockPipes(info_end, go))
            with self._level.command(start) as ready:
                yield DetachedCommand(
                    tuple(ready.words),
                    env={MARK: mark},
                    passed=tuple(ready.passed),
                    block=BlockPipes(info, hold),
                    is_kept=self.is_kept,
                    group=group,
                    scope_memory=view.limits.memory if has_scope and self.needs_scope_memory else 0,
                    # It does not apply to root, and root may not be allowed to set it for others. A keeper
                    # sets it itself: without a user namespace it counts all processes of the user.
                    processes=0 if _is_root() or self.is_kept else view.limits.processes,
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
            lambda: ProjectGuard(
                view.workspace, known, can_mount=not self.is_kept, covers_sockets=not view.host_network
            )
        )

    def shows_sockets(self, view: SandboxView) -> bool:
        """True for a server in a project that it can only read: it can connect to the sockets there too."""
        is_server = view.is_read_only and not view.is_brief and not self.is_kept
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
            # It does not apply to root, and root may not be allowed to set it for others. A keeper sets it
            # itself.
            if not _is_root() and not self.is_kept:
                limits.hold_processes(pid)
        except ProcessLookupError:
            return  # bubblewrap could not build the sandbox; it says why
        except OSError:
            await child.end()  # a command never runs without its limits
            raise

    def _holds(self, what: str) -> bool:
        """True if control groups limit this: ``pids`` or ``memory``."""
        return self._groups is not None and self._groups.holds(what)

    def _try(self) -> SandboxState:
        if not self._is_wanted:
            return SandboxState(
                "none", "The sandbox is switched off.", "Remove sandbox = false from config.toml."
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._groups = Groups.open()
        problem = self._bubblewrap.try_it() if BUBBLEWRAP in self._levels else ""
        if BUBBLEWRAP in self._levels and not problem:
            self._level = self._bubblewrap
            return self._describe()
        hint = self._hint(problem)
        refusal = self._landlock.try_it() if LANDLOCK in self._levels else ""
        if LANDLOCK in self._levels and not refusal:
            self._level = self._landlock
            works = f"Landlock (version {self._landlock.version}) and a filter of system calls work."
            return SandboxState(
                LANDLOCK, f"{works} {_sentence(problem)}".strip(), hint, self._landlock.gaps()
            )
        refusal = f"Landlock cannot be used either: {refusal}." if refusal else ""
        return SandboxState("none", f"{_sentence(problem)} {refusal}".strip(), hint)

    def _hint(self, problem: str) -> str:
        if not problem:
            return ""
        if self._bubblewrap.program is None:
            return trial.install_hint()
        return trial.hint_for(problem, sys.executable)

    def _describe(self) -> SandboxState:
        notes = []
        if not self._holds("memory"):
            notes.append(
                "There is no control group for memory: files in memory are refused or, in /tmp, counted ten "
                "times a second."
            )
        if self._bubblewrap.is_root and not self._holds("pids"):
            notes.append("The number of processes is looked at ten times a second.")
        works = "bubblewrap works: no capabilities, no access to the rest of the machine."
        lacks = self._bubblewrap.lacks
        return SandboxState("reduced" if lacks else "full", " ".join((works, *lacks, *notes)))


def _sentence(text: str) -> str:
    return f"{text}." if text and not text.endswith(".") else text


def _is_root() -> bool:
    return os.geteuid() == 0
