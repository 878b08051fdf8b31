"""The machine that a server runs on, for what only one of several machines has: folders."""

from __future__ import annotations

from typing import Self

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """``id`` belongs to the data folder and stays; ``name`` is the host's, for people, and may change.

    SQLite has one machine only, whose id is empty.
    """

    id: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The machine that a row names; see ``text``."""
        machine_id, _, name = text.partition("@")
        return cls(machine_id, name)

    @property
    def text(self) -> str | None:
        """How rows name it; None on SQLite."""
        return f"{self.id}@{self.name}" if self.id else None

    def is_same(self, text: str | None) -> bool:
        """True if a row means this machine; one that names none may be any."""
        return not text or self.parse(text).id == self.id
