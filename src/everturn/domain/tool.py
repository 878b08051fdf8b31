"""The contract of a tool, and of the policy that decides whether a call may run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, Union

import msgspec

from everturn.domain.asks import AskTopic, Decision
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Outcome
from everturn.domain.model import ToolSchema
from everturn.domain.store_values import File

# Calls a tool that is found instead of being listed in every request.
CALL_FOUND_TOOL: Final = "call_tool"


class Verdict(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Ruling(msgspec.Struct, frozen=True):
    """What the policy says about one call, and why. ``label`` is the call in one line for people.
    ``covers``: what an answer for the session or for always would allow from then on. ``terms``: what an
    approval rests on besides the arguments, in words such as ``outside``. One that was given without some
    of them does not hold: the user is asked again."""

    verdict: Verdict
    reason: str = ""
    label: str = ""
    options: tuple[Decision, ...] = (Decision.ONCE, Decision.SESSION, Decision.ALWAYS, Decision.DENY)
    covers: str = ""
    terms: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        """The text shown to the user beside the call."""
        if not self.covers:
            return self.reason
        return f"{self.reason} If allowed for this session or always, the agent may then {self.covers}."


class ToolSpec(msgspec.Struct, frozen=True):
    schema: ToolSchema
    is_safe_to_repeat: bool = False  # running it twice does what running it once does
    takes_key: bool = False  # deduplicates by the idempotency key it is given
    timeout_s: float = 120.0
    output_bytes_max: int = 48_000  # what the model sees; the rest is kept as an artifact
    is_untrusted: bool = True  # its output is not the user's word
    reads_only: bool = False  # changes nothing: calls of such tools may run side by side
    goes_on: bool = False  # an answer to its question is not its result: it is run again, with the answer

    @property
    def name(self) -> str:
        return self.schema.name


class CallAnswer(msgspec.Struct, frozen=True):
    """What the user answered to a call that waits for it."""

    topic: AskTopic
    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """One call, with where and for whom it runs."""

    id: str
    name: str
    arguments: JsonObject
    owner: str
    session_id: str
    turn_id: str
    workspace: Path
    key: str  # idempotency key: the same for every attempt at this call
    profile: str | None = None
    is_tainted: bool = False  # untrusted output is in the context already
    model: str = ""  # that asked for the call, as provider:name
    answer: CallAnswer | None = None  # of a tool that goes on with the answer


class ToolImage(msgspec.Struct, frozen=True):
    """A picture in a result: kept as an artifact, and shown with the call."""

    media: str
    data: bytes


class ToolFile(msgspec.Struct, frozen=True):
    """A file in a result: kept as an artifact, and offered with the call. ``name`` has no folders."""

    name: str
    media: str
    data: bytes


class ToolResult(msgspec.Struct, frozen=True):
    text: str
    outcome: Outcome = Outcome.OK
    display: Json = None
    full_output: bytes | None = None  # where the text is only a part of it
    images: tuple[ToolImage, ...] = ()
    files: tuple[ToolFile, ...] = ()
    is_own: bool = False  # the user's own word, although this tool's output otherwise is not
    quotes_nothing: bool = False  # an error in our own words: nothing from outside is in it


class ToolQuestion(msgspec.Struct, frozen=True):
    """Returned instead of a result by a tool that needs the user: the turn waits, durably."""

    text: str
    choices: tuple[str, ...] = ()
    topic: AskTopic = AskTopic.QUESTION
    subject: str = ""  # of SIGN_IN: the server


class ToolDoubt(msgspec.Struct, frozen=True):
    """Returned instead of a result by a tool that goes on with an answer, if the work that waited for it is
    gone: whether the call took effect only the user can say."""

    text: str


class ToolWait(msgspec.Struct, frozen=True):
    """Returned instead of a result by a tool that has started delegates: the turn waits for them, durably,
    and their reports become the result."""

    delegates: tuple[str, ...]


class Instructions(msgspec.Struct, frozen=True):
    """The workspace's AGENTS.md. ``text`` is for the context only if ``is_trusted``; else the user is to
    be asked once about this content, with ``preview``."""

    is_there: bool
    is_trusted: bool = False
    text: str = ""
    preview: str = ""
    digest: str = ""
    is_changed: bool = False  # an earlier content was trusted
    is_cut: bool = False  # the file goes on; only its beginning is shown and used
    is_declined: bool = False  # the user wants this content left out


class Untrusted(msgspec.Struct, frozen=True):
    """A text from outside that would steer the agent. The user is asked about exactly this text, and it is
    not in the context before."""

    name: str  # of what says it
    question: str  # in one line
    text: str
    digest: str


Emit = Callable[[str], Awaitable[None]]


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, call: ToolCall, emit: Emit) -> Union[ToolResult, ToolQuestion, ToolWait, ToolDoubt]:
        """Run the call. ``emit`` shows live output. Cancelling must end the work.

        Bad arguments and ordinary failures are results with outcome ERROR, not exceptions.
        """
        ...


class Toolbox(Protocol):
    """The tools of a profile, and the policy over them."""

    async def tools(
        self, owner: str, session_id: str, profile: str | None, only: Collection[str] | None = None
    ) -> Sequence[Tool]:
        """Sorted by name, so that the prefix sent to the model is stable. ``only``: a delegate's tools; no
        other is given, nor reached through one that calls others."""
        ...

    async def rule(self, call: ToolCall, spec: ToolSpec) -> Ruling:
        """Allow, ask or deny this call. Never raises: what cannot be judged asks."""
        ...

    async def remember(self, call: ToolCall, decision: Decision) -> None:
        """Keep a lasting decision about the call."""
        ...

    async def check_project(self, folder: str) -> str:
        """The real path of a folder that a user names as a project. Raises Invalid if no session can work
        there: it is not there, or it holds the data folder or lies in it."""
        ...

    async def workspace(self, owner: str, session_id: str, project: str | None) -> Path:
        """The session's working folder; created if it does not exist."""
        ...

    async def instructions(self, owner: str, workspace: Path) -> Instructions:
        """The workspace's instructions for agents, and whether the user trusts them."""
        ...

    async def decide_instructions(self, owner: str, workspace: Path, digest: str, *, use: bool) -> None:
        """Store the user's answer about this content. Changed content is asked about again."""
        ...

    async def list_untrusted(self, owner: str, session_id: str, profile: str | None) -> Sequence[Untrusted]:
        """The tool descriptions of the profile's MCP servers that the user has not decided on."""
        ...

    async def decide_untrusted(
        self, owner: str, session_id: str, name: str, digest: str, *, use: bool
    ) -> None:
        """Store the user's answer about this text. Changed text is asked about again."""
        ...

    async def release(self, turn_id: str) -> None:
        """End what calls of this turn, which has ended, left waiting for the user."""
        ...

    async def stop_jobs(self, owner: str, session_id: str) -> None:
        """Stop the session's jobs, before it is deleted."""
        ...

    async def leave(self, turn_id: str) -> None:
        """End what lives only while this worker runs the turn. Twice is harmless."""
        ...

    async def show_document(
        self, owner: str, session_id: str, file: File, chars_max: int, *, can_search: bool
    ) -> str:
        """The text of an attached document for a model: all of it, or its beginning and how to go on; if
        it cannot be read, why. ``can_search``: the model has the tools for documents. Raises what
        reading files raises."""
        ...

    async def forget(self, owner: str, session_id: str) -> None:
        """Drop what a deleted session was allowed, and its own workspace. Twice is harmless."""
        ...
