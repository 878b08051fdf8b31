"""Backups that a server makes: what is known of each, and how they are doing."""

from __future__ import annotations

from collections.abc import Sequence
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


class BackupState(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered between two backups. ``problem``: why the last one was not made; empty if it was."""

    last_at: int | None = None
    last_name: str = ""
    left_out: tuple[str, ...] = ()  # of the last one
    failed_at: int | None = None
    problem: str = ""
    hint: str = ""


class BackupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How backups are doing. ``next_at`` is None if none is scheduled."""

    folder: str
    is_scheduled: bool
    is_running: bool
    next_at: int | None
    state: BackupState
    backups: Sequence[BackupEntry]


class Backups(Protocol):
    """What the web needs."""

    async def status(self) -> BackupStatus: ...

    async def ask(self) -> None:
        """Have a backup made soon, by any server. Durable on return."""
        ...

    async def find_problem(self) -> str:
        """Why the last backup was not made, or is overdue; empty if nothing is wrong."""
        ...
