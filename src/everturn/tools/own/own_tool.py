"""A user's own tool: a function that runs in a thread, with limits on its time and output."""

from __future__ import annotations

import math
from typing import Final

import anyio
import msgspec

from everturn.domain.messages import Outcome
from everturn.domain.tool import Emit, ToolCall, ToolResult, ToolSpec
from everturn.tools.function_tool import FunctionTool, judge_unknown
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Judgement
from everturn.tools.schema import Answer
from everturn.tools.tool_threads import ToolThreads

TEXT_CHARS_MAX: Final = 4_000_000  # the most that is kept of a result; the model sees ``output_bytes_max``
_GRACE_S: Final = 5.0


class OwnTool:
    """``source`` names the file or package that it comes from."""

    def __init__(self, function: FunctionTool, source: str, threads: ToolThreads) -> None:
        self._function = function
        self._threads = threads
        self.source = source
        self.asks = function.asks
        self.timeout_s = function.spec.timeout_s
        # Ends before the engine's own limit, because this one can report what happened to the function.
        self.spec: ToolSpec = msgspec.structs.replace(function.spec, timeout_s=self.timeout_s + _GRACE_S)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return judge_unknown(call, f"it runs your own tool {call.name} ({self.source})", asks=self.asks)

    async def run(self, call: ToolCall, emit: Emit) -> Answer:
        answer: Answer | None = None
        with anyio.move_on_after(self.timeout_s):
            answer = await self._function.run_on_thread(call, self._threads)
        if answer is None:
            return self._too_slow()
        if isinstance(answer, ToolResult) and len(answer.text) > TEXT_CHARS_MAX:
            cut = f"{answer.text[:TEXT_CHARS_MAX]}\n[cut: the result had {len(answer.text):,} characters]"
            return msgspec.structs.replace(answer, text=cut)
        return answer

    def _too_slow(self) -> ToolResult:
        text = f"{self.spec.name} took longer than {_seconds(self.timeout_s)}"
        if self._function.is_coroutine:
            return ToolResult(f"{text} and was cancelled.", Outcome.ERROR)
        outcome = Outcome.ERROR if self.spec.is_safe_to_repeat or self.spec.reads_only else Outcome.UNKNOWN
        return ToolResult(
            f"{text}. It cannot be stopped and may still finish: check whether it took effect before you "
            "call it again.",
            outcome,
        )


def _seconds(count: float) -> str:
    return "1 second" if math.isclose(count, 1) else f"{count:g} seconds"
