"""Skills and prompts: what a person lets the agent read, and what a person sends by name.

Imports domain, tools and workspace; the store arrives as a contract. Called by engine (as
``domain.skills.Skills``), delivery, web, cli and app. Start with ``book``, where people decide, and
``offer``, which gives turns what was trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.skills.archive import ARCHIVE_BYTES_MAX, read_archive
    from everturn.skills.assembly import BuiltSkills, build_skills
    from everturn.skills.book import Skill, SkillBook, SkillScope, SkillUse
    from everturn.skills.content import RawFile, SkillContent, make_content
    from everturn.skills.folders import read_folder
    from everturn.skills.offer import TurnSkills
    from everturn.skills.prompts import MissingValues, Prompt, PromptBook, Variable, read_line
    from everturn.skills.slash import Slash, SlashEntry
    from everturn.skills.tool import SkillTool

__all__ = [
    "ARCHIVE_BYTES_MAX",
    "BuiltSkills",
    "MissingValues",
    "Prompt",
    "PromptBook",
    "RawFile",
    "Skill",
    "SkillBook",
    "SkillContent",
    "SkillScope",
    "SkillTool",
    "SkillUse",
    "Slash",
    "SlashEntry",
    "TurnSkills",
    "Variable",
    "build_skills",
    "make_content",
    "read_archive",
    "read_folder",
    "read_line",
]

__getattr__ = lazy_names(__name__)
