"""Profiles: made, changed, shared as files and tried. What a profile allows decides what the agent can do, so
everything here but the list is for the admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain import errors as e
from everturn.domain.json_types import JsonObject
from everturn.domain.model_errors import ModelKeyMissing, ModelUnknown
from everturn.domain.parameters import OUTPUT_TOKENS_MAX, TEMPERATURE_MAX, Effort
from everturn.domain.store import Sessions
from everturn.models import ModelRegistry
from everturn.tools import EverturnToolbox, Profile
from everturn.tools.profile_book import PROMPT_CHARS_MAX, check_names, make_profile
from everturn.tools.profile_file import FILE_CHARS_MAX, Grant, list_grants, read_profile, write_profile
from everturn.tools.profiles import DEFAULT_PROMPT
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.problems import PreconditionNeeded
from everturn.web.http.routing import Answer, AnyEndpoint, ApiCall, Endpoint, Nothing, Raw, version_from
from everturn.web.preferences import ModelName, PreferencesOf
from everturn.web.profile_trials import ProfileTrials

_Word = Annotated[str, Meta(max_length=300)]
_Words = Annotated[tuple[_Word, ...], Meta(max_length=500)]
_Name = Annotated[str, Meta(min_length=1, max_length=100)]
_Mebibytes = Annotated[int, Meta(ge=1, le=16_777_216)]
_REFUSALS = (e.Invalid, e.NotFound, e.WrongState)
_ONE = "/api/profiles/{profile}"


class ProfileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``model`` null: the default one. ``tools``, ``skills`` null: all. ``effort``, ``temperature``,
    ``output_tokens_max``: where neither the message nor its session says anything. ``budget_usd``,
    ``budget_tokens``: what each session may spend before it asks; null: no limit."""

    prompt: Annotated[str, Meta(min_length=1, max_length=PROMPT_CHARS_MAX)] = DEFAULT_PROMPT
    model: ModelName | None = None
    effort: Effort | None = None
    temperature: Annotated[float, Meta(ge=0, le=TEMPERATURE_MAX)] | None = None
    output_tokens_max: Annotated[int, Meta(ge=1, le=OUTPUT_TOKENS_MAX)] | None = None
    tools: _Words | None = None
    skills: _Words | None = None
    mcp: _Words = ()
    memory: bool = True
    budget_usd: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    budget_tokens: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    sandbox: bool = True
    network: bool = False
    hosts: _Words = ()
    packages: Annotated[tuple[_Word, ...], Meta(max_length=50)] = ()
    memory_mib: _Mebibytes | None = None
    processes: Annotated[int, Meta(ge=4, le=1_000_000)] = Profile().processes
    file_mib: _Mebibytes = Profile().file_mib


class ProfileOut(msgspec.Struct, frozen=True):
    """``origin``: built_in | config | page; only those of the page can be changed. ``revision``: of those.
    ``description``: the first line of its prompt."""

    name: str
    description: str
    model: str | None
    tools: tuple[str, ...] | None
    network: bool
    sandbox: bool
    mcp: tuple[str, ...]
    origin: str = "page"
    revision: int | None = None
    memory: bool = True
    packages: tuple[str, ...] = ()


class ProfilesOut(msgspec.Struct, frozen=True):
    profiles: tuple[ProfileOut, ...]


class ProfileDetail(ProfileOut, frozen=True, kw_only=True):
    """``knowledge``: the ids of what it may search, besides what is for all. ``servers``: the MCP servers
    that it uses, also those that name it themselves. ``sessions``: how many name it. ``grants``: what it
    allows. ``host_network``: set in config.toml only."""

    settings: ProfileSettings
    knowledge: tuple[str, ...]
    servers: tuple[str, ...]
    sessions: int
    grants: tuple[Grant, ...]
    host_network: bool = False


class ChangeProfile(ProfileSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings: one that is left out gets its default. ``knowledge`` left out: it stays."""

    knowledge: Annotated[tuple[_Word, ...], Meta(max_length=100)] | UnsetType = UNSET


class NewProfile(ChangeProfile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``takes_sessions``: sessions that name a removed profile of this name are to use the new one."""

    name: _Name
    takes_sessions: bool = False


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``name``: import it under this name instead of its own."""

    text: Annotated[str, Meta(min_length=1, max_length=FILE_CHARS_MAX)]
    name: Annotated[str, Meta(max_length=100)] = ""


class ReadProfile(msgspec.Struct, frozen=True):
    """A file as it was understood; nothing is kept. ``grants``: what it would newly allow: of a profile that
    is there, what it does not allow yet. ``missing``: tools and MCP servers that are not here. ``origin``,
    ``revision``: of the profile of this name; null: there is none."""

    name: str
    settings: ProfileSettings
    grants: tuple[Grant, ...]
    missing: tuple[str, ...]
    origin: str | None = None
    revision: int | None = None


class TryProfile(ChangeProfile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``name``: of the profile that is being made or changed: MCP servers that name it are used."""

    text: Annotated[str, Meta(min_length=1, max_length=100_000)]
    name: _Name


class TrialBegun(msgspec.Struct, frozen=True):
    """The session's stream shows the answer after ``cursor``."""

    session_id: str
    turn_id: str
    cursor: int


class ProfilesApi:
    def __init__(
        self,
        toolbox: EverturnToolbox,
        registry: ModelRegistry,
        sessions: Sessions,
        preferences: PreferencesOf,
        trials: ProfileTrials,
        audit: Audit,
    ) -> None:
        self._toolbox = toolbox
        self._book = toolbox.profile_book
        self._registry = registry
        self._sessions = sessions
        self._preferences = preferences
        self._trials = trials
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._of_all(), *self._of_one(), *self._of_files(), *self._of_trials()]

    def _of_all(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/profiles",
                run=self.profiles,
                summary="The profiles.",
                tag="settings",
                answer=ProfilesOut,
            ),
            Endpoint(
                method="POST",
                path="/api/profiles",
                run=self.add,
                summary="Make a profile. It is on every worker with the next turn.",
                tag="settings",
                scope=Scope.ADMIN,
                body=NewProfile,
                answer=ProfileDetail,
                status=201,
                errors=_REFUSALS,
            ),
        ]

    def _of_one(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path=_ONE,
                run=self.profile,
                summary="A profile with all its settings, and who uses it.",
                tag="settings",
                scope=Scope.ADMIN,
                answer=ProfileDetail,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="PUT",
                path=_ONE,
                run=self.change,
                summary="Change a profile that was made here. If-Match names the revision that was read.",
                tag="settings",
                scope=Scope.ADMIN,
                headers=("If-Match",),
                body=ChangeProfile,
                answer=ProfileDetail,
                errors=(*_REFUSALS, PreconditionNeeded),
            ),
            Endpoint(
                method="DELETE",
                path=_ONE,
                run=self.remove,
                summary="Remove a profile that was made here. Its sessions wait until they get another.",
                tag="settings",
                scope=Scope.ADMIN,
                headers=("If-Match",),
                status=204,
                errors=(*_REFUSALS, PreconditionNeeded),
            ),
        ]

    def _of_files(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path=f"{_ONE}/file",
                run=self.file,
                summary="A profile as a file, to be shared.",
                tag="settings",
                scope=Scope.ADMIN,
                media="application/toml",
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="POST",
                path="/api/profile-files",
                run=self.read_file,
                summary="Read a profile's file and say what it would allow. Nothing is kept.",
                tag="settings",
                scope=Scope.ADMIN,
                body=ProfileFile,
                answer=ReadProfile,
                errors=(e.Invalid,),
            ),
        ]

    def _of_trials(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/api/profile-trials",
                run=self.begin_trial,
                summary="Try settings of a profile with one message, in a session that is not kept.",
                tag="settings",
                scope=Scope.ADMIN,
                body=TryProfile,
                answer=TrialBegun,
                status=202,
                errors=(e.Invalid, e.NotFound),
            ),
            Endpoint(
                method="DELETE",
                path="/api/profile-trials/{session}",
                run=self.end_trial,
                summary="End a trial and delete all that came of it.",
                tag="settings",
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound, e.Gone),
            ),
        ]

    # --- profiles --------------------------------------------------------------------------------------

    async def profiles(self, call: ApiCall[Nothing, Nothing]) -> ProfilesOut:
        found = (await self._book.refresh()).profiles
        return ProfilesOut(tuple(ProfileOut(**self._line(one)) for one in found.values()))

    async def profile(self, call: ApiCall[Nothing, Nothing]) -> Answer:
        return await self._answer(call.owner, call.path["profile"])

    async def add(self, call: ApiCall[Nothing, NewProfile]) -> Answer:
        body = call.body
        profile = await self._profile_of(call.owner, body.name, body)
        await self._book.check_new(profile)
        waiting = await self._sessions.count_with_profile(profile.name)
        if waiting and not body.takes_sessions:
            raise e.WrongState(
                f"{waiting} sessions name a profile {profile.name} that was removed, and would use this one. "
                "Nothing was changed.",
                hint="Say that they may (takes_sessions), or choose another name.",
                sessions=waiting,
            )
        await self._bind_knowledge(call.owner, profile.name, body.knowledge, is_new=True)
        await self._book.add(profile)
        await self._audit.note("profile.added", call.caller, _detail(profile))
        return await self._answer(call.owner, profile.name)

    async def change(self, call: ApiCall[Nothing, ChangeProfile]) -> Answer:
        name, revision = call.path["profile"], _revision(call.headers)
        profile = await self._profile_of(call.owner, name, call.body)
        await self._book.change(profile, revision)
        await self._bind_knowledge(call.owner, name, call.body.knowledge)
        await self._audit.note("profile.changed", call.caller, _detail(profile))
        return await self._answer(call.owner, name)

    async def remove(self, call: ApiCall[Nothing, Nothing]) -> None:
        name, revision = call.path["profile"], _revision(call.headers)
        if (await self._preferences.get(call.owner)).profile == name:
            raise e.WrongState(
                f"New sessions use the profile {name}. Nothing was changed.",
                hint="Choose another one for new sessions first.",
            )
        await self._book.remove(name, revision)
        # What names it would otherwise be given to a profile that is made later under its name.
        await self._bind_knowledge(call.owner, name, ())
        await self._toolbox.mcp.book.forget_profile(name)
        await self._audit.note("profile.removed", call.caller, name)

    # --- files -----------------------------------------------------------------------------------------

    async def file(self, call: ApiCall[Nothing, Nothing]) -> Raw:
        profile = await self._find(call.path["profile"])
        name = f'attachment; filename="{profile.name}.profile.toml"'.encode()
        return Raw(
            write_profile(profile).encode(),
            "application/toml; charset=utf-8",
            headers=((b"content-disposition", name),),
        )

    async def read_file(self, call: ApiCall[Nothing, ProfileFile]) -> ReadProfile:
        wanted = read_profile(call.body.text, call.body.name)
        known = (await self._book.refresh()).profiles.get(wanted.name)
        tools, servers = await self._names(call.owner)
        missing = [name for name in wanted.tools or () if name not in tools]
        missing += [name for name in wanted.mcp if name not in servers]
        grants = list_grants(wanted) if known is None else list_grants(wanted, known)
        return ReadProfile(
            wanted.name,
            _settings(wanted),
            tuple(grants),
            tuple(missing),
            None if known is None else self._book.origin_of(wanted.name),
            self._book.revision_of(wanted.name),
        )

    # --- trials ----------------------------------------------------------------------------------------

    async def begin_trial(self, call: ApiCall[Nothing, TryProfile]) -> TrialBegun:
        body = call.body
        profile = await self._profile_of(call.owner, body.name, body)
        knowledge = () if isinstance(body.knowledge, UnsetType) else body.knowledge
        accepted = await self._trials.begin(call.owner, profile, knowledge, body.text)
        await self._audit.note("profile.tried", call.caller, _detail(profile))
        return TrialBegun(accepted.turn.session_id, accepted.turn.id, accepted.cursor)

    async def end_trial(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._trials.end(call.owner, call.path["session"])

    # --- inside ----------------------------------------------------------------------------------------

    async def _profile_of(self, owner: str, name: str, given: ProfileSettings) -> Profile:
        """Raises Invalid."""
        table: JsonObject = msgspec.to_builtins(given)
        wanted = {key: table[key] for key in ProfileSettings.__struct_fields__}
        profile = make_profile({**wanted, "name": name})
        check_names(profile, *await self._names(owner))
        if profile.model is not None:
            try:
                self._registry.check(profile.model)
            except ModelKeyMissing:
                pass  # it may come later
            except ModelUnknown as error:
                raise e.Invalid(f"{error.message} Nothing was changed.", hint=error.hint) from error
        return profile

    async def _names(self, owner: str) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the tools and of the MCP servers that there are."""
        servers = await self._toolbox.mcp.book.refresh()
        return await self._toolbox.tool_names(), frozenset(servers)

    async def _bind_knowledge(
        self, owner: str, name: str, wanted: tuple[str, ...] | UnsetType, *, is_new: bool = False
    ) -> None:
        if isinstance(wanted, UnsetType):
            wanted = () if is_new else await self._knowledge(owner, name)
        if self._toolbox.knowledge is not None:
            await self._toolbox.knowledge.book.use_in(owner, name, wanted)

    async def _knowledge(self, owner: str, name: str) -> tuple[str, ...]:
        if self._toolbox.knowledge is None:
            return ()
        known = await self._toolbox.knowledge.book.of_owner(owner)
        return tuple(one.id for one in known if name in one.profiles)

    async def _find(self, name: str) -> Profile:
        found = (await self._book.refresh()).profiles.get(name)
        if found is None:
            raise e.NotFound("profile", name)
        return found

    def _line(self, profile: Profile) -> JsonObject:
        return {
            "name": profile.name,
            "description": profile.prompt.strip().split("\n", 1)[0][:200],
            "model": profile.model,
            "tools": profile.tools,
            "network": profile.network,
            "sandbox": profile.sandbox,
            "mcp": profile.mcp,
            "origin": self._book.origin_of(profile.name),
            "revision": self._book.revision_of(profile.name),
            "memory": profile.memory,
            "packages": profile.packages,
        }

    async def _answer(self, owner: str, name: str) -> Answer:
        profile = await self._find(name)
        servers = await self._toolbox.mcp.of_profile(profile)
        detail = ProfileDetail(
            **self._line(profile),
            settings=_settings(profile),
            knowledge=await self._knowledge(owner, name),
            servers=tuple(sorted(server.name for server in servers)),
            sessions=await self._sessions.count_with_profile(name),
            grants=tuple(list_grants(profile)),
            host_network=profile.host_network,
        )
        tag = () if detail.revision is None else ((b"etag", b'"%d"' % detail.revision),)
        return Answer(detail, headers=tag)


def _settings(profile: Profile) -> ProfileSettings:
    return ProfileSettings(**{key: getattr(profile, key) for key in ProfileSettings.__struct_fields__})


def _revision(headers: Mapping[str, str]) -> int:
    revision = version_from(headers)
    if revision is None:
        raise PreconditionNeeded
    return revision


def _detail(profile: Profile) -> str:
    """For the audit log: what it allows."""
    grants = ", ".join(grant.what for grant in list_grants(profile))
    return f"{profile.name}: {grants or 'nothing'}"
