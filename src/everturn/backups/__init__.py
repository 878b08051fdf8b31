"""Backups: made, kept for a while, and checked. One of several servers makes the scheduled ones.

Imports domain, store and delivery. Called by app and cli. ``backup`` makes one, ``sealed`` and
``encryption`` turn it into an archive, ``shelf`` and ``bucket`` keep them, ``rotation`` decides which ones
stay, ``drill`` restores one on trial, ``runner`` does all of it on a server.
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
