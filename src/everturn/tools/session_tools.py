"""Tools without effects: the list of steps, a question to the user, the search of past sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from everturn.domain.store import Search
from everturn.domain.store_values import SearchOrder
from everturn.domain.tool import Emit, ToolCall, ToolQuestion, ToolResult
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed


class Step(msgspec.Struct, frozen=True):
    text: str
    state: Literal["open", "doing", "done"] = "open"


class Todo(Action):
    """Keep a list of steps for long work. Give the whole list each time; it replaces the one before."""

    name = "todo"
    is_safe_to_repeat = True
    is_untrusted = False

    async def act(
        self, call: ToolCall, emit: Emit, steps: Annotated[list[Step], "Every step, in order"]
    ) -> ToolResult:
        # The list lives in the transcript, where it is durable and goes with undo and branches.
        marks = {"open": " ", "doing": "~", "done": "x"}
        rows = [f"[{marks[step.state]}] {step.text}" for step in steps]
        items = [{"text": step.text, "state": step.state} for step in steps]
        return ToolResult("\n".join(rows) or "[no steps]", display={"kind": "todo", "items": items})

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        steps = arguments["steps"]
        done = sum(step.state == "done" for step in steps)
        return Judgement(label=f"{done} of {len(steps)} steps done")


class AskUser(Action):
    """Ask the user a question and wait for the answer. Only for what you cannot find out yourself."""

    name = "ask_user"
    is_safe_to_repeat = True
    is_untrusted = False

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        question: str,
        choices: Annotated[list[str], "Answers to choose from; the user may also write another"] = [],  # noqa: B006
    ) -> ToolQuestion:
        if not question.strip():
            raise ToolFailed("The question is empty.")
        return ToolQuestion(question.strip(), tuple(choices[:9]))

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=one_line(arguments["question"]))


class SearchSessions(Action):
    """Search what was said in past sessions with this user."""

    name = "search_sessions"
    is_safe_to_repeat = True
    reads_only = True

    def __init__(self, search: Search) -> None:
        self._search = search

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        query: Annotated[str, "Words to look for"],
        limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 10,
        newest_first: Annotated[bool, "Else the best match comes first"] = False,
    ) -> ToolResult:
        order = SearchOrder.NEWEST if newest_first else SearchOrder.RELEVANCE
        hits = await self._search.find(call.owner, query, limit=limit, order=order, reader=call.session_id)
        others = [hit for hit in hits if hit.turn_id != call.turn_id]
        rows = [
            f"{_day(hit.created_at)} · {hit.title or 'untitled'} ({hit.session_id}) · {hit.role}: "
            f"{one_line(hit.excerpt, 400)}"
            for hit in others
        ]
        return ToolResult("\n".join(rows) or "[nothing found]", display={"kind": "found", "count": len(rows)})

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=one_line(arguments["query"]))


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")
