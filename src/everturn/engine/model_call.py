"""One model call outside the turn loop, for summaries and titles: text in, text out."""

from __future__ import annotations

import zlib

from everturn.domain.clock import Clock
from everturn.domain.messages import Message, Role, Text
from everturn.domain.model import Finish, Model, ModelRequest, TextChunk
from everturn.domain.model_errors import ModelSilent, ModelTrouble, StreamCut
from everturn.domain.turns import Usage
from everturn.engine.settings import EngineSettings


def plain_request(system: str, text: str, output_tokens_max: int | None) -> ModelRequest:
    message = Message(id="", turn_id="", role=Role.USER, parts=(Text(text),), created_at=0)
    return ModelRequest(system=system, messages=(message,), output_tokens_max=output_tokens_max)


def backoff_s(settings: EngineSettings, subject: str, attempt: int, error: ModelTrouble) -> float | None:
    """How long to wait before the same call is made again; None: do not retry.

    The provider's own value wins. Otherwise the wait doubles, with a jitter that depends on the subject, so
    that a thousand turns that were refused together do not retry together.
    """
    if not error.is_transient:
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= settings.retry_after_longest_s else None
    shift = zlib.crc32(f"{subject}:{attempt}".encode()) % 1000 / 4000
    return float(min(settings.retry_longest_s, settings.retry_first_s * 2 ** (attempt - 1)) * (1 + shift))


async def ask_model(
    model: Model, request: ModelRequest, *, clock: Clock, settings: EngineSettings, subject: str
) -> tuple[str, Usage]:
    """Return the model's whole answer, with the same retries as a step. Raises ModelTrouble."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return await _ask_once(model, request)
        except ModelTrouble as error:
            wait_s = backoff_s(settings, subject, attempt, error)
            if wait_s is None or attempt >= settings.model_attempts_max:
                raise
        await clock.sleep(wait_s)


async def _ask_once(model: Model, request: ModelRequest) -> tuple[str, Usage]:
    pieces: list[str] = []
    finish: Finish | None = None
    async with model.stream(request) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                pieces.append(chunk.text)
            elif isinstance(chunk, Finish):
                finish = chunk
    if finish is None:
        raise StreamCut(f"The stream of {model.name} ended without its end marker.")
    text = "".join(pieces).strip()
    if not text:
        raise ModelSilent(f"{model.name} returned an empty answer.")
    return text, finish.usage
