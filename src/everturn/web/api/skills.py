"""Skills: listed, read, made, imported, trusted and removed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import anyio.to_thread
import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.media import RAW
from everturn.domain.skills import SkillVersion
from everturn.skills import (
    RawFile,
    Skill,
    SkillBook,
    SkillScope,
    SkillUse,
    make_content,
    read_archive,
)
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.problems import BodyTooLarge
from everturn.web.http.routing import Answer, AnyCall, AnyEndpoint, ApiCall, Endpoint, Nothing, Raw
from everturn.web.uploads import FORM, Uploads
from everturn.workspace.lines import diff_lines

_BODY_BYTES_MAX: Final = 15_000_000  # the largest skill, in base64
_TEXT_BYTES_MAX: Final = 256 * 1024  # of a file that the answer holds
_TEXTS_BYTES_MAX: Final = 2_000_000
_DIFF_CHARS_MAX: Final = 200_000
_BYTES_PER_TOKEN: Final = 4

Path = Annotated[str, Meta(min_length=1, max_length=300)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
SkillState = Literal["trusted", "changed", "new", "kept", "declined", "broken"]


class SkillLine(msgspec.Struct, frozen=True):
    """``state``: trusted; changed (a person has to decide, until then the trusted version is used); new (the
    same, and none is used); kept (the newest content was declined, the trusted one is used); declined;
    broken (see ``problem``). ``digest``: of the newest content."""

    id: str
    scope: SkillScope
    name: str
    description: str
    state: SkillState
    is_on: bool
    problem: str = ""
    project: str = ""
    origin: str = ""
    digest: str = ""
    changed_at: int | None = None
    trusted_digest: str = ""
    trusted_at: int | None = None
    files: int = 0
    bytes: int = 0
    scripts: int = 0  # files that can be run
    used: SkillUse | None = None


class SkillLines(msgspec.Struct, frozen=True):
    items: tuple[SkillLine, ...]


class ShownFile(msgspec.Struct, frozen=True):
    """``text`` None: it is not text, or too long to be shown here; ``/file`` gives the bytes."""

    path: str
    size: int
    sha256: str
    is_executable: bool = False
    text: str | None = None


class FileChangeShown(msgspec.Struct, frozen=True):
    """``diff``: unified, without names; empty if one side is not text."""

    path: str
    what: Literal["added", "changed", "deleted"]
    added: int = 0
    removed: int = 0
    diff: str = ""


class EarlierVersion(msgspec.Struct, frozen=True):
    digest: str
    at: int


class ShownSkill(SkillLine, frozen=True, kw_only=True):
    """``contents``: the files of the newest content. ``changes``: what it changes in the trusted one."""

    contents: tuple[ShownFile, ...]
    changes: tuple[FileChangeShown, ...]
    earlier: tuple[EarlierVersion, ...]
    tokens: int  # about what SKILL.md costs when it is read


class GivenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``text``, ``base64`` and ``sha256``, which keeps a file of the newest content."""

    path: Path
    text: str | None = None
    base64: str | None = None
    sha256: Digest | None = None
    is_executable: bool = False


Files = Annotated[tuple[GivenFile, ...], Meta(min_length=1, max_length=1000)]


class NewSkill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``trust``: the caller wrote or read all of it, and the agent may use it at once."""

    files: Files
    scope: SkillScope = SkillScope.USER
    trust: bool = False


class EditSkill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``base``: the digest of the content that was edited."""

    files: Files
    base: Digest
    trust: bool = False


class SwitchSkill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    is_on: bool


class DecideSkill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``digest``: of the content that was read. ``use`` false: leave it out, and ask no more about it."""

    digest: Digest
    use: bool = True


class ImportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scope: SkillScope = SkillScope.USER
    name: Annotated[str, Meta(max_length=200)] = "archive.zip"


class FileQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Path


class SkillsApi:
    """A token that can read sessions can read skills. A change of what the agent is told needs the scope
    ``admin``."""

    def __init__(self, book: SkillBook, uploads: Uploads, audit: Audit) -> None:
        self._book = book
        self._uploads = uploads
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._reads(), *self._additions(), *self._changes()]

    def _reads(self) -> list[AnyEndpoint]:
        tag, missing = "skills", (e.NotFound,)
        return [
            Endpoint(
                method="GET",
                path="/api/skills",
                run=self.list,
                summary="All skills, with their state.",
                tag=tag,
                answer=SkillLines,
            ),
            Endpoint(
                method="GET",
                path="/api/skills/{skill}",
                run=self.get,
                summary="A skill with its files, and what has changed since it was trusted.",
                tag=tag,
                answer=ShownSkill,
                errors=missing,
            ),
            Endpoint(
                method="GET",
                path="/api/skills/{skill}/file",
                run=self.file,
                summary="The bytes of one file.",
                tag=tag,
                query=FileQuery,
                media=RAW,
                answer=bytes,
                errors=missing,
            ),
        ]

    def _additions(self) -> list[AnyEndpoint]:
        tag, admin = "skills", Scope.ADMIN
        return [
            Endpoint(
                method="POST",
                path="/api/skills",
                run=self.make,
                summary="Make a skill.",
                tag=tag,
                scope=admin,
                body=NewSkill,
                answer=ShownSkill,
                status=201,
                errors=(e.Invalid, e.WrongState),
                body_bytes_max=_BODY_BYTES_MAX,
            ),
            Endpoint(
                method="POST",
                path="/api/skills/import",
                run=self.import_,
                summary="Import the skills of a ZIP file. None of them is used before it is trusted.",
                tag=tag,
                scope=admin,
                query=ImportQuery,
                takes=(RAW, FORM),
                answer=SkillLines,
                status=201,
                errors=(e.Invalid, BodyTooLarge),
            ),
        ]

    def _changes(self) -> list[AnyEndpoint]:
        tag, missing, admin = "skills", (e.NotFound,), Scope.ADMIN
        return [
            Endpoint(
                method="PUT",
                path="/api/skills/{skill}",
                run=self.edit,
                summary="Replace the files of a skill.",
                tag=tag,
                scope=admin,
                body=EditSkill,
                answer=ShownSkill,
                errors=(e.NotFound, e.Invalid, e.WrongState),
                body_bytes_max=_BODY_BYTES_MAX,
            ),
            Endpoint(
                method="PATCH",
                path="/api/skills/{skill}",
                run=self.switch,
                summary="Switch a skill on or off.",
                tag=tag,
                scope=admin,
                body=SwitchSkill,
                answer=SkillLine,
                errors=missing,
            ),
            Endpoint(
                method="POST",
                path="/api/skills/{skill}/trust",
                run=self.decide,
                summary="Use a content from now on, or leave it out.",
                tag=tag,
                scope=admin,
                body=DecideSkill,
                answer=ShownSkill,
                errors=(e.NotFound, e.WrongState),
            ),
            Endpoint(
                method="DELETE",
                path="/api/skills/{skill}",
                run=self.remove,
                summary="Remove a skill.",
                tag=tag,
                scope=admin,
                status=204,
                errors=missing,
            ),
        ]

    async def list(self, call: ApiCall[Nothing, Nothing]) -> SkillLines:
        return SkillLines(tuple(map(_line, await self._book.list(call.owner))))

    async def get(self, call: ApiCall[Nothing, Nothing]) -> ShownSkill:
        return await self._show(await self._book.get(call.owner, call.path["skill"]))

    async def file(self, call: ApiCall[FileQuery, Nothing]) -> Raw:
        skill = await self._book.get(call.owner, call.path["skill"])
        files = {} if skill.found is None else await self._book.load(skill.found)
        found = files.get(call.query.path)
        if found is None:
            raise e.NotFound("file", call.query.path)
        return Raw(found.content, RAW)

    async def make(self, call: ApiCall[Nothing, NewSkill]) -> ShownSkill:
        body = call.body
        content = make_content(_decode(body.files, {}), "The skill")
        for skill in await self._book.list(call.owner):
            if skill.scope is body.scope and skill.name == content.name:
                raise e.WrongState(
                    f"There is a skill {skill.name} already.", hint="Edit it, or choose another name."
                )
        (skill,) = await self._book.add(call.owner, [content], body.scope, "page")
        return await self._finish_save(call, skill, content.digest, is_trusted=body.trust)

    async def edit(self, call: ApiCall[Nothing, EditSkill]) -> ShownSkill:
        body = call.body
        skill = await self._book.get(call.owner, call.path["skill"])
        if skill.found is None or skill.found.digest != body.base:
            raise e.WrongState(
                f"The skill {skill.name} was changed meanwhile. Nothing was saved.",
                hint="Copy your text, then read it again.",
            )
        content = make_content(_decode(body.files, await self._book.load(skill.found)), skill.name)
        if content.name != skill.name:
            raise e.Invalid(
                f"The name in SKILL.md is {content.name}, and the skill is called {skill.name}.",
                hint="Make a new skill to use another name.",
            )
        (skill,) = await self._book.add(call.owner, [content], skill.scope, "page")
        return await self._finish_save(call, skill, content.digest, is_trusted=body.trust)

    async def _finish_save(self, call: AnyCall, skill: Skill, digest: str, *, is_trusted: bool) -> ShownSkill:
        if is_trusted:
            skill = await self._book.trust(call.owner, skill.id, digest)
            await self._audit.note("skill.trusted", call.caller, f"{skill.id} (digest {digest[:16]})")
        return await self._show(skill)

    async def import_(self, call: ApiCall[ImportQuery, Nothing]) -> Answer:
        async with self._uploads.receive(call.headers, call.receive, call.query.name) as upload:
            contents = await anyio.to_thread.run_sync(read_archive, upload.path, upload.name)
            made = await self._book.add(call.owner, contents, call.query.scope, "import")
        return Answer(SkillLines(tuple(map(_line, made))), 201)

    async def switch(self, call: ApiCall[Nothing, SwitchSkill]) -> SkillLine:
        return _line(await self._book.switch(call.owner, call.path["skill"], is_on=call.body.is_on))

    async def decide(self, call: ApiCall[Nothing, DecideSkill]) -> ShownSkill:
        skill_id, digest = call.path["skill"], call.body.digest
        if call.body.use:
            skill = await self._book.trust(call.owner, skill_id, digest)
        else:
            skill = await self._book.decline(call.owner, skill_id, digest)
        done = "trusted" if call.body.use else "declined"
        await self._audit.note(f"skill.{done}", call.caller, f"{skill.id} (digest {digest[:16]})")
        return await self._show(skill)

    async def remove(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._book.remove(call.owner, call.path["skill"])
        await self._audit.note("skill.removed", call.caller, call.path["skill"])

    async def _show(self, skill: Skill) -> ShownSkill:
        files = {} if skill.found is None else await self._book.load(skill.found)
        before = {} if skill.trusted is None else await self._book.load(skill.trusted)
        line = _line(skill)
        main = files.get("SKILL.md")
        return ShownSkill(
            **{name: getattr(line, name) for name in line.__struct_fields__},
            contents=_show_files(skill.found, files),
            changes=await anyio.to_thread.run_sync(_changes, before, files) if before and files else (),
            earlier=tuple(EarlierVersion(one.digest, one.at) for one in skill.earlier),
            tokens=0 if main is None else -(-len(main.content) // _BYTES_PER_TOKEN),
        )


def _line(skill: Skill) -> SkillLine:
    shown = skill.found or skill.trusted
    files = shown.files if shown else ()
    return SkillLine(
        id=skill.id,
        scope=skill.scope,
        name=skill.name,
        description=shown.description if shown else "",
        state=_state(skill),
        is_on=skill.is_on,
        problem=skill.problem,
        project=shown.project if shown else "",
        origin=shown.origin if shown else "",
        digest=shown.digest if shown else "",
        changed_at=skill.found.at if skill.found else None,
        trusted_digest=skill.trusted.digest if skill.trusted else "",
        trusted_at=skill.trusted.at if skill.trusted else None,
        files=len(files),
        bytes=sum(file.size for file in files),
        scripts=sum(file.is_executable for file in files),
        used=skill.used,
    )


def _state(skill: Skill) -> SkillState:
    if skill.problem:
        return "broken"
    if skill.trusted is None:
        return "declined" if skill.is_declined else "new"
    if skill.is_changed:
        return "changed"
    return "kept" if skill.is_declined else "trusted"


def _show_files(version: SkillVersion | None, files: Mapping[str, RawFile]) -> tuple[ShownFile, ...]:
    room, shown = _TEXTS_BYTES_MAX, []
    for one in version.files if version else ():
        text = files[one.path].text if one.size <= min(room, _TEXT_BYTES_MAX) else None
        room -= one.size if text is not None else 0
        shown.append(ShownFile(one.path, one.size, one.sha256, one.is_executable, text))
    return tuple(shown)


def _changes(before: Mapping[str, RawFile], after: Mapping[str, RawFile]) -> tuple[FileChangeShown, ...]:
    return tuple(
        _change(path, before.get(path), after.get(path))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    )


def _change(path: str, old: RawFile | None, new: RawFile | None) -> FileChangeShown:
    what: Literal["added", "changed", "deleted"] = "changed" if old and new else "added" if new else "deleted"
    was, now = old.text if old else "", new.text if new else ""
    if was is None or now is None:
        return FileChangeShown(path, what)
    diff = diff_lines(was, now, _DIFF_CHARS_MAX)
    return FileChangeShown(path, what, diff.added, diff.removed, diff.text)


def _decode(files: tuple[GivenFile, ...], kept: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Raises Invalid."""
    decoded: dict[str, RawFile] = {}
    for file in files:
        if file.path in decoded:
            raise e.Invalid(f"{file.path} is given twice.", hint="Give each file once.")
        decoded[file.path] = RawFile(_content(file, kept), file.is_executable)
    return decoded


def _content(file: GivenFile, kept: Mapping[str, RawFile]) -> bytes:
    if (file.text is None) + (file.base64 is None) + (file.sha256 is None) != 2:
        raise e.Invalid(
            f"{file.path} needs one of text, base64 and sha256.", hint="Give exactly one of them."
        )
    if file.text is not None:
        try:
            return file.text.encode()
        except UnicodeEncodeError as error:
            raise e.Invalid(f"{file.path} holds half a character.", hint="Send valid UTF-8.") from error
    if file.base64 is not None:
        try:
            return base64.b64decode(file.base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise e.Invalid(f"{file.path} is not valid base64.", hint="Encode it again.") from error
    found = kept.get(file.path)
    if found is None:
        raise e.Invalid(f"The skill has no file {file.path} to keep.", hint="Send its content.")
    return found.content
