"""The skills of a turn: listed to the model by name and description, and one that the user names with a
slash.

A named skill is journaled before the first model call, with the version that was used: a resumed turn, and
every later one, gives the model the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from everturn.domain import events as ev
from everturn.domain.ids import message_id
from everturn.domain.messages import Message, Role, UsedSkill, untrusted_source
from everturn.domain.sessions import Session
from everturn.domain.skills import OfferedSkill
from everturn.domain.store_values import Claim
from everturn.domain.tool import Tool
from everturn.engine.services import TurnServices
from everturn.engine.turn_log import TurnLog

SKILL_TOOL: Final = "skill"
_NAMED: Final = re.compile(r"/([a-z0-9-]{1,64})(?:\s|$)")
_LEAD: Final = (
    "Skills: instructions for particular tasks. When a task fits one of these, read it with the tool skill "
    "before you begin."
)


async def with_skills(
    services: TurnServices, session: Session, profile: str | None, tools: Sequence[Tool], system: str
) -> tuple[Sequence[Tool], str]:
    """The tools and the system prompt with the skills that the turn may use. Only names and descriptions:
    another text of the same skill leaves the prefix as it is. Without skills there is no tool for them."""
    others = [tool for tool in tools if tool.spec.name != SKILL_TOOL]
    if len(others) == len(tools):
        return tools, system
    offered = await _list_offered(services, session, profile)
    if not offered:
        return others, system
    listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in offered)
    return tools, f"{system}\n\n{_LEAD}\n{listed}"


async def add_named_skill(services: TurnServices, log: TurnLog, claim: Claim, tools: Collection[str]) -> None:
    """Add the skill that the turn's message names, e.g. ``/restic-care check the locks``. Nothing is added
    if there is no such skill, if the model was called already, if another person wrote the message, or if the
    turn may not read skills: ``tools`` are the names of its tools."""
    turn, session = claim.turn, claim.session
    named = _NAMED.match(turn.text)
    if services.skills is None or named is None or log.progress.step or SKILL_TOOL not in tools:
        return
    said = log.fold().messages
    if any(isinstance(part, UsedSkill) for message in said for part in message.parts):
        return
    if claim.message is not None and untrusted_source(claim.message) is not None:
        return
    offered = await _list_offered(services, session, turn.profile or session.profile)
    skill = next((one for one in offered if one.name == named[1]), None)
    if skill is None:
        return
    read = await services.skills.read(session.owner, skill, turn.id)
    message = Message(
        id=message_id(turn.id, len(said) + 1),
        turn_id=turn.id,
        role=Role.USER,
        parts=(UsedSkill(read.name, read.digest, read.text),),
        created_at=log.now_ms(),
    )
    await log.append(ev.MessageAdded(message))


async def _list_offered(
    services: TurnServices, session: Session, profile: str | None
) -> Sequence[OfferedSkill]:
    if services.skills is None:
        return ()
    workspace: Path | None = None
    if session.project is not None:
        workspace = await services.toolbox.workspace(session.owner, session.id, session.project)
    return await services.skills.list_offered(session.owner, profile, workspace)
