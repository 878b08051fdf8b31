"""Which machine a data folder belongs to, where several machines share one database."""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path
from typing import Final

from everturn.domain.errors import StoreRefused
from everturn.domain.machine import Machine
from everturn.store.files.disk import Disk, report_errors, write_new

FILE: Final = "machine"
_ID: Final = re.compile(r"mch_[0-9a-f]{32}")


def read_machine(folder: Path, disk: Disk) -> Machine:
    """The machine of this data folder. Its id is made once, in the file ``machine``; a backup holds it, so
    that a server that moves to other hardware with its folders stays the same machine."""
    path = folder / FILE
    if not path.exists():
        _make(path, disk)
    with report_errors(path):
        found = path.read_text("utf-8", "replace").strip()
    if not _ID.fullmatch(found):
        raise StoreRefused(
            f"The file {FILE} in the data folder does not hold the id of a machine.",
            hint="Delete it: a new id is made, and sessions with a project folder here need it chosen again.",
        )
    return Machine(found, socket.gethostname())


def _make(path: Path, disk: Disk) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{os.urandom(8).hex()}")
    try:
        with report_errors(path):
            write_new(disk, temporary, f"mch_{secrets.token_hex(16)}\n".encode())
            # Not a rename: of two processes that start at once, both must get the id of the first.
            try:
                os.link(temporary, path)
            except FileExistsError:
                pass
            except OSError:
                disk.rename(temporary, path)  # a file system without links
            disk.sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
