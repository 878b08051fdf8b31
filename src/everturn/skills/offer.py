"""Decides which skills a turn may use, what the model reads of them, and what to ask the user first."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import NotFound
from everturn.domain.skills import OfferedSkill, SkillText, SkillVersion
from everturn.domain.store import Records
from everturn.domain.tool import ToolCall, Untrusted
from everturn.skills.book import SkillBook, SkillUse, owner_of, project_id, project_prefix
from everturn.skills.content import RawFile, SkillContent
from everturn.skills.folders import PROJECT_FOLDERS, FolderSkill, read_folders
from everturn.skills.shelf import DECLINED, FOUND, OFF, SHARED, TRUSTED, USED, SkillShelf
from everturn.skills.unpacked import Unpacked
from everturn.workspace.lines import diff_lines

_QUESTION_CHARS_MAX: Final = 60_000
_DIFF_CHARS_MAX: Final = 20_000
_PROJECTS_MAX: Final = 50  # projects whose folders are remembered between turns

SkillNames = Callable[[str | None], Awaitable[Sequence[str] | None]]  # the skills of a profile; None for all


class ProjectSkill(msgspec.Struct, frozen=True):
    """A project's skill that no user has decided about."""

    id: str
    content: SkillContent
    trusted: SkillVersion | None


class TurnSkills:
    """See ``domain.skills.Skills``."""

    def __init__(
        self,
        records: Records,
        shelf: SkillShelf,
        book: SkillBook,
        unpacked: Unpacked,
        clock: Clock,
        names_of: SkillNames,
    ) -> None:
        self._records = records
        self._shelf = shelf
        self._book = book
        self._unpacked = unpacked
        self._clock = clock
        self._names_of = names_of
        self._known: dict[str, dict[str, FolderSkill]] = {}

    async def list_offered(
        self, owner: str, profile: str | None, workspace: Path | None
    ) -> list[OfferedSkill]:
        names = await self._names_of(profile)
        by_name: dict[str, OfferedSkill] = {}
        if names is not None and not names:
            return []
        # A later skill hides an earlier one of the same name: the one nearest to the work wins.
        for skill_id, version in await self._list_trusted(owner, workspace):
            if names is None or version.name in names:
                by_name[version.name] = OfferedSkill(
                    skill_id, version.name, version.description, version.digest
                )
        return [by_name[name] for name in sorted(by_name)]

    async def _list_trusted(self, owner: str, workspace: Path | None) -> list[tuple[str, SkillVersion]]:
        found: list[tuple[str, SkillVersion]] = []
        for holder in (SHARED, owner):
            trusted = await self._shelf.list(holder, TRUSTED)
            off = await self._records.list(holder, OFF) if trusted else {}
            prefix = None if workspace is None or holder == SHARED else project_prefix(workspace)
            there = (
                await self._ids_in(workspace)
                if prefix and any(one.startswith(prefix) for one in trusted)
                else ()
            )
            mine = {name: version for name, version in trusted.items() if name not in off}
            found += [(name, one) for name, one in mine.items() if name.startswith(("shared.", "user."))]
            found += [(name, one) for name, one in mine.items() if name in there]
        return found

    async def _ids_in(self, workspace: Path | None) -> frozenset[str]:
        """Return the ids of the skills in the project's folder, including unreadable ones.

        A file that is broken for a moment must not remove a skill.
        """
        if workspace is None:
            return frozenset()
        found = await self._scan(workspace)
        names = [one.folder if one.content is None else one.content.name for one in found]
        return frozenset(project_id(workspace, name) for name in names)

    async def _scan(self, workspace: Path) -> list[FolderSkill]:
        key = str(workspace)
        known = self._known.get(key, {})
        found = await anyio.to_thread.run_sync(read_folders, workspace, PROJECT_FOLDERS, known)
        self._known.pop(key, None)
        self._known[key] = found
        while len(self._known) > _PROJECTS_MAX:
            del self._known[next(iter(self._known))]
        return list(found.values())

    # --- reading -----------------------------------------------------------------------------------

    async def read(self, owner: str, skill: OfferedSkill, turn_id: str) -> SkillText:
        version = await self._version(owner, skill)
        content = await self._shelf.load_text(version, "SKILL.md") or b""
        folder = await self._unpacked.find(version) if len(version.files) > 1 else None
        await self.note_use(owner, skill, turn_id)
        return SkillText(skill.name, version.digest, _describe(version, content.decode(), folder))

    async def read_file(self, owner: str, skill: OfferedSkill, path: str) -> bytes | None:
        return await self._shelf.load_text(await self._version(owner, skill), path)

    async def paths(self, owner: str, skill: OfferedSkill) -> list[str]:
        return [file.path for file in (await self._version(owner, skill)).files]

    async def note_use(self, owner: str, skill: OfferedSkill, turn_id: str) -> None:
        use = SkillUse(self._clock.now_ms(), turn_id, skill.digest)
        await self._records.put(owner_of(owner, skill.id), USED, skill.id, msgspec.to_builtins(use))

    async def _version(self, owner: str, skill: OfferedSkill) -> SkillVersion:
        version = await self._shelf.get(owner_of(owner, skill.id), TRUSTED, skill.id)
        if version is None:
            raise NotFound("skill", skill.name)
        return version

    async def find(self, call: ToolCall) -> tuple[Path, ...]:
        """See ``domain.skills.SkillFolders``.

        Unpacks a folder that the call names and that this machine lacks: the turn may have read the skill on
        another machine.
        """
        words = " ".join(str(value) for value in call.arguments.values())
        names = await self._names_of(call.profile)
        folders: list[Path] = []
        for _, version in await self._list_trusted(call.owner, call.workspace):
            if names is not None and version.name not in names:
                continue
            if len(version.files) > 1 and (
                self._unpacked.has(version) or self._unpacked.name(version) in words
            ):
                folders.append(await self._unpacked.find(version))
        return tuple(folders)

    # --- a project's undecided skills ------------------------------------------------------------

    async def list_untrusted(self, owner: str, workspace: Path) -> list[Untrusted]:
        undecided = await self._list_undecided(owner, workspace)
        return [await self._question(workspace, batch) for batch in await self._batches(undecided)]

    async def decide_untrusted(self, owner: str, workspace: Path, digest: str, *, use: bool) -> None:
        for batch in await self._batches(await self._list_undecided(owner, workspace)):
            if _digest(batch) != digest:
                continue
            for one in batch:
                version = await self._keep(owner, workspace, one)
                if use:
                    await self._book.use(owner, one.id, version, one.trusted)
                else:
                    value = {"digest": version.digest, "at": self._clock.now_ms()}
                    await self._records.put(owner, DECLINED, one.id, value)

    async def _list_undecided(self, owner: str, workspace: Path) -> list[ProjectSkill]:
        skills = await self._scan(workspace)
        if not skills:
            return []
        trusted = await self._shelf.list(owner, TRUSTED)
        declined, off = await self._records.list(owner, DECLINED), await self._records.list(owner, OFF)
        found: dict[str, ProjectSkill] = {}
        for skill in skills:
            content = skill.content
            if content is None or (skill_id := project_id(workspace, content.name)) in (*found, *off):
                continue
            old = trusted.get(skill_id)
            is_decided = (old is not None and old.digest == content.digest) or (
                declined.get(skill_id, {}).get("digest") == content.digest
            )
            one = ProjectSkill(skill_id, content, old)
            if not is_decided:
                found[skill_id] = one
                await self._keep(owner, workspace, one)
        return list(found.values())

    async def _keep(self, owner: str, workspace: Path, one: ProjectSkill) -> SkillVersion:
        """Store what was found, so that the page shows it on any machine."""
        known = await self._shelf.get(owner, FOUND, one.id)
        if known is not None and known.digest == one.content.digest:
            return known
        version = await self._shelf.store(one.content, self._clock.now_ms(), "project", str(workspace))
        await self._shelf.put(owner, FOUND, one.id, version)
        return version

    async def _batches(self, skills: Sequence[ProjectSkill]) -> list[list[ProjectSkill]]:
        """Group skills so that one question can show each group in full.

        A skill that is too long for any question is decided on the page, where its files can be read one by
        one.
        """
        batches: list[list[ProjectSkill]] = []
        room = 0
        for skill in skills:
            size = len(await self._show(skill))
            if size > _QUESTION_CHARS_MAX:
                continue
            if size > room:
                batches.append([])
                room = _QUESTION_CHARS_MAX
            batches[-1].append(skill)
            room -= size
        return batches

    async def _question(self, workspace: Path, batch: Sequence[ProjectSkill]) -> Untrusted:
        names = ", ".join(one.content.name for one in batch)
        what = f"a skill ({names})" if len(batch) == 1 else f"{len(batch)} skills ({names})"
        verb = "has"
        if all(one.trusted is not None for one in batch):
            question = f"This folder has changed {what}. Use the new text? Until then the old one is used."
        else:
            question = f"This folder {verb} {what} for agents. Use {'it' if len(batch) == 1 else 'them'}?"
        text = "\n\n".join([await self._show(one) for one in batch])
        return Untrusted(name="", question=question, text=text, digest=_digest(batch))

    async def _show(self, skill: ProjectSkill) -> str:
        """Return everything that the model could read, file by file, and for a change the difference."""
        before = {} if skill.trusted is None else await self._shelf.load(skill.trusted)
        shown = [f"== {skill.content.name} =="]
        if skill.trusted is not None:
            shown.append(_show_difference(before, skill.content.files))
        shown += [_show_file(path, file) for path, file in skill.content.files.items()]
        return "\n\n".join(shown)


def _show_difference(before: dict[str, RawFile], after: dict[str, RawFile]) -> str:
    lines = ["-- what has changed --"]
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if old is None or new is None:
            lines.append(f"{path}: {'new' if old is None else 'gone'}")
            continue
        was, now = old.text, new.text
        if was is None or now is None:
            lines.append(f"{path}: changed, not text")
            continue
        diff = diff_lines(was, now, _DIFF_CHARS_MAX)
        lines.append(f"{path}: +{diff.added} -{diff.removed}\n{diff.text}")
    return "\n".join(lines)


def _show_file(path: str, file: RawFile) -> str:
    text = file.text
    head = f"-- {path}{' (can be run)' if file.is_executable else ''} --"
    if text is None:
        digest = hashlib.sha256(file.content).hexdigest()
        return f"{head}\n[not text: {len(file.content):,} bytes, SHA-256 {digest}]"
    return f"{head}\n{text}"


def _digest(batch: Sequence[ProjectSkill]) -> str:
    return hashlib.sha256("".join(one.content.digest for one in batch).encode()).hexdigest()


def _describe(version: SkillVersion, text: str, folder: Path | None) -> str:
    others = [file.path for file in version.files if file.path != "SKILL.md"]
    if folder is None:
        return text
    listed = "\n".join(f"- {path}" for path in others)
    return (
        f"{text.rstrip()}\n\n[Files of this skill, readable by commands in {folder}:\n{listed}\n"
        "The tool skill reads one of them. Scripts are run with the terminal.]"
    )
