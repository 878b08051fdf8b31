"""One task, carried out by an agent in a session of its own."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import msgspec

from everturn.agent import Agent
from everturn.bench.checks import RunCommand, TaskOutcome, find_failure
from everturn.bench.site import Site
from everturn.bench.task import Area, Task
from everturn.domain import events as ev
from everturn.domain import messages
from everturn.domain.asks import AskTopic, Decision
from everturn.domain.sessions import Session
from everturn.domain.store_values import Accepted
from everturn.domain.tool import ToolCall, ToolResult
from everturn.domain.turns import Usage

TIMEOUT = "timeout"
_COMPLETED = "turn.completed"


class TaskTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What a task took, and what is missing in its result. Tokens are None if the provider does not say."""

    task: str
    area: Area
    is_practised: bool
    run: int
    is_right: bool
    missing: str
    end: str
    model: str
    steps: int
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seconds: float
    story: tuple[str, ...]


class _Course:
    """What the events of a turn add up to."""

    def __init__(self) -> None:
        self.end, self.error, self.said, self.model = TIMEOUT, "", "", ""
        self.steps, self.calls = 0, 0
        self.called: set[str] = set()
        self.usage = Usage()
        self.story: list[str] = []

    def take(self, event: ev.Event) -> None:
        match event.payload:
            case ev.TextDelta(text=text):
                self.said += text
            case ev.StepFinished() as step:
                self.steps += 1
                self.story += [f"{call.name} {call.arguments}" for call in step.calls]
            case ev.StepUsage() as used:
                self.usage, self.model = self.usage.plus(used.usage), used.model
            case ev.ToolFinished() as done:
                self._finish_call(done)
            case ev.TurnFailed() as failed:
                self.end, self.error = event.kind, failed.failure.message
            case ev.TurnCompleted() | ev.TurnCancelled() | ev.TurnInterrupted():
                self.end = event.kind

    def _finish_call(self, done: ev.ToolFinished) -> None:
        self.said = ""
        self.calls += 1
        if done.outcome is messages.Outcome.OK:
            self.called.add(done.name)
        self.story.append(f"  {done.outcome.value}: {done.text}")


class Bench:
    """Carries out tasks, one after the other: what runs beside a task would be in its time."""

    def __init__(
        self, agent: Agent, site: Site, *, model: str | None = None, timeout_s: float = 600.0
    ) -> None:
        self._agent = agent
        self.site = site
        self._model = model
        self._timeout_s = timeout_s

    async def carry_out(self, task: Task, run: int = 1) -> TaskTrial:
        """Raises what the engine raises if the message is refused; a turn that fails is a result."""
        session = await self._agent.create_session(private=True)
        workspace = await self._agent.app.toolbox.workspace(self._agent.owner, session.id, None)
        await asyncio.to_thread(_lay_out, task, workspace)
        self.site.pages = task.site
        begin, course = time.monotonic(), _Course()
        accepted = await self._agent.submit(
            session.id, task.ask.replace("{site}", self.site.url), model=self._model
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._follow(session, accepted, course)
        except TimeoutError:
            await self._agent.cancel(accepted.turn.id)
        seconds = time.monotonic() - begin
        outcome = TaskOutcome(
            workspace, course.said, frozenset(course.called), self._runner(session, workspace)
        )
        return _trial(task, run, course, seconds, await _find_missing(task, course, outcome))

    async def _follow(self, session: Session, accepted: Accepted, course: _Course) -> None:
        async for batch in self._agent.follow(session.id, accepted.cursor):
            for event in batch:
                if event.turn_id != accepted.turn.id:
                    continue
                course.take(event)
                if isinstance(event.payload, ev.TurnWaiting):
                    await self._answer(session, course)
            if course.end != TIMEOUT:
                return

    async def _answer(self, session: Session, course: _Course) -> None:
        """Allow each call once. Nobody answers other questions (of the agent, of a limit): they end it."""
        for ask in await self._agent.asks(session.id):
            course.story.append(f"  asked: {ask.text}")
            if ask.topic is AskTopic.APPROVAL:
                await self._agent.answer(ask.id, Decision.ONCE)
            else:
                course.error = f"It asked: {ask.text}"
                await self._agent.cancel(ask.turn_id)

    def _runner(self, session: Session, workspace: Path) -> RunCommand:
        async def run(command: str) -> str:
            """Through the tool of the agent: what a model wrote is run in the sandbox only."""
            tools = await self._agent.app.toolbox.tools(session.owner, session.id, None)
            (terminal,) = (tool for tool in tools if tool.spec.name == "terminal")
            call = ToolCall(
                id="check",
                name="terminal",
                arguments={"command": command, "timeout_s": 30},
                owner=session.owner,
                session_id=session.id,
                turn_id="",
                workspace=workspace,
                key="check",
            )
            result = await terminal.run(call, _ignore)
            return result.text if isinstance(result, ToolResult) else ""

        return run


async def _ignore(text: str) -> None:
    """The check of a result is not shown live."""


def _lay_out(task: Task, workspace: Path) -> None:
    if task.folder is not None:
        shutil.copytree(task.folder, workspace, dirs_exist_ok=True)
    for name, text in task.files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


async def _find_missing(task: Task, course: _Course, outcome: TaskOutcome) -> str:
    if course.end != _COMPLETED:
        return course.error or course.end
    for check in task.checks:
        failure = await find_failure(check, outcome)
        if failure:
            return failure
    return ""


def _trial(task: Task, run: int, course: _Course, seconds: float, missing: str) -> TaskTrial:
    return TaskTrial(
        task=task.name,
        area=task.area,
        is_practised=task.practised,
        run=run,
        is_right=not missing,
        missing=missing,
        end=course.end,
        model=course.model,
        steps=course.steps,
        calls=course.calls,
        input_tokens=course.usage.input_tokens,
        output_tokens=course.usage.output_tokens,
        cost_usd=course.usage.cost_usd,
        seconds=round(seconds, 2),
        story=(f"> {task.ask}", *course.story, course.said.strip()),
    )
