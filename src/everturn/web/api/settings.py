"""Models and keys, tools and their policy, profiles, MCP servers, usage, preferences."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
import msgspec
from msgspec import Meta

from everturn import __version__
from everturn.domain import errors as e
from everturn.domain.clock import Clock
from everturn.domain.sessions import Session
from everturn.domain.turns import Usage
from everturn.engine import Engine, Preferences
from everturn.models import Keys, ModelRegistry, ModelState
from everturn.store import Store
from everturn.tools import EverturnToolbox, Rule, ServerState
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Caller, Scope
from everturn.web.api.sessions import SessionId
from everturn.web.http.problems import ServerNotUsable
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.preferences import ChangePreferences, PreferencesOf

_DAY_MS = 86_400_000


class Models(msgspec.Struct, frozen=True):
    default: str
    models: tuple[ModelLine, ...]


class ModelLine(ModelState, frozen=True, omit_defaults=True):
    """A model and what the page needs of its abilities at a glance."""

    context_tokens: int | None = None
    is_small: bool = False


class KeyState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider and whether there is a key; never the key."""

    name: str
    has_key: bool
    source: str | None = None  # environment | file
    base_url: str | None = None  # of a server of one's own


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
    """What was chosen here; null: as ``default_model`` and ``defaults`` say."""

    model: str | None
    profile: str | None
    title_model: str | None
    fallback_models: tuple[str, ...] | None
    steps_max: int | None
    minutes_max: float | None
    tokens_max: int | None
    cost_usd_max: float | None
    defaults: Defaults
    default_model: str
    keys: tuple[KeyState, ...]
    sandbox: Sandboxed
    version: str


class Sandboxed(msgspec.Struct, frozen=True):
    """``level``: full | reduced | none. ``hint``: what to do about it, if something can be done."""

    is_on: bool
    level: str
    detail: str
    hint: str = ""


# What can stand in a header. "$" alone would allow a last line break.
KeyText = Annotated[str, Meta(pattern=r"^[!-~]{1,1000}$(?!\n)")]


Address = Annotated[str, Meta(min_length=1, max_length=500)]


class PutKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key, or a server of one's own: ``base_url`` and, if it wants one, a key."""

    key: KeyText | None = None
    base_url: Address | None = None


class TestKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Without a key, the one that is stored is tried. With ``base_url``: a server of one's own."""

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


class ProfileOut(msgspec.Struct, frozen=True):
    name: str
    description: str
    model: str | None
    tools: tuple[str, ...] | None
    network: bool
    sandbox: bool
    mcp: tuple[str, ...]


class ProfilesOut(msgspec.Struct, frozen=True):
    profiles: tuple[ProfileOut, ...]


class ToolsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    profile: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class ToolOut(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    is_safe_to_repeat: bool
    timeout_s: float


class ToolsOut(msgspec.Struct, frozen=True):
    tools: tuple[ToolOut, ...]
    sandbox: Sandboxed


class ServerOut(ServerState, frozen=True):
    is_connected: bool = False


class Servers(msgspec.Struct, frozen=True):
    servers: tuple[ServerOut, ...]


class TrustServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``session_id``: the session in whose workspace the server is started to be asked. ``digest``: of the
    text that is accepted; without one nothing is accepted, and the answer holds the texts to read."""

    session_id: SessionId
    digest: Annotated[str, Meta(max_length=64)] = ""


class TrustedSession(msgspec.Struct, frozen=True):
    """A session whose tool calls run without asking, as far as trust covers them."""

    id: str
    title: str


class Rules(msgspec.Struct, frozen=True):
    """Rules cover all sessions; trust covers one session."""

    rules: tuple[Rule, ...]
    trusted: tuple[TrustedSession, ...]


class RevokeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``id``: the rule to revoke. ``session_id``: the session whose trust ends. Neither: all rules."""

    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,120}$")] | None = None
    session_id: SessionId | None = None


class Revoked(msgspec.Struct, frozen=True):
    revoked: int


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    days: Annotated[int, Meta(ge=1, le=3650)] = 30


class UsageLine(msgspec.Struct, frozen=True):
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None


class UsageReport(msgspec.Struct, frozen=True):
    days: int
    total: UsageLine
    models: dict[str, UsageLine]


class SettingsApi:
    def __init__(
        self,
        engine: Engine,
        store: Store,
        registry: ModelRegistry,
        keys: Keys,
        toolbox: EverturnToolbox,
        preferences: PreferencesOf,
        audit: Audit,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._store = store
        self._registry = registry
        self._keys = keys
        self._toolbox = toolbox
        self._preferences = preferences
        self._audit = audit
        self._clock = clock

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._general(), *self._about_models(), *self._about_tools()]

    def _general(self) -> list[AnyEndpoint]:
        tag = "settings"
        return [
            Endpoint(
                method="GET",
                path="/api/settings",
                run=self.settings,
                summary="What is set, and where keys come from.",
                tag=tag,
                scope=Scope.ADMIN,
                answer=Settings,
            ),
            Endpoint(
                method="PATCH",
                path="/api/settings",
                run=self.change,
                summary="Choose models and the profile for what names none, and the limits of a turn.",
                tag=tag,
                scope=Scope.ADMIN,
                body=ChangePreferences,
                answer=Settings,
                errors=(e.Invalid,),
            ),
            Endpoint(
                method="GET",
                path="/api/usage",
                run=self.usage,
                summary="Tokens and money of the last days, by model.",
                tag=tag,
                query=UsageQuery,
                answer=UsageReport,
            ),
        ]

    def _about_models(self) -> list[AnyEndpoint]:
        tag, unknown = "settings", (e.NotFound,)
        return [
            Endpoint(
                method="GET",
                path="/api/models",
                run=self.models,
                summary="The models that can be used, or could be.",
                tag=tag,
                answer=Models,
            ),
            Endpoint(
                method="POST",
                path="/api/models/test",
                run=self.test_model,
                summary="Say a few words to a model.",
                tag=tag,
                scope=Scope.ADMIN,
                body=TestModel,
                answer=ModelTrial,
            ),
            Endpoint(
                method="PUT",
                path="/api/keys/{provider}",
                run=self.put_key,
                summary="Store a provider's key, or connect a server of one's own. Keys cannot be read back.",
                tag=tag,
                scope=Scope.ADMIN,
                body=PutKey,
                status=204,
                errors=(*unknown, ServerNotUsable),
            ),
            Endpoint(
                method="DELETE",
                path="/api/keys/{provider}",
                run=self.delete_key,
                summary="Forget a stored key, or a server with its key.",
                tag=tag,
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="POST",
                path="/api/keys/{provider}/test",
                run=self.test_key,
                summary="Ask the provider whether a key is good.",
                tag=tag,
                scope=Scope.ADMIN,
                body=TestKey,
                answer=KeyTrial,
                errors=unknown,
            ),
        ]

    def _about_tools(self) -> list[AnyEndpoint]:
        tag = "settings"
        return [
            Endpoint(
                method="GET",
                path="/api/profiles",
                run=self.profiles,
                summary="The profiles of config.toml.",
                tag=tag,
                answer=ProfilesOut,
            ),
            Endpoint(
                method="GET",
                path="/api/tools",
                run=self.tools,
                summary="What the agent can do, and whether the sandbox holds.",
                tag=tag,
                query=ToolsQuery,
                answer=ToolsOut,
            ),
            Endpoint(
                method="GET",
                path="/api/mcp",
                run=self.servers,
                summary="The MCP servers of config.toml.",
                tag=tag,
                answer=Servers,
            ),
            Endpoint(
                method="POST",
                path="/api/mcp/{server}/trust",
                run=self.trust_server,
                summary="Start a server, read what it says about its tools, and accept it.",
                tag=tag,
                scope=Scope.ADMIN,
                body=TrustServer,
                answer=ServerOut,
                errors=(e.NotFound, e.WrongState),
            ),
            Endpoint(
                method="GET",
                path="/api/policy",
                run=self.rules,
                summary="The rules that always hold, and the sessions that are trusted.",
                tag=tag,
                scope=Scope.ADMIN,
                answer=Rules,
            ),
            Endpoint(
                method="DELETE",
                path="/api/policy",
                run=self.revoke,
                summary="Revoke one rule, all rules, or the trust in one session.",
                tag=tag,
                scope=Scope.ADMIN,
                query=RevokeQuery,
                answer=Revoked,
                errors=(e.NotFound, e.Invalid),
            ),
        ]

    # --- settings ------------------------------------------------------------------------------------

    async def settings(self, call: ApiCall[Nothing, Nothing]) -> Settings:
        return await self._settings(await self._preferences.get(call.owner))

    async def change(self, call: ApiCall[Nothing, ChangePreferences]) -> Settings:
        body = call.body
        if isinstance(body.profile, str):
            self._toolbox.profiles.get(body.profile)  # raises Invalid for one that is not there
        for name in (body.model, body.title_model, *(body.fallback_models or ())):
            if isinstance(name, str):
                self._refuse_unknown(name)
        changed = await self._preferences.change(call.owner, body)
        if body.given:
            await self._note("settings.changed", call.caller, ", ".join(body.given))
        return await self._settings(changed)

    def _refuse_unknown(self, model: str) -> None:
        """Only what can never be a model: a server may be down for now, and a key may come later."""
        try:
            self._registry.check(model)
        except e.ModelKeyMissing:
            return
        except e.ModelUnknown as error:
            raise e.Invalid(f"{error.message} Nothing was changed.", hint=error.hint) from error

    async def _settings(self, chosen: Preferences) -> Settings:
        sources = await anyio.to_thread.run_sync(self._key_sources)
        return Settings(
            **msgspec.structs.asdict(chosen),
            defaults=msgspec.convert(self._engine.settings, Defaults, from_attributes=True),
            default_model=self._registry.default,
            keys=tuple(sources),
            sandbox=self._sandboxed(),
            version=__version__,
        )

    def _key_sources(self) -> list[KeyState]:
        found = [(name, self._key_source(name)) for name in self._registry.provider_names]
        server_of = self._registry.server_of
        return [KeyState(name, source is not None, source, server_of(name)) for name, source in found]

    def _key_source(self, name: str) -> str | None:
        try:
            return self._registry.key_state(name)
        except e.ModelUnknown:
            return None  # a provider without an address cannot be used, with or without a key

    async def usage(self, call: ApiCall[UsageQuery, Nothing]) -> UsageReport:
        since = self._clock.now_ms() - call.query.days * _DAY_MS
        rows = await self._store.upkeep.usage(call.owner, since)
        by_model: dict[str, list[Spent]] = {}
        for model, text, _, purpose in rows:
            usage = msgspec.json.decode(text, type=Usage) if text else Usage()
            by_model.setdefault(model or self._registry.default, []).append((usage, purpose == "turn"))
        lines = {model: _line(spent) for model, spent in sorted(by_model.items())}
        return UsageReport(call.query.days, _line([one for all_ in by_model.values() for one in all_]), lines)

    # --- models and keys -----------------------------------------------------------------------------

    async def models(self, call: ApiCall[Nothing, Nothing]) -> Models:
        chosen = (await self._preferences.get(call.owner)).model
        default = chosen or self._registry.default
        return Models(default, tuple(_model_line(state, default) for state in await self._registry.list()))

    async def names(self, owner: str) -> list[str]:
        """For GET /v1/models: what can be used right now."""
        return [state.name for state in await self._registry.list() if state.state == "ready"]

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
            await self._note("server.connected", call.caller, provider)
            return
        if body.key is None:
            raise e.Invalid("There is neither a key nor an address.", hint="Send key, base_url, or both.")
        await anyio.to_thread.run_sync(self._keys.put, self._known(provider), body.key)
        self._registry.forget(provider)
        await self._note("key.set", call.caller, provider)

    async def _connect(self, provider: str, base_url: str, key: str | None) -> None:
        """Store a server of one's own, once it has answered."""
        trial, address = await self._registry.test_server(provider, base_url, key)
        if not trial.is_ok:
            raise ServerNotUsable(f"{trial.problem} Nothing was stored.", hint=trial.hint, reason=trial.code)
        await anyio.to_thread.run_sync(self._keys.put_server, provider, address, key)
        self._registry.forget(provider)
        await self._registry.discover()

    async def delete_key(self, call: ApiCall[Nothing, Nothing]) -> None:
        provider = call.path["provider"]
        if not await anyio.to_thread.run_sync(self._keys.delete, provider):
            raise e.NotFound("stored key for", provider)
        self._registry.forget(provider)
        await self._registry.discover()
        await self._note("key.deleted", call.caller, provider)

    async def test_key(self, call: ApiCall[Nothing, TestKey]) -> KeyTrial:
        provider, body = call.path["provider"], call.body
        if body.base_url is not None:
            trial, _ = await self._registry.test_server(provider, body.base_url, body.key)
        else:
            trial = await self._registry.test_key(self._known(provider), body.key)
        return KeyTrial(trial.is_ok, trial.total_ms, trial.problem, trial.hint, trial.code)

    def _known(self, provider: str) -> str:
        if provider not in self._registry.provider_names:
            raise e.NotFound("provider", provider)
        return provider

    async def _note(self, what: str, caller: Caller, detail: str) -> None:
        await self._audit.write(what, caller.name, address=caller.address, detail=detail)

    # --- tools ---------------------------------------------------------------------------------------

    async def profiles(self, call: ApiCall[Nothing, Nothing]) -> ProfilesOut:
        found = self._toolbox.profiles.profiles
        return ProfilesOut(
            tuple(
                ProfileOut(
                    name,
                    one.prompt.strip().split("\n", 1)[0][:200],
                    one.model,
                    one.tools,
                    one.network,
                    one.sandbox,
                    one.mcp,
                )
                for name, one in found.items()
            )
        )

    async def tools(self, call: ApiCall[ToolsQuery, Nothing]) -> ToolsOut:
        found = await self._toolbox.known_tools(call.owner, call.query.profile)
        return ToolsOut(
            tuple(
                ToolOut(
                    tool.spec.name,
                    tool.spec.schema.description,
                    tool.spec.schema.parameters,
                    tool.spec.is_safe_to_repeat,
                    tool.spec.timeout_s,
                )
                for tool in found
            ),
            self._sandboxed(),
        )

    def _sandboxed(self) -> Sandboxed:
        state = self._toolbox.sandbox_state()
        return Sandboxed(state.works, state.level, state.detail, state.hint)

    async def servers(self, call: ApiCall[Nothing, Nothing]) -> Servers:
        return Servers(tuple(_server_out(state) for state in await self._toolbox.servers(call.owner)))

    async def trust_server(self, call: ApiCall[Nothing, TrustServer]) -> ServerOut:
        name, digest = call.path["server"], call.body.digest
        session = await self._store.sessions.get(call.owner, call.body.session_id)
        state = await self._toolbox.trust_server(call.owner, name, session.id, digest)
        if digest:
            await self._note("mcp.trusted", call.caller, name)
        return _server_out(state)

    async def rules(self, call: ApiCall[Nothing, Nothing]) -> Rules:
        policy = self._toolbox.policy
        trusted = [
            TrustedSession(session.id, session.title)
            for session_id in await policy.trusted_sessions(call.owner)
            if (session := await self._find_session(call.owner, session_id)) is not None
        ]
        return Rules(tuple(await policy.rules(call.owner)), tuple(trusted))

    async def _find_session(self, owner: str, session_id: str) -> Session | None:
        try:
            return await self._store.sessions.get(owner, session_id)
        except (e.NotFound, e.Gone):
            return None  # deleted meanwhile

    async def revoke(self, call: ApiCall[RevokeQuery, Nothing]) -> Revoked:
        if call.query.session_id is not None:
            if call.query.id is not None:
                raise e.Invalid("Both a rule and a session are named. Nothing was changed.", hint="Name one.")
            return await self._end_trust(call, call.query.session_id)
        return await self._revoke_rules(call)

    async def _end_trust(self, call: ApiCall[RevokeQuery, Nothing], session_id: str) -> Revoked:
        """From the next tool call on, the session asks again. Ending trust twice is no error."""
        session = await self._store.sessions.get(call.owner, session_id)
        if not await self._toolbox.policy.end_trust(call.owner, session.id):
            return Revoked(0)
        await self._note("trust.ended", call.caller, session.id)
        return Revoked(1)

    async def _revoke_rules(self, call: ApiCall[RevokeQuery, Nothing]) -> Revoked:
        policy = self._toolbox.policy
        if call.query.id is not None:
            if not await policy.revoke(call.owner, call.query.id):
                raise e.NotFound("rule", call.query.id)
            await self._note("policy.revoked", call.caller, call.query.id)
            return Revoked(1)
        rules = await policy.rules(call.owner)
        for rule in rules:
            await policy.revoke(call.owner, rule.id)
        await self._note("policy.revoked", call.caller, f"all {len(rules)}")
        return Revoked(len(rules))


def _model_line(state: ModelState, default: str) -> ModelLine:
    given = {name: getattr(state, name) for name in state.__struct_fields__}
    given["is_default"] = state.name == default
    can = state.abilities
    return ModelLine(
        **given,
        context_tokens=can.context_tokens if can else None,
        is_small=can.is_small if can else False,
    )


def _server_out(state: ServerState) -> ServerOut:
    given = {name: getattr(state, name) for name in state.__struct_fields__}
    return ServerOut(**given, is_connected=state.state == "running")


Spent = tuple[Usage, bool]  # and whether it was a turn: memory is extracted beside turns


def _line(spent: list[Spent]) -> UsageLine:
    total = Usage()
    for usage, _ in spent:
        total = total.plus(usage)
    return UsageLine(
        sum(is_turn for _, is_turn in spent),
        total.input_tokens or 0,
        total.output_tokens or 0,
        total.cached_tokens or 0,
        total.cost_usd,
    )
