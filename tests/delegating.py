"""Engines whose agents have delegates, with a model of its own for parents and for delegates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everturn.domain.delegates import Delegate
from everturn.domain.messages import Result
from everturn.domain.sessions import Session
from everturn.domain.tool import Tool, ToolCall
from everturn.domain.turns import ENDED, Turn
from everturn.engine import Delegates, DelegateSettings
from everturn.store import Store
from everturn.testing import CallTool, FakeTool, FakeToolbox, ScriptedModel, ScriptedModels
from everturn.testing.clock import FakeClock
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness
from everturn.testing.waiting import within
from everturn.tools.delegate_tools import OwnRights, delegate_tools
from everturn.tools.profiles import Profile, Profiles, built_in, find_excess
from everturn.workspace import FilesSettings, Recorder
from tests.file_sessions import write

CHILD = "scripted:child"
PROFILES = Profiles(
    {**built_in().profiles, "open": Profile(name="open", network=True), "tight": Profile(name="tight")}
)


def task(text: str = "look", **more: Any) -> dict[str, Any]:
    return {"instructions": text, "model": CHILD, **more}


def hand_over(*tasks: dict[str, Any], **more: Any) -> list[CallTool]:
    """One step of a model that delegates."""
    return [CallTool("delegate", {"tasks": list(tasks), **more})]


class Delegating:
    """A harness with two models: ``parent`` plays for sessions, ``child`` for delegates."""

    def __init__(self, h: Harness, parent: ScriptedModel, child: ScriptedModel) -> None:
        self.h = h
        self.store = h.store
        self.parent = parent
        self.child = child

    async def ended(self, turn_id: str) -> Turn:
        turn = await self.h.turn(turn_id)
        with within(f"turn {turn_id} has ended"):
            async for _ in self.h.engine.follow(OWNER, turn.session_id, 0):
                turn = await self.h.turn(turn_id)
                if turn.state in ENDED:
                    return turn
        raise AssertionError("the stream of a session has no end")

    async def delegates(self, turn_id: str) -> Sequence[Delegate]:
        return await self.store.delegates.of_turn(OWNER, turn_id)

    async def results(self, session: Session) -> list[Result]:
        messages = await self.h.messages(session)
        return [part for message in messages for part in message.parts if isinstance(part, Result)]


def with_delegates(given: Sequence[Tool], delegates: Delegates, profiles: Profiles) -> list[Tool]:
    """The tools, and those for delegates."""

    async def rights_of(call: ToolCall) -> OwnRights:
        reading = frozenset(tool.spec.name for tool in tools if tool.spec.reads_only)
        return OwnRights(frozenset(tool.spec.name for tool in tools), reading=reading)

    async def excess(call: ToolCall, wanted: str) -> str:
        return find_excess(profiles.get(wanted), profiles.get(call.profile))

    tools: list[Tool] = [
        *given,
        *delegate_tools(delegates, rights_of, excess, lambda name: profiles.get(name).model),
    ]
    return tools


@asynccontextmanager
async def delegating(
    store: Store,
    parent: Sequence[Any] = (),
    child: Sequence[Any] = (),
    *,
    clock: FakeClock,
    home: Path | None = None,
    crashes: bool = False,
    tools: Sequence[Tool] = (),
    settings: DelegateSettings | None = None,
    profiles: Profiles = PROFILES,
    **more: Any,
) -> AsyncIterator[Delegating]:
    """``home``: there are workspaces, and they are recorded; a tool ``write`` writes files."""
    own = ScriptedModel(*parent, clock=clock)
    others = ScriptedModel(*child, name=CHILD, clock=clock)
    delegates = Delegates(store, clock, settings or DelegateSettings())
    given: list[Tool] = [FakeTool("write", write), *tools] if home is not None else list(tools)

    toolbox = FakeToolbox(
        *with_delegates(given, delegates, profiles),
        rules=more.pop("rules", None),
        workspaces=None if home is None else home / "workspaces",
    )
    if home is not None:
        more["recorder"] = Recorder(store, home / "indexes", FilesSettings())
    opens = crashing_harness if crashes else open_harness
    async with opens(
        store,
        models=ScriptedModels(own, others),
        toolbox=toolbox,
        delegates=delegates,
        clock=clock,
        **more,
    ) as harness:
        yield Delegating(harness, own, others)
