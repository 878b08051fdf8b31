"""Sessions whose tools write files, for tests of undo, restore and branch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everturn.domain import events as ev
from everturn.domain.store_values import Request
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.domain.turns import Turn, TurnState
from everturn.store import Store
from everturn.testing import CallTool, FakeTool, FakeToolbox
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness
from everturn.workspace import FilesSettings, Recorder

Files = dict[str, str]


async def write(call: ToolCall, emit: Emit) -> ToolResult:
    """Write the files that the call names; None deletes one."""
    files: Any = call.arguments["files"]
    put_files(call.workspace, files)
    return ToolResult("written")


def put_files(folder: Path, files: Mapping[str, str | None]) -> None:
    for name, text in files.items():
        path = folder / name
        if text is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def files_in(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def writing(**files: str | None) -> list[CallTool]:
    """One step of a model that writes these files; ``_`` in a name is a dot."""
    return [CallTool("write", {"files": {name.replace("_", "."): text for name, text in files.items()}})]


class FileSessions:
    """A harness whose sessions have folders of their own, and a model whose steps are given turn by turn."""

    def __init__(self, h: Harness, home: Path) -> None:
        self.h = h
        self.home = home

    def folder(self, session: Any) -> Path:
        return self.home / "workspaces" / str(session.id)

    def files(self, session: Any) -> Files:
        return files_in(self.folder(session))

    async def turn(self, session: Any, **files: str | None) -> Turn:
        """A turn that writes these files, or none."""
        script: list[Any] = [writing(**files), "done"] if files else ["done"]
        self.h.model.add(*script)
        turn = await self.h.run(session)
        assert turn.state is TurnState.COMPLETED, turn
        return turn

    async def restored(self, session: Any) -> list[ev.FilesRestored]:
        return [
            event.payload
            for event in await self.h.events(session)
            if isinstance(event.payload, ev.FilesRestored)
        ]


def request(key: str | None = None) -> Request:
    return Request(key=key)


def options_of(store: Store, home: Path) -> dict[str, Any]:
    workspaces = (home / "workspaces").resolve()
    workspaces.mkdir(parents=True, exist_ok=True)
    return {
        "toolbox": FakeToolbox(FakeTool("write", write), workspaces=workspaces),
        "recorder": Recorder(store, home / "indexes", FilesSettings()),
    }


@asynccontextmanager
async def open_file_sessions(
    store: Store, home: Path, *, crashes: bool = False, **more: Any
) -> AsyncIterator[FileSessions]:
    opener = crashing_harness if crashes else open_harness
    async with opener(store, **{**options_of(store, home), **more}) as h:
        yield FileSessions(h, home.resolve())


__all__ = ["OWNER", "FileSessions", "files_in", "open_file_sessions", "put_files", "request", "writing"]
