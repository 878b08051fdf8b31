"""The user's own tools, loaded at the start and reloaded when a file changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import msgspec

from everturn.tools.own.hooks import Hook, HookSet, OwnHooks, When
from everturn.tools.own.own_file import OwnFile, Wrong, load_entry, load_file, load_hook, may_guard
from everturn.tools.own.own_names import FOLDER, GROUP, HOOKS, own_files
from everturn.tools.own.own_tool import OwnTool
from everturn.tools.schema import ToolFailed
from everturn.tools.tool_threads import ToolThreads

__all__ = ["FOLDER", "OwnTools", "OwnTrouble"]

LOAD_S_MAX: Final = 15.0
_CLOSED: Final = "Until it is corrected or removed, every tool call is refused."
_log = logging.getLogger("everturn.tools")
Seen = tuple[int, ...]  # a signature that changes with the file


class OwnTrouble(msgspec.Struct, frozen=True):
    """Why the tools of a file or a package are not offered."""

    source: str
    problem: str


class _Loaded(msgspec.Struct, frozen=True):
    seen: Seen
    file: OwnFile = OwnFile()
    problem: str = ""
    may_guard: bool = False  # not loaded, but may hold a hook that refuses calls


class OwnTools:
    """``taken`` lists names that own tools must not use."""

    def __init__(self, folder: Path, taken: Collection[str]) -> None:
        self._folder = folder
        self._taken = frozenset(taken)
        self._threads = ToolThreads()
        self._looking = anyio.Lock()
        self._files: dict[str, _Loaded] = {}  # by source
        self._entries: dict[str, _Loaded] | None = None
        self.tools: Mapping[str, OwnTool] = MappingProxyType({})
        self.troubles: Sequence[OwnTrouble] = ()
        self.hook_set = HookSet()
        self.hooks = OwnHooks(self._look_for_hooks)

    async def look(self) -> None:
        """Load new and changed files.

        An error in one file is logged and does not affect the others. A file that no longer loads offers no
        tools.
        """
        async with self._looking:
            seen = await anyio.to_thread.run_sync(_look_at, self._folder)
            known = {source: loaded.seen for source, loaded in self._files.items()}
            if self._entries is not None and known == seen:
                return
            if self._entries is None:
                # Packages do not change in a running program.
                self._entries = {_name(entry): await self._load_entry(entry) for entry in _entries()}
                for entry in sorted(entry_points(group=HOOKS)):
                    self._entries[f"{_name(entry)} (hook)"] = await self._load_hook(entry)
            self._files = {source: await self._refresh(source, mark) for source, mark in seen.items()}
            self._gather()

    async def _refresh(self, source: str, seen: Seen) -> _Loaded:
        known = self._files.get(source)
        if known is not None and known.seen == seen:
            return known
        path = self._folder.parent / source
        loaded = await self._load(source, seen, lambda: load_file(path))
        if not loaded.problem:
            return loaded
        guarded = known is not None and (known.may_guard or known.file.guards)
        guards = guarded or await anyio.to_thread.run_sync(may_guard, path)
        return msgspec.structs.replace(loaded, may_guard=guards)

    async def _load_entry(self, entry: EntryPoint) -> _Loaded:
        return await self._load(_name(entry), (), lambda: load_entry(entry))

    async def _load_hook(self, entry: EntryPoint) -> _Loaded:
        loaded = await self._load(_name(entry), (), lambda: load_hook(entry))
        return msgspec.structs.replace(loaded, may_guard=bool(loaded.problem))

    async def _look_for_hooks(self) -> HookSet:
        await self.look()
        return self.hook_set

    async def _load(self, source: str, seen: Seen, load: Callable[[], OwnFile]) -> _Loaded:
        problem = f"It took longer than {LOAD_S_MAX:g} seconds to load. Do no work outside of functions."
        try:
            with anyio.move_on_after(LOAD_S_MAX):
                return _Loaded(seen, await self._threads.run(load, f"load {source}"))
        except (Wrong, ToolFailed) as error:
            problem = str(error)
        except Exception as error:
            # The user's code may define anything, so inspecting it can fail in any way.
            problem = f"{type(error).__name__}: {error}"
        return _Loaded(seen, problem=problem)

    def _gather(self) -> None:
        tools: dict[str, OwnTool] = {}
        troubles = []
        for source, loaded in {**(self._entries or {}), **self._files}.items():
            if loaded.problem:
                closes = f" {_CLOSED}" if loaded.may_guard else ""
                troubles.append(OwnTrouble(source, f"{loaded.problem}{closes}"))
            for function in loaded.file.tools:
                name = function.spec.name
                if name in self._taken:
                    troubles.append(OwnTrouble(source, f"{name} is the name of another tool. Rename it."))
                elif name in tools:
                    problem = f"{name} is a tool of {tools[name].source} too. Rename one of them."
                    troubles.append(OwnTrouble(source, problem))
                else:
                    tools[name] = OwnTool(function, source, self._threads)
        for trouble in troubles:
            if trouble not in self.troubles:
                _log.error("own tools: %s: %s", trouble.source, trouble.problem)
        self.tools, self.troubles = MappingProxyType(tools), tuple(troubles)
        self.hook_set = _hook_set({**(self._entries or {}), **self._files})


def _hook_set(sources: Mapping[str, _Loaded]) -> HookSet:
    hooks: dict[When, dict[str, Hook]] = {When.BEFORE_CALL: {}, When.AFTER_TURN: {}}
    closed = ""
    for source, loaded in sources.items():
        if loaded.may_guard:
            closed = closed or f"{source} may hold a hook, and cannot be loaded: {loaded.problem} {_CLOSED}"
        for hook in loaded.file.hooks:
            hooks[hook.when][f"{source.removesuffix(' (hook)')}: {hook.name}"] = hook
    return HookSet(hooks[When.BEFORE_CALL], hooks[When.AFTER_TURN], closed)


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP))


def _name(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else entry.value
    return f"{package}: {entry.name}"


def _look_at(folder: Path) -> dict[str, Seen]:
    """Return each file with its signature, without running it."""
    found: dict[str, Seen] = {}
    for path in own_files(folder):
        try:
            state = path.stat()
        except OSError:
            found[f"{folder.name}/{path.name}"] = ()  # a broken link; loading it reports why
            continue
        mark = (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_mode)
        found[f"{folder.name}/{path.name}"] = mark
    return found
