"""Saves a file into a workspace for a user: whole or not at all, and only over the version it is based on."""

from __future__ import annotations

from pathlib import Path

from everturn.domain.errors import Denied, Invalid, StaleFile
from everturn.tools.files.browse import refusals
from everturn.tools.paths import FolderHandle
from everturn.tools.policy.guarded import guarded_part
from everturn.workspace.views import tag_of

PATH_BYTES_MAX = 4000  # the kernel takes 4096


def save_file(folder: Path, path: str, source: Path, tag: str | None, *, is_project: bool) -> str:
    """Replace the file whose tag this is, or make one where there is none (None); return its path.

    Folders are made as needed. On return the file survives a power cut. Raises StaleFile, Invalid, Denied,
    NotFound, DiskFull; then nothing was changed.
    """

    def check(name: str, real: str) -> None:
        part = guarded_part(folder, real) if is_project else ""
        if part:
            raise Denied(
                f"{name} was not saved: {part} can make programs on this machine run things.",
                hint="Change it with your own editor.",
            )

    if len(path.encode()) > PATH_BYTES_MAX:
        raise Invalid("The path is too long.", hint="Use a shorter name.")
    with refusals(path), FolderHandle(folder, check=check) as files, source.open("rb") as content:
        name = files.name(path)
        if (present := tag_of(folder, path)) != tag:
            raise StaleFile(name, present)
        files.write(path, content)
    return name
