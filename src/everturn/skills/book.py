"""The skills as users manage them: list, create, import, compare, trust, switch on and off, remove."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.probe import Moment
from everturn.domain.runtime import Runtime
from everturn.domain.skills import SkillVersion
from everturn.domain.store import Records
from everturn.skills.content import RawFile, SkillContent
from everturn.skills.folders import FolderSkill, read_folders
from everturn.skills.shelf import (
    BROKEN,
    DECLINED,
    EARLIER,
    FOUND,
    OFF,
    SEEN,
    SHARED,
    TRUSTED,
    USED,
    SkillShelf,
)

FOLDER: Final = "skills"  # of the data folder
_EARLIER_MAX: Final = 20


class SkillScope(StrEnum):
    """In the order in which lists show them."""

    USER = "user"
    PROJECT = "project"
    SHARED = "shared"


class SkillUse(msgspec.Struct, frozen=True):
    """The last turn that used a skill, and the version that it used."""

    at: int
    turn_id: str
    digest: str


class Skill(msgspec.Struct, frozen=True):
    """A skill and the decisions about it.

    ``found`` is the newest content, or None if its folder is not a skill (see ``problem``). ``trusted`` is
    the content that the agent gets, if any. ``is_declined``: a user saw the newest content and declined it.
    """

    id: str
    scope: SkillScope
    name: str
    found: SkillVersion | None = None
    trusted: SkillVersion | None = None
    is_on: bool = True
    is_declined: bool = False
    problem: str = ""
    used: SkillUse | None = None
    earlier: tuple[SkillVersion, ...] = ()

    @property
    def is_changed(self) -> bool:
        """True if new content waits for a user's decision."""
        return self.found is not None and not self.is_declined and not _same(self.found, self.trusted)


def _same(one: SkillVersion, other: SkillVersion | None) -> bool:
    return other is not None and one.digest == other.digest


def user_id(name: str, scope: SkillScope = SkillScope.USER) -> str:
    return f"{scope}.{name}"


def project_id(project: Path | str, name: str) -> str:
    return f"{project_prefix(project)}{name}"


def project_prefix(project: Path | str) -> str:
    return f"p{hashlib.sha256(str(project).encode()).hexdigest()[:12]}."


def owner_of(owner: str, skill_id: str) -> str:
    """Return the owner of a skill's records."""
    return SHARED if skill_id.startswith(f"{SkillScope.SHARED}.") else owner


class SkillBook:
    """``home`` is the data folder; its skills folder is only read. ``owner`` owns that folder."""

    def __init__(
        self,
        records: Records,
        shelf: SkillShelf,
        runtime: Runtime,
        home: Path,
        *,
        owner: str,
        machine: str = "",
    ) -> None:
        self._records = records
        self._shelf = shelf
        self._clock, self._probe = runtime.clock, runtime.probe
        self._home = home
        self._owner = owner
        self._machine = machine
        self._known: dict[str, FolderSkill] = {}

    # --- reading -----------------------------------------------------------------------------------

    async def list(self, owner: str) -> Sequence[Skill]:
        """Import new content from the data folder, then return all skills.

        These are the owner's skills, the shared ones, and those of projects as last found.
        """
        if owner == self._owner:
            await self.take_in()
        skills = [*await self._list_of(owner), *await self._list_of(SHARED)]
        return sorted(skills, key=lambda skill: (list(SkillScope).index(skill.scope), skill.id))

    async def get(self, owner: str, skill_id: str) -> Skill:
        """Raises NotFound."""
        for skill in await self._list_of(owner_of(owner, skill_id), with_earlier=True):
            if skill.id == skill_id:
                return skill
        raise NotFound("skill", skill_id)

    async def load(self, version: SkillVersion) -> dict[str, RawFile]:
        return await self._shelf.load(version)

    async def _list_of(self, owner: str, *, with_earlier: bool = False) -> Sequence[Skill]:
        found, trusted = await self._shelf.list(owner, FOUND), await self._shelf.list(owner, TRUSTED)
        declined, off = await self._records.list(owner, DECLINED), await self._records.list(owner, OFF)
        broken, used = await self._records.list(owner, BROKEN), await self._records.list(owner, USED)
        earlier = await self._shelf.list(owner, EARLIER) if with_earlier else {}
        skills = []
        for skill_id in sorted({*found, *trusted, *broken}):
            new, use = found.get(skill_id), used.get(skill_id)
            skills.append(
                Skill(
                    id=skill_id,
                    scope=_scope(skill_id),
                    name=skill_id.partition(".")[2],
                    found=new,
                    trusted=trusted.get(skill_id),
                    is_on=skill_id not in off,
                    is_declined=new is not None and declined.get(skill_id, {}).get("digest") == new.digest,
                    problem=str(broken.get(skill_id, {}).get("problem", "")),
                    used=None if use is None else msgspec.convert(use, SkillUse),
                    earlier=_newest(earlier, skill_id),
                )
            )
        return skills

    # --- making ------------------------------------------------------------------------------------

    async def add(
        self, owner: str, contents: Sequence[SkillContent], scope: SkillScope, origin: str
    ) -> Sequence[Skill]:
        """Store new skills, or new content of existing ones. The agent gets none of it until it is trusted.

        Each skill is stored whole or not at all. After a crash it is safe to add them again.
        """
        if scope is SkillScope.PROJECT:
            raise Invalid(
                "A project's skills are files of the project.", hint="Put them in its .agents/skills."
            )
        now, made = self._clock.now_ms(), []
        for content in contents:
            skill_id = user_id(content.name, scope)
            version = await self._shelf.store(content, now, origin)
            await self._probe.reach(Moment.SKILL_STORED, skill_id)
            await self._shelf.put(owner_of(owner, skill_id), FOUND, skill_id, version)
            await self._records.delete(owner_of(owner, skill_id), BROKEN, skill_id)
            made.append(skill_id)
        return [await self.get(owner, skill_id) for skill_id in made]

    async def take_in(self) -> None:
        """Import changed skills from the data folder, if this machine has not seen that content yet.

        The store is authoritative, because other machines lack the folder. Only a folder that changed adds
        new content: an edit on the page stays the newest until the file changes too.
        """
        self._known = await anyio.to_thread.run_sync(
            read_folders, self._home.resolve(), (FOLDER,), self._known
        )
        for skill in self._known.values():
            await self._take_in_one(skill)

    async def _take_in_one(self, skill: FolderSkill) -> None:
        content = skill.content
        # A folder that is not a skill may have any name, but ids are parts of addresses.
        skill_id = user_id(_plain_name(skill.folder) if content is None else content.name)
        seen_name, seen = f"{skill_id} {self._machine}", content.digest if content else f"! {skill.problem}"
        known = await self._records.get(self._owner, SEEN, seen_name)
        if known is not None and known["digest"] == seen:
            return
        if content is None:
            problem = {"problem": skill.problem, "at": self._clock.now_ms()}
            await self._records.put(self._owner, BROKEN, skill_id, problem)
        else:
            await self.add(self._owner, [content], SkillScope.USER, "folder")
        # Last, so that after a crash the content is imported again.
        await self._records.put(self._owner, SEEN, seen_name, {"digest": seen})

    # --- deciding ----------------------------------------------------------------------------------

    async def trust(self, owner: str, skill_id: str, digest: str) -> Skill:
        """Let the agent use this content from now on: the newest, or one that was trusted before.

        Raises NotFound, and WrongState if the skill changed in the meantime.
        """
        skill = await self.get(owner, skill_id)
        candidates = (skill.found, skill.trusted, *skill.earlier)
        version = next((one for one in candidates if one is not None and one.digest == digest), None)
        if version is None:
            raise WrongState(f"The skill {skill.name} has changed meanwhile.", hint="Read it again.")
        await self.use(owner, skill_id, version, skill.trusted)
        return await self.get(owner, skill_id)

    async def use(
        self, owner: str, skill_id: str, version: SkillVersion, before: SkillVersion | None
    ) -> None:
        """Give the agent this content, and keep ``before`` as an earlier version."""
        holder = owner_of(owner, skill_id)
        if before is not None and before.digest != version.digest:
            await self._shelf.put(holder, EARLIER, f"{skill_id} {before.digest}", before)
            await self._probe.reach(Moment.SKILL_STORED, skill_id)
        await self._shelf.put(
            holder, TRUSTED, skill_id, msgspec.structs.replace(version, at=self._clock.now_ms())
        )
        await self._records.delete(holder, DECLINED, skill_id)
        await self._drop_old(holder, skill_id)

    async def _drop_old(self, holder: str, skill_id: str) -> None:
        earlier = await self._shelf.list(holder, EARLIER)
        mine = sorted(
            (name for name in earlier if name.startswith(f"{skill_id} ")), key=lambda name: -earlier[name].at
        )
        for name in mine[_EARLIER_MAX:]:
            await self._records.delete(holder, EARLIER, name)

    async def decline(self, owner: str, skill_id: str, digest: str) -> Skill:
        """Decline this content and do not ask about it again. Trusted content stays in use."""
        skill = await self.get(owner, skill_id)
        if skill.found is None or skill.found.digest != digest:
            raise WrongState(f"The skill {skill.name} has changed meanwhile.", hint="Read it again.")
        value = {"digest": digest, "at": self._clock.now_ms()}
        await self._records.put(owner_of(owner, skill_id), DECLINED, skill_id, value)
        return await self.get(owner, skill_id)

    async def switch(self, owner: str, skill_id: str, *, is_on: bool) -> Skill:
        await self.get(owner, skill_id)
        holder = owner_of(owner, skill_id)
        if is_on:
            await self._records.delete(holder, OFF, skill_id)
        else:
            await self._records.put(holder, OFF, skill_id, {"at": self._clock.now_ms()})
        return await self.get(owner, skill_id)

    async def remove(self, owner: str, skill_id: str) -> None:
        """Remove a skill from the store. Raises NotFound.

        Its folder stays, and is imported again only after it changes. A project's skill is asked about again.
        """
        skill = await self.get(owner, skill_id)
        holder = owner_of(owner, skill_id)
        # Remove the trusted content first: a crash in between leaves a skill that is not trusted.
        for kind in (TRUSTED, FOUND, BROKEN, DECLINED, OFF, USED):
            await self._records.delete(holder, kind, skill_id)
        for version in skill.earlier:
            await self._records.delete(holder, EARLIER, f"{skill_id} {version.digest}")


def _scope(skill_id: str) -> SkillScope:
    head = skill_id.partition(".")[0]
    return SkillScope(head) if head in ("user", "shared") else SkillScope.PROJECT


def _plain_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)[:64] or "-"


def _newest(earlier: dict[str, SkillVersion], skill_id: str) -> tuple[SkillVersion, ...]:
    mine = [version for name, version in earlier.items() if name.startswith(f"{skill_id} ")]
    return tuple(sorted(mine, key=lambda version: -version.at))
