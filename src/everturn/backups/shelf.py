"""The folder that scheduled backups are put into."""

from __future__ import annotations

import logging
from pathlib import Path

from everturn.backups.rotation import made_at
from everturn.backups.settings import BackupSettings
from everturn.backups.unfinished import UnfinishedBackup, clear_all
from everturn.domain.errors import Stopped

_log = logging.getLogger("everturn.backups")


class BackupShelf:
    def __init__(self, home: Path, settings: BackupSettings) -> None:
        self._named = settings.named_folder()
        self.folder = self._named or home / "backups"

    def prepare(self, *, expects_backups: bool) -> None:
        """Check the folder, and clear what interrupted backups left there.

        A folder with a name of its own is never made: it is where a disk is mounted, and without that disk
        the backups would fill the one that they are meant to survive. ``expects_backups``: refuse an empty
        folder for the same reason. Raises Stopped, OSError.
        """
        if self._named is None:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        elif not self.folder.is_dir():
            raise Stopped(
                f"The folder of backups {self.folder} is not there.",
                hint="Mount it or make it, or set another folder in [backup].",
            )
        elif expects_backups and not any(self.folder.iterdir()):
            raise Stopped(
                f"The folder of backups {self.folder} is empty, although backups were put there.",
                hint="See whether its disk is mounted. If it is meant to be empty, put any file there.",
            )
        cleared, left = clear_all(self.folder)
        for leftover in cleared:
            _log.info("cleared %s: an unfinished backup", leftover)
        for leftover, error in left:
            _log.warning("left %s as it is: %s", leftover, error.strerror or error)

    def names(self) -> list[str]:
        """The scheduled backups that are there, oldest first; none if the folder is gone. Raises OSError."""
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if made_at(path.name) is not None)

    def remove(self, name: str) -> None:
        """Remove a backup. From its first step on, what is left of it is known as a leftover."""
        with UnfinishedBackup(self.folder / name) as leaving:
            (self.folder / name).rename(leaving.inside)
