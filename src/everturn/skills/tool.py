"""The agent's tool for skills: read the instructions of one, or one of its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from everturn.domain.errors import EverturnError
from everturn.domain.messages import Outcome
from everturn.domain.skills import OfferedSkill
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.skills.offer import TurnSkills
from everturn.tools.names import SKILL_TOOL
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed

_TEXT_CHARS_MAX: Final = 48_000


class SkillTool(Action):
    """Read a skill: instructions for a particular task, listed in your prompt. Read it before you begin such
    a task. With a path, read one more file of the skill."""

    name = SKILL_TOOL
    is_safe_to_repeat = True
    reads_only = True
    is_untrusted = False  # a person has read and trusted every file

    def __init__(self, skills: TurnSkills) -> None:
        self._skills = skills

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        name: Annotated[str, "The skill's name"],
        path: Annotated[str, "A file of the skill; empty: its instructions"] = "",
    ) -> ToolResult:
        wanted = name.strip().removeprefix("/")
        try:
            offered = await self._skills.list_offered(call.owner, call.profile, call.workspace)
            skill = next((skill for skill in offered if skill.name == wanted), None)
            if skill is None:
                return _unknown_skill(wanted, offered)
            if path in ("", "SKILL.md"):
                read = await self._skills.read(call.owner, skill, call.turn_id)
                text, digest = read.text, read.digest
            else:
                text, digest = await self._read_file(call, skill, path), skill.digest
        except EverturnError as error:
            raise ToolFailed(f"{error.message} {error.hint}".strip()) from error
        display = {"kind": "skill", "name": skill.name, "id": skill.id, "digest": digest, "path": path}
        return ToolResult(text, display=display)

    async def _read_file(self, call: ToolCall, skill: OfferedSkill, path: str) -> str:
        content = await self._skills.read_file(call.owner, skill, path.removeprefix("./"))
        if content is None:
            known = ", ".join(await self._skills.paths(call.owner, skill))
            raise ToolFailed(f"The skill {skill.name} has no file {path!r}. It has: {known}.")
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise ToolFailed(
                f"{path} is not text ({len(content):,} bytes); use it from a command."
            ) from error
        if len(text) <= _TEXT_CHARS_MAX:
            return text
        return f"{text[:_TEXT_CHARS_MAX]}\n[cut: the file has {len(text):,} characters]"

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=one_line(f"{arguments['name']} {arguments['path']}".strip()))


def _unknown_skill(name: str, offered: Sequence[OfferedSkill]) -> ToolResult:
    """Of the agent's own word and the names that its prompt lists: a mistyped name brings nothing from
    outside."""
    known = ", ".join(skill.name for skill in offered) or "none"
    text = f"There is no skill {name!r}. The skills are: {known}."
    return ToolResult(text, Outcome.ERROR, quotes_nothing=True)
