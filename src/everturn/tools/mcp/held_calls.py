"""Calls of tools that stay open while the user answers: both the turn and the server wait.

A held call exists only in this process. If the process ends before the answer, the outcome of the call is
unknown, so it is in doubt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from everturn.domain.tool import CallAnswer, Emit, ToolDoubt, ToolQuestion, ToolResult
from everturn.tools.mcp.elicitation import Elicitation, Reply, read_reply

_HOLD_S_MAX = 24 * 3600.0  # after this, the server is told that there is no answer

Answer = ToolResult | ToolQuestion
# Runs the call with functions that show progress and ask the user.
Work = Callable[["RunningCall"], Awaitable[ToolResult | ToolQuestion]]


class RunningCall:
    """One call from start to result, with any number of questions to the user in between."""

    def __init__(self, work: Work, emit: Emit) -> None:
        self._work = work
        self._emit = emit
        self._scope = anyio.CancelScope()
        self._ready = anyio.Event()  # there is a question or a result
        self._answered = anyio.Event()
        self._asked: Elicitation | None = None
        self._complaint = ""
        self._reply = Reply("cancel")
        self._result: Answer | None = None
        self._error: BaseException | None = None

    async def serve(self) -> None:
        with self._scope:
            try:
                self._result = await self._work(self)
            except Exception as error:
                self._error = error
        self._ready.set()

    async def next(self) -> Answer:
        """Return the next question, or the result. Cancelling ends the call."""
        try:
            await self._ready.wait()
        except BaseException:
            self.cancel()
            raise
        if self._error is not None:
            raise self._error
        if self._result is not None:
            return self._result
        assert self._asked is not None  # noqa: S101 - else there is a result
        text = f"{self._complaint}\n\n{self._asked.text}" if self._complaint else self._asked.text
        return ToolQuestion(text, self._asked.choices)

    @property
    def is_waiting(self) -> bool:
        """True while the call waits for the user."""
        return self._asked is not None and self._result is None and self._error is None

    def cancel(self) -> None:
        self._scope.cancel()

    async def ask(self, asked: Elicitation) -> Reply:
        """Ask the user and wait for the answer."""
        self._asked, self._answered, self._reply = asked, anyio.Event(), Reply("cancel")
        self._ready.set()
        with anyio.move_on_after(_HOLD_S_MAX):
            await self._answered.wait()
        self._asked = None
        return self._reply

    def answer(self, text: str, emit: Emit) -> None:
        """Continue with the answer, or ask again if it does not fit."""
        self._emit = emit
        if self._asked is None:
            return
        reply = read_reply(self._asked, text)
        if isinstance(reply, str):
            self._complaint = reply
            return
        self._reply, self._complaint = reply, ""
        self._ready = anyio.Event()
        self._answered.set()

    async def show_progress(self, progress: float, total: float | None, message: str | None) -> None:
        words = " ".join((message or "").split())[:300]
        figures = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        await self._emit(f"{words} ({figures})\n" if words else f"{figures}\n")


class RunningCalls:
    """The calls that wait for the user, by their keys."""

    def __init__(self) -> None:
        self._held: dict[str, RunningCall] = {}

    async def start(self, group: TaskGroup, key: str, work: Work, emit: Emit) -> Answer:
        running = RunningCall(work, emit)
        group.start_soon(running.serve, name=f"mcp call {key}")
        return await self._follow(key, running)

    async def go_on(self, key: str, name: str, answer: CallAnswer, emit: Emit) -> Answer | ToolDoubt:
        running = self._held.pop(key, None)
        if running is None or not running.is_waiting:
            return ToolDoubt(
                f"{name} waited for your answer, and the server was stopped meanwhile. It may or may not "
                "have taken effect."
            )
        running.answer(answer.text, emit)
        return await self._follow(key, running)

    def release(self, turn_id: str) -> None:
        """End the calls of a turn that can no longer be answered."""
        for key in [key for key in self._held if key.startswith(f"{turn_id}:")]:
            self._held.pop(key).cancel()

    def release_all(self) -> None:
        for running in self._held.values():
            running.cancel()
        self._held.clear()

    async def _follow(self, key: str, running: RunningCall) -> Answer:
        answer = await running.next()
        if isinstance(answer, ToolQuestion) and running.is_waiting:
            self._held[key] = running
        return answer
