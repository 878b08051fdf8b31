"""Answers of models without the agent: no session, no tools, nothing is stored."""

from __future__ import annotations

from everturn.domain.errors import NotFound
from everturn.domain.ids import Ids
from everturn.domain.model import Finish, Models, ReasoningChunk, TextChunk
from everturn.domain.model_errors import ModelUnknown
from everturn.models import ModelRegistry
from everturn.web.openai.chat_wire import FINISHES, ChatRequest, model_request
from everturn.web.openai.pieces import AnswerEnd, Answering, Piece


class ModelNotFound(NotFound):
    code = "model_not_found"


class BareModels:
    def __init__(self, models: Models, ids: Ids) -> None:
        self._models = models
        self._ids = ids

    async def names(self) -> list[str]:
        """The models that can answer right now."""
        if isinstance(self._models, ModelRegistry):
            return [state.name for state in await self._models.list() if state.state == "ready"]
        return [self._models.default]

    async def answer(self, request: ChatRequest) -> Answering:
        """Raises what the model raises, and ModelNotFound for an unknown name."""
        asked = model_request(request, self._ids)
        try:
            model = await self._models.get(request.model)
        except ModelUnknown as error:
            raise ModelNotFound("model", request.model[:100]) from error
        async with model.stream(asked) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    yield Piece(text=chunk.text)
                elif isinstance(chunk, ReasoningChunk):
                    yield Piece(reasoning=chunk.text)
                elif isinstance(chunk, Finish):
                    yield AnswerEnd(FINISHES.get(chunk.reason, "stop"), chunk.calls, chunk.usage)
