"""The sandbox around every process that a tool starts, at the strongest level that works here.

A process sees the system folders (read-only), the workspace (writable) and its own temporary files, and
nothing else. Bubblewrap (``namespaces``) is tried first, then Landlock with a system call filter
(``landlock``). If neither works, commands run unconfined and the policy asks first.
"""

from __future__ import annotations

import logging
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
from everturn.tools.sandbox.orphans import kill_orphans
from everturn.tools.sandbox.trial import SandboxState
from everturn.tools.sandbox.view import SandboxView, environment, user_places

BUBBLEWRAP, LANDLOCK = "bubblewrap", "landlock"
LEVELS = (BUBBLEWRAP, LANDLOCK)  # tried in this order
_PROJECTS_MAX = 8  # projects whose folders are remembered
_log = logging.getLogger("everturn.tools")


class DetachedCommand(msgspec.Struct, frozen=True):
    """A command that another process starts: its words, the descriptors that it inherits, its limits.

    Without a ``block`` it runs without a sandbox. If ``is_kept``, the words start a keeper, which ends the
    command with everything it started when asked to end. ``scope_memory`` is the memory limit that its
    systemd scope must have, or 0. ``processes`` is set if the starter has to limit their number.
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
    """The parts of a project that are guarded or covered while a command runs in it."""

    guard: ProjectGuard | None
    sockets: Mapping[str, str]
    kept: tuple[GuardedMount, ...]
    same: tuple[GuardedMount, ...]


class Sandbox:
    """Starts processes at the level of the sandbox that works here.

    ``home`` is the data folder. It is invisible inside, even if it lies in a system folder.
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
        """How well the sandbox works, including the folders in which it works less well."""
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
        """True if a keeper starts each command. Nothing is mounted then, and there is no namespace."""
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
        """True if a group of the unified hierarchy limits memory, so that a scope has to take its place."""
        return self._groups is not None and self._groups.are_unified

    async def open(self) -> SandboxState:
        """Run a trial of the sandbox and return how well it works."""
        self._tried = await anyio.to_thread.run_sync(self._try)
        return self.state

    def try_folder(self, folder: Path) -> None:
        """Find out whether commands can use a project's folder without root's rights, and update
        ``state``."""
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
        go, hold = os.pipe()  # bubblewrap starts when ``hold`` is closed
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
        """Yield what another process needs to start this command as ``spawn`` would.

        The command begins after it reads a line from its standard input, and exits if that closes first.
        Start it inside the block, which closes all descriptors when it ends. ``mark`` is how its processes
        are found, in a sandbox those of bubblewrap. With ``has_scope`` a systemd scope limits the command
        instead of a group below the server's, which would keep systemd from restarting the service.
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
                    # The limit does not apply to root, and root may not be allowed to set it for others. A
                    # keeper sets its own: without a user namespace the limit counts all processes of the
                    # user.
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
        # Covers come last: a socket may lie in a folder that is itself mounted.
        sockets = await self.foreign_sockets(view)
        kept = (*guard.places, *guard.covers) if guard else socket_covers(sockets)
        return _Plan(guard, sockets, kept, (*self.seen_folders(view), *kept))

    def is_project(self, workspace: Path) -> bool:
        """False for a session's own workspace, where only the agent works."""
        return not workspace.is_relative_to(self.home)

    def seen_folders(self, view: SandboxView) -> tuple[GuardedMount, ...]:
        """Return the project and the ``real`` folders as they are now, for ``only_if``.

        Raises OSError if one of the paths contains a link. Until such a folder is mounted, a command in a
        project around it can put a link there. The data folder, with the sessions' own workspaces, lies in no
        project.
        """
        workspace = (view.workspace,) if self.is_project(view.workspace) else ()
        return tuple(GuardedMount("", str(path), real_identity(path)) for path in (*workspace, *view.real))

    async def guard(self, view: SandboxView) -> ProjectGuard | None:
        """Return the guard of a project while a command runs in it, see ``guarded``.

        None if nothing can be written, and for a session's own workspace, where only the agent works.
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
        """True for a server in a project that it can only read. It could connect to the sockets there."""
        is_server = view.is_read_only and not view.is_brief and not self.is_kept
        return is_server and not view.host_network and self.is_project(view.workspace)

    async def foreign_sockets(self, view: SandboxView) -> dict[str, str]:
        """Return the version of each socket to cover, by path.

        Empty for a command, whose guard covers them.
        """
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
            # The limit does not apply to root, and root may not be allowed to set it for others. A keeper
            # sets its own.
            if not _is_root() and not self.is_kept:
                limits.hold_processes(pid)
        except ProcessLookupError:
            return  # bubblewrap could not build the sandbox; it says why
        except OSError:
            await child.end()  # a command never runs without its limits
            raise

    def _holds(self, what: str) -> bool:
        """True if control groups limit ``pids`` or ``memory``, whichever is given."""
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
            self._end_orphans()
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

    def _end_orphans(self) -> None:
        killed = kill_orphans(self._bubblewrap.program) if self._bubblewrap.program else 0
        if killed:
            _log.info("ended %d process(es) of sandboxes that a killed server had not started yet", killed)

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
