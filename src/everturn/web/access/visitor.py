"""Where a request really comes from: address, scheme and host, as far as they can be believed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

import msgspec

from everturn.domain.json_types import Json

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# A name or an address, and a port: nothing before, between or after them.
_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[^][:@/?#\\\s]*))(?::[0-9]{0,5})?")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# How the headers begin that a proxy, a tunnel or a CDN adds. Their presence alone says: this did not start
# here. Families, not names: each of these services has more of its own, and adds new ones.
FORWARDING = (
    "forwarded",
    "via",
    "x-forwarded",
    "x-original-",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-remote-",
    "x-proxy",
    "x-scheme",
    "x-url-scheme",
    "client-ip",
    "true-client-ip",
    "proxy-client-ip",
    "wl-proxy-",
    "front-end-https",
    "x-arr-",
    "cf-",
    "cdn-loop",
    "x-amzn-",
    "x-amz-cf-",
    "x-appengine-",
    "x-azure-",
    "x-envoy-",
    "x-vercel-",
    "fastly-",
    "fly-",
    "ngrok-",
    "tailscale-",
)


IS_OWNER = "everturn.is_owner"  # what the server knows of a connection, in the scope's extensions


class Visitor(msgspec.Struct, frozen=True):
    address: str
    scheme: str
    host: str  # as in the Host header, lower case, with its port
    is_forwarded: bool
    is_owner: bool = False  # a process of the server's own user, as the kernel says

    @property
    def host_name(self) -> str:
        return name_of_host(self.host)


class Proxies:
    """The proxies whose forwarding headers are believed."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._networks: list[Network] = [ipaddress.ip_network(item.strip(), strict=False) for item in trusted]

    def visitor(self, scope: Mapping[str, Json], headers: Mapping[str, str]) -> Visitor:
        client = scope.get("client")
        address = client[0] if client else ""
        scheme, host = scope.get("scheme", "http"), headers.get("host", "").lower()
        # Underscores too: some servers hand both spellings on as one.
        is_forwarded = any(name.replace("_", "-").startswith(FORWARDING) for name in headers)
        if is_forwarded and self._is_trusted(address):
            address = self._first_untrusted(headers.get("x-forwarded-for", ""), address)
            scheme = _last(headers.get("x-forwarded-proto", ""), ("http", "https")) or scheme
            host = _last(headers.get("x-forwarded-host", "")).lower() or host
        is_owner = scope.get("extensions", {}).get(IS_OWNER) is True
        return Visitor(address, scheme, host, is_forwarded, is_owner)

    def _is_trusted(self, address: str) -> bool:
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def _first_untrusted(self, chain: str, peer: str) -> str:
        """Walk the chain from our side: each hop that we trust vouches for the one before it."""
        for hop in reversed([item.strip() for item in chain.split(",") if item.strip()]):
            if _parse(hop) is None:
                return peer
            if not self._is_trusted(hop):
                return hop
            peer = hop
        return peer


def name_of_host(host: str) -> str:
    """The host without its port: ``[::1]:80`` gives ``::1``. Empty for what is no host."""
    if isinstance(_raw(host), ipaddress.IPv6Address):
        return host
    found = _HOST.fullmatch(host)
    if found is None:
        return ""
    inside = found["ipv6"]
    if inside is None:
        return found["name"]
    return inside if isinstance(_raw(inside), ipaddress.IPv6Address) else ""


def is_loopback_name(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    parsed = _parse(name)
    return parsed is not None and parsed.is_loopback


def is_address(name: str) -> bool:
    return _parse(name) is not None


def _last(value: str, allowed: tuple[str, ...] | None = None) -> str:
    """The last entry of a list header: the one that the nearest proxy wrote."""
    entry = value.rpartition(",")[2].strip()
    return entry if allowed is None or entry in allowed else ""


def _raw(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _parse(text: str) -> Address | None:
    parsed = _raw(text)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return mapped or parsed
