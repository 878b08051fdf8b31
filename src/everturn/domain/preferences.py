"""Where a person's preferences lie in the store: every room that asks a model needs the preferred one."""

from __future__ import annotations

from everturn.domain.store import Records

KIND = "settings"
NAME = "web"


async def preferred_model(records: Records, owner: str) -> str | None:
    """The model that the person chose for whatever names none."""
    value = await records.get(owner, KIND, NAME)
    return value.get("model") if value else None
