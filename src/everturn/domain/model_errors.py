"""Failures of model calls. The engine decides what to do next: try again, another model, or end the turn."""

from __future__ import annotations

from typing import ClassVar

from everturn.domain.errors import EverturnError, Remedy
from everturn.domain.json_types import Json


class ModelTrouble(EverturnError):
    """``is_transient``: the same call may succeed later. ``retry_after_s``: if the provider names a time."""

    code = "model_trouble"
    status = 502
    reason: ClassVar[str] = "failed"
    is_transient: ClassVar[bool] = False

    def __init__(
        self, message: str, hint: str | None = None, retry_after_s: float | None = None, **facts: Json
    ) -> None:
        super().__init__(message, hint, **facts)
        self.retry_after_s = retry_after_s


class ModelUnknown(ModelTrouble):
    code = "model_unknown"
    reason = "unknown"
    remedy = Remedy.CHOOSE_MODEL


class ModelKeyMissing(ModelTrouble):
    code = "model_key_missing"
    reason = "key"
    remedy = Remedy.OPEN_SETTINGS


class ModelDoesNotFit(ModelTrouble):
    """There is no room on the disk for a local model's weights."""

    code = "disk_full"
    status = 507
    reason = "disk_full"
    remedy = Remedy.CHOOSE_MODEL
    hint = "Free space, then try again, or choose another model."


class ModelRefused(ModelTrouble):
    """The provider refused, and trying again will not help: bad key, no credit, bad request."""

    code = "model_refused"
    reason = "refused"
    remedy = Remedy.CHOOSE_MODEL


class RateLimited(ModelTrouble):
    code = "model_rate_limited"
    reason = "rate_limited"
    remedy = Remedy.RETRY
    is_transient = True


class ModelOverloaded(ModelTrouble):
    code = "model_overloaded"
    reason = "overloaded"
    remedy = Remedy.RETRY
    is_transient = True


class ModelTimeout(ModelTrouble):
    code = "model_timeout"
    reason = "timeout"
    remedy = Remedy.RETRY
    is_transient = True


class ModelDropped(ModelTrouble):
    """The connection failed or broke."""

    code = "model_dropped"
    reason = "dropped"
    remedy = Remedy.RETRY
    is_transient = True


class StreamCut(ModelTrouble):
    """The connection closed cleanly but without the end marker: an interrupted step, not an answer."""

    code = "model_stream_cut"
    reason = "cut"
    remedy = Remedy.RETRY
    is_transient = True


class ContextTooLong(ModelTrouble):
    code = "context_too_long"
    reason = "context"
    remedy = Remedy.CHOOSE_MODEL


class ModelSilent(ModelTrouble):
    """The model returned an empty answer: no text, no tool call."""

    code = "model_silent"
    reason = "silent"
    remedy = Remedy.CHOOSE_MODEL
