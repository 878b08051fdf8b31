"""What the user has chosen, where keys come from, and what config.toml says."""

from __future__ import annotations

import anyio.to_thread
import msgspec

from everturn import __version__
from everturn.domain import errors as e
from everturn.domain.model_errors import ModelKeyMissing, ModelUnknown
from everturn.domain.secrets import SecretsState
from everturn.engine import EngineSettings, Preferences
from everturn.models import Keys, ModelRegistry
from everturn.tools import EverturnToolbox
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.api.tools import Sandboxed, sandbox_of
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.preferences import ChangePreferences, PreferencesOf


class KeyState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider and whether there is a key; never the key."""

    name: str
    has_key: bool
    source: str | None = None  # environment | file | store
    base_url: str | None = None  # of the user's own server


class Defaults(msgspec.Struct, frozen=True):
    """What ``config.toml`` says: it holds where nothing was chosen.

    Null: no limit; for titles, the model that answered."""

    title_model: str | None
    fallback_models: tuple[str, ...]
    steps_max: int
    minutes_max: float
    tokens_max: int | None
    cost_usd_max: float | None


class Settings(msgspec.Struct, frozen=True):
    """What was chosen here; null: as ``default_model`` and ``defaults`` say. ``instructions``: what every
    agent is told, whatever its profile."""

    model: str | None
    profile: str | None
    title_model: str | None
    fallback_models: tuple[str, ...] | None
    favourite_models: tuple[str, ...]
    language: str | None
    instructions: str
    steps_max: int | None
    minutes_max: float | None
    tokens_max: int | None
    cost_usd_max: float | None
    defaults: Defaults
    default_model: str
    keys: tuple[KeyState, ...]
    secrets: SecretsState
    sandbox: Sandboxed
    version: str


class SettingsApi:
    def __init__(
        self,
        configured: EngineSettings,
        registry: ModelRegistry,
        keys: Keys,
        toolbox: EverturnToolbox,
        preferences: PreferencesOf,
        audit: Audit,
    ) -> None:
        self._configured = configured
        self._registry = registry
        self._keys = keys
        self._toolbox = toolbox
        self._preferences = preferences
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/settings",
                run=self.settings,
                summary="The settings, and where keys come from.",
                tag="settings",
                scope=Scope.ADMIN,
                answer=Settings,
            ),
            Endpoint(
                method="PATCH",
                path="/api/settings",
                run=self.change,
                summary="Change the default models and profile, the instructions and the limits of a turn.",
                tag="settings",
                scope=Scope.ADMIN,
                body=ChangePreferences,
                answer=Settings,
                errors=(e.Invalid,),
            ),
        ]

    async def settings(self, call: ApiCall[Nothing, Nothing]) -> Settings:
        return await self._settings(await self._preferences.get(call.owner))

    async def change(self, call: ApiCall[Nothing, ChangePreferences]) -> Settings:
        body = call.body
        if isinstance(body.profile, str):
            await self._toolbox.profile_book.get(body.profile)  # raises Invalid for one that is not there
        for name in (body.model, body.title_model, *(body.fallback_models or ())):
            if isinstance(name, str):
                self._refuse_unknown(name)
        changed = await self._preferences.change(call.owner, body)
        if body.given:
            await self._audit.note("settings.changed", call.caller, ", ".join(body.given))
        return await self._settings(changed)

    def _refuse_unknown(self, model: str) -> None:
        """Only what can never be a model: a server may be down for now, and a key may come later."""
        try:
            self._registry.check(model)
        except ModelKeyMissing:
            return
        except ModelUnknown as error:
            raise e.Invalid(f"{error.message} Nothing was changed.", hint=error.hint) from error

    async def _settings(self, chosen: Preferences) -> Settings:
        await self._keys.refresh()
        sources = await anyio.to_thread.run_sync(self._key_sources)
        return Settings(
            **msgspec.structs.asdict(chosen),
            defaults=msgspec.convert(self._configured, Defaults, from_attributes=True),
            default_model=self._registry.default,
            keys=tuple(sources),
            secrets=self._keys.state,
            sandbox=sandbox_of(self._toolbox),
            version=__version__,
        )

    def _key_sources(self) -> list[KeyState]:
        found = [(name, self._key_source(name)) for name in self._registry.provider_names]
        server_of = self._registry.server_of
        return [KeyState(name, source is not None, source, server_of(name)) for name, source in found]

    def _key_source(self, name: str) -> str | None:
        try:
            return self._registry.key_state(name)
        except ModelUnknown:
            return None  # a provider without an address cannot be used, with or without a key
