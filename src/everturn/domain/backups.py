"""Backups that a server makes: what is known of each, and how they are doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class BackupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One backup. ``verified_at``: when it was last opened and found whole. ``problem``: what is wrong with
    it; a backup with one never takes the place of a sound one."""

    name: str
    made_at: int
    bytes: int = 0
    verified_at: int | None = None
    problem: str = ""
    is_encrypted: bool = False
    counts: Mapping[str, int] = {}  # rows of its sessions, turns and messages; empty if not known


class BackupState(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered between two backups. ``problem``: why the last one was not made; empty if it was."""

    last_at: int | None = None
    last_name: str = ""
    left_out: tuple[str, ...] = ()  # of the last one
    failed_at: int | None = None
    problem: str = ""
    hint: str = ""


class BackupPhase(StrEnum):
    WAITING = "waiting"  # asked for; a server begins soon
    COPYING = "copying"
    WRITING = "writing"  # as an archive, encrypted or to object storage
    CHECKING = "checking"  # what was written is read back
    RESTORING = "restoring"  # on trial


class BackupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """``done`` and ``total`` are bytes of this phase; 0 where they are not known."""

    phase: BackupPhase
    done: int = 0
    total: int = 0


class BackupDrill(msgspec.Struct, frozen=True, kw_only=True):
    """The last trial restore. ``problem``: why it failed, or was not made; empty if the backup was restored
    and found whole. ``counts``: rows of its sessions, turns and messages. ``is_damaged``: the backup is to
    blame."""

    at: int
    name: str
    took_ms: int = 0
    counts: Mapping[str, int] = {}
    problem: str = ""
    hint: str = ""
    is_damaged: bool = False


class BackupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How backups are doing. ``next_at`` is None if none is scheduled, ``progress`` if none is being made.
    ``folder`` is the address of object storage if they go there. ``drill_days`` 0: no trial restores."""

    folder: str
    is_scheduled: bool
    is_running: bool
    next_at: int | None
    progress: BackupProgress | None = None
    is_encrypted: bool = False
    drill: BackupDrill | None = None
    drill_days: int = 0
    state: BackupState
    backups: Sequence[BackupEntry]


class Backups(Protocol):
    """What the web needs."""

    async def status(self) -> BackupStatus: ...

    async def ask(self) -> None:
        """Have a backup made soon, by any server. Durable on return."""
        ...

    async def find_problem(self) -> str:
        """Why the last backup was not made, is overdue, or could not be restored on trial; empty if nothing
        is wrong."""
        ...

    async def figures(self) -> Mapping[str, float]:
        """For ``/metrics``."""
        ...
