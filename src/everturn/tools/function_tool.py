"""A function of the user or of an embedding program as a tool."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, overload

from everturn.domain.model import ToolSchema
from everturn.domain.tool import Emit, ToolCall, ToolSpec
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.schema import Answer, Arguments, answer_call
from everturn.tools.tool_threads import ToolThreads

OwnFunction = Callable[..., Awaitable[object] | object]
"""Returns text, a ``ToolResult``, a ``ToolQuestion``, or what can be written as JSON."""


class FunctionTool:
    """A function as a tool; made by ``tool``. A coroutine runs in the program's loop, a plain function in a
    thread. By default the policy asks before each new kind of call."""

    # ``Any``: the options are the fields of ``ToolSpec``.
    def __init__(self, function: OwnFunction, *, asks: bool = True, **options: Any) -> None:
        self._function = function
        self._arguments = Arguments(function, skip=0)
        self._threads = ToolThreads()
        self.asks = asks
        self.spec = ToolSpec(
            schema=ToolSchema(
                name=function.__name__,
                description=inspect.cleandoc(function.__doc__ or ""),
                parameters=self._arguments.schema,
            ),
            **options,
        )

    @property
    def is_coroutine(self) -> bool:
        return inspect.iscoroutinefunction(self._function)

    async def run(self, call: ToolCall, emit: Emit) -> Answer:
        if not self.is_coroutine:
            return await self.run_on_thread(call, self._threads)
        return await answer_call(self.spec.name, self._arguments, call, lambda given: self._call(call, given))

    async def run_on_thread(self, call: ToolCall, threads: ToolThreads) -> Answer:
        """As ``run``, with the function in a thread in any case."""
        name = self.spec.name
        return await answer_call(
            name,
            self._arguments,
            call,
            lambda given: threads.run(lambda: self._call(call, given), f"tool {name}"),
        )

    # ``Any``: what the function returns is looked at by ``answer_call``.
    def _call(self, call: ToolCall, given: ArgumentValues) -> Any:
        return self._function(**given, **dict.fromkeys(self._arguments.call_names, call))

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return judge_unknown(call, f"it is a tool of another program ({call.name})", asks=self.asks)


def judge_unknown(call: ToolCall, reason: str, *, asks: bool = True) -> Judgement:
    """A call whose effects the policy cannot see."""
    words = " ".join(str(value) for value in call.arguments.values())
    label = one_line(f"{call.name} {words}")
    covers = f"call {call.name} with any arguments"
    concern = Concern(reason, f"tool {call.name}", sends=True, is_outside=True, covers=covers)
    return Judgement(label=label, concerns=(concern,) if asks else ())


@overload
def tool(function: OwnFunction, /) -> FunctionTool: ...


# ``Any``: as in ``FunctionTool``.
@overload
def tool(**options: Any) -> Callable[[OwnFunction], FunctionTool]: ...


def tool(
    function: OwnFunction | None = None, /, **options: Any
) -> FunctionTool | Callable[[OwnFunction], FunctionTool]:
    """Make a tool of a function. The options are those of ``ToolSpec``, and ``asks``: False runs it without
    asking the user."""
    if function is not None:
        return FunctionTool(function)
    return lambda function: FunctionTool(function, **options)
