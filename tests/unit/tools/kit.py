"""A real toolbox over a real store, and short ways to call its tools."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from everturn.domain.asks import Decision
from everturn.domain.clock import SystemClock
from everturn.domain.tool import Ruling, Tool, ToolCall, ToolResult
from everturn.store import Store, open_store
from everturn.tools import EverturnToolbox, Fetcher, Profile, Profiles, Sandbox, ToolServices, built_in
from everturn.tools.terminal.runner import NEW, NOT_KEPT

OWNER = "olga"
SESSION = "ses_01"


class Kit:
    def __init__(self, home: Path, toolbox: EverturnToolbox, store: Store, workspace: Path) -> None:
        self.home = home
        self.toolbox = toolbox
        self.store = store
        self.workspace = workspace
        self.live: list[str] = []
        self.looked_up: list[str] = []  # names that were resolved, where a test counts them

    def call(self, name: str, arguments: dict[str, Any], **changes: Any) -> ToolCall:
        call = ToolCall(
            id="call_1",
            name=name,
            arguments=arguments,
            owner=OWNER,
            session_id=SESSION,
            turn_id="trn_01",
            workspace=self.workspace,
            key="key-1",
        )
        return msgspec.structs.replace(call, **changes)

    async def run(self, name: str, _changes: dict[str, Any] | None = None, **arguments: Any) -> ToolResult:
        call = self.call(name, arguments, **(_changes or {}))
        tools = {tool.spec.name: tool for tool in await self.toolbox.tools(OWNER, SESSION, call.profile)}
        result = await tools[name].run(call, self.emit)
        assert isinstance(result, ToolResult)
        return result

    async def python(self, code: str, _changes: dict[str, Any] | None = None, **arguments: Any) -> str:
        """What the code printed and returned, without the note on the interpreter."""
        return without_note((await self.run("python", _changes, code=code, **arguments)).text)

    async def rule(self, name: str, _changes: dict[str, Any] | None = None, **arguments: Any) -> Ruling:
        call = self.call(name, arguments, **(_changes or {}))
        tools = {tool.spec.name: tool for tool in await self.toolbox.tools(OWNER, SESSION, call.profile)}
        return await self.toolbox.rule(call, tools[name].spec)

    async def remember(
        self, decision: str, name: str, _changes: dict[str, Any] | None = None, **arguments: Any
    ) -> None:
        await self.toolbox.remember(self.call(name, arguments, **(_changes or {})), Decision(decision))

    async def emit(self, text: str) -> None:
        self.live.append(text)


def without_note(text: str) -> str:
    before, _, last = text.rpartition("\n")
    return before if last in (NEW, NOT_KEPT) else text


@asynccontextmanager
async def open_kit(
    home: Path,
    *,
    has_sandbox: bool = True,
    profiles: Profiles | None = None,
    fetcher: Fetcher | None = None,
    extra: Sequence[Tool] = (),
    sandbox: Sandbox | None = None,
    **options: Any,
) -> AsyncIterator[Kit]:
    os.makedirs(home, exist_ok=True)
    given = profiles or profiles_of()
    async with (
        open_store(f"sqlite://{home / 'everturn.db'}", data_dir=home) as store,
        EverturnToolbox(
            home,
            ToolServices(
                store.records,
                store.search,
                SystemClock(),
                **{"files": store.files, "blobs": store.blobs, **options},
            ),
            given,
            sandbox=sandbox or Sandbox(home, is_wanted=has_sandbox),
            fetcher=fetcher,
            extra=extra,
        ) as toolbox,
    ):
        yield Kit(home, toolbox, store, await toolbox.workspace(OWNER, SESSION, None))


def profiles_of(*extra: Profile, servers: dict[str, Any] | None = None) -> Profiles:
    """The built-in profiles, one with the network, one on the bare machine, and the given ones."""
    known = built_in().profiles
    own = (Profile(name="online", network=True), Profile(name="bare", sandbox=False), *extra)
    return Profiles({**known, **{profile.name: profile for profile in own}}, servers or {})
