"""What a person prefers, kept in the store: it stands above ``config.toml`` and below what a message says."""

from __future__ import annotations

import msgspec

from everturn.domain.preferences import KIND, NAME
from everturn.domain.store import Records
from everturn.engine.settings import EngineSettings

# Fields that go by the same name in the engine's settings.
_TURN = ("title_model", "fallback_models", "steps_max", "minutes_max", "tokens_max", "cost_usd_max")


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is None is as the settings say. The model and the profile are for what names none."""

    model: str | None = None
    profile: str | None = None
    title_model: str | None = None
    fallback_models: tuple[str, ...] | None = None
    steps_max: int | None = None
    minutes_max: float | None = None
    tokens_max: int | None = None
    cost_usd_max: float | None = None

    def over(self, settings: EngineSettings) -> EngineSettings:
        """The settings as this person's turns have them."""
        given = {name: value for name in _TURN if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(settings, **given) if given else settings


async def read_preferences(records: Records, owner: str) -> Preferences:
    """Read each time: another process may have changed them, and a read is cheap."""
    value = await records.get(owner, KIND, NAME)
    return Preferences() if value is None else msgspec.convert(value, Preferences)


async def write_preferences(records: Records, owner: str, preferences: Preferences) -> None:
    await records.put(owner, KIND, NAME, msgspec.to_builtins(preferences))
