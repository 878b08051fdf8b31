"""Reads skills from folders of this machine: the data folder and projects. Never writes or follows links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from everturn.domain.errors import Invalid
from everturn.skills.content import (
    FILE_BYTES_MAX,
    FILES_MAX,
    JUNK,
    SKILL_BYTES_MAX,
    SKILL_FILE,
    RawFile,
    SkillContent,
    make_content,
    too_large,
    too_many,
)
from everturn.tools.paths import FolderHandle
from everturn.tools.schema import ToolFailed

PROJECT_FOLDERS: Final = (".agents/skills", ".claude/skills")
_SKILLS_MAX: Final = 100
_DEPTH_MAX: Final = 8

# Size, times and path of each file. A folder with an unchanged signature is not read again.
Signature = tuple[tuple[str, int, int, int, int], ...]


class FolderSkill(msgspec.Struct, frozen=True):
    """A folder with a SKILL.md. If it is not a valid skill, ``problem`` says why and there is no content."""

    folder: str  # its own name
    signature: Signature
    content: SkillContent | None = None
    problem: str = ""


def read_folders(
    root: Path, within: tuple[str, ...], known: Mapping[str, FolderSkill]
) -> dict[str, FolderSkill]:
    """Return the skills in these folders below the root, by path.

    ``known`` holds earlier results; a folder that has not changed since is not read again.
    """
    found: dict[str, FolderSkill] = {}
    try:
        handle = FolderHandle(root)
    except (OSError, ToolFailed):
        return found  # there is no such folder
    with handle:
        for place in within:
            for name in _names_in(handle, place):
                path = f"{place}/{name}"
                skill = _read_one(handle, path, name, known.get(path))
                if skill is not None and len(found) < _SKILLS_MAX:
                    found[path] = skill
    return found


def read_folder(path: Path) -> SkillContent:
    """Read one skill that a user named. Raises Invalid, OSError."""
    with FolderHandle(path) as handle:
        return make_content(_read_files(handle, ".", path.name), path.name)


def _names_in(handle: FolderHandle, place: str) -> list[str]:
    try:
        fd = handle.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ToolFailed):
        return []  # missing, or a link, which is not followed
    try:
        return sorted(name for name in os.listdir(fd) if name not in JUNK)
    finally:
        os.close(fd)


def _read_one(handle: FolderHandle, path: str, name: str, known: FolderSkill | None) -> FolderSkill | None:
    try:
        listed = list(_walk(handle, path, name))
    except (NotADirectoryError, FileNotFoundError):
        return None
    except (Invalid, OSError, ToolFailed) as error:
        return FolderSkill(name, (), problem=_words(error))
    signature = tuple(entry for entry, _ in listed)
    if not any(entry[0] == SKILL_FILE for entry in signature):
        return None
    if known is not None and known.signature == signature and signature:
        return known
    try:
        return FolderSkill(name, signature, make_content(_read_files(handle, path, name), name))
    except (Invalid, OSError, ToolFailed) as error:
        return FolderSkill(name, signature, problem=_words(error))


def _words(error: Exception) -> str:
    return error.message if isinstance(error, Invalid) else str(error)


def _read_files(handle: FolderHandle, path: str, shown: str) -> dict[str, RawFile]:
    files: dict[str, RawFile] = {}
    room = SKILL_BYTES_MAX
    for (inner, *_), is_executable in _walk(handle, path, shown):
        content = handle.read(f"{path}/{inner}", min(FILE_BYTES_MAX, room))
        if len(content) > min(FILE_BYTES_MAX, room):
            raise too_large(inner, shown)
        room -= len(content)
        files[inner] = RawFile(content, is_executable)
    return files


def _walk(
    handle: FolderHandle, path: str, shown: str, inner: str = "", depth: int = 0
) -> Iterator[tuple[tuple[str, int, int, int, int], bool]]:
    """Return every file with its signature and executable bit. Raises Invalid for links and special files."""
    if depth > _DEPTH_MAX:
        raise Invalid(f"{shown} has folders that are nested too deeply.", hint=f"At most {_DEPTH_MAX}.")
    fd = handle.open(f"{path}/{inner}" if inner else path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    count = 0
    try:
        for name in sorted(os.listdir(fd)):
            if name in JUNK:
                continue
            count += 1
            if count > FILES_MAX:
                raise too_many(shown)
            below = f"{inner}/{name}" if inner else name
            what = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(what.st_mode):
                yield from _walk(handle, path, shown, below, depth + 1)
            elif stat.S_ISREG(what.st_mode):
                signature = (below, what.st_size, what.st_mtime_ns, what.st_ctime_ns, what.st_ino)
                yield signature, bool(what.st_mode & 0o100)
            else:
                raise Invalid(
                    f"{shown} holds a link or a special file: {below}.",
                    hint="Put the file that it leads to in its place.",
                )
    finally:
        os.close(fd)
