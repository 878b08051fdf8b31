"""One GET of a public web page, with the address checked where the connection is made.

The name is resolved once, every address it has must be public, and the connection goes to exactly such
an address: a name that answers differently the second time gains nothing. Each redirect starts anew.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import anyio
import httpcore2
import httpx2
import msgspec

from everturn.tools.policy.hosts import host_label
from everturn.tools.schema import ToolFailed

_REDIRECTS_MAX = 5
_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 20.0
_HEADERS = {
    "User-Agent": "Everturn/0.1 (+self-hosted agent)",
    "Accept": "text/html,text/plain,application/json;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
    "Accept-Encoding": "gzip",  # not deflate: servers disagree about its format
}
# Ranges that carry an IPv4 address inside an IPv6 one: the outer address says nothing about the inner.
_EMBEDDING = tuple(
    ipaddress.ip_network(net)
    for net in ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
# Where clouds answer their own machines, with keys among other things. To Python these are public.
_OF_CLOUDS = tuple(ipaddress.ip_network(net) for net in ("192.0.0.0/24", "168.63.129.16/32"))
_GLOBAL_IPV6 = ipaddress.ip_network("2000::/3")

Resolve = Callable[[str, int], Awaitable[list[str]]]


class FetchedPage(msgspec.Struct, frozen=True):
    url: str
    status: int
    content_type: str
    body: bytes
    is_cut: bool


class WebRequest(msgspec.Struct, frozen=True):
    """One request to an interface for programs: a POST if it has a body."""

    url: str
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | None = None
    timeout_s: float = 20.0
    is_trusted: bool = False  # the operator gave the address: it may be a private one


class Fetcher:
    """``allowed`` names (address, port) pairs that may be reached although they are not public: tests."""

    def __init__(
        self,
        *,
        body_bytes_max: int = 4 * 1024 * 1024,
        total_timeout_s: float = 45.0,
        allowed: frozenset[tuple[str, int]] = frozenset(),
        resolve: Resolve | None = None,
    ) -> None:
        self._body_bytes_max = body_bytes_max
        self._total_timeout_s = total_timeout_s
        self._context: ssl.SSLContext | None = None
        self.network = CheckedNetwork(allowed, resolve or _resolve)

    async def get(self, url: str, *, stays: bool = False) -> FetchedPage:
        """Fetch a page. ``stays``: a redirect to another host is refused. Raises ToolFailed, with a text for
        the model: refused address, timeout, broken connection."""
        with _failures(url, self._total_timeout_s):
            return await self._follow(_check_url(url), stays=stays)

    async def ask(self, request: WebRequest) -> FetchedPage:
        """Send one request; a redirect is refused, because it would take a key along. Raises ToolFailed."""
        url = _check_url(request.url)
        place = f"{url.scheme}://{label_of(url)}"
        with _failures(place, request.timeout_s):
            answer = await self._once(url, request)
        if isinstance(answer, FetchedPage):
            return answer
        raise ToolFailed(f"{place} redirects to {answer[:200]!r}, which was not contacted.")

    async def _follow(self, url: httpx2.URL, *, stays: bool) -> FetchedPage:
        for _ in range(_REDIRECTS_MAX + 1):
            answer = await self._once(url, WebRequest(str(url)))
            if isinstance(answer, FetchedPage):
                return answer
            target = _check_url(_join(url, answer))
            if stays and label_of(target) != label_of(url):
                raise ToolFailed(
                    f"{url} redirects to {target}, another host, which was not contacted. If you need it, "
                    "fetch that address: the user will be asked."
                )
            url = target
        raise ToolFailed(f"{url} redirects more than {_REDIRECTS_MAX} times.")

    async def _once(self, url: httpx2.URL, request: WebRequest) -> FetchedPage | str:
        """The page, or where it has moved to."""
        timeouts = {"connect": _CONNECT_TIMEOUT_S, "read": _READ_TIMEOUT_S, "write": _READ_TIMEOUT_S}
        fields = {**_HEADERS, **request.headers}
        headers = [(b"Host", url.netloc), *((k.encode(), v.encode()) for k, v in fields.items())]
        method = "GET" if request.body is None else "POST"
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        # Without one the pool would load all certificates, for each page, also where nothing is encrypted.
        context = await self._tls() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        network = httpcore2.AnyIOBackend() if request.is_trusted else self.network
        async with (
            httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=network) as pool,
            pool.stream(
                method, target, headers=headers, content=request.body, extensions={"timeout": timeouts}
            ) as response,
        ):
            found = {name.lower(): value.decode("latin-1") for name, value in response.headers}
            if response.status in (301, 302, 303, 307, 308) and b"location" in found:
                return found[b"location"]
            body, is_cut = await self._body(response.aiter_stream(), found.get(b"content-encoding", ""))
            return FetchedPage(str(url), response.status, found.get(b"content-type", ""), body, is_cut)

    async def _body(self, chunks: AsyncIterator[bytes], encoding: str) -> tuple[bytes, bool]:
        """The decoded body up to the limit. Unpacked bytes count, so a zip bomb stops at the limit too."""
        unpack = _unpacker(encoding)
        body = bytearray()
        async for chunk in chunks:
            body += unpack(chunk, self._body_bytes_max + 1 - len(body))
            if len(body) > self._body_bytes_max:
                return bytes(body[: self._body_bytes_max]), True
        return bytes(body), False

    async def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = await anyio.to_thread.run_sync(ssl.create_default_context)
        return self._context


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that it has checked itself, never to names."""

    def __init__(self, allowed: frozenset[tuple[str, int]], resolve: Resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the name is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self.check(host, port)
        error: httpcore2.ConnectError | httpcore2.ConnectTimeout | None = None
        for address in addresses[:4]:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                error = failed
        raise error or httpcore2.ConnectError(f"{host} has no address")

    def never_reaches(self, host: str, port: int) -> bool:
        """True if the host itself says that it is not public: an address, or a name of this machine."""
        name = host.lower().rstrip(".")
        address = "127.0.0.1" if name == "localhost" else literal_address(name)
        return address is not None and (address, port) not in self._allowed and not is_public(address)

    async def check(self, host: str, port: int) -> list[str]:
        """The addresses of the host. Raises ToolFailed if one of them may not be contacted."""
        addresses = await self._addresses(host, port)
        for address in addresses:
            if (address, port) not in self._allowed and not is_public(address):
                raise ToolFailed(
                    f"{host} is at {address}, which is not a public address; it was not contacted."
                )
        return addresses

    # ``Any``: refused whatever it is given.
    async def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        raise ToolFailed("Only the network can be reached.")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[str]:
        literal = literal_address(host)
        if literal is not None:
            return [literal]
        return await self._resolve(host, port)


def is_public(address: str) -> bool:
    """True if this address can only be a host on the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if any(ip.version == net.version and ip in net for net in (*_EMBEDDING, *_OF_CLOUDS)):
        return False
    # Of IPv6 only this part is given out for the internet; the rest is reserved, local, or was so once.
    if ip.version == 6 and ip not in _GLOBAL_IPV6:
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not ip.is_unspecified


@contextmanager
def _failures(url: str, timeout_s: float) -> Iterator[None]:
    """Bound the time of the body, and raise ToolFailed for what fails in it on the way to the server."""
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as error:
        raise ToolFailed(f"{url} took longer than {timeout_s:g} s.") from error
    except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        raise ToolFailed(f"{url} could not be read: {type(error).__name__} {error}".rstrip()) from error


def literal_address(host: str) -> str | None:
    """The address that a host names itself, in any spelling that a resolver would take for one."""
    bare = host.strip("[]")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass  # not in the usual spelling
    try:
        return socket.inet_ntoa(socket.inet_aton(bare))  # 2130706433, 0x7f.1, 0177.0.0.1
    except (OSError, UnicodeEncodeError):
        return None


async def _resolve(host: str, port: int) -> list[str]:
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter for a name that no name server could know
        raise ToolFailed(f"The name {host[:100]} cannot be resolved.") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _join(url: httpx2.URL, target: str) -> str:
    try:
        return str(url.join(target))
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolFailed(f"{url} redirects to {target[:200]!r}, which is not an address.") from error


def _check_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ToolFailed(f"{text[:200]!r} is not an address: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolFailed(f"{text[:200]!r} cannot be fetched: only http and https addresses can.")
    if url.userinfo:
        raise ToolFailed("An address with a user name or password in it is not fetched.")
    return url


def label_of(url: httpx2.URL) -> str:
    """The host and port of an address, as questions show and lists name them.

    The raw name, not the decoded one: ``xn--…`` cannot be mistaken for a name that looks the same.
    """
    return host_label(url.raw_host.decode("ascii"), url.port or 443)


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    kind = encoding.strip().lower()
    if kind in ("", "identity"):
        return lambda data, room: data[:room]
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise ToolFailed(f"The server answered in an encoding that was not asked for ({kind[:40]}).")
    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    def decode(data: bytes, room: int) -> bytes:
        try:
            return unpack.decompress(data, max(1, room))
        except zlib.error as error:
            raise ToolFailed(f"The answer could not be unpacked: {error}") from error

    return decode
