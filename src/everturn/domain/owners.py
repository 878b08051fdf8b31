"""Owners of sessions by name. A guest of the gateway is an owner of their own."""

from __future__ import annotations

_GUEST = "guest:"


def guest_owner(account: str, sender: str) -> str:
    return f"{_GUEST}{account}:{sender}"


def is_guest(owner: str) -> bool:
    return owner.startswith(_GUEST)
