"""The embedded API: an agent inside your own program, with the same guarantees as the server."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, cast

from everturn.app import App, open_app
from everturn.config import Flags, read_config
from everturn.domain import store_values
from everturn.domain.asks import Ask
from everturn.domain.errors import EverturnError, Invalid
from everturn.domain.events import Event
from everturn.domain.hooks import TurnSummary
from everturn.domain.memory import MemoryProvider
from everturn.domain.messages import Message
from everturn.domain.sessions import NewSession, Page, Session
from everturn.domain.store_values import Accepted, Submission
from everturn.domain.tool import Tool, ToolCall, ToolQuestion, ToolResult, ToolSpec
from everturn.domain.turns import Turn
from everturn.domain.words import read_word
from everturn.memory import CommitResult, Memory
from everturn.tools import (
    DELEGATE_TOOL_NAMES,
    JOB_TOOL_NAMES,
    TOOL_NAMES,
    ToolFailed,
    after_turn,
    before_call,
    tool,
)
from everturn.tools.function_tool import FunctionTool

__all__ = [
    "Accepted",
    "Agent",
    "AgentMemory",
    "Ask",
    "CommitResult",
    "Event",
    "EverturnError",
    "MemoryProvider",
    "Message",
    "Page",
    "Session",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolFunction",
    "ToolQuestion",
    "ToolResult",
    "Turn",
    "TurnSummary",
    "WhenBusy",
    "after_turn",
    "before_call",
    "open_agent",
    "tool",
]

ToolFunction = Callable[..., Awaitable[ToolResult | ToolQuestion | str]]
"""A coroutine function with type hints. Its name, docstring and parameters describe it to the model."""

WhenBusy = Literal["queue", "steer", "interrupt"]
"""What becomes of a message while a turn runs: it waits, joins the turn, or ends the turn."""

_END_KINDS = frozenset({"turn.completed", "turn.cancelled", "turn.failed", "turn.interrupted"})


class Agent:
    """One owner's sessions. Every method that returns has made its result durable first.

    Methods raise ``EverturnError``: its ``message`` says what failed, its ``hint`` what to do.
    """

    def __init__(self, app: App, owner: str) -> None:
        self._app = app
        self.owner = owner
        self.memory = AgentMemory(app.memory.memory, owner)

    @property
    def app(self) -> App:
        """The internal parts. They are outside the stability promise and may change in any release."""
        return self._app

    async def create_session(
        self,
        *,
        title: str = "",
        key: str = "",
        private: bool = False,
        project: str | None = None,
        profile: str | None = None,
        model: str | None = None,
        leaving: str | None = None,
    ) -> Session:
        """Create a session.

        ``key``: the place where the user talks; sessions with the same key share a warm agent. ``private``:
        memory learns nothing from it. ``project``: the folder that its tools work in. ``leaving``: the
        session that the user leaves; what it owes to memory is committed in the background.
        """
        return await self._app.engine.create_session(
            self.owner,
            NewSession(title=title, key=key, private=private, project=project, profile=profile, model=model),
            leaving=leaving,
        )

    async def sessions(self, *, limit: int = 50, cursor: str | None = None) -> Page[Session]:
        """A page of sessions, the most recently used first."""
        return await self._app.store.sessions.list(self.owner, limit=limit, cursor=cursor)

    async def messages(self, session_id: str, *, before: str | None = None, limit: int = 50) -> Page[Message]:
        """The newest page of a session's messages, oldest first; ``before`` is the cursor of that page."""
        return await self._app.engine.messages(self.owner, session_id, before=before, limit=limit)

    async def submit(
        self,
        session_id: str,
        text: str,
        *,
        key: str | None = None,
        attachments: Sequence[str] = (),
        model: str | None = None,
        profile: str | None = None,
        when_busy: WhenBusy = "queue",
    ) -> Accepted:
        """Accept a message and start or queue its turn.

        On return the message survives power loss. Submitting again with the same idempotency ``key`` returns
        the first answer and starts no second turn. ``attachments``: ids of uploaded files.
        """
        submission = Submission(
            text=text,
            key=key,
            attachments=tuple(attachments),
            model=model,
            profile=profile,
            when_busy=read_word(store_values.WhenBusy, when_busy, "when_busy"),
        )
        return await self._app.engine.submit(self.owner, session_id, submission)

    async def ask(
        self,
        session_id: str,
        text: str,
        *,
        key: str | None = None,
        attachments: Sequence[str] = (),
        model: str | None = None,
        profile: str | None = None,
        when_busy: WhenBusy = "queue",
    ) -> AsyncIterator[Event]:
        """Submit a message and yield the events of its turn until the turn ends.

        While the turn waits for an approval or an answer, no events come: answer it from another task, with
        ``answer``, or on the page. Leaving the iterator early does not cancel the turn.
        """
        accepted = await self.submit(
            session_id,
            text,
            key=key,
            attachments=attachments,
            model=model,
            profile=profile,
            when_busy=when_busy,
        )
        async for batch in self.follow(session_id, accepted.cursor):
            for event in batch:
                if event.turn_id == accepted.turn.id:
                    yield event
                    if event.kind in _END_KINDS:
                        return

    def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        """Yield a session's events after a position, in batches: the stored ones, then new ones, forever."""
        return self._app.engine.follow(self.owner, session_id, after)

    async def asks(self, session_id: str | None = None) -> list[Ask]:
        """The open approvals and questions, of one session or of all."""
        return await self._app.store.asks.open(self.owner, session_id)

    async def answer(self, ask_id: str, answer: str) -> Ask:
        """Answer an approval or a question. Its turn continues when none of its asks is open."""
        return await self._app.engine.answer(self.owner, ask_id, answer, by="program")

    async def cancel(self, turn_id: str) -> Turn:
        """End a turn now. What it has said so far is kept. A turn that has ended is returned as it is."""
        return await self._app.engine.cancel(self.owner, turn_id, by="program")


class AgentMemory:
    """What one owner's sessions owe to memory, for programs that bring their own memory handle.

    The engine needs none of this: completing a turn marks it as owed, and owed turns are committed when a
    session is left or idle, and at shutdown. A missing session id is a no-op everywhere.
    """

    def __init__(self, memory: Memory, owner: str) -> None:
        self._memory = memory
        self._owner = owner

    def register(self, session_id: str, handle: MemoryProvider) -> str:
        """Let the session's next completed turns be owed to this handle; return its name in the ledger.

        Turns that an earlier handle saw stay owed to that one.
        """
        return self._memory.register(session_id, handle)

    def unregister(self, session_id: str, handle: MemoryProvider) -> bool:
        """Release the handle; False if the session did not have it. What is owed stays owed."""
        return self._memory.unregister(session_id, handle)

    async def mark_completed(
        self, session_id: str, turn_id: str | None = None, handle: MemoryProvider | None = None
    ) -> bool:
        """Mark a completed turn (default: the session's last) as owed, durably and once.

        ``handle``: the one that saw it (default: the registered one). False, and nothing is owed, if the turn
        has not completed, the session is private, or there is no such turn.
        """
        return await self._memory.mark_completed(self._owner, session_id, turn_id, handle)

    async def has_uncommitted_work(self, session_id: str) -> bool:
        """True if a completed turn of the session has not been committed to memory."""
        return await self._memory.has_uncommitted_work(self._owner, session_id)

    async def commit(self, session_id: str, handle: MemoryProvider | None = None) -> CommitResult:
        """Commit the session's oldest owed turns to the handle that saw them.

        ``handle`` takes them if that one is not in this process any more. Waits for a commit of the same
        session that is under way. A failed commit leaves everything owed.
        """
        return await self._memory.commit(self._owner, session_id, handle)


@asynccontextmanager
async def open_agent(
    home: str | Path | None = None,
    *,
    owner: str = "local",
    model: str | None = None,
    tools: Sequence[Tool | ToolFunction] = (),
    database_url: str | None = None,
    database_direct_url: str | None = None,
) -> AsyncIterator[Agent]:
    """Open the data folder (default ``EVERTURN_HOME``) and run turns until the context ends.

    ``tools``: tools of your program, in addition to the built-in ones: coroutine functions with type hints,
    or objects that implement ``Tool``. The policy asks before one runs. A profile that lists its tools offers
    yours only if it names them. Raises Invalid for a tool that cannot be used.

    ``model``, ``database_url`` and ``database_direct_url`` win over ``config.toml`` and the environment.
    Another process, such as the server, may have the same folder open.
    """
    flags = Flags(model=model, database_url=database_url, database_direct_url=database_direct_url)
    config = read_config(_folder(home), flags=flags)
    async with open_app(config, tools=_make_tools(tools)) as app:
        yield Agent(app, owner)


def _folder(home: str | Path | None) -> Path | None:
    return None if home is None else Path(home).expanduser()


def _make_tools(given: Sequence[Tool | ToolFunction]) -> list[Tool]:
    made = [_make_tool(each) for each in given]
    names = [each.spec.name for each in made]
    for name in names:
        if name in TOOL_NAMES | JOB_TOOL_NAMES | DELEGATE_TOOL_NAMES or names.count(name) > 1:
            raise Invalid(f"There are two tools named {name!r}.", hint="Give each tool its own name.")
    return made


def _make_tool(given: Tool | ToolFunction) -> Tool:
    if isinstance(getattr(given, "spec", None), ToolSpec):
        return cast(Tool, given)
    if not inspect.iscoroutinefunction(given):
        raise Invalid(f"{given!r} is neither a coroutine function nor a Tool.", hint="Use 'async def'.")
    return FunctionTool(given)
