"""The files of the workspace: list and search.

Both run ``search_program`` in a child process, because a pattern can take for ever. Its answer is checked
when it is read: it comes from a process that reads files from outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.files import search_program
from everturn.tools.paths import FolderHandle
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Judgement, one_line
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView, python_program
from everturn.tools.schema import Action, ToolFailed
from everturn.tools.terminal.process import Command, run

_TIMEOUT_S = 30.0
# A model that searches for a file by its name must not conclude that the file is missing.
_NO_MATCH = "[no match in the text of any file; names of files are not searched]"

Whole = Annotated[int, msgspec.Meta(ge=1)]
T = TypeVar("T")


class FolderEntry(msgspec.Struct, frozen=True):
    path: str
    kind: Literal["file", "folder", "link"]
    size: int


class Listing(msgspec.Struct, frozen=True):
    """``is_cut``: there are more."""

    entries: tuple[FolderEntry, ...]
    is_cut: bool


class Line(msgspec.Struct, frozen=True, array_like=True):
    """``is_hit``: it matches; otherwise it is context."""

    number: int
    text: str
    is_hit: bool


class FileMatches(msgspec.Struct, frozen=True):
    path: str
    lines: tuple[Line, ...]


class Matches(msgspec.Struct, frozen=True):
    """``is_cut``: there are more."""

    files: tuple[FileMatches, ...]
    is_cut: bool


class _Failure(msgspec.Struct, frozen=True):
    error: str = ""


class FileSearch:
    """Runs ``search_program`` over a workspace, in the sandbox where there is one."""

    def __init__(self, sandbox: Sandbox, clock: Clock) -> None:
        self._sandbox = sandbox
        self._clock = clock

    async def ask(self, call: ToolCall, request: Mapping[str, object], kind: type[T]) -> T:
        """The program's answer to one request. Raises ToolFailed."""
        program, folders = python_program()
        script = Path(search_program.__file__)
        command = Command((program, "-I", str(script)), _TIMEOUT_S, stdin=json.dumps(dict(request)).encode())
        view = SandboxView(workspace=call.workspace, read=(*folders, script), is_read_only=True)
        ran = await run(self._sandbox, command, view, emit=_ignore, clock=self._clock)
        if ran.is_timed_out:
            raise ToolFailed(f"The search took longer than {_TIMEOUT_S:g} s and was stopped. Narrow it.")
        if ran.exit_code:
            raise ToolFailed(f"The search failed: {ran.output.decode('utf-8', 'replace')[-500:]}")
        try:
            if error := msgspec.json.decode(ran.output, type=_Failure).error:
                raise ToolFailed(error)
            return msgspec.json.decode(ran.output, type=kind)
        except msgspec.MsgspecError as error:
            raise ToolFailed(f"The search gave an answer that cannot be read: {error}. Narrow it.") from error


async def _ignore(_: str) -> None:
    """The answer is data, not output to be shown."""


class ListFiles(Action):
    """List files and folders of the workspace, or find files by glob. What .gitignore names is left out."""

    name = "list_files"
    is_safe_to_repeat = True
    reads_only = True

    def __init__(self, search: FileSearch) -> None:
        self._search = search

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        path: Annotated[str, "The folder, relative to the workspace"] = ".",
        glob: Annotated[str, "Only files that match, e.g. '**/*.py'; searches all levels"] = "",
        depth: Annotated[Whole, "How many levels deep, without a glob"] = 1,
        everything: Annotated[bool, "Also hidden and ignored files"] = False,
    ) -> ToolResult:
        request = {
            "what": "list",
            "path": inner_path(call.workspace, path),
            "globs": [glob] if glob else [],
            "depth": None if glob else depth,
            "everything": everything,
            "limit": 1000,
        }
        found = await self._search.ask(call, request, Listing)
        rows = [_format_entry(entry) for entry in found.entries]
        text = "\n".join([*rows, _tally(found.entries)]) if rows else "[nothing there]"
        if found.is_cut:
            text += "\n[more than 1000 entries; narrow it with path or glob]"
        return ToolResult(text, display={"kind": "list", "path": path, "count": len(rows)})

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=one_line(arguments["glob"] or arguments["path"]))


class SearchFiles(Action):
    """Search the workspace's files for a regular expression, line by line, like ripgrep.

    Files that .gitignore names, hidden and binary files are left out.
    """

    name = "search_files"
    is_safe_to_repeat = True
    reads_only = True

    def __init__(self, search: FileSearch) -> None:
        self._search = search

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        pattern: Annotated[str, "Regular expression (Python syntax)"],
        path: Annotated[str, "The folder to search in"] = ".",
        glob: Annotated[str, "Only files that match, e.g. '*.py' or '!*.lock'"] = "",
        context: Annotated[Annotated[int, msgspec.Meta(ge=0, le=20)], "Lines around each match"] = 0,
        ignore_case: bool = False,
        literal: Annotated[bool, "Take the pattern as plain text"] = False,
        everything: Annotated[bool, "Also hidden and ignored files"] = False,
    ) -> ToolResult:
        request = {
            "what": "search",
            "pattern": pattern,
            "path": inner_path(call.workspace, path),
            "globs": [glob] if glob else [],
            "context": context,
            "ignore_case": ignore_case,
            "literal": literal,
            "everything": everything,
            "limit": 500,
        }
        found = await self._search.ask(call, request, Matches)
        text = _format_matches(found.files, self.spec.output_bytes_max - 200) or _NO_MATCH
        if found.is_cut:
            text += "\n[more matches than are shown; narrow the search]"
        hits = sum(line.is_hit for file in found.files for line in file.lines)
        display = {"kind": "search", "matches": hits, "files": len(found.files)}
        return ToolResult(text, display=display)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=one_line(arguments["pattern"]))


def inner_path(workspace: Path, path: str) -> str:
    """The path relative to the workspace. Raises OutsideWorkspace."""
    with FolderHandle(workspace) as files:
        return files.name(path)


def _format_entry(entry: FolderEntry) -> str:
    if entry.kind == "folder":
        return f"{entry.path}/"
    # With its unit: models took a bare number for a count of lines.
    return f"{entry.path}\t{entry.size:,} bytes" if entry.kind == "file" else f"{entry.path}\t(link)"


def _tally(entries: Sequence[FolderEntry]) -> str:
    """How many there are: small models miscount a list."""
    folders = sum(entry.kind == "folder" for entry in entries)
    counts = ((len(entries) - folders, "file"), (folders, "folder"))
    return "[" + ", ".join(f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count) + "]"


def _format_matches(files: Sequence[FileMatches], bytes_max: int) -> str:
    rows: list[str] = []
    size = 0
    for file in files:
        for line in file.lines:
            mark = ":" if line.is_hit else "-"
            row = f"{file.path}{mark}{line.number}{mark}{line.text}"
            size += len(row.encode()) + 1
            if size > bytes_max:
                return "\n".join([*rows, "[… more than fits here; narrow the search …]"])
            rows.append(row)
    return "\n".join(rows)
