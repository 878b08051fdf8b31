"""What both protocols share: the address of a model, and one request to it as a stream of bytes."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.model import Abilities
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.secrets import Secret
from everturn.domain.turns import Usage
from everturn.models import failures
from everturn.models.keys import redact

_ERROR_BYTES_MAX = 64 * 1024

# Sorted keys: equal requests are equal bytes, independent of the order in a tool's schema. Prompt caches and
# resumed turns rely on it.
encode = msgspec.json.Encoder(order="deterministic").encode

# The cost of a call in dollars: (model, usage, tokens written to the prompt cache). None: unknown.
Price = Callable[[str, Usage, int], Awaitable[float | None]]


async def no_price(model: str, usage: Usage, written_tokens: int) -> float | None:
    return None


class Target(msgspec.Struct, frozen=True):
    """One model at one address."""

    name: str  # provider:name, as the user says it
    model: str  # as the provider knows it
    base_url: str
    abilities: Abilities = Abilities()
    key: Secret | None = None
    headers: dict[str, str] = {}
    extra: JsonObject = {}  # merged into the body of each request
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 180.0  # between two reads, and until the first
    # How the provider continues a prefix: "" (it cannot) | last (the last message is the assistant's)
    # | flag (that, with prefix: true) | final (continue_final_message).
    continues_by: str = ""
    tokens_field: str = "max_tokens"
    effort_field: str = "reasoning_effort"
    # llama.cpp's server closes a connection after a stream without announcing it, and the next request on it
    # is lost. Without TLS a new connection is cheap, so each call gets its own.
    keeps_alive: bool = True
    thinks: bool = False  # ask for reasoning if the provider requires that


class RequestSender:
    """Posts a request and returns the answer's bytes; every failure becomes a ModelTrouble."""

    def __init__(self, target: Target, client: httpx2.AsyncClient, clock: Clock) -> None:
        self.target = target
        self._client = client
        self._clock = clock
        self._connection = {} if target.keeps_alive else {"connection": "close"}
        self._timeout = httpx2.Timeout(target.idle_timeout_s, connect=target.connect_timeout_s, pool=None)

    @asynccontextmanager
    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[ResponseBytes]:
        """Send the request and wait for the response headers. Raises ModelTrouble.

        Leaving the context closes the connection unless the whole answer was read.
        """
        async with AsyncExitStack() as stack:
            try:
                request = self._client.build_request(
                    "POST",
                    self.target.base_url.rstrip("/") + path,
                    content=body,
                    # With compression, tokens would wait in the provider's compressor.
                    headers={
                        "accept-encoding": "identity",
                        **self._connection,
                        **headers,
                        **self.target.headers,
                    },
                    timeout=self._timeout,
                )
                response = await self._client.send(request, stream=True)
                stack.push_async_callback(response.aclose)
                if response.status_code != 200:
                    raise await self._refusal(response)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise failures.from_transport(self.target.name, error, has_begun=False) from error
            yield ResponseBytes(self.target.name, response)

    async def _refusal(self, response: httpx2.Response) -> ModelTrouble:
        body = b""
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _ERROR_BYTES_MAX:
                break
        return failures.from_status(
            self.target.name,
            response.status_code,
            response.headers,
            body,
            self._clock.now_ms(),
            self.redact,
        )

    def trouble(self, error: Json) -> ModelTrouble:
        """The error for an error event inside the stream."""
        return failures.from_event(self.target.name, error, self.redact)

    def redact(self, text: str) -> str:
        return redact(text, (self.target.key,) if self.target.key else ())


class ResponseBytes:
    """The bytes of an answer whose headers have arrived."""

    def __init__(self, who: str, response: httpx2.Response) -> None:
        self._who = who
        self._response = response

    @property
    def media_type(self) -> str:
        return str(self._response.headers.get("content-type", "")).partition(";")[0].strip().lower()

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """Bytes as they arrive, straight from the client: another generator would cost time per token."""
        is_plain = self._response.headers.get("content-encoding", "identity") == "identity"
        return self._response.aiter_raw() if is_plain else self._response.aiter_bytes()

    async def whole(self) -> bytes:
        """The whole body, for an answer that is not streamed."""
        with self.translate_failures():
            return await self._response.aread()

    @contextmanager
    def translate_failures(self) -> Iterator[None]:
        """Turn a connection that fails while reading into ModelTimeout or ModelDropped."""
        try:
            yield
        except httpx2.HTTPError as error:
            raise failures.from_transport(self._who, error, has_begun=True) from error


def digest(body: bytes) -> str:
    """A short digest of a request, for call ids that a server left out."""
    return hashlib.sha256(body).hexdigest()[:12]
