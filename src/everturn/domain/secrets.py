"""Secrets: the keys, tokens and private addresses that Everturn keeps, and the one door to them.

Everything that stores a secret goes through ``Secrets``. Names have two parts, ``keys/openai``: what it is,
and whose. With SQLite the secrets are in ``secrets.toml`` (0600); with PostgreSQL they are encrypted rows
that every server reads, if the servers were given a secret key.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec


class Secret:
    """A secret that is hidden in ``repr``, f-strings and tracebacks."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class SecretsPlace(StrEnum):
    FILE = "file"  # secrets.toml, on one machine
    STORE = "store"  # encrypted, in the database


class SecretsState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where secrets are kept. ``notice``: what the owner should know or do about it; empty if nothing."""

    place: SecretsPlace
    notice: str = ""


class Secrets(Protocol):
    """The one door to stored secrets.

    Reading never waits: it answers from what this process has at hand, at most a second old.
    """

    @property
    def state(self) -> SecretsState: ...

    def get(self, name: str) -> Secret | None:
        """The secret of this name. Raises SecretUnreadable if there is one that cannot be decrypted."""
        ...

    def find(self, kind: str) -> dict[str, Secret]:
        """All readable secrets of this kind, by the second part of their names."""
        ...

    def names(self) -> tuple[str, ...]:
        """The names of all stored secrets, readable or not."""
        ...

    async def change(self, changes: Mapping[str, str | None]) -> None:
        """Store these secrets and delete those that are None, in one step, durably.

        Raises SecretKeyWrong if the stored ones were encrypted with a key that this process does not have.
        Then nothing is changed.
        """
        ...

    async def refresh(self) -> None:
        """Read what other processes have changed. If the store cannot be reached, what is at hand stays."""
        ...
