"""The folders from which a user chooses one for a session to work in.

Only what lies in the allowed folders is listed. Hidden folders and links are left out: a link can lead out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from everturn.domain.errors import Denied, Invalid, NotFound
from everturn.tools.paths import open_folder
from everturn.tools.workspaces import Workspaces

LISTED_MAX: Final = 500
RECENT_MAX: Final = 8


class FolderLine(msgspec.Struct, frozen=True):
    path: str
    name: str


class FolderList(msgspec.Struct, frozen=True):
    """``path``: empty for the list of allowed folders. ``above``: the path of the list that leads here,
    None for the first. ``is_cut``: there are more folders than these."""

    path: str
    above: str | None
    folders: tuple[FolderLine, ...]
    is_cut: bool = False


class Folders:
    """The folders that a user can choose."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def list(self, path: str) -> FolderList:
        """The folders in a folder; the allowed ones if ``path`` is empty. Raises NotFound, Denied."""
        if not path:
            roots = self._workspaces.roots()
            return FolderList("", None, tuple(FolderLine(str(root), str(root)) for root in roots))
        folder = self._check_allowed(path)
        names, is_cut = _names(folder)
        lines = tuple(FolderLine(str(folder / name), name) for name in names)
        above = "" if folder in self._workspaces.roots() else str(folder.parent)
        return FolderList(str(folder), above, lines, is_cut)

    def recent(self, projects: Iterable[str | None]) -> tuple[FolderLine, ...]:
        """Of the folders that sessions work in, the first few in which another one can work."""
        named = dict.fromkeys(project for project in projects if project)
        usable = (Path(project) for project in named if self._is_usable(project))
        return tuple(FolderLine(str(path), path.name) for path in islice(usable, RECENT_MAX))

    def _is_usable(self, project: str) -> bool:
        try:
            self._workspaces.of_project(project)
        except Invalid:
            return False
        return True

    def _check_allowed(self, path: str) -> Path:
        if "\0" in path or not os.path.isabs(path):
            raise NotFound("folder", repr(path))
        folder = Path(os.path.realpath(path))
        # The same answer whether or not there is such a folder: nothing outside can be found out.
        if not self._workspaces.is_in_roots(folder):
            raise Denied(
                f"{path!r} is not in one of the folders that are allowed.",
                hint="The allowed folders are roots in [files] of config.toml.",
            )
        return folder


def _names(folder: Path) -> tuple[list[str], bool]:
    try:
        handle = open_folder(folder)
        try:
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
        finally:
            os.close(handle)
        try:
            found = list(islice(_folders_of(fd), LISTED_MAX + 1))
        finally:
            os.close(fd)
    except FileNotFoundError as error:
        raise NotFound("folder", repr(str(folder))) from error
    except OSError as error:
        raise Denied(
            f"The folder {str(folder)!r} cannot be read: {error.strerror}.", hint="Choose another one."
        ) from error
    return sorted(found[:LISTED_MAX], key=lambda name: (name.casefold(), name)), len(found) > LISTED_MAX


def _folders_of(fd: int) -> Iterator[str]:
    with os.scandir(fd) as entries:
        for entry in entries:
            # A name that cannot be printed is not text, or has control characters in it.
            is_shown = entry.name.isprintable() and not entry.name.startswith(".")
            if is_shown and entry.is_dir(follow_symlinks=False):
                yield entry.name
