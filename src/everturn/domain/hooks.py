"""The contract of hooks: functions of the user that are called before a tool call and after a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from everturn.domain.messages import Outcome
from everturn.domain.turns import Usage


class CalledTool(msgspec.Struct, frozen=True):
    name: str
    outcome: Outcome


class TurnSummary(msgspec.Struct, frozen=True):
    """A completed turn, for a hook. ``key`` is the same each time this hook is called about this turn.
    Times are milliseconds since 1970. ``text``: what the user wrote; ``answer``: the last answer."""

    key: str
    turn_id: str
    session_id: str
    owner: str
    title: str
    text: str
    answer: str
    calls: tuple[CalledTool, ...] = ()
    profile: str | None = None
    model: str = ""
    usage: Usage = Usage()
    created_at: int = 0
    ended_at: int = 0
    is_private: bool = False  # memory learns nothing from its session
    is_repeat: bool = False  # this hook may have been called about this turn before


class TurnHooks(Protocol):
    """The hooks that are called after a turn."""

    async def names(self) -> Sequence[str]:
        """The hooks that there are now."""
        ...

    async def run(self, name: str, summary: TurnSummary) -> str:
        """Call one; return why it failed, or an empty text. Never raises."""
        ...
