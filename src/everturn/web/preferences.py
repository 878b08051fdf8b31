"""What a person prefers, kept in the store: the model and profile for what names none."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain.storing import Records

_KIND = "settings"
_NAME = "web"


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    model: str | None = None
    profile: str | None = None


class ChangePreferences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change; what is left out stays, null goes back to the default."""

    model: Annotated[str, Meta(min_length=1, max_length=200)] | UnsetType | None = UNSET
    profile: Annotated[str, Meta(min_length=1, max_length=100)] | UnsetType | None = UNSET


class PreferencesOf:
    """Reads the store each time: another process may have changed it, and a read is cheap."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def get(self, owner: str) -> Preferences:
        value = await self._records.get(owner, _KIND, _NAME)
        return Preferences() if value is None else msgspec.convert(value, Preferences)

    async def change(self, owner: str, change: ChangePreferences) -> Preferences:
        before = await self.get(owner)
        given = {name: getattr(change, name) for name in change.__struct_fields__}
        after = msgspec.structs.replace(before, **{k: v for k, v in given.items() if v is not UNSET})
        await self._records.put(owner, _KIND, _NAME, msgspec.to_builtins(after))
        return after
