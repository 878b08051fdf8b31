"""What a user can type after a slash besides commands: skills and prompts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from everturn.domain.errors import NotFound
from everturn.domain.skills import Skills
from everturn.skills.prompts import PromptBook, Variable, fill, fill_from_line

_LINE: Final = re.compile(r"/([a-z0-9-]{1,64})(?:\s+|$)")


class SlashEntry(msgspec.Struct, frozen=True):
    """A skill or a prompt. Only a prompt has ``variables``."""

    name: str
    kind: Literal["skill", "prompt"]
    description: str = ""
    variables: tuple[Variable, ...] = ()


class Slash:
    """One instance serves the page, ``everturn chat`` and chats on platforms."""

    def __init__(self, skills: Skills, prompts: PromptBook) -> None:
        self._skills = skills
        self._prompts = prompts

    async def list(self, owner: str, profile: str | None, workspace: Path | None) -> Sequence[SlashEntry]:
        """Return the entries sorted by name. A skill hides a prompt of the same name."""
        skills = await self._skills.list_offered(owner, profile, workspace)
        found = {
            one.name: SlashEntry(one.name, "prompt", one.description, one.variables)
            for one in await self._prompts.list(owner)
        }
        found.update({one.name: SlashEntry(one.name, "skill", one.description) for one in skills})
        return [found[name] for name in sorted(found)]

    async def expand(self, owner: str, text: str, skills: Sequence[str] = ()) -> str | None:
        """Return the message for a line such as ``/weekly team=infra``.

        None if the line names no prompt and is to be sent as it is. Names in ``skills`` mean skills. Raises
        MissingValues.
        """
        match = _LINE.match(text)
        if match is None or match[1] in skills:
            return None
        try:
            prompt = await self._prompts.get(owner, match[1])
        except NotFound:
            return None
        return fill_from_line(prompt, text[match.end() :])

    async def expand_in_chat(self, owner: str, text: str) -> str:
        """Expand a message of a chat, which has no project. Raises MissingValues."""
        if not _LINE.match(text):
            return text
        skills = [one.name for one in await self._skills.list_offered(owner, None, None)]
        expanded = await self.expand(owner, text, skills)
        return text if expanded is None else expanded

    async def fill(self, owner: str, name: str, values: dict[str, str]) -> str:
        """Return a prompt filled with these values. Raises NotFound, MissingValues."""
        return fill(await self._prompts.get(owner, name), values)
