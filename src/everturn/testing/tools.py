"""Small tools, and a toolbox whose rulings are set by a test."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Union

import msgspec

from everturn.domain.asks import Decision
from everturn.domain.json_types import JsonObject
from everturn.domain.model import ToolSchema
from everturn.domain.store_values import File
from everturn.domain.tool import (
    Emit,
    Instructions,
    Ruling,
    Tool,
    ToolCall,
    ToolQuestion,
    ToolResult,
    ToolSpec,
    Untrusted,
    Verdict,
)

Work = Callable[[ToolCall, Emit], Awaitable[Union[ToolResult, ToolQuestion]]]
Rule = Callable[[ToolCall, ToolSpec], Ruling]

ANY_ARGUMENTS: JsonObject = {"type": "object", "properties": {}, "additionalProperties": True}


# ``Any``, here and below: ``spec`` are fields of ``ToolSpec``.
class FakeTool:
    """A tool made of a coroutine function, or of the text it always returns."""

    def __init__(
        self,
        name: str,
        work: Union[Work, str] = "done",
        *,
        parameters: JsonObject = ANY_ARGUMENTS,
        **spec: Any,
    ) -> None:
        self.spec = ToolSpec(ToolSchema(name, f"The {name} tool.", parameters), **spec)
        self._work = work
        self.calls: list[ToolCall] = []

    async def run(self, call: ToolCall, emit: Emit) -> Union[ToolResult, ToolQuestion]:
        self.calls.append(call)
        if isinstance(self._work, str):
            return ToolResult(self._work)
        return await self._work(call, emit)


class CountingTool:
    """Appends one line per run to a file and syncs it, so that another process can count its effects.

    The line holds the call's idempotency key. A tool that ``takes_key`` looks for its key first, as a
    payment service would.
    """

    def __init__(self, name: str, effects: Path, **spec: Any) -> None:
        self.spec = ToolSpec(ToolSchema(name, "Has an effect.", ANY_ARGUMENTS), **spec)
        self._effects = effects

    async def run(self, call: ToolCall, emit: Emit) -> Union[ToolResult, ToolQuestion]:
        if self.spec.takes_key and call.key in count_effects(self._effects):
            return ToolResult("already done")
        with self._effects.open("a", encoding="utf-8") as file:
            file.write(call.key + "\n")
            file.flush()
            os.fsync(file.fileno())
        return ToolResult(f"effect of {call.id}")


def _real_path(folder: str) -> str:
    return str(Path(folder).resolve())


def count_effects(effects: Path) -> dict[str, int]:
    """How often each idempotency key had its effect."""
    counted: dict[str, int] = {}
    if effects.exists():
        for line in effects.read_text(encoding="utf-8").splitlines():
            counted[line] = counted.get(line, 0) + 1
    return counted


class FakeToolbox:
    """Holds tools in memory. ``rules`` gives a verdict, or a function of the call, by tool name.

    ``workspaces`` holds a folder for each session; ``workspace`` is the same one for all."""

    def __init__(
        self,
        *tools: Tool,
        rules: dict[str, Union[Verdict, Rule]] | None = None,
        workspace: Path | None = None,
        workspaces: Path | None = None,
    ) -> None:
        self._tools = sorted(tools, key=lambda tool: tool.spec.name)
        self._rules = dict(rules or {})
        self._workspace = Path("/nonexistent") if workspace is None else workspace
        self._workspaces = workspaces
        self.remembered: list[tuple[str, str]] = []
        self.ruled: list[ToolCall] = []
        self.trouble: Exception | None = None
        self.workspace_instructions = Instructions(is_there=False)
        self.untrusted_texts: list[Untrusted] = []
        self.decided: list[tuple[str, str, bool]] = []
        self.forgotten: list[str] = []
        self.left: list[str] = []

    def add(self, tool: Tool) -> None:
        self._tools = sorted([*self._tools, tool], key=lambda each: each.spec.name)

    async def tools(
        self, owner: str, session_id: str, profile: str | None, only: Collection[str] | None = None
    ) -> Sequence[Tool]:
        if self.trouble is not None:
            raise self.trouble
        return [tool for tool in self._tools if only is None or tool.spec.name in only]

    async def rule(self, call: ToolCall, spec: ToolSpec) -> Ruling:
        self.ruled.append(call)
        rule = self._rules.get(spec.name, Verdict.ALLOW)
        if callable(rule) and not isinstance(rule, Verdict):
            return rule(call, spec)
        return Ruling(Verdict(rule), reason=f"{spec.name} is set to {rule}", label=spec.name)

    async def remember(self, call: ToolCall, decision: Decision) -> None:
        self.remembered.append((call.name, decision))
        if decision in (Decision.SESSION, Decision.ALWAYS):
            self._rules[call.name] = Verdict.ALLOW

    async def check_project(self, folder: str) -> str:
        return _real_path(folder)

    async def workspace(self, owner: str, session_id: str, project: str | None) -> Path:
        if project is not None and self._workspaces is not None:
            return Path(project)
        if self._workspaces is None:
            return self._workspace
        folder = self._workspaces / session_id
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def release(self, turn_id: str) -> None:
        """Its calls leave nothing behind."""

    async def stop_jobs(self, owner: str, session_id: str) -> None:
        """It has none."""

    async def leave(self, turn_id: str) -> None:
        self.left.append(turn_id)

    async def show_document(
        self, owner: str, session_id: str, file: File, chars_max: int, *, can_search: bool
    ) -> str:
        return f"[the text of {file.name}]"

    async def forget(self, owner: str, session_id: str) -> None:
        self.forgotten.append(session_id)

    async def list_untrusted(self, owner: str, session_id: str, profile: str | None) -> Sequence[Untrusted]:
        decided = {digest for _, digest, _ in self.decided}
        return [told for told in self.untrusted_texts if told.digest not in decided]

    async def decide_untrusted(
        self, owner: str, session_id: str, name: str, digest: str, *, use: bool
    ) -> None:
        self.decided.append((name, digest, use))

    async def instructions(self, owner: str, workspace: Path) -> Instructions:
        return self.workspace_instructions

    async def decide_instructions(self, owner: str, workspace: Path, digest: str, *, use: bool) -> None:
        known = self.workspace_instructions
        self.workspace_instructions = msgspec.structs.replace(
            known, is_trusted=use, is_declined=not use, text=known.preview if use else ""
        )
