"""One declaration per endpoint; from the table of them come routing, validation and OpenAPI."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

import anyio
import msgspec

from everturn.domain.errors import EverturnError, Invalid
from everturn.domain.gateway import ACCOUNT_NAME
from everturn.domain.ids import check_id
from everturn.domain.settings import TypeForm
from everturn.web.access import identity
from everturn.web.access.visitor import Visitor
from everturn.web.http.asgi import Receive, Scope, Send
from everturn.web.http.problems import (
    BadJson,
    BodyTooLarge,
    BodyTooSlow,
    MethodNotAllowed,
    NoRoute,
    NotJson,
)

Q = TypeVar("Q")
B = TypeVar("B")

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
_QUERY_BYTES_MAX = 16_384  # holds the longest path, encoded
_BODY = r"[0-9a-hjkmnp-tv-z]{26}"


class Param(msgspec.Struct, frozen=True):
    """A path parameter. ``prefix``: it is one of our ids."""

    name: str
    pattern: str
    meaning: str
    prefix: str = ""


def _of_ids(name: str, prefix: str, meaning: str) -> Param:
    return Param(name, f"^{prefix}_{_BODY}$", meaning, prefix)


PARAMS: Mapping[str, Param] = {
    param.name: param
    for param in (
        _of_ids("session", "ses", "A session's id."),
        _of_ids("job", "job", "A job's id."),
        _of_ids("device", "dev", "The id of a device that notifications go to."),
        _of_ids("delegate", "ses", "The id of a delegate, which is that of its session."),
        _of_ids("turn", "trn", "A turn's id."),
        _of_ids("ask", "ask", "The id of an approval or a question."),
        _of_ids("file", "fil", "The id of an upload or an artifact."),
        _of_ids("token", "tok", "The id of an API token; not the token itself."),
        Param("provider", "^[a-z0-9][a-z0-9_.-]{0,63}$", "A model provider's name."),
        Param("rule", "^[A-Za-z0-9_.:-]{1,120}$", "A policy rule's id."),
        Param("profile", "^[a-zA-Z0-9][a-zA-Z0-9-]{0,30}$", "A profile's name."),
        Param("server", "^[A-Za-z0-9_.-]{1,64}$", "An MCP server's name."),
        _of_ids("knowledge", "kno", "The id of knowledge: a folder or uploads that sessions can search."),
        _of_ids("schedule", "sch", "A schedule's id."),
        _of_ids("part", "prt", "The id of a part of a message to a chat."),
        Param("account", ACCOUNT_NAME, "The name of an account on a messaging platform."),
        Param("platform", "^[a-z0-9][a-z0-9_-]{0,63}$", "A messaging platform's name."),
        Param("skill", "^(user|shared|p[0-9a-f]{12})\\.[A-Za-z0-9_-]{1,64}$", "A skill's id."),
        Param("prompt", "^[a-z0-9-]{1,64}$", "A prompt's name."),
        Param("note", "^[A-Za-z0-9_.:-]{1,120}$", "A memory note's id."),
    )
}
_COMPILED = {name: re.compile(param.pattern) for name, param in PARAMS.items()}


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query or body of an endpoint that takes none."""


NOTHING = Nothing()


@dataclass(slots=True, eq=False)
class ApiCall(Generic[Q, B]):
    """One request that has passed every check, with its parts decoded."""

    scope: Scope
    receive: Receive
    headers: Mapping[str, str]
    visitor: Visitor
    caller: identity.Caller
    path: dict[str, str]
    query: Q
    body: B

    @property
    def owner(self) -> str:
        return self.caller.owner


@dataclass(frozen=True)
class Answer:
    """A value with another status or more headers than the endpoint's own."""

    value: object
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True)
class Raw:
    """Bytes as they are."""

    body: bytes
    media: str
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Streaming:
    """An answer that writes itself: a stream or a file. Subclasses say how."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[Q, B]):
    """``scope`` None: anyone may call it. ``answer`` None: there is no body; of a stream: what its events
    can hold."""

    method: str
    path: str
    run: Callable[[ApiCall[Q, B]], Awaitable[object]]
    summary: str
    tag: str
    scope: identity.Scope | None = identity.Scope.READ
    query: type[Q] = field(default=Nothing)  # type: ignore[assignment]  # Nothing stands for "takes none"
    body: type[B] = field(default=Nothing)  # type: ignore[assignment]  # Nothing stands for "takes none"
    answer: TypeForm = None
    status: int = 200
    also: Mapping[int, TypeForm] = field(default_factory=dict)  # other statuses and what they carry
    errors: tuple[type[EverturnError], ...] = ()
    headers: tuple[str, ...] = ()  # request headers that mean something here
    media: str = JSON
    contents: Mapping[str, TypeForm] = field(default_factory=dict)  # content types it answers with instead
    streams: TypeForm = None  # what the events hold, where the answer can be a stream instead
    takes: tuple[str, ...] = ()  # content types of a body that the endpoint reads by itself
    body_bytes_max: int | None = None
    is_stream: bool = False
    is_openai: bool = False  # errors carry the member that OpenAI clients read

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(PARAMS[name] for name in re.findall(r"{(\w+)}", self.path))

    @property
    def has_body(self) -> bool:
        return self.body is not Nothing

    @property
    def needs_body(self) -> bool:
        """Whether a field of the body has no default; otherwise it may be left out."""
        return self.has_body and any(f.required for f in msgspec.structs.fields(self.body))  # type: ignore[arg-type]  # a body is a Struct

    @property
    def writes(self) -> bool:
        return self.method not in ("GET", "HEAD")


# ``Any``: the table mixes endpoints of all queries and bodies; each is checked where it is made.
AnyEndpoint = Endpoint[Any, Any]
AnyCall = ApiCall[Any, Any]


@dataclass(frozen=True)
class Match:
    endpoint: AnyEndpoint
    path: dict[str, str]


@dataclass
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    wild: _Node | None = None
    endpoints: dict[str, tuple[AnyEndpoint, tuple[str, ...]]] = field(default_factory=dict)


class Table:
    """All endpoints, found by method and path."""

    def __init__(self, endpoints: Iterable[AnyEndpoint]) -> None:
        self.endpoints: tuple[AnyEndpoint, ...] = tuple(endpoints)
        self._root = _Node()
        for endpoint in self.endpoints:
            self._add(endpoint)

    def _add(self, endpoint: AnyEndpoint) -> None:
        node, names = self._root, []
        for segment in endpoint.path.strip("/").split("/"):
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.wild = node.wild or _Node()
                node = node.wild
            else:
                node = node.children.setdefault(segment, _Node())
        if endpoint.method in node.endpoints:
            raise ValueError(f"{endpoint.method} {endpoint.path} is declared twice")
        node.endpoints[endpoint.method] = (endpoint, tuple(names))

    def find(self, method: str, path: str) -> Match:
        """Raises NoRoute, MethodNotAllowed, InvalidId, Invalid."""
        found, values = self._walk(path)
        if found is None or not found.endpoints:
            raise NoRoute(path)
        entry = found.endpoints.get(method)
        if entry is None and method == "HEAD":
            entry = found.endpoints.get("GET")
        if entry is None:
            raise MethodNotAllowed(method, path, tuple(sorted(found.endpoints)))
        endpoint, names = entry
        return Match(endpoint, dict(zip(names, map(_check_value, names, values), strict=True)))

    def knows(self, path: str) -> bool:
        found, _ = self._walk(path)
        return found is not None and bool(found.endpoints)

    def _walk(self, path: str) -> tuple[_Node | None, list[str]]:
        node: _Node | None = self._root
        values: list[str] = []
        for segment in path[1:].split("/"):
            assert node is not None  # noqa: S101 - the loop leaves as soon as it is
            child = node.children.get(segment)
            if child is None and segment and node.wild is not None:
                values.append(segment)
                child = node.wild
            if child is None:
                return None, values
            node = child
        return node, values


def _check_value(name: str, value: str) -> str:
    param = PARAMS[name]
    if param.prefix:
        return check_id(value, param.prefix)
    if not _COMPILED[name].fullmatch(value):
        raise Invalid(f"{value[:80]!r} cannot be here.", hint=param.meaning, at=name)
    return value


# --- the parts of a request --------------------------------------------------------------------------


def decode_query(endpoint: AnyEndpoint, query_string: bytes) -> object:
    """Raises Invalid, naming the wrong field."""
    if not query_string:
        pairs: list[tuple[str, str]] = []
    elif len(query_string) > _QUERY_BYTES_MAX:
        raise Invalid("The query is too long.", hint=f"At most {_QUERY_BYTES_MAX:,} bytes.")
    else:
        try:
            pairs = parse_qsl(query_string.decode("ascii"), keep_blank_values=True, errors="strict")
        except (UnicodeDecodeError, ValueError) as error:
            raise Invalid("The query is not valid text.", hint="Encode it as UTF-8.") from error
    given = dict(pairs)
    if len(given) != len(pairs):
        raise Invalid("A query parameter is given twice.", hint="Give each one once.")
    if endpoint.query is Nothing and not given:
        return NOTHING
    try:
        return msgspec.convert(given, endpoint.query, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"The query is wrong: {error}.", hint="See /docs for what it takes.") from error


_BYTES_PER_S_MIN = 1_000


class BodyReader:
    """Reads and decodes JSON bodies within bounds of size and patience."""

    def __init__(self, bytes_max: int, timeout_s: float) -> None:
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._decoders: dict[type, msgspec.json.Decoder[object]] = {}

    async def read(self, endpoint: AnyEndpoint, headers: Mapping[str, str], receive: Receive) -> object:
        """The endpoint's body. Raises NotJson, BadJson, Invalid, BodyTooLarge, BodyTooSlow."""
        length = headers.get("content-length")
        has_bytes = (length or "0") != "0" or "transfer-encoding" in headers
        if not has_bytes and not endpoint.needs_body:
            if "content-type" in headers:
                _check_json(headers)
            return endpoint.body()
        _check_json(headers)
        limit = endpoint.body_bytes_max or self._bytes_max
        data = await collect(receive, limit, self._timeout_s, length)
        return self._decode(endpoint.body, data)

    def _decode(self, kind: type, data: bytes) -> object:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        try:
            return decoder.decode(data)
        except msgspec.ValidationError as error:
            raise Invalid(
                f"The body is wrong: {error}. Nothing was changed.", hint="See /docs for what it takes."
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadJson(str(error)) from error
        except RecursionError as error:
            raise BadJson("it is nested too deeply") from error


async def collect(receive: Receive, limit: int, timeout_s: float, length: str | None) -> bytes:
    """The whole body, if it is at most ``limit`` bytes and keeps coming."""
    if length is not None and length.isdigit() and int(length) > limit:
        raise BodyTooLarge(limit)
    pieces, size = [], 0
    async for piece in pieces_of(receive, timeout_s):
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(limit)
        pieces.append(piece)
    return b"".join(pieces)


async def pieces_of(receive: Receive, timeout_s: float) -> AsyncIterator[bytes]:
    """The body piece by piece. Raises BodyTooSlow, and ClientGone if the client went away.

    Too slow is a pause of ``timeout_s``, and a body that drips: beyond that time it has to have come at some
    pace, or a client could keep a connection for days with a byte now and then.
    """
    begin, size = anyio.current_time(), 0
    while True:
        left = begin + timeout_s + size / _BYTES_PER_S_MIN - anyio.current_time()
        try:
            with anyio.fail_after(min(timeout_s, left)):
                message = await receive()
        except TimeoutError:
            raise BodyTooSlow(timeout_s) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        if message.get("body"):
            size += len(message["body"])
            yield message["body"]
        if not message.get("more_body"):
            return


class ClientGone(Exception):
    """The client closed its connection, so there is no one to answer."""


def _check_json(headers: Mapping[str, str]) -> None:
    """Only JSON that says so: a text/plain POST needs no preflight, so any site could send one."""
    given = headers.get("content-type", "")
    media, _, parameters = given.partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if media.strip().lower() != JSON or (charset and charset not in ("charset=utf-8", "charset=utf8")):
        raise NotJson(given)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise NotJson(f"{given} in {headers['content-encoding']}")


# --- values of request headers -----------------------------------------------------------------------


def version_from(headers: Mapping[str, str]) -> int | None:
    """The version that If-Match names: ``"12"``, or plain ``12``."""
    given = headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    text = given.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Invalid(f"If-Match must be a session's version, not {given[:80]!r}.", hint="E.g. If-Match: 12")
    return int(text)


def key_from(headers: Mapping[str, str]) -> str | None:
    given = headers.get("idempotency-key")
    if given is None:
        return None
    text = given.strip()
    if not 1 <= len(text) <= 200 or not text.isprintable():
        raise Invalid("An Idempotency-Key has 1 to 200 printable ASCII characters.", hint="A UUID is fine.")
    return text
