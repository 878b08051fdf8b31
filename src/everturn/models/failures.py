"""Classifies provider errors so that the engine can retry, compact, ask or fail.

Providers rarely agree on status codes, so the message is read too: a request that is too long must be
compacted and not fail; an empty account must fail and not wait.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

import httpx2
import msgspec

from everturn.domain.errors import Remedy
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.model_errors import (
    ContextTooLong,
    ModelDropped,
    ModelOverloaded,
    ModelRefused,
    ModelTimeout,
    ModelTrouble,
    ModelUnknown,
    RateLimited,
    StreamCut,
)

Redact = Callable[[str], str]

_MESSAGE_CHARS_MAX = 400
_RETRY_AFTER_MAX_S = 30 * 24 * 3600.0

_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|exceed_context_size|prompt is too long|input is too long"
    r"|maximum (?:context|prompt) length|too many (?:input )?tokens|input token count|request_too_large"
    r"|reduce the length of the (?:messages|prompt)|`inputs` tokens"
    r"|exceed(?:s|ed) (?:the )?(?:model )?(?:max(?:imum)? length|token limit)",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"insufficient[ _](?:quota|credit|balance|funds)|credit balance|exceeded your current quota|billing",
    re.IGNORECASE,
)
# What a request can do without, and the words with which servers refuse it: a parser of calls that is not
# configured, a template without tools, a temperature that a reasoning model does not take.
# Tools come last: without them a turn can do little, and complaints about other things name them too.
_OPTIONAL: Mapping[str, re.Pattern[str]] = {
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
    "response_format": re.compile(r"response_format|json_schema|structured output", re.IGNORECASE),
    "include": re.compile(r"encrypted[ _]content|\binclude\b", re.IGNORECASE),
    "reasoning": re.compile(r"reasoning[._ ]summar", re.IGNORECASE),
    "stream_options": re.compile(r"stream_options", re.IGNORECASE),
    "max_tokens": re.compile(r"'max_tokens'.*max_completion_tokens", re.IGNORECASE | re.DOTALL),
    "tools": re.compile(r"\btools?\b|function.calling|--jinja", re.IGNORECASE),
}
# One of the tools, or what stands in it, is complained of.
_ONE_TOOL = re.compile(r"\btools[.\[]\d|schema", re.IGNORECASE)
_PLAIN_WORDS = frozenset({"messages", "model", "stream", "tools"})  # fields, and what any complaint may say
_NOT_TAKEN = re.compile(
    r"(?:not|n't) (?:be )?(?:currently )?(?:support|permitted|allowed|accept|implement|enabled)"
    r"|no endpoints found that support|unsupported|extra[ _](?:inputs|forbidden|fields)|unrecogni[sz]ed"
    r"|must be verified to generate|unknown (?:parameter|field|argument)|unexpected keyword|requires? --",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|not_found_error|model.{0,80}(?:not (?:found|exist)|does not exist)|no such model",
    re.IGNORECASE | re.DOTALL,
)

_BY_TYPE: Mapping[str, type[ModelTrouble]] = {
    "overloaded_error": ModelOverloaded,
    "overloaded": ModelOverloaded,
    "api_error": ModelOverloaded,
    "server_error": ModelOverloaded,
    "internal_server_error": ModelOverloaded,
    "service_unavailable": ModelOverloaded,
    "unavailable_error": ModelOverloaded,
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "timeout_error": ModelTimeout,
    "timeout": ModelTimeout,
    "not_found_error": ModelUnknown,
    "model_not_found": ModelUnknown,
    "request_too_large": ContextTooLong,
    "exceed_context_size_error": ContextTooLong,
    "context_length_exceeded": ContextTooLong,
    "authentication_error": ModelRefused,
    "permission_error": ModelRefused,
    "billing_error": ModelRefused,
    "insufficient_quota": ModelRefused,
    "invalid_request_error": ModelRefused,
    "invalid_api_key": ModelRefused,
}

_TIMEOUT_STATUSES = frozenset({408, 504, 522, 524})
_KEY_STATUSES = frozenset({401, 403})
_NOT_TAKEN_STATUSES = frozenset({400, 404, 422, 500, 501})
_TOO_LONG_STATUSES = frozenset({400, 413, 422, 500})


class Complaint(msgspec.Struct, frozen=True):
    """What a provider said about a failure. All providers use one of these shapes."""

    message: str = ""
    type: str = ""
    code: str = ""
    status: int | None = None
    wait_s: float | None = None


def from_status(
    who: str, status: int, headers: Mapping[str, str], body: bytes, now_ms: int, redact: Redact
) -> ModelTrouble:
    """The error for a refused request."""
    complaint = _read(body)
    kind = _kind(status, complaint)
    wait = None
    if kind.is_transient:
        wait = _retry_after(headers, now_ms)
        wait = complaint.wait_s if wait is None else wait
    said = redact(complaint.message)[:_MESSAGE_CHARS_MAX]
    detail = f": {said}" if said else ""
    return kind(
        f"{who} answered {status}{detail}",
        hint=_hint(kind, status, complaint) or _wait_hint(wait),
        remedy=_remedy(kind, status, complaint),
        retry_after_s=wait,
        status=status,
    )


def from_event(who: str, error: Json, redact: Redact) -> ModelTrouble:
    """The error for an error event inside the stream. Text that was streamed before it stays."""
    complaint = _complaint(error)
    kind = _kind(complaint.status or 0, complaint)
    said = redact(complaint.message)[:_MESSAGE_CHARS_MAX] or "no reason was given"
    return kind(
        f"{who} reported an error in the middle of its answer: {said}",
        hint=_hint(kind, complaint.status or 0, complaint),
        remedy=_remedy(kind, complaint.status or 0, complaint),
    )


def from_transport(who: str, error: httpx2.HTTPError | httpx2.InvalidURL, *, has_begun: bool) -> ModelTrouble:
    """The error for a failed connection. The library's messages contain no key."""
    if isinstance(error, httpx2.ConnectTimeout):
        return ModelTimeout(
            f"{who} did not take the connection in time.", hint=_AWAY_HINT, remedy=Remedy.CHOOSE_MODEL
        )
    if isinstance(error, httpx2.TimeoutException):
        what = "fell silent in the middle of its answer" if has_begun else "did not begin to answer in time"
        return ModelTimeout(f"{who} {what}.")
    if isinstance(error, httpx2.ConnectError):
        return ModelDropped(f"{who} cannot be reached.", hint=_AWAY_HINT, remedy=Remedy.CHOOSE_MODEL)
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
        return ModelRefused(f"{who} has an invalid address.", hint="Check the address (base_url).")
    when = "in the middle of its answer" if has_begun else "before it answered"
    return ModelDropped(f"The connection to {who} broke {when}.")


def refused_field(error: ModelTrouble, fields: Mapping[str, Json]) -> str | None:
    """The request field that the provider rejected, if the request works without it."""
    status = error.facts.get("status")
    said = error.message.partition(f" answered {status}: ")[2]  # its own words
    # A model's name may have any word in it.
    said = re.sub(rf"(?<!\w){re.escape(fields['model'])}(?!\w)", "", said)
    if status not in _NOT_TAKEN_STATUSES or not _NOT_TAKEN.search(said):
        return None
    named = next((name for name, words in _OPTIONAL.items() if name in fields and words.search(said)), None)
    return None if named == "tools" and _is_about_more(said, fields) else named


def _is_about_more(said: str, fields: Mapping[str, Json]) -> bool:
    """Whether an error that mentions tools is about a single tool or about another field."""
    # Tools that the settings add for the server's own use have no function.
    named = (tool.get("function", tool).get("name") for tool in fields["tools"])
    tools = (re.escape(name) for name in named if name)
    others = (re.escape(name) for name in fields if name not in _PLAIN_WORDS)
    return bool(
        _ONE_TOOL.search(said)
        or any(re.search(f"['\"`]{tool}['\"`]", said) for tool in tools)
        or any(re.search(rf"\b{other}\b", said) for other in others)
    )


def first_sentence(body: bytes, redact: Redact) -> str:
    """The first sentence of the provider's error message, for the user who connects it."""
    said = redact(_read(body).message).strip()
    said = re.sub(r"(?: provided)?: \S*\[key\][^\s.]*", "", said)  # it quotes the key that was given
    sentence = re.split(r"(?<=[.!?])\s|\n", said, maxsplit=1)[0][:200].rstrip(" .")
    return f"{sentence}." if sentence else ""


def cut(who: str, why: str) -> StreamCut:
    return StreamCut(f"The answer of {who} was cut off: {why}.")


_AWAY_HINT = "Check the connection and the provider's address, or choose another model."


def _read(body: bytes) -> Complaint:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode("utf-8", "replace").strip()
        # A proxy's error page says nothing that helps.
        return Complaint(message="" if text.startswith("<") else text)
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        return _complaint(value.get("error", value))
    return Complaint(message=str(value))


def _complaint(error: Json) -> Complaint:
    if not isinstance(error, dict):
        return Complaint(message=str(error))
    code = error.get("code")
    number = int(str(code)) if str(code).isdecimal() else 0
    status = number if 400 <= number < 600 else None
    message = error.get("message") or error.get("detail") or error.get("error") or ""
    inner = error.get("metadata")
    if isinstance(inner, dict) and inner.get("raw"):  # a router quotes the provider behind it
        message = f"{message}: {inner['raw']}"
    kind = str(error.get("type") or "")
    return Complaint(str(message), kind, "" if status else str(code or ""), status, _wait_of(error))


def _wait_of(error: JsonObject) -> float | None:
    """Google says among the details how long to wait: ``{"retryDelay": "7s"}``."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        seconds = _seconds(delay.removesuffix("s"), 1.0) if isinstance(delay, str) else None
        if seconds is not None:
            return min(max(seconds, 0.0), _RETRY_AFTER_MAX_S)
    return None


def _kind(status: int, complaint: Complaint) -> type[ModelTrouble]:
    words = f"{complaint.type} {complaint.code} {complaint.message}"
    if status == 429:
        # "Quota" can mean a rate limit or an empty account; only the code distinguishes them.
        return ModelRefused if "insufficient_quota" in (complaint.type, complaint.code) else RateLimited
    if status in _KEY_STATUSES or status == 402 or _NO_CREDIT.search(words):
        return ModelRefused
    if status == 413 or ((status in _TOO_LONG_STATUSES or not status) and _TOO_LONG.search(words)):
        return ContextTooLong
    if status in _TIMEOUT_STATUSES:
        return ModelTimeout
    if status == 404:
        return ModelUnknown if _NO_MODEL.search(words) else ModelRefused
    if status >= 500 or status in (409, 425):
        return ModelOverloaded
    if status == 400 and _NO_MODEL.search(words):
        return ModelUnknown
    if status:
        return ModelRefused
    named = _BY_TYPE.get(complaint.code) or _BY_TYPE.get(complaint.type)
    # An error inside a stream that took the request: most likely the provider's own, so worth a retry.
    return named or ModelOverloaded


def _hint(kind: type[ModelTrouble], status: int, complaint: Complaint) -> str:
    if kind is ModelUnknown:
        return "Choose another model."
    if kind is ContextTooLong:
        return "Compact the session, or choose a model with a longer context."
    if kind is not ModelRefused:
        return ""
    if _lacks_credit(status, complaint):
        return "The account has no credit left: top it up, or choose another model."
    if _is_about_key(status, complaint):
        return "Check the API key and its permissions in the settings."
    if status == 404:
        return "This model can't chat here. Choose another model, or check the server's address."
    if 300 <= status < 400:
        return "Check the address (base_url): the server redirects to another one."
    return "The provider does not accept this request. Choose another model."


def _remedy(kind: type[ModelTrouble], status: int, complaint: Complaint) -> Remedy | None:
    """None: what usually helps with this kind."""
    is_about_key = not _lacks_credit(status, complaint) and _is_about_key(status, complaint)
    return Remedy.OPEN_SETTINGS if kind is ModelRefused and is_about_key else None


def _lacks_credit(status: int, complaint: Complaint) -> bool:
    words = f"{complaint.type} {complaint.code} {complaint.message}"
    return status == 402 or _NO_CREDIT.search(words) is not None


def _is_about_key(status: int, complaint: Complaint) -> bool:
    is_named = "api key not valid" in complaint.message.lower()  # Google's, with status 400
    return is_named or status in _KEY_STATUSES or complaint.type == "authentication_error"


_COUNT_MAX = 120  # of a unit of time, before the next larger one is used


def _wait_hint(wait_s: float | None) -> str:
    """Shown if the turn does not wait for so long, or has waited often enough."""
    if not wait_s:
        return ""
    count, unit = math.ceil(wait_s), "second"
    for larger in ("minute", "hour"):
        if count > _COUNT_MAX:
            count, unit = math.ceil(count / 60), larger
    return f"The provider asks to wait {count} {unit}{'' if count == 1 else 's'}."


def _retry_after(headers: Mapping[str, str], now_ms: int) -> float | None:
    wait = _seconds(headers.get("retry-after-ms"), 0.001)
    if wait is None:
        said = headers.get("retry-after")
        wait = _seconds(said, 1.0)
        if wait is None and said:
            try:
                wait = parsedate_to_datetime(said).timestamp() - now_ms / 1000
            except (ValueError, OverflowError):
                return None  # neither a number nor a date: ignored
    return None if wait is None else min(max(wait, 0.0), _RETRY_AFTER_MAX_S)


def _seconds(text: str | None, unit: float) -> float | None:
    try:
        seconds = float(text) * unit if text else None
    except ValueError:
        return None
    return seconds if seconds is not None and math.isfinite(seconds) else None
