"""The progress of a backup, and whether it has to stop. Shared by several threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from everturn.domain.backups import BackupPhase, BackupProgress
from everturn.domain.errors import Stopped


class BackupWatch:
    """``check`` is called between two pieces, and may raise to end the backup."""

    def __init__(self, check: Callable[[], None] | None = None) -> None:
        self._check = check
        self._is_stopped = False
        self.progress = BackupProgress(phase=BackupPhase.COPYING)

    def begin(self, phase: BackupPhase, total: int = 0) -> None:
        self.check()
        self.progress = BackupProgress(phase=phase, total=total)

    def advance(self, done: int) -> None:
        self.check()
        at = self.progress
        self.progress = BackupProgress(phase=at.phase, done=at.done + done, total=at.total)

    def check(self) -> None:
        if self._is_stopped:
            raise Stopped("The backup was stopped.", hint="It is made again later.")
        if self._check is not None:
            self._check()

    def stop(self) -> None:
        """Make the working thread end, because cancelling its task does not stop it."""
        self._is_stopped = True


def size_of(backup: Path) -> int:
    """Return the size in bytes of a backup, which is a folder or a file."""
    if not backup.is_dir():
        return backup.lstat().st_size
    return sum(
        (Path(parent) / name).lstat().st_size for parent, _, names in os.walk(backup) for name in names
    )
