"""Builds what stays the same from turn to turn: system prompt, tool schemas, memory, and the history.

The one place where these are built, so that they can be kept per session key.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from everturn.domain.messages import Message, Result, Role
from everturn.domain.modelling import Abilities
from everturn.domain.sessions import Session
from everturn.domain.tooling import Tool
from everturn.domain.turns import Turn
from everturn.engine.context import Prefix
from everturn.engine.gear import Gear


class Agent(msgspec.Struct, frozen=True):
    """The prefix, and the tools that it names. Holds nothing of any one session."""

    system: str
    small: str
    tools: Mapping[str, Tool]

    def prefix(self, abilities: Abilities) -> Prefix:
        """The prefix as this model gets it; always the same bytes for the same agent and model."""
        if abilities.is_small:
            return Prefix(self.small)
        return Prefix(self.system, tuple(self.tools[name].spec.schema for name in sorted(self.tools)))


class Agents:
    """Builds an agent for each turn."""

    def __init__(self, gear: Gear) -> None:
        self._gear = gear

    async def agent(self, session: Session, turn: Turn) -> Agent:
        settings = self._gear.settings
        name = turn.profile or session.profile
        tools = await self._gear.toolbox.tools(session.owner, session.id, name)
        system = settings.profile(name).system_prompt or settings.system_prompt
        memory = await self._recalled(session)
        return Agent(
            system=f"{system}\n\n{memory}" if memory else system,
            small=settings.small_prompt,
            tools={tool.spec.name: tool for tool in tools},
        )

    async def history(self, session: Session, turn: Turn) -> list[Message]:
        """The messages before the turn, and its own first one."""
        store = self._gear.store
        messages = await store.transcript.context(session.owner, session.id, upto=turn.id)
        # What an interrupted turn already said is in its journal too; the journal is what is continued.
        return [message for message in messages if message.turn_id != turn.id or message.ordinal == 0]

    async def _recalled(self, session: Session) -> str:
        if self._gear.memory is None or session.private:
            return ""
        return await self._gear.memory.recall(session.owner, session.key, "")


def is_tainted(history: list[Message]) -> bool:
    """Whether untrusted output may be in the context. A summary may have taken it in."""
    return any(
        message.role is Role.SUMMARY
        or any(isinstance(part, Result) and part.is_untrusted for part in message.parts)
        for message in history
    )
