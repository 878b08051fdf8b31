"""Models and the keys of their providers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.models import Keys, ModelRegistry, ModelState
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.problems import ServerNotUsable
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.preferences import PreferencesOf


class ModelsOut(msgspec.Struct, frozen=True):
    default: str
    models: tuple[ModelLine, ...]
    favourites: tuple[str, ...] = ()  # in the order in which they were chosen


class ModelLine(ModelState, frozen=True, omit_defaults=True):
    """A model and what the page needs of its abilities at a glance."""

    context_tokens: int | None = None
    is_small: bool = False


# What can stand in a header. "$" alone would allow a last line break.
KeyText = Annotated[str, Meta(pattern=r"^[!-~]{1,1000}$(?!\n)")]
Address = Annotated[str, Meta(min_length=1, max_length=500)]


class PutKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key, or the user's own server: ``base_url`` and, if it needs one, a key."""

    key: KeyText | None = None
    base_url: Address | None = None


class TestKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Without a key, the stored one is tried. With ``base_url``: the user's own server."""

    key: KeyText | None = None
    base_url: Address | None = None


class KeyTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: bool
    elapsed_ms: int | None = None
    detail: str = ""
    hint: str = ""
    code: str = ""


class TestModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class ModelTrial(KeyTrial, frozen=True, omit_defaults=True):
    text: str = ""
    first_token_ms: int | None = None


class ModelsApi:
    def __init__(self, registry: ModelRegistry, keys: Keys, preferences: PreferencesOf, audit: Audit) -> None:
        self._registry = registry
        self._keys = keys
        self._preferences = preferences
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/models",
                run=self.models,
                summary="The models that are ready, and those that could be.",
                tag="settings",
                answer=ModelsOut,
            ),
            Endpoint(
                method="POST",
                path="/api/models/test",
                run=self.test_model,
                summary="Test a model with a short message.",
                tag="settings",
                scope=Scope.ADMIN,
                body=TestModel,
                answer=ModelTrial,
            ),
            Endpoint(
                method="PUT",
                path="/api/keys/{provider}",
                run=self.put_key,
                summary="Store a provider's key, or connect your own server. Keys cannot be read back.",
                tag="settings",
                scope=Scope.ADMIN,
                body=PutKey,
                status=204,
                errors=(e.NotFound, e.SecretKeyWrong, ServerNotUsable),
            ),
            Endpoint(
                method="DELETE",
                path="/api/keys/{provider}",
                run=self.delete_key,
                summary="Delete a stored key, or your own server with its key.",
                tag="settings",
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound, e.SecretKeyWrong),
            ),
            Endpoint(
                method="POST",
                path="/api/keys/{provider}/test",
                run=self.test_key,
                summary="Test a key with its provider.",
                tag="settings",
                scope=Scope.ADMIN,
                body=TestKey,
                answer=KeyTrial,
                errors=(e.NotFound,),
            ),
        ]

    async def models(self, call: ApiCall[Nothing, Nothing]) -> ModelsOut:
        chosen = await self._preferences.get(call.owner)
        default = chosen.model or self._registry.default
        lines = tuple(_model_line(state, default) for state in await self._registry.list())
        return ModelsOut(default, lines, chosen.favourite_models)

    async def test_model(self, call: ApiCall[Nothing, TestModel]) -> ModelTrial:
        trial = await self._registry.test(call.body.name)
        return ModelTrial(
            trial.is_ok,
            trial.total_ms,
            trial.problem,
            trial.hint,
            trial.code,
            trial.text,
            trial.first_token_ms,
        )

    async def put_key(self, call: ApiCall[Nothing, PutKey]) -> None:
        provider, body = call.path["provider"], call.body
        if body.base_url is not None:
            await self._connect(provider, body.base_url, body.key)
            await self._audit.note("server.connected", call.caller, provider)
            return
        if body.key is None:
            raise e.Invalid("There is neither a key nor an address.", hint="Send key, base_url, or both.")
        await self._keys.put(self._check_known(provider), body.key)
        self._registry.forget(provider)
        await self._audit.note("key.set", call.caller, provider)

    async def _connect(self, provider: str, base_url: str, key: str | None) -> None:
        """Store the user's own server, once it has answered."""
        trial, address = await self._registry.test_server(provider, base_url, key)
        if not trial.is_ok:
            raise ServerNotUsable(f"{trial.problem} Nothing was stored.", hint=trial.hint, reason=trial.code)
        await self._keys.put_server(provider, address, key)
        self._registry.forget(provider)
        await self._registry.discover()

    async def delete_key(self, call: ApiCall[Nothing, Nothing]) -> None:
        provider = call.path["provider"]
        await self._keys.refresh()
        if not await self._keys.delete(provider):
            raise e.NotFound("stored key for", provider)
        self._registry.forget(provider)
        await self._registry.discover()
        await self._audit.note("key.deleted", call.caller, provider)

    async def test_key(self, call: ApiCall[Nothing, TestKey]) -> KeyTrial:
        provider, body = call.path["provider"], call.body
        if body.base_url is not None:
            trial, _ = await self._registry.test_server(provider, body.base_url, body.key)
        else:
            trial = await self._registry.test_key(self._check_known(provider), body.key)
        return KeyTrial(trial.is_ok, trial.total_ms, trial.problem, trial.hint, trial.code)

    def _check_known(self, provider: str) -> str:
        if provider not in self._registry.provider_names:
            raise e.NotFound("provider", provider)
        return provider


def _model_line(state: ModelState, default: str) -> ModelLine:
    given = {name: getattr(state, name) for name in state.__struct_fields__}
    given["is_default"] = state.name == default
    can = state.abilities
    return ModelLine(
        **given,
        context_tokens=can.context_tokens if can else None,
        is_small=can.is_small if can else False,
    )
