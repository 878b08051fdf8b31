"""Tools and the sandbox."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain.json_types import JsonObject
from everturn.domain.store import Records
from everturn.domain.tool import Tool
from everturn.engine import FailedHook, read_failed_hooks
from everturn.tools import Action, EverturnToolbox, Hook, OwnTool
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_UNKNOWN = "each call, until you allow it for a session or always"


class Sandboxed(msgspec.Struct, frozen=True):
    """``level``: full | reduced | landlock | none. ``hint``: what to do about it, if something can be done.
    ``gaps``: what this level does not cover, one sentence each."""

    is_on: bool
    level: str
    detail: str
    hint: str = ""
    gaps: tuple[str, ...] = ()


class ToolsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    profile: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class ToolOut(msgspec.Struct, frozen=True):
    """``source``: of one of the user's own, its file or package. ``asks``: whether that one asks before it
    runs; of others it depends on the call. ``asks_when``: what makes a call ask; empty: nothing does.
    ``reads_only``: it changes nothing. ``output_bytes_max``: what the model sees of a result."""

    name: str
    description: str
    parameters: JsonObject
    is_safe_to_repeat: bool
    timeout_s: float
    source: str = ""
    asks: bool | None = None
    asks_when: str = ""
    reads_only: bool = False
    takes_key: bool = False
    output_bytes_max: int = 0


class ToolProblem(msgspec.Struct, frozen=True):
    """Why the tools of a file, or of a package, are not offered."""

    source: str
    problem: str


class HookOut(msgspec.Struct, frozen=True):
    """``when``: before_call | after_turn. ``tools``: about which alone it is asked. ``problem``: why its last
    call failed, at ``failed_at``."""

    name: str
    when: str
    description: str
    timeout_s: float
    tools: tuple[str, ...] | None = None
    problem: str = ""
    failed_at: int | None = None


class ToolsOut(msgspec.Struct, frozen=True):
    tools: tuple[ToolOut, ...]
    sandbox: Sandboxed
    problems: tuple[ToolProblem, ...] = ()
    hooks: tuple[HookOut, ...] = ()


class ToolsApi:
    def __init__(self, toolbox: EverturnToolbox, records: Records) -> None:
        self._toolbox = toolbox
        self._records = records

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/tools",
                run=self.tools,
                summary="The agent's tools, and the state of the sandbox.",
                tag="settings",
                query=ToolsQuery,
                answer=ToolsOut,
            ),
        ]

    async def tools(self, call: ApiCall[ToolsQuery, Nothing]) -> ToolsOut:
        found = await self._toolbox.known_tools(call.owner, call.query.profile)
        failed = await read_failed_hooks(self._records)
        return ToolsOut(
            tuple(map(_tool_out, found)),
            sandbox_of(self._toolbox),
            tuple(ToolProblem(each.source, each.problem) for each in self._toolbox.own.troubles),
            tuple(
                _hook_out(name, hook, failed.get(name))
                for name, hook in self._toolbox.own.hook_set.all.items()
            ),
        )


def _tool_out(tool: Tool) -> ToolOut:
    spec, own = tool.spec, tool if isinstance(tool, OwnTool) else None
    return ToolOut(
        spec.name,
        spec.schema.description,
        spec.schema.parameters,
        spec.is_safe_to_repeat,
        spec.timeout_s if own is None else own.timeout_s,
        "" if own is None else own.source,
        None if own is None else own.asks,
        _asks_when(tool),
        spec.reads_only,
        spec.takes_key,
        spec.output_bytes_max,
    )


def _asks_when(tool: Tool) -> str:
    if isinstance(tool, Action):
        return tool.asks_when
    return _UNKNOWN if not isinstance(tool, OwnTool) or tool.asks else ""


def _hook_out(name: str, hook: Hook, failed: FailedHook | None) -> HookOut:
    return HookOut(
        name,
        hook.when.value,
        hook.description,
        hook.timeout_s,
        hook.tools,
        "" if failed is None else failed.problem,
        None if failed is None else failed.failed_at,
    )


def sandbox_of(toolbox: EverturnToolbox) -> Sandboxed:
    state = toolbox.sandbox_state()
    return Sandboxed(state.works, state.level, state.detail, state.hint, state.gaps)
