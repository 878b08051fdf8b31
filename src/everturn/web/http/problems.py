"""Errors of the HTTP edge, and the RFC 9457 document that every error becomes."""

from __future__ import annotations

import msgspec

from everturn.domain.errors import EverturnError, Refused, Remedy, Retry
from everturn.domain.json_types import JsonObject
from everturn.domain.model_errors import ModelTrouble

MEDIA_TYPE = "application/problem+json"
_RETRY_AFTER_S = 1


class NoRoute(Refused):
    code = "no_route"
    status = 404

    def __init__(self, path: str) -> None:
        super().__init__(
            f"Nothing is served at {path[:200]}.", hint="The API is described in /openapi.json and /docs."
        )


class MethodNotAllowed(Refused):
    code = "method_not_allowed"
    status = 405

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        super().__init__(
            f"{path[:200]} does not take {method[:20]}.", hint="It takes " + ", ".join(allowed) + "."
        )
        self.allowed = allowed


class NotJson(Refused):
    code = "not_json"
    status = 415

    def __init__(self, given: str, wanted: str = "application/json") -> None:
        super().__init__(
            f"The body came as {given[:100] or 'no type at all'}; this address takes {wanted}. "
            "Nothing was changed.",
            hint=f"Send the header Content-Type: {wanted}.",
        )


class BadJson(Refused):
    code = "bad_json"
    status = 400

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"The body is not JSON: {detail[:300]}. Nothing was changed.", hint="Send one valid JSON value."
        )


class BadRequest(Refused):
    code = "bad_request"
    status = 400


class BodyTooLarge(Refused):
    code = "body_too_large"
    status = 413

    def __init__(self, limit: int, *, is_file: bool = False) -> None:
        what, hint = "body", "Send less, or attach it as a file."
        if is_file:
            what, hint = "file", "Attach the part that is needed, or copy the file into the session's folder."
        super().__init__(
            f"The {what} is larger than the {limit:,} bytes that this address takes. Nothing was changed.",
            hint=hint,
            limit=limit,
        )


class BodyTooSlow(Refused):
    code = "body_too_slow"
    status = 408

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Nothing of the body came for {seconds:g} seconds. Nothing was changed.",
            hint="Check the connection, then send it again.",
        )


class PreconditionNeeded(Refused):
    code = "precondition_needed"
    status = 428

    def __init__(self) -> None:
        super().__init__(
            "This change needs an If-Match or an Idempotency-Key header. Nothing was changed.",
            hint="Send If-Match with the session's version, or a fresh Idempotency-Key.",
        )


class FileTagNeeded(Refused):
    code = "file_tag_needed"
    status = 428

    def __init__(self) -> None:
        super().__init__(
            "Saving a file needs the header If-Match or If-None-Match. Nothing was changed.",
            hint="Send If-Match with the ETag of the version to replace, or If-None-Match: * for a new file.",
        )


class CrossSite(Refused):
    code = "cross_site"
    status = 403

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"The request came from another site ({origin[:100]}). Nothing was changed.",
            hint="Open Everturn under one address only; behind a proxy, set EVERTURN_TRUSTED_PROXIES.",
        )


class OpenToTheWorld(Refused):
    """An agent without sign-in was reached through a proxy, a tunnel or a foreign name."""

    code = "sign_in_is_off"
    status = 403

    def __init__(self, why: str) -> None:
        super().__init__(
            f"This server has no sign-in and answers only on this machine, but {why}.",
            hint="Set a password with 'everturn password', then sign in.",
        )


class WrongHost(Refused):
    code = "wrong_host"
    status = 421

    def __init__(self, host: str) -> None:
        super().__init__(
            f"This server does not answer to the name {host[:100]!r}.",
            hint="Add the name to EVERTURN_HOSTS, or use the address.",
        )


class Stopping(Retry):
    code = "stopping"

    def __init__(self) -> None:
        super().__init__(
            "The server is shutting down and takes no new work. Nothing was changed.",
            hint="Send the same request again in a moment.",
        )


class NotReady(Retry):
    code = "not_ready"


class ServerNotUsable(Refused):
    """A model server was tried before it was stored, and did not do."""

    code = "server_not_usable"
    status = 422


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457. ``code`` and ``remedy`` are stable; ``detail`` and ``hint`` are for people and may change."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    hint: str = ""
    remedy: Remedy | None = None


class Internal(EverturnError):
    code = "internal"
    status = 500

    def __init__(self, request_id: str) -> None:
        super().__init__(
            "Something went wrong inside the server. Everything acknowledged before is safe.",
            hint=f"Look for {request_id} in the server's log.",
            request_id=request_id,
        )


def document(error: EverturnError) -> JsonObject:
    """The problem document of an error; its facts become further members."""
    base = Problem(
        type=f"urn:everturn:problem:{error.code}",
        title=error.code.replace("_", " ").capitalize(),
        status=error.status,
        code=error.code,
        detail=error.message,
        hint=error.hint,
        remedy=error.remedy,
    )
    members: JsonObject = msgspec.to_builtins(base)
    for name, value in error.facts.items():
        members.setdefault(name, value)
    return members


def headers(error: EverturnError) -> list[tuple[bytes, bytes]]:
    """What an error's answer carries besides its document."""
    extra: list[tuple[bytes, bytes]] = []
    if isinstance(error, MethodNotAllowed):
        extra.append((b"allow", ", ".join(error.allowed).encode()))
    if error.status == 401:
        extra.append((b"www-authenticate", b'Bearer realm="everturn"'))
    if error.status in (429, 503):
        extra.append((b"retry-after", str(_retry_after(error)).encode()))
    return extra


def _retry_after(error: EverturnError) -> int:
    given = error.facts.get("retry_after_s")
    if given is None and isinstance(error, ModelTrouble):
        given = error.retry_after_s
    return max(1, round(given)) if isinstance(given, (int, float)) else _RETRY_AFTER_S


def for_openai(members: JsonObject) -> JsonObject:
    """The same document with the ``error`` member that OpenAI clients read."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
    kinds |= {404: "not_found_error", 413: "invalid_request_error", 415: "invalid_request_error"}
    kinds |= {422: "invalid_request_error", 429: "rate_limit_error"}
    return members | {
        "error": {
            "message": f"{members.get('detail', '')} {members.get('hint', '')}".strip(),
            "type": kinds.get(members["status"], "server_error"),
            "param": None,
            "code": members["code"],
        }
    }
