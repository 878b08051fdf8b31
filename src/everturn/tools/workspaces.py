"""The folders in which tools work: one of its own for each session, or a project's."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from everturn.domain.errors import Invalid
from everturn.tools.disk_sync import DiskSync


class Workspaces:
    """``home`` is the data folder, which holds the sessions' own workspaces. ``roots``: the folders in which
    projects may lie; none: anywhere."""

    def __init__(self, home: Path, roots: Sequence[Path] = ()) -> None:
        self.home = home.resolve()
        self._roots = tuple(roots)

    def make(self) -> None:
        """Make the folder of all workspaces; each workspace is synced with what is made in it."""
        (self.home / "workspaces").mkdir(mode=0o700, parents=True, exist_ok=True)
        home = os.open(self.home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            DiskSync().sync(home)
        finally:
            os.close(home)

    def of_session(self, session_id: str) -> Path:
        """The session's own folder, made if it is not there. Raises Invalid."""
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", session_id):
            raise Invalid(f"{session_id[:80]!r} is not a session id.")
        folder = self.home / "workspaces" / session_id
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def real_project(self, project: str) -> Path:
        """The real path of a folder that a user names as a project. Raises Invalid.

        Links are followed now and not again later: a command in a project around this one could put another
        link there.
        """
        return self.of_project(os.path.realpath(_folder(project)))

    def of_project(self, project: str) -> Path:
        """A project's folder. Raises Invalid.

        A link on its path was put there after the user named the folder (``real_project`` resolves those that
        were there). A command in a project around this one can do that, so it is not followed.
        """
        folder = _folder(project)
        if folder.resolve() != folder:
            raise Invalid(
                f"The project's folder {project!r} now leads to {str(folder.resolve())!r} through a link. "
                "It was not opened.",
                hint="If this is what you want, choose the folder again.",
            )
        if self.home.is_relative_to(folder) or folder.is_relative_to(self.home):
            raise Invalid(
                f"No session can work in {project!r}: commands there would reach Everturn's data folder.",
                hint="Name a folder that neither holds the data folder nor lies in it.",
            )
        if self._roots and not self.is_in_roots(folder):
            raise Invalid(
                f"No session can work in {project!r}: it is not in one of the folders that are allowed.",
                hint="Choose a folder in one of them, or add this one to roots in [files] of config.toml.",
            )
        return folder

    def roots(self) -> tuple[Path, ...]:
        """The real paths of the allowed folders that are there: a disk may be away."""
        found = (root.resolve() for root in self._roots)
        return tuple(dict.fromkeys(root for root in found if root.is_dir()))

    def is_in_roots(self, folder: Path) -> bool:
        """Whether a folder, given by its real path, is an allowed one or lies in one."""
        return any(folder.is_relative_to(root) for root in self.roots())

    def delete(self, session_id: str) -> None:
        """Delete a session's own folder with everything in it. A project's folder is the user's and stays."""
        shutil.rmtree(self.of_session(session_id))


def _folder(project: str) -> Path:
    """Raises Invalid if there is no folder with this absolute path."""
    folder = os.path.normpath(os.path.expanduser(project))
    if os.path.isabs(folder) and os.path.isdir(folder):
        return Path(folder)
    raise Invalid(
        f"The project's folder {project!r} is not there.", hint="Name an existing folder by its full path."
    )
