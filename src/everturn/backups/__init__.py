"""Makes, verifies, rotates and restores backups. If there are several servers, one makes the scheduled ones.

Imports domain, store and delivery. Called by app and cli. ``backup`` makes a backup, ``sealed`` and
``encryption`` turn it into an archive, ``shelf`` and ``bucket`` store it, ``rotation`` decides which backups
to keep, ``drill`` makes a trial restore, and ``runner`` does all of this on a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.backups.backup import make_backup
    from everturn.backups.runner import BackupRunner, BackupServices
    from everturn.backups.settings import BackupSettings

__all__ = ["BackupRunner", "BackupServices", "BackupSettings", "make_backup"]

__getattr__ = lazy_names(__name__)
