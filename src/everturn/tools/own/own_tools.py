"""The tools of the user: loaded at the start, and again when a file has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import msgspec

from everturn.tools.apart import Apart
from everturn.tools.own.own_file import OwnFile, Wrong, load_entry, load_file
from everturn.tools.own.own_names import FOLDER, GROUP, own_files
from everturn.tools.own.own_tool import OwnTool
from everturn.tools.schema import ToolFailed

__all__ = ["FOLDER", "OwnTools", "OwnTrouble"]

LOAD_S_MAX: Final = 15.0
_log = logging.getLogger("everturn.tools")
Seen = tuple[int, ...]  # what changes when a file does


class OwnTrouble(msgspec.Struct, frozen=True):
    """Why the tools of a file or a package are not offered."""

    source: str
    problem: str


class _Loaded(msgspec.Struct, frozen=True):
    seen: Seen
    file: OwnFile = OwnFile()
    problem: str = ""


class OwnTools:
    """``taken``: names that own tools cannot have."""

    def __init__(self, folder: Path, taken: Collection[str]) -> None:
        self._folder = folder
        self._taken = frozenset(taken)
        self._apart = Apart()
        self._looking = anyio.Lock()
        self._files: dict[str, _Loaded] = {}  # by source
        self._entries: dict[str, _Loaded] | None = None
        self.tools: Mapping[str, OwnTool] = MappingProxyType({})
        self.troubles: Sequence[OwnTrouble] = ()

    async def look(self) -> None:
        """Load what is new or has changed. A mistake in one file is logged and leaves the others as they
        are; a file that cannot be loaded any more has no tools."""
        async with self._looking:
            seen = await anyio.to_thread.run_sync(_look_at, self._folder)
            known = {source: loaded.seen for source, loaded in self._files.items()}
            if self._entries is not None and known == seen:
                return
            if self._entries is None:
                # Packages do not change in a running program.
                self._entries = {_name(entry): await self._load_entry(entry) for entry in _entries()}
            self._files = {source: await self._refresh(source, mark) for source, mark in seen.items()}
            self._gather()

    async def _refresh(self, source: str, seen: Seen) -> _Loaded:
        known = self._files.get(source)
        if known is not None and known.seen == seen:
            return known
        path = self._folder.parent / source
        return await self._load(source, seen, lambda: load_file(path))

    async def _load_entry(self, entry: EntryPoint) -> _Loaded:
        return await self._load(_name(entry), (), lambda: load_entry(entry))

    async def _load(self, source: str, seen: Seen, load: Callable[[], OwnFile]) -> _Loaded:
        problem = f"It took longer than {LOAD_S_MAX:g} seconds to load. Do no work outside of functions."
        try:
            with anyio.move_on_after(LOAD_S_MAX):
                return _Loaded(seen, await self._apart.run(load, f"load {source}"))
        except (Wrong, ToolFailed) as error:
            problem = str(error)
        except Exception as error:
            # The user's code may leave anything behind, also for our own look at it.
            problem = f"{type(error).__name__}: {error}"
        return _Loaded(seen, problem=problem)

    def _gather(self) -> None:
        tools: dict[str, OwnTool] = {}
        troubles = []
        for source, loaded in {**(self._entries or {}), **self._files}.items():
            if loaded.problem:
                troubles.append(OwnTrouble(source, loaded.problem))
            for function in loaded.file.tools:
                name = function.spec.name
                if name in self._taken:
                    troubles.append(OwnTrouble(source, f"{name} is the name of another tool. Rename it."))
                elif name in tools:
                    problem = f"{name} is a tool of {tools[name].source} too. Rename one of them."
                    troubles.append(OwnTrouble(source, problem))
                else:
                    tools[name] = OwnTool(function, source, self._apart)
        for trouble in troubles:
            if trouble not in self.troubles:
                _log.error("own tools: %s: %s", trouble.source, trouble.problem)
        self.tools, self.troubles = MappingProxyType(tools), tuple(troubles)


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP))


def _name(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else entry.value
    return f"{package}: {entry.name}"


def _look_at(folder: Path) -> dict[str, Seen]:
    """Each file with what changes when it does. Nothing is run."""
    found: dict[str, Seen] = {}
    for path in own_files(folder):
        try:
            state = path.stat()
        except OSError:
            found[f"{folder.name}/{path.name}"] = ()  # a link that leads nowhere; loading it states why
            continue
        mark = (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_mode)
        found[f"{folder.name}/{path.name}"] = mark
    return found
