from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from everturn.domain.errors import Invalid, InvalidId
from everturn.web.http.problems import BadJson, BodyTooLarge, MethodNotAllowed, NoRoute, NotJson
from everturn.web.http.routing import (
    ApiCall,
    BodyReader,
    Endpoint,
    Nothing,
    Table,
    decode_query,
    key_from,
    version_from,
)

pytestmark = pytest.mark.anyio

SESSION = "ses_" + "0" * 26
JSON = {"content-type": "application/json", "content-length": "9"}


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=10)] = 5
    is_deep: bool | None = None


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str


class Loose(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = "default"


async def nothing(call: ApiCall[Any, Any]) -> None: ...


def endpoint(method: str, path: str, **more: Any) -> Endpoint[Any, Any]:
    return Endpoint(method=method, path=path, run=nothing, summary="", tag="server", **more)


TABLE = Table(
    [
        endpoint("GET", "/api/sessions"),
        endpoint("POST", "/api/sessions"),
        endpoint("POST", "/api/sessions/import"),
        endpoint("GET", "/api/sessions/{session}"),
        endpoint("GET", "/api/sessions/{session}/queue/{turn}"),
        endpoint("PUT", "/api/keys/{provider}"),
    ]
)


def test_paths_are_found_with_their_parameters() -> None:
    turn = "trn_" + "1" * 26
    match = TABLE.find("GET", f"/api/sessions/{SESSION}/queue/{turn}")
    assert match.path == {"session": SESSION, "turn": turn}
    assert TABLE.find("POST", "/api/sessions/import").path == {}
    assert TABLE.find("HEAD", "/api/sessions").endpoint.method == "GET"


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/sessions/", "/api/sessions//", "/api/x", "/api/sessions/a/b"]
)
def test_what_is_not_there_is_not_found(path: str) -> None:
    with pytest.raises(NoRoute):
        TABLE.find("GET", path)


def test_wrong_methods_say_which_are_right() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        TABLE.find("DELETE", "/api/sessions")
    assert refused.value.allowed == ("GET", "POST")


def test_parameters_are_checked_before_anything_runs() -> None:
    with pytest.raises(InvalidId):
        TABLE.find("GET", "/api/sessions/ses_1")
    with pytest.raises(Invalid):
        TABLE.find("PUT", "/api/keys/..")


def test_an_endpoint_cannot_be_declared_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        Table([endpoint("GET", "/a/{session}"), endpoint("GET", "/a/{turn}")])


def test_queries_are_converted_and_bounded() -> None:
    taken = endpoint("GET", "/a", query=Query)
    assert decode_query(taken, b"") == Query()
    assert decode_query(taken, b"limit=7&is_deep=true") == Query(7, True)
    for wrong in (b"limit=0", b"limit=x", b"limit=1&limit=2", b"other=1", b"limit=%ff", b"x" * 9000):
        with pytest.raises(Invalid):
            decode_query(taken, wrong)


async def read(taken: Endpoint[Any, Any], headers: dict[str, str], *pieces: bytes) -> Any:
    waiting = list(pieces)

    async def receive() -> dict[str, Any]:
        body = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    return await BodyReader(100, 1.0).read(taken, headers, receive)


async def test_bodies_come_in_pieces_and_have_a_type() -> None:
    taken = endpoint("POST", "/a", body=Body)
    assert await read(taken, JSON, b'{"te', b'xt":"x"}') == Body("x")
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/json;charset=latin1"}):
        with pytest.raises(NotJson):
            await read(taken, headers, b'{"text":"x"}')
    with pytest.raises(BadJson):
        await read(taken, JSON, b"{")
    with pytest.raises(Invalid):
        await read(taken, JSON, b'{"text":1}')
    with pytest.raises(BodyTooLarge):
        await read(taken, JSON, b" " * 60, b" " * 60)
    with pytest.raises(BodyTooLarge):
        await read(taken, {**JSON, "content-length": "101"}, b"")


async def test_a_body_may_be_left_out_where_everything_has_a_default() -> None:
    empty = {"content-length": "0"}
    assert await read(endpoint("POST", "/a", body=Loose), empty) == Loose()
    assert await read(endpoint("POST", "/a"), {}) == Nothing()
    assert await read(endpoint("POST", "/a"), JSON, b"{}") == Nothing()
    with pytest.raises(NotJson):
        await read(endpoint("POST", "/a", body=Body), empty)
    with pytest.raises(Invalid):
        await read(endpoint("POST", "/a"), JSON, b'{"a":1}')


def test_versions_and_keys_come_from_headers() -> None:
    assert version_from({}) is None
    assert version_from({"if-match": '"12"'}) == version_from({"if-match": "12"}) == 12
    for wrong in ("x", '"1', "-1", "1.0", "9" * 30):
        if wrong == '"1':
            assert version_from({"if-match": wrong}) == 1
            continue
        with pytest.raises(Invalid):
            version_from({"if-match": wrong})
    assert key_from({"idempotency-key": " k "}) == "k"
    for wrong in ("", "x" * 201, "a\x00b"):
        with pytest.raises(Invalid):
            key_from({"idempotency-key": wrong})
