"""The user's hooks: functions that run before a tool call or after a completed turn."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, overload

import anyio
import msgspec

from everturn.domain.hooks import TurnSummary
from everturn.domain.tool import Ruling, ToolCall, Verdict
from everturn.tools.schema import ToolFailed
from everturn.tools.tool_threads import ToolThreads

HookFunction = Callable[..., Awaitable[object] | object]
BEFORE_S_MAX: Final = 60.0
AFTER_S_MAX: Final = 600.0
_REASON_CHARS_MAX: Final = 1000
_log = logging.getLogger("everturn.tools")


class When(StrEnum):
    BEFORE_CALL = "before_call"
    AFTER_TURN = "after_turn"


class Hook(msgspec.Struct, frozen=True):
    """A hook. ``tools`` limits a hook before calls to these tools; None means all tools."""

    when: When
    function: HookFunction
    timeout_s: float
    tools: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", "hook"))

    @property
    def description(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")

    def find_mistake(self) -> str:
        """Return what is wrong with the hook, in a sentence."""
        parameters = inspect.signature(self.function).parameters.values()
        required = [one for one in parameters if one.default is one.empty and one.kind not in _COLLECTING]
        if not parameters or len(required) > 1:
            return f"{self.name} must take one parameter: {_GIVEN[self.when]}."
        longest = BEFORE_S_MAX if self.when is When.BEFORE_CALL else AFTER_S_MAX
        if not 0 < self.timeout_s <= longest:
            return f"{self.name}: timeout_s must be between 0 and {longest:g} seconds."
        return ""


_COLLECTING: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_GIVEN: Final = MappingProxyType(
    {When.BEFORE_CALL: "the everturn.ToolCall", When.AFTER_TURN: "the everturn.TurnSummary"}
)


@overload
def before_call(function: HookFunction, /) -> Hook: ...


@overload
def before_call(
    *, tools: Sequence[str] | None = None, timeout_s: float = 5.0
) -> Callable[[HookFunction], Hook]: ...


def before_call(
    function: HookFunction | None = None, /, *, tools: Sequence[str] | None = None, timeout_s: float = 5.0
) -> Hook | Callable[[HookFunction], Hook]:
    """Ask this function before each tool call: a text that it returns refuses the call, None leaves the
    decision to the policy. ``tools``: ask it about these tools only."""
    if isinstance(tools, str):
        raise TypeError('tools must be a list of names, as in tools=["terminal"]')
    named = None if tools is None else tuple(tools)

    def make(function: HookFunction) -> Hook:
        return Hook(When.BEFORE_CALL, function, timeout_s, named)

    return make if function is None else make(function)


@overload
def after_turn(function: HookFunction, /) -> Hook: ...


@overload
def after_turn(*, timeout_s: float = 30.0) -> Callable[[HookFunction], Hook]: ...


def after_turn(
    function: HookFunction | None = None, /, *, timeout_s: float = 30.0
) -> Hook | Callable[[HookFunction], Hook]:
    """Call this function with the summary of each completed turn."""

    def make(function: HookFunction) -> Hook:
        return Hook(When.AFTER_TURN, function, timeout_s)

    return make if function is None else make(function)


class HookSet(msgspec.Struct, frozen=True):
    """The current hooks by name.

    If a file that may hold a hook cannot be loaded, ``closed`` says why no tool may be called.
    """

    before: Mapping[str, Hook] = MappingProxyType({})
    after: Mapping[str, Hook] = MappingProxyType({})
    closed: str = ""

    @property
    def all(self) -> Mapping[str, Hook]:
        return {**self.before, **self.after}


class OwnHooks:
    """Implements ``domain.hooks.TurnHooks``. ``find`` returns the current hooks."""

    def __init__(self, find: Callable[[], Awaitable[HookSet]]) -> None:
        self._find = find
        # Separate from the threads of own tools, so that tools that hang cannot block hooks.
        self._before, self._after = ToolThreads(), ToolThreads()

    async def rule(self, call: ToolCall, ruling: Ruling) -> Ruling:
        """Return the policy's ruling, or a refusal. A hook can refuse a call but never allow one."""
        if ruling.verdict is Verdict.DENY:
            return ruling
        try:
            reason = await self._refusal(call)
        except Exception as error:
            # Fail closed on any error: a call does not run unless its hooks were asked.
            _log.exception("the hooks could not be asked about %s", call.name)
            reason = f"The hooks could not be asked ({type(error).__name__}: {error})."
        if not reason:
            return ruling
        return msgspec.structs.replace(ruling, verdict=Verdict.DENY, reason=reason, options=(), covers="")

    async def names(self) -> Sequence[str]:
        return list((await self._find()).after)

    async def run(self, name: str, summary: TurnSummary) -> str:
        hook = (await self._find()).after.get(name)
        if hook is None:
            return ""  # it was removed in the meantime
        _, problem = await _ask(hook, summary, self._after)
        return problem

    async def _refusal(self, call: ToolCall) -> str:
        hooks = await self._find()
        if hooks.closed:
            return hooks.closed
        for name, hook in hooks.before.items():
            if hook.tools is not None and call.name not in hook.tools:
                continue
            # Pass a copy, so that a hook cannot change the arguments after the policy judged them.
            given = msgspec.structs.replace(call, arguments=_copy_arguments(call))
            answer, problem = await _ask(hook, given, self._before)
            if problem:
                _log.error("hook %s failed about a call of %s: %s", name, call.name, problem)
                return f"The hook {name} failed, and so the call is refused: {problem}"
            if answer is not None:
                return f"{_reason(answer)} (Refused by the hook {name}.)"
        return ""


# ``Any``: the return value of a user's function.
async def _ask(hook: Hook, given: object, threads: ToolThreads) -> tuple[Any, str]:
    """Return the hook's result, and why it failed. A ``ToolFailed`` counts as a refusal with that reason."""
    answer: Any = None
    try:
        with anyio.move_on_after(hook.timeout_s) as scope:
            answer = await threads.run(lambda: hook.function(given), f"hook {hook.name}")
    except ToolFailed as error:
        return (str(error) or "No reason was given."), "" if hook.when is When.BEFORE_CALL else str(error)
    except Exception as error:
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:500]}".removesuffix(": ")
    if scope.cancelled_caught:
        return None, f"It took longer than {hook.timeout_s:g} s."
    if hook.when is When.BEFORE_CALL and answer is not None and not isinstance(answer, str):
        return None, f"It must return a reason or None, not {type(answer).__name__}."
    return answer, ""


def _reason(answer: str) -> str:
    return " ".join(answer.split())[:_REASON_CHARS_MAX] or "No reason was given."


def _copy_arguments(call: ToolCall) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(call.arguments))
    return copied
