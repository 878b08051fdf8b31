"""The profiles in force: the built-in ones, those of config.toml, and those made on the page or with
``everturn profiles``, which are records, so that every worker has them. Where both have a name, config.toml
wins."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

import msgspec

from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.parameters import check_parameters
from everturn.domain.store import Records
from everturn.domain.store_values import RecordName
from everturn.tools.profiles import Profile, Profiles, built_in

_log = logging.getLogger("everturn.tools")

KIND = "profile"
TRIAL_KIND = "profile_trial"
TRIAL = "~"  # with which the names of profiles begin that are being tried
OWNER = "system"  # of records that belong to the server itself
NAME_PATTERN = r"^[a-zA-Z0-9][a-zA-Z0-9-]{0,30}$(?!\n)"
PROMPT_CHARS_MAX = 32_000
_PROFILES_MAX = 200
_LIST_MAX = 500  # names in one list of a profile


class KeptProfile(msgspec.Struct, frozen=True):
    """A profile that is a record. ``revision`` counts its changes: who changes it says which one was read."""

    profile: Profile
    revision: int


class ProfileTrial(msgspec.Struct, frozen=True):
    """A profile that one session tries. It is a record too, so that the session's turn is resumed with it,
    and goes when it is ``due_at``."""

    profile: Profile
    due_at: int


class ProfileBook:
    """``in_force`` is what the last reading found.

    A record's name is the profile's with its revision, as ``writer@3``. A change trades one record for the
    next in one transaction, so of two changes to the same revision one is refused, on any worker.
    """

    def __init__(self, configured: Profiles, records: Records) -> None:
        self._configured = configured
        self._records = records
        self._rows: JsonObject = {}
        self._trial_rows: JsonObject = {}
        self._kept: dict[str, KeptProfile] = {}
        self.in_force = configured

    async def refresh(self) -> Profiles:
        """Read the records again. Cheap if nothing has changed."""
        rows = await self._records.list(OWNER, KIND)
        trials = await self._records.list(OWNER, TRIAL_KIND)
        if rows != self._rows or trials != self._trial_rows:
            self._kept = _read_all(rows)
            self._rows, self._trial_rows = rows, trials
            saved = {name: kept.profile for name, kept in self._kept.items()}
            self.in_force = msgspec.structs.replace(
                self._configured,
                profiles={**saved, **self._configured.profiles},
                trials={name: msgspec.convert(row, ProfileTrial).profile for name, row in trials.items()},
            )
        return self.in_force

    async def get(self, name: str | None) -> Profile:
        """The profile of this name, or the default one. Raises Invalid."""
        return (await self.refresh()).get(name)

    async def find_kept(self, name: str) -> KeptProfile:
        """Raises NotFound, WrongState."""
        self._refuse_configured(name)
        await self.refresh()
        found = self._kept.get(name)
        if found is None:
            raise NotFound("profile", name)
        return found

    def revision_of(self, name: str) -> int | None:
        """None: it is built in or from config.toml, where it can only be read."""
        kept = None if name in self._configured.profiles else self._kept.get(name)
        return None if kept is None else kept.revision

    async def add(self, profile: Profile) -> KeptProfile:
        """Raises Invalid, WrongState."""
        await self.check_new(profile)
        await self._records.put(OWNER, KIND, _record_name(profile.name, 1), _row_of(profile))
        return KeptProfile(profile, 1)

    async def check_new(self, profile: Profile) -> None:
        """Raises Invalid, WrongState."""
        check_profile(profile)
        self._refuse_configured(profile.name)
        await self.refresh()
        if self._records_of(profile.name):
            raise WrongState(
                f"There is a profile {profile.name} already. Nothing was changed.",
                hint="Choose another name.",
            )
        if len(self._rows) >= _PROFILES_MAX:
            raise WrongState(f"There are {_PROFILES_MAX} profiles.", hint="Remove one first.")

    async def change(self, profile: Profile, revision: int) -> KeptProfile:
        """``revision``: the one that was read. Raises Invalid, NotFound, WrongState."""
        check_profile(profile)
        before = await self.find_kept(profile.name)
        given = RecordName(OWNER, KIND, _record_name(profile.name, revision))
        taken = RecordName(OWNER, KIND, _record_name(profile.name, revision + 1))
        if before.revision != revision or not await self._records.trade(given, taken, _row_of(profile)):
            raise _stale_error(profile.name)
        return KeptProfile(profile, revision + 1)

    async def remove(self, name: str, revision: int | None = None) -> None:
        """Also one that this release cannot read. ``revision``: the one that was read; None: whichever there
        is. Raises NotFound, WrongState."""
        self._refuse_configured(name)
        await self.refresh()
        if not (found := self._records_of(name)):
            raise NotFound("profile", name)
        if revision is not None:
            if not await self._records.delete(OWNER, KIND, _record_name(name, revision)):
                raise _stale_error(name)
            return
        for record in found:
            await self._records.delete(OWNER, KIND, record)

    def origin_of(self, name: str) -> str:
        """built_in | config | page"""
        if name not in self._configured.profiles:
            return "page"
        return "built_in" if self._configured.profiles[name] == built_in().profiles.get(name) else "config"

    async def begin_trial(self, profile: Profile, due_at: int) -> None:
        """``profile`` has a name that begins with ``TRIAL``. Raises Invalid."""
        check_settings(profile)
        row: JsonObject = msgspec.to_builtins(ProfileTrial(profile, due_at))
        await self._records.put(OWNER, TRIAL_KIND, profile.name, row)

    async def end_trial(self, name: str) -> None:
        await self._records.delete(OWNER, TRIAL_KIND, name)

    async def overdue_trials(self, now_ms: int) -> list[str]:
        rows = await self._records.list(OWNER, TRIAL_KIND)
        return [name for name, row in rows.items() if msgspec.convert(row, ProfileTrial).due_at < now_ms]

    def _records_of(self, name: str) -> list[str]:
        return [record for record in self._rows if _split(record)[0] == name]

    def _refuse_configured(self, name: str) -> None:
        if name in self._configured.profiles:
            raise WrongState(
                f"The profile {name} is built in or set up in config.toml. Nothing was changed.",
                hint="Make one under another name, or change it in config.toml and restart the server.",
            )


def _stale_error(name: str) -> WrongState:
    return WrongState(
        f"The profile {name} was changed meanwhile. Nothing was changed.",
        hint="Read it again, then make your change.",
    )


def make_profile(table: JsonObject) -> Profile:
    """Raises Invalid."""
    try:
        return msgspec.convert(table, Profile)
    except msgspec.ValidationError as error:
        raise Invalid(f"A setting is wrong: {error}. Nothing was changed.", hint="Correct it.") from error


def check_profile(profile: Profile) -> None:
    """Refuse what only config.toml may say, and what is too long. Raises Invalid."""
    if not re.match(NAME_PATTERN, profile.name):
        raise Invalid(
            f"{profile.name[:60]!r} cannot be a profile's name.",
            hint="Use up to 31 letters, digits and hyphens; begin with a letter or a digit.",
        )
    check_settings(profile)


def check_settings(profile: Profile) -> None:
    """The same without the name. Raises Invalid."""
    if profile.host_network:
        raise Invalid(
            "host_network lets commands reach Everturn itself, so it is set in config.toml only.",
            hint="Use network, or make the profile there.",
        )
    if not profile.prompt.strip() or len(profile.prompt) > PROMPT_CHARS_MAX:
        raise Invalid(
            f"The prompt has {len(profile.prompt)} characters.", hint=f"It can have 1 to {PROMPT_CHARS_MAX}."
        )
    for listed in (profile.tools, profile.skills, profile.hosts, profile.mcp, profile.packages):
        if len(listed or ()) > _LIST_MAX or any(len(word) > 300 for word in listed or ()):
            raise Invalid("A list of the profile is too long.", hint=f"It can have up to {_LIST_MAX} names.")
    if profile.model is not None and not re.fullmatch(r"\S{1,200}", profile.model):
        raise Invalid(f"{profile.model[:60]!r} is not a model name.", hint="Write it as provider:name.")
    check_parameters(profile.parameters)


def check_names(profile: Profile, tools: Collection[str], servers: Collection[str]) -> None:
    """Refuse tools and MCP servers that are not there: what is made later under such a name would be given
    to the profile unseen. Raises Invalid."""
    for what, named, known in (("tool", profile.tools or (), tools), ("MCP server", profile.mcp, servers)):
        for name in named:
            if name not in known:
                raise Invalid(
                    f"There is no {what} {name!r}. Nothing was changed.",
                    hint=f"Possible: {', '.join(sorted(known)) or 'none'}.",
                )


def _read_all(rows: JsonObject) -> dict[str, KeptProfile]:
    found: dict[str, KeptProfile] = {}
    for record, row in sorted(rows.items(), key=lambda item: _split(item[0])):
        name, revision = _split(record)
        profile = _read(name, row)
        if profile is None:
            found.pop(name, None)  # an earlier revision could allow more than the one that is not understood
        else:
            found[name] = KeptProfile(profile, revision)
    return found


def _read(name: str, row: Json) -> Profile | None:
    try:
        profile = msgspec.convert({**row, "name": name}, Profile) if isinstance(row, dict) else None
        if profile is not None:
            check_profile(profile)
        return profile
    except (msgspec.ValidationError, Invalid) as error:
        # A newer release wrote it. Leaving out what is not understood could allow more.
        _log.warning("the profile %s cannot be read: %s", name, error)
        return None


def _record_name(name: str, revision: int) -> str:
    return f"{name}@{revision}"


def _split(record: str) -> tuple[str, int]:
    name, _, revision = record.partition("@")
    return name, int(revision) if revision.isdecimal() else 0


def _row_of(profile: Profile) -> JsonObject:
    row: JsonObject = msgspec.to_builtins(profile)
    return {key: value for key, value in row.items() if key != "name"}
