"""Puts the parts of this room together."""

from __future__ import annotations

from pathlib import Path

import msgspec

from everturn.domain.runtime import Runtime
from everturn.domain.store import Store
from everturn.skills.book import SkillBook
from everturn.skills.offer import SkillNames, TurnSkills
from everturn.skills.prompts import PromptBook
from everturn.skills.shelf import SkillShelf
from everturn.skills.slash import Slash
from everturn.skills.tool import SkillTool
from everturn.skills.unpacked import Unpacked


class BuiltSkills(msgspec.Struct, frozen=True):
    """``book`` serves users, ``turns`` serves turns, ``tool`` is the agent's."""

    book: SkillBook
    turns: TurnSkills
    tool: SkillTool
    prompts: PromptBook
    slash: Slash


def build_skills(
    store: Store, home: Path, runtime: Runtime, *, owner: str, names_of: SkillNames | None = None
) -> BuiltSkills:
    """Build the parts.

    ``owner`` owns the skills and prompts in the data folder. ``names_of`` returns the skills of a profile.
    """
    records, machine = store.records, store.machine.id
    shelf = SkillShelf(records, store.blobs)
    book = SkillBook(records, shelf, runtime, home, owner=owner, machine=machine)
    unpacked = Unpacked(home / "unpacked-skills", shelf)
    turns = TurnSkills(records, shelf, book, unpacked, runtime.clock, names_of or _all)
    prompts = PromptBook(records, runtime.clock, home, owner=owner, machine=machine)
    return BuiltSkills(book, turns, SkillTool(turns), prompts, Slash(turns, prompts))


async def _all(profile: str | None) -> None:
    """Every profile may use all skills."""
