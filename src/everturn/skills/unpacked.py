"""Unpacks skills into folders of this machine, so that commands in the sandbox can read and run their files.

The store is authoritative. A folder is created on demand, whole or not at all, and named by its digest.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Final

import anyio.to_thread

from everturn.domain.skills import SkillVersion
from everturn.skills.content import RawFile
from everturn.skills.shelf import SkillShelf
from everturn.tools.disk_sync import DiskSync
from everturn.tools.temporary_files import STALE_S, is_temporary, write_name

_DIGITS: Final = 16


class Unpacked:
    """``folder`` lies in the data folder, of which commands see only what is mounted for them."""

    def __init__(self, folder: Path, shelf: SkillShelf) -> None:
        self._folder = folder
        self._shelf = shelf

    def name(self, version: SkillVersion) -> str:
        return f"{version.name}-{version.digest[:_DIGITS]}"

    def has(self, version: SkillVersion) -> bool:
        return (self._folder / self.name(version)).is_dir()

    async def find(self, version: SkillVersion) -> Path:
        """Return the folder with this version's files, and unpack it if needed."""
        target = self._folder.resolve() / self.name(version)
        if not self.has(version):
            files = await self._shelf.load(version)
            await anyio.to_thread.run_sync(_unpack, target, files)
        return target


def _unpack(target: Path, files: dict[str, RawFile]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear(target.parent)
    made = target.parent / write_name()
    try:
        for path, file in files.items():
            place = made / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.content)
            place.chmod(0o555 if file.is_executable else 0o444)
        DiskSync().sync_file_system(
            made
        )  # before the rename, so that a power cut leaves no empty files under the final name
        try:
            os.rename(made, target)
        except OSError:
            if not target.is_dir():
                raise
            # Another call created the same folder in the meantime.
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _clear(folder: Path) -> None:
    """Remove leftovers of a process that died."""
    for path in folder.iterdir():
        if is_temporary(os.fsencode(path.name)) and path.stat().st_mtime < time.time() - STALE_S:
            shutil.rmtree(path, ignore_errors=True)
