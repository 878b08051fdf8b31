"""A user's preferences in the store. Every room that calls a model needs the preferred one."""

from __future__ import annotations

from everturn.domain.store import Records

KIND = "settings"
NAME = "web"


async def preferred_model(records: Records, owner: str) -> str | None:
    """The model that the user chose as the default; None if the user chose none."""
    value = await records.get(owner, KIND, NAME)
    return value.get("model") if value else None


async def preferred_language(records: Records, owner: str) -> str | None:
    """The language that the user chose for chats and notifications; None if the user chose none."""
    value = await records.get(owner, KIND, NAME)
    return value.get("language") if value else None
