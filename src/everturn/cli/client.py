"""A client of the HTTP API with clear errors and a stream that survives restarts of the server.

If the server stops, the stream waits for it and continues after the last event it has received.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

import httpx2
import msgspec

from everturn.domain.errors import EverturnError, Refused, Retry
from everturn.domain.events import AnyPayload, Unknown, decode
from everturn.domain.json_types import Json

RETRY_FIRST_S = 0.3
RETRY_LONGEST_S = 5.0
_SIGN_IN_HINT = "Give a token with --token or EVERTURN_TOKEN; 'everturn token create' makes one."
_ACCESS_HINT = "Give the access token with --token or EVERTURN_TOKEN; 'everturn open --token' prints it."
_ACCESS = "access_needed"


class WireEvent(msgspec.Struct, frozen=True):
    """One event as the server sends it."""

    session_id: str
    position: int
    at: int
    data: msgspec.Raw = msgspec.field(name="event")
    turn_id: str | None = None

    @property
    def event(self) -> AnyPayload | Unknown:
        return decode(bytes(self.data))


class ServerRefused(Refused):
    """The server refused, with its own message. ``facts``: the HTTP ``status`` and the ``reason`` code."""

    code = "server_refused"


class ServerUnreachable(Retry):
    code = "server_away"


_wire = msgspec.json.Decoder(WireEvent)


class Client:
    """``ask_password`` is called if the server wants a password or its access token; the request is repeated.

    Without it, or if it returns nothing, the server's refusal is raised.
    """

    def __init__(
        self, address: str, token: str | None, ask_password: Callable[[str], Awaitable[str]] | None = None
    ) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        timeout = httpx2.Timeout(30.0, read=60.0)
        self._http = httpx2.AsyncClient(base_url=address, headers=headers, timeout=timeout, trust_env=False)
        self._address = address
        self._ask_password = ask_password
        self._signing_in = asyncio.Lock()
        self._sign_ins = 0

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def call(self, method: str, path: str, body: Json = None, *, key: str | None = None) -> Json:
        """One request. Raises ServerRefused with the server's reason, or ServerUnreachable."""
        sign_ins = self._sign_ins
        answer = await self._request(method, path, body, key)
        if answer.status_code == 401:
            await self._sign_in(_refusal(answer), sign_ins)
            answer = await self._request(method, path, body, key)
        if answer.status_code >= 400:
            raise _refusal(answer)
        return answer.json() if answer.content else None

    async def _request(self, method: str, path: str, body: Json, key: str | None = None) -> httpx2.Response:
        headers = {"idempotency-key": key} if key else {}
        try:
            return await self._http.request(method, path, json=body, headers=headers)
        except httpx2.TransportError as error:
            raise ServerUnreachable(
                f"The server at {self._address} cannot be reached ({type(error).__name__}).",
                hint="Start it with 'everturn serve'.",
            ) from error

    async def upload(self, name: str, content: AsyncIterator[bytes]) -> str:
        """Store a file on the server; return its id. Raises as ``call``, and what reading the file raises."""
        try:
            answer = await self._http.post(
                "/api/uploads",
                params={"name": name},
                content=content,
                headers={"content-type": "application/octet-stream"},
                timeout=httpx2.Timeout(30.0, read=300.0, write=300.0),
            )
        except httpx2.TransportError as error:
            raise ServerUnreachable(
                f"The server at {self._address} cannot be reached ({type(error).__name__}).",
                hint="The file was not uploaded. Try again.",
            ) from error
        if answer.status_code >= 400:
            raise _refusal(answer)
        return str(answer.json()["id"])

    async def _sign_in(self, refused: EverturnError, sign_ins: int) -> None:
        """Ask for the password or the token until it is right; later requests send the cookie.

        ``sign_ins``: the count before the refused request. If another request has signed in since, return.
        """
        if self._ask_password is None:
            raise refused
        path, name = ("/api/access", "token") if _is_access(refused) else ("/api/signin", "password")
        async with self._signing_in:
            asked = refused.message
            while sign_ins == self._sign_ins:
                given = await self._ask_password(asked)
                if not given:
                    raise refused
                self._http.headers.pop("authorization", None)  # it was refused, and would be again
                answer = await self._request("POST", path, {name: given})
                if answer.status_code < 400:
                    self._sign_ins += 1
                elif answer.status_code == 401:
                    asked = _refusal(answer).message
                else:
                    raise _refusal(answer)

    async def retry_until_answered(
        self, method: str, path: str, body: Json, on_disconnect: Callable[[], None], *, key: str | None = None
    ) -> Json:
        """Repeat a request until the server has answered it. The request must be safe to repeat."""
        wait = RETRY_FIRST_S
        while True:
            try:
                return await self.call(method, path, body, key=key)
            except ServerUnreachable:
                on_disconnect()
                await asyncio.sleep(wait)
                wait = min(RETRY_LONGEST_S, wait * 2)

    async def send(
        self, session: str, text: str, on_disconnect: Callable[[], None], files: Sequence[str] = ()
    ) -> tuple[str, int]:
        """Send a message exactly once, retrying with the same key until the server has it."""
        path, key = f"/api/sessions/{session}/turns", secrets.token_hex(16)
        body = {"text": text, "attachments": list(files)} if files else {"text": text}
        answer = await self.retry_until_answered("POST", path, body, on_disconnect, key=key)
        return str(answer["turn"]["id"]), int(answer["cursor"])

    async def follow(
        self, session: str, after: int, on_disconnect: Callable[[], None]
    ) -> AsyncIterator[WireEvent]:
        """A session's events after a position, across restarts of the server, without gaps or repetitions."""
        wait = RETRY_FIRST_S
        while True:
            try:
                async for event in self._events(session, after):
                    after = max(after, event.position)
                    wait = RETRY_FIRST_S
                    yield event
            except httpx2.TransportError:
                on_disconnect()
            await asyncio.sleep(wait)
            wait = min(RETRY_LONGEST_S, wait * 2)

    async def _events(self, session: str, after: int) -> AsyncIterator[WireEvent]:
        path = f"/api/sessions/{session}/events"
        sign_ins = self._sign_ins
        async with self._http.stream("GET", path, params={"after": after}) as answer:
            if answer.status_code >= 500:
                return
            if answer.status_code >= 400:
                await answer.aread()
                if answer.status_code != 401:
                    raise _refusal(answer)
                await self._sign_in(_refusal(answer), sign_ins)
                return
            has_position = False
            async for line in _lines(answer):
                if line.startswith(b"id:"):
                    has_position = True
                elif line.startswith(b"data:") and has_position:
                    yield _wire.decode(line[5:].strip())
                elif not line:
                    has_position = False


async def _lines(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Lines of server-sent events. httpx2's own also split at characters that a model may write (U+2028)."""
    rest = b""
    async for piece in answer.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line


def _refusal(answer: httpx2.Response) -> EverturnError:
    try:
        problem = answer.json()
    except ValueError:
        return ServerRefused(f"The server answered {answer.status_code}.", status=answer.status_code)
    detail = problem.get("detail") or problem.get("title") or f"The server answered {answer.status_code}."
    reason, hint = str(problem.get("code")), str(problem.get("hint") or "")
    if answer.status_code == 401:
        hint = _ACCESS_HINT if reason == _ACCESS else _SIGN_IN_HINT
    return ServerRefused(str(detail), hint=hint, status=answer.status_code, reason=reason)


def _is_access(refused: EverturnError) -> bool:
    return refused.facts.get("reason") == _ACCESS
