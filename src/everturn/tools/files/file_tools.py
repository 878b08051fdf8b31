"""The files of the workspace: read, write, edit, patch."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Annotated

import anyio
import msgspec

from everturn.domain.media import SNIFF_BYTES, document_kind, sniff_media_type
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.files.edits import (
    FilePatch,
    apply_hunks,
    diff_display,
    lines_of,
    parse_patch,
    replace_exact,
)
from everturn.tools.paths import FolderHandle, OutsideWorkspace
from everturn.tools.policy.guarded import guarded_part, real_name
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed

_FILE_BYTES_MAX = 8 * 1024 * 1024
_LINES_MAX = 2000
_LINE_CHARS_MAX = 2000
_BESIDE_MAX = 20

Whole = Annotated[int, msgspec.Meta(ge=1)]
FilePath = Annotated[str, "Path of the file, relative to the workspace"]


class _WriteAction(Action):
    """Base of the tools that change files."""

    name = "_"

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return judge_writes(self.name, _paths(self.name, arguments), call.workspace)


class ReadFile(Action):
    """Read a text file of the workspace. Lines come with their numbers; ask for a range in long files."""

    name = "read_file"
    is_safe_to_repeat = True
    reads_only = True

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        path: FilePath,
        start: Annotated[Whole, "First line, from 1"] = 1,
        lines: Annotated[Whole, "How many lines"] = _LINES_MAX,
    ) -> ToolResult:
        content = await anyio.to_thread.run_sync(_read_text, call.workspace, path)
        every = lines_of(content)
        wanted = every[start - 1 : start - 1 + min(lines, _LINES_MAX)]
        if every and not wanted:
            raise ToolFailed(f"{path} has {len(every)} lines; there is no line {start}.")
        rows, last = _number_lines(wanted, start, self.spec.output_bytes_max - 200)
        text = "\n".join(rows) if rows else "[the file is empty]"
        if last < len(every):
            text += f"\n[lines {start} to {last} of {len(every)}; go on with start={last + 1}]"
        return ToolResult(text, display={"kind": "file", "path": path, "lines": len(rows)})

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=one_line(arguments["path"]))


class WriteFile(_WriteAction):
    """Write a whole file into the workspace, making or replacing it. Folders are made as needed."""

    name = "write_file"
    asks_when = "it writes a file that other programs run by themselves"
    is_safe_to_repeat = True
    is_untrusted = False

    async def act(
        self, call: ToolCall, emit: Emit, path: FilePath, content: Annotated[str, "The whole content"]
    ) -> ToolResult:
        before, is_new = await anyio.to_thread.run_sync(_replace, call.workspace, path, content)
        lines = _count_lines(content)
        # The old length too: a model that meant to add to a file sees that the rest is gone.
        text = (
            f"Made {path} ({lines})."
            if is_new
            else f"Replaced {path}: it had {_count_lines(before)}, now {lines}."
        )
        return ToolResult(text, display=diff_display(path, before, content))


class EditFile(_WriteAction):
    """Replace one exact piece of text in a file. The old text must occur exactly once, spaces included."""

    name = "edit_file"
    asks_when = "it writes a file that other programs run by themselves"
    is_safe_to_repeat = True  # see replace_exact
    is_untrusted = False

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        path: FilePath,
        old: Annotated[str, "The text to replace, exactly as in the file, without line numbers"],
        new: Annotated[str, "The text to put there"],
        everywhere: Annotated[bool, "Replace every occurrence"] = False,
    ) -> ToolResult:
        def edit() -> tuple[str, str]:
            before = _read_text(call.workspace, path)
            after = replace_exact(before, old, new, path, everywhere=everywhere)
            if after != before:
                _replace(call.workspace, path, after)
            return before, after

        before, after = await anyio.to_thread.run_sync(edit)
        if after == before:
            return ToolResult(f"{path} has the new text already; nothing was changed.")
        display = diff_display(path, before, after)
        return ToolResult(f"Edited {path}: +{display['added']} -{display['removed']}.", display=display)


class ApplyPatch(_WriteAction):
    """Apply a unified diff to one or more files: all of it, or nothing if any part does not fit."""

    # Not safe to repeat: a crash may leave some files patched and others not, and a patch that only adds
    # lines can fit twice. If its outcome is unknown, the user is asked.
    name = "apply_patch"
    asks_when = "it writes a file that other programs run by themselves"
    is_untrusted = False

    async def act(
        self, call: ToolCall, emit: Emit, patch: Annotated[str, "A unified diff (--- a/…, +++ b/…, @@)"]
    ) -> ToolResult:
        changes = await anyio.to_thread.run_sync(_apply, call.workspace, parse_patch(patch))
        displays = [diff_display(path, before, after or "") for path, before, after in changes]
        words = [
            f"Deleted {path}." if after is None else f"Patched {path}: +{shown['added']} -{shown['removed']}."
            for (path, _, after), shown in zip(changes, displays, strict=True)
        ]
        first = displays[0]
        display = first if len(displays) == 1 else {"kind": "diffs", "files": displays}
        return ToolResult("\n".join(words), display=display)


def judge_writes(name: str, paths: list[str], workspace: Path) -> Judgement:
    """Writing in the workspace is allowed, except for the few files that other programs run."""
    label = one_line(", ".join(paths) or name)
    concerns = []
    with FolderHandle(workspace) as files:
        for path in paths:
            try:
                inner = files.name(path)
            except OutsideWorkspace:
                continue  # the call itself will say so, and do nothing
            real = real_name(workspace, inner)
            part = guarded_part(workspace, real)
            if part and real != os.path.normpath(inner):
                return Judgement(label=label, denied=_link_refusal(inner, real))
            if part:
                concerns.append(Concern(f"{part} can make other programs run things", key=f"write {real}"))
    return Judgement(label=label, concerns=tuple(concerns))


def _open_for_writing(workspace: Path) -> FolderHandle:
    """The workspace's files for writing. A file that other programs run is written under its own name only:
    that name was judged, and a link may have changed since."""

    def check(name: str, real: str) -> None:
        if real != os.path.normpath(name) and guarded_part(workspace, real):
            raise ToolFailed(_link_refusal(name, real))

    return FolderHandle(workspace, check=check)


def _link_refusal(name: str, real: str) -> str:
    return f"{name} leads to {real} through a link; use that path itself. Nothing was changed."


def _paths(name: str, arguments: ArgumentValues) -> list[str]:
    if name != "apply_patch":
        return [arguments["path"]]
    try:
        return [patch.path for patch in parse_patch(arguments["patch"])]
    except ToolFailed:
        return []  # the call will fail with the same words and change nothing


def _read_text(workspace: Path, path: str) -> str:
    with FolderHandle(workspace) as files:
        try:
            content = files.read(path, _FILE_BYTES_MAX)
        except FileNotFoundError as error:
            raise ToolFailed(f"There is no file {path}.{_neighbours(files, path)}") from error
        except IsADirectoryError as error:
            raise ToolFailed(f"{path} is a folder; use list_files.") from error
    if len(content) > _FILE_BYTES_MAX:
        raise ToolFailed(f"{path} is larger than {_FILE_BYTES_MAX // 1024**2} MiB; use the terminal.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        is_document = document_kind(path, sniff_media_type(content[:SNIFF_BYTES], path))
        hint = "; read it with read_document" if is_document else ""
        raise ToolFailed(f"{path} is not UTF-8 text ({len(content):,} bytes){hint}.") from error


def _neighbours(files: FolderHandle, path: str) -> str:
    """The names that are there instead, for a model that guessed one."""
    folder = str(PurePosixPath(path).parent)
    try:
        fd = files.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, OutsideWorkspace):
        return ""
    try:
        names = sorted(name for name in os.listdir(fd) if not name.startswith("."))
    finally:
        os.close(fd)
    shown = ", ".join(os.fsencode(name).decode("utf-8", "replace") for name in names[:_BESIDE_MAX])
    more = ", …" if len(names) > _BESIDE_MAX else ""
    return f" There are: {shown}{more}." if names else " The folder is empty."


def _replace(workspace: Path, path: str, content: str) -> tuple[str, bool]:
    """Write the file; return what was there and whether it is new."""
    with _open_for_writing(workspace) as files:
        try:
            before = files.read(path, _FILE_BYTES_MAX).decode("utf-8", "replace")
        except FileNotFoundError:
            before = ""
        return before, files.write(path, content.encode())


def _apply(workspace: Path, patches: list[FilePatch]) -> list[tuple[str, str, str | None]]:
    """Compute every change first, then write them: a hunk that does not fit changes nothing."""
    changes: list[tuple[str, str, str | None]] = []
    contents: dict[str, str | None] = {}  # as the patches before this one leave them
    for patch in _with_one_name_each(workspace, patches):
        before = _content_before(workspace, patch, contents)
        after: str | None = apply_hunks(before, patch.hunks, patch.path)
        if patch.new_path is None:
            if after and after.removeprefix("\ufeff").strip():
                raise ToolFailed(
                    f"{patch.path} has more lines than the patch removes; nothing was changed. To delete a "
                    "file, a patch has to remove all of its lines."
                )
            after = None
        elif patch.old_path is None and after and not after.endswith("\n"):
            after += "" if patch.hunks[-1].is_new_open else "\n"
        if patch.old_path and patch.old_path != patch.new_path:
            contents[patch.old_path] = None
        if patch.new_path:
            contents[patch.new_path] = after
        changes.append((patch.path, before, after))
    done: list[str] = []
    with _open_for_writing(workspace) as files:
        # Deletions last: a file that moves is always in at least one place.
        for path, content in sorted(contents.items(), key=lambda item: item[1] is None):
            try:
                files.remove(path) if content is None else files.write(path, content.encode())
            except OSError as error:
                raise ToolFailed(
                    f"{path} could not be changed: {error.strerror or error}. Changed already: "
                    f"{', '.join(done) or 'nothing'}. The rest was left as it is."
                ) from error
            done.append(path)
    return changes


def _with_one_name_each(workspace: Path, patches: list[FilePatch]) -> list[FilePatch]:
    """The patches with one name for one file, however each of them writes it (``./b``, ``c/../b``, through a
    link): what follows tells files apart by their names."""

    def name_of(files: FolderHandle, path: str | None) -> str | None:
        if path is None:
            return None
        name = files.name(path)
        real = real_name(workspace, name)
        if real != os.path.normpath(name) and guarded_part(workspace, real):
            raise ToolFailed(_link_refusal(name, real))
        return real

    with FolderHandle(workspace) as files:
        return [
            FilePatch(name_of(files, patch.old_path), name_of(files, patch.new_path), patch.hunks)
            for patch in patches
        ]


def _content_before(workspace: Path, patch: FilePatch, contents: dict[str, str | None]) -> str:
    """What the patch starts from. Where it makes a file, there must be none."""
    if patch.new_path and patch.new_path != patch.old_path:
        with FolderHandle(workspace) as files:
            is_known = patch.new_path in contents
            if contents[patch.new_path] is not None if is_known else files.has(patch.new_path):
                raise ToolFailed(f"{patch.new_path} is there already; nothing was changed.")
    if patch.old_path is None:
        return ""
    if patch.old_path not in contents:
        return _read_text(workspace, patch.old_path)
    content = contents[patch.old_path]
    if content is None:
        raise ToolFailed(f"There is no file {patch.old_path} any more at that place of the patch.")
    return content


def _number_lines(lines: list[str], start: int, bytes_max: int) -> tuple[list[str], int]:
    rows: list[str] = []
    size = 0
    for number, line in enumerate(lines, start):
        row = f"{number:>6}\t{line[:_LINE_CHARS_MAX]}{' […]' if len(line) > _LINE_CHARS_MAX else ''}"
        size += len(row.encode()) + 1
        if size > bytes_max:
            break
        rows.append(row)
    return rows, start + len(rows) - 1


def _count_lines(content: str) -> str:
    count = len(lines_of(content))
    return f"{count} line" if count == 1 else f"{count} lines"
