"""A user's preferences, stored. They override ``config.toml``; what a message asks for overrides them."""

from __future__ import annotations

import msgspec

from everturn.domain.preferences import KIND, NAME
from everturn.domain.store import Records
from everturn.engine.settings import EngineSettings

# Fields that go by the same name in the engine's settings.
_TURN = ("title_model", "fallback_models", "steps_max", "minutes_max", "tokens_max", "cost_usd_max")


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """None: as the settings say. ``model`` and ``profile`` apply where nothing else names one.
    ``instructions``: what the user wants of every agent, whatever its profile."""

    model: str | None = None
    profile: str | None = None
    title_model: str | None = None
    fallback_models: tuple[str, ...] | None = None
    steps_max: int | None = None
    minutes_max: float | None = None
    tokens_max: int | None = None
    cost_usd_max: float | None = None
    favourite_models: tuple[str, ...] = ()
    language: str | None = None  # of chats and notifications
    instructions: str = ""

    def over(self, settings: EngineSettings) -> EngineSettings:
        """These preferences applied to the settings."""
        given = {name: value for name in _TURN if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(settings, **given) if given else settings


async def read_preferences(records: Records, owner: str) -> Preferences:
    """Not cached: another process may have changed them, and a read is cheap."""
    value = await records.get(owner, KIND, NAME)
    return Preferences() if value is None else msgspec.convert(value, Preferences)


async def write_preferences(records: Records, owner: str, preferences: Preferences) -> None:
    await records.put(owner, KIND, NAME, msgspec.to_builtins(preferences))
