"""Settings of workspaces and of the bytes of files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain.errors import Invalid


class FilesSettings(msgspec.Struct, frozen=True):
    """Where sessions work, where bytes are kept, what checkpoints hold.

    Fields with a description are settings of config.toml.
    """

    url: Annotated[
        str | None,
        Meta(
            description="Object storage for the bytes of files, s3://BUCKET/PREFIX; see files.md. Unset: "
            "they are in the data folder, or in PostgreSQL. EVERTURN_FILES_URL comes first."
        ),
    ] = None
    roots: Annotated[
        tuple[str, ...],
        Meta(
            description="Folders in which sessions may work, besides their own; the page lists what is in "
            "them. Empty: a session may work in any folder whose full path is given."
        ),
    ] = ()
    ignore: Annotated[
        tuple[str, ...],
        Meta(description="What checkpoints leave out in every workspace, as lines of a .gitignore."),
    ] = ()
    file_bytes_max: Annotated[int, Meta(description="Largest file that a checkpoint holds.")] = 50_000_000
    workspace_files_max: Annotated[
        int, Meta(description="Files and folders that a checkpoint holds at most.")
    ] = 50_000

    def __post_init__(self) -> None:
        """Raises Invalid: a relative path would mean another folder wherever the server is started."""
        for root in self.roots:
            if not os.path.isabs(os.path.expanduser(root)) or "\0" in root:
                raise Invalid(f"{root!r} is not a full path.", hint="Like /srv/work or ~/work.", key="roots")

    def root_folders(self) -> tuple[Path, ...]:
        return tuple(Path(root).expanduser() for root in self.roots)
