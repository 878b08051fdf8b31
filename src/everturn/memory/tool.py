"""The agent's memory tool: remember, forget, look up."""

from __future__ import annotations

from typing import Annotated, Literal

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError
from everturn.domain.json_types import JsonObject
from everturn.domain.memory import Ledger
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.memory.notebook import Notebooks
from everturn.memory.notes import Note, one_line
from everturn.memory.settings import TOOL_NAME
from everturn.tools.policy.judgement import CallContext, Concern, Judgement
from everturn.tools.policy.judgement import one_line as shortened
from everturn.tools.schema import Action, ToolFailed

_FOUND_MAX = 10


class MemoryTool(Action):
    """Your notes about the user, kept across sessions. "remember" when the user asks you to, or states
    something lasting about themselves or their work; "look_up" by words; "forget" by the id that
    look_up gives."""

    name = TOOL_NAME
    asks_when = "text from outside is in the session"
    is_safe_to_repeat = True  # remembering or forgetting a fact twice changes nothing
    is_untrusted = False

    def __init__(self, notebooks: Notebooks, ledger: Ledger, clock: Clock) -> None:
        self._notebooks = notebooks
        self._ledger = ledger
        self._clock = clock

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        action: Literal["remember", "look_up", "forget"],
        text: Annotated[str, "The fact, one sentence; or the words to look for; or the note's id"],
    ) -> ToolResult:
        try:
            if action == "remember":
                return await self._remember(call, text)
            if action == "forget":
                return await self._forget(call, text)
            return await self._look_up(call, text)
        except EverturnError as error:
            raise ToolFailed(f"{error.message} {error.hint}".strip()) from error

    def judge(self, call: ToolCall, arguments: JsonObject, context: CallContext) -> Judgement:
        action, text = arguments["action"], arguments["text"]
        label = shortened(f"{action.replace('_', ' ')}: {text}")
        if action == "look_up" or not context.is_tainted:
            return Judgement(label=label)
        # Text of a web page or a file could plant a memory that outlives the session, so the user decides.
        why = "text from outside is in the conversation, and this changes what is remembered about you"
        return Judgement(label=label, concerns=(Concern(why, is_outside=True),))

    async def _remember(self, call: ToolCall, text: str) -> ToolResult:
        source = f"asked in {call.session_id} {call.turn_id}"
        note = await self._notebooks.remember(call.owner, text, self._clock.now_ms(), source)
        return ToolResult(f"Noted: {one_line(note.text)} ({note.id})", display=_display([note]))

    async def _look_up(self, call: ToolCall, text: str) -> ToolResult:
        notes = await self._notebooks.find(call.owner, text, _FOUND_MAX)
        lines = [f"{note.id} · {note.day} · {one_line(note.text)}" for note in notes]
        return ToolResult("\n".join(lines) or "[nothing is noted about that]", display=_display(notes))

    async def _forget(self, call: ToolCall, text: str) -> ToolResult:
        note = await self._notebooks.forget(call.owner, text.strip())
        await self._ledger.drop_recalled(call.owner)
        return ToolResult(f"Forgotten: {one_line(note.text)}", display=_display([note]))


def _display(notes: list[Note]) -> JsonObject:
    return {"kind": "notes", "items": [{"id": note.id, "text": one_line(note.text)} for note in notes]}
