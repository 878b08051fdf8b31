"""Posts to addresses that people entered. Each is checked where the connection is made, as in web fetch
(F11).

Redirects are not followed: an answer that redirects is a refusal.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import anyio
import httpcore2
import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import Invalid, PlatformBusy, PlatformRefused
from everturn.tools.schema import ToolFailed
from everturn.tools.web.fetch import CheckedNetwork

_TIMEOUTS: Final = {"connect": 10.0, "read": 20.0, "write": 20.0, "pool": 10.0}
_RETRY_AFTER_MAX_S: Final = 24 * 3600.0
_BUSY: Final = frozenset((408, 425, 429))


class PostAnswer(msgspec.Struct, frozen=True):
    """The head of an answer; its body is not read. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]

    @property
    def is_taken(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_busy(self) -> bool:
        return self.status in _BUSY or self.status >= 500

    def retry_after(self, clock: Clock) -> float | None:
        """The pause in seconds that the other side asks for, if it does."""
        text = self.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return min(float(text), _RETRY_AFTER_MAX_S)
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        # Without a zone it is UTC.
        wait_s = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - clock.now_ms() / 1000
        return min(max(0.0, wait_s), _RETRY_AFTER_MAX_S)


class Poster:
    """``private``: addresses that may be reached although they are not public."""

    def __init__(self, private: Iterable[str] = ()) -> None:
        self._network = CheckedNetwork(frozenset(map(split_address, private)), _resolve)
        self._context: ssl.SSLContext | None = None

    async def check(self, url: httpx2.URL) -> None:
        """Connect and send nothing. Raises PlatformRefused for an address that may not be reached,
        PlatformBusy."""
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            stream = await self._network.connect_tcp(url.host, port, timeout=_TIMEOUTS["connect"])
            await stream.aclose()
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise _unreachable(url, error) from error
        except ToolFailed as error:
            raise PlatformRefused(str(error)) from error

    async def post(self, url: httpx2.URL, headers: Mapping[str, str], body: bytes) -> PostAnswer:
        """Raises PlatformBusy if nothing was sent, PlatformRefused for an address that may not be reached.
        After any other error it is unknown whether the body arrived."""
        named = {"Host": url.netloc.decode("ascii"), **headers}
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        context = await self._tls() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=self._network) as pool,
                pool.stream(
                    "POST",
                    target,
                    headers=list(named.items()),
                    content=body,
                    extensions={"timeout": _TIMEOUTS},
                ) as response,
            ):
                fields = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}
                return PostAnswer(response.status, fields)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise _unreachable(url, error) from error
        except ToolFailed as error:
            raise PlatformRefused(str(error)) from error

    async def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = await anyio.to_thread.run_sync(ssl.create_default_context)
        return self._context


def split_address(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def read_url(text: str, what: str) -> httpx2.URL:
    """Raises Invalid unless this is an http or https address. ``what``: names it in the error."""
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise Invalid(f"The address of the {what} is not valid: {error}.", hint="Correct it.") from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise Invalid(
            f"The address of the {what} is not valid.",
            hint="Use an http or https address without a password.",
        )
    return url


def _unreachable(url: httpx2.URL, error: Exception) -> PlatformBusy:
    return PlatformBusy(f"{url.host} cannot be reached: {str(error) or 'no answer'}.")


async def _resolve(host: str, port: int) -> list[str]:
    """Unlike in web fetch, a name that is not found is worth a retry."""
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"the name {host[:100]} cannot be resolved") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
