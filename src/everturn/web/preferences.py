"""The user's preferences: used where a session names no model or profile, changed in the settings."""

from __future__ import annotations

from typing import Annotated, Literal

import anyio
import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain.sessions import Session
from everturn.domain.store import Records
from everturn.engine import Preferences, read_preferences, write_preferences

INSTRUCTIONS_CHARS_MAX = 8_000
ModelName = Annotated[str, Meta(pattern=r"^\S{1,200}$(?!\n)")]  # "$" alone allows a last line break


class ChangePreferences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change; what is left out stays, null goes back to the default."""

    model: Annotated[str, Meta(min_length=1, max_length=200)] | UnsetType | None = UNSET
    profile: Annotated[str, Meta(min_length=1, max_length=100)] | UnsetType | None = UNSET
    title_model: ModelName | UnsetType | None = UNSET
    fallback_models: Annotated[tuple[ModelName, ...], Meta(max_length=8)] | UnsetType | None = UNSET
    language: Literal["en", "de"] | UnsetType | None = UNSET
    favourite_models: Annotated[tuple[ModelName, ...], Meta(max_length=50)] | UnsetType = UNSET
    instructions: Annotated[str, Meta(max_length=INSTRUCTIONS_CHARS_MAX)] | UnsetType = UNSET
    steps_max: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType | None = UNSET
    minutes_max: Annotated[float, Meta(gt=0, le=10_080)] | UnsetType | None = UNSET
    tokens_max: Annotated[int, Meta(ge=1, le=1_000_000_000)] | UnsetType | None = UNSET
    cost_usd_max: Annotated[float, Meta(gt=0, le=100_000)] | UnsetType | None = UNSET

    @property
    def given(self) -> dict[str, object]:
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in found.items() if value is not UNSET}


class PreferencesOf:
    def __init__(self, records: Records) -> None:
        self._records = records
        self._changing = anyio.Lock()

    async def get(self, owner: str) -> Preferences:
        return await read_preferences(self._records, owner)

    async def model_for(self, session: Session) -> str | None:
        """The model that its owner prefers, where neither the session nor its profile names one."""
        if session.model is not None or session.profile is not None:
            return None
        return (await self.get(session.owner)).model

    async def change(self, owner: str, change: ChangePreferences) -> Preferences:
        # One at a time: of two tabs that read the same and change different things, one would lose.
        async with self._changing:
            after = msgspec.structs.replace(await self.get(owner), **change.given)
            await write_preferences(self._records, owner, after)
            return after
