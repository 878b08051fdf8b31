"""Tool calls for models that cannot make them: the model writes a call as JSON, and it is read from the text.

Small models write a call inside a code fence even if the server has a field for it, so the server finds none.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import msgspec

from everturn.domain.model import Abilities, Chunk, Finish, Model, ModelRequest, TextChunk, ToolSchema
from everturn.domain.turns import FinishReason
from everturn.models.history import unique_calls
from everturn.models.small_models.call_reader import CallReader
from everturn.models.small_models.grammar import calls_grammar
from everturn.models.small_models.task_progress import is_repeating, must_call, select_tools
from everturn.models.small_models.text_prompt import as_text
from everturn.models.wire import digest, encode


class ToolBrief(msgspec.Struct, frozen=True):
    """A tool as a small model sees it: a short description, and only these arguments in this order."""

    about: str
    arguments: tuple[str, ...] = ()


class TextCalls:
    """A model whose calls are read from its text.

    ``hidden`` tools are not shown to it; ``briefs`` replace the descriptions of others. ``has_grammar``: the
    server can restrict an answer to a grammar, so that only existing tools can be called.
    """

    def __init__(
        self,
        model: Model,
        hidden: frozenset[str] = frozenset(),
        briefs: Mapping[str, ToolBrief] | None = None,
        *,
        has_grammar: bool = False,
    ) -> None:
        self._model = model
        self._hidden = hidden
        self._briefs = briefs or {}
        self._has_grammar = has_grammar

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def abilities(self) -> Abilities:
        return self._model.abilities

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        tools = tuple(self._apply_brief(tool) for tool in request.tools if tool.name not in self._hidden)
        request = msgspec.structs.replace(request, tools=tools)
        written = as_text(request, is_held=self._has_grammar)
        offered = tools
        if self._has_grammar:
            # A small model that repeats its calls does so until the turn's limit: make it answer instead.
            offered = () if is_repeating(request.messages) else select_tools(tools, request.messages)
        if self._has_grammar and tools:
            grammar = calls_grammar(offered, has_words=not offered or not must_call(request.messages))
            written = msgspec.structs.replace(written, grammar=grammar)
        async with (
            self._model.stream(written) as chunks,
            aclosing(_read(chunks, msgspec.structs.replace(request, tools=offered))) as read,
        ):
            yield read

    def _apply_brief(self, tool: ToolSchema) -> ToolSchema:
        brief = self._briefs.get(tool.name)
        if brief is None:
            return tool
        known = tool.parameters.get("properties", {})
        names = [name for name in brief.arguments if name in known]
        parameters = {
            "type": "object",
            "properties": {name: known[name] for name in names},
            "required": names,
        }
        return ToolSchema(tool.name, brief.about, parameters)


async def _read(chunks: AsyncIterator[Chunk], request: ModelRequest) -> AsyncGenerator[Chunk, None]:
    reader = CallReader([tool.name for tool in request.tools])
    async for chunk in chunks:
        if isinstance(chunk, TextChunk):
            if text := reader.feed(chunk.text):
                yield TextChunk(text)
            if reader.is_past_calls:
                # The model goes on to invent the result. Stop here; the usage stays unknown.
                yield _finish(Finish(FinishReason.CALLS), reader, request)
                return
        elif isinstance(chunk, Finish):
            if text := reader.rest():
                yield TextChunk(text)
            yield _finish(chunk, reader, request)
        else:
            yield chunk


def _finish(finish: Finish, reader: CallReader, request: ModelRequest) -> Finish:
    if not reader.calls:
        return finish
    calls = unique_calls(reader.calls, request, lambda: digest(encode(request)))
    return msgspec.structs.replace(finish, reason=FinishReason.CALLS, calls=calls)
