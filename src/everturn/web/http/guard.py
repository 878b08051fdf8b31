"""The checks that every request passes first, and the headers of every answer."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from everturn.web.access.visitor import Visitor, is_address, is_loopback_name
from everturn.web.http.problems import CrossSite, OpenToTheWorld, WrongHost

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

# The page has no inline script. Styles: the page sets them through the DOM, which CSP does not count as
# inline; KaTeX and highlighters write style attributes, which need 'unsafe-inline' for styles only.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; manifest-src 'self'; "
    "media-src 'self' blob:; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# JSON and streams are never a document: nothing in them may run, whatever a browser is tricked into.
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
FILE_POLICY = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'"
# Files of a workspace that the page shows in a frame. Nothing in them runs, loads or sends anything, and they
# have an origin of their own: with scripts, a file written by a misled agent could send out what it holds.
VIEW_POLICY = (
    "sandbox; default-src 'none'; img-src data:; media-src data:; font-src data:; style-src 'unsafe-inline'; "
    "form-action 'none'; frame-ancestors 'self'"
)
# A picture, sound or film that is opened by itself is a document that loads itself.
MEDIA_POLICY = (
    "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; "
    "frame-ancestors 'self'"
)
# Browsers show a PDF with a program of their own, which a sandbox would keep from starting.
PDF_POLICY = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'"

HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), payment=(), usb=()"),
)


class RequestGuard:
    """``hosts``: the names that people may use besides loopback names and plain addresses.

    A plain address is always taken: an attack that rebinds a name (DNS rebinding) needs a name.
    """

    def __init__(self, hosts: tuple[str, ...], machine: str | None = None) -> None:
        machine = (machine if machine is not None else socket.gethostname()).lower()
        names = {name.lower() for name in hosts}
        if machine:
            names |= {machine, f"{machine.partition('.')[0]}.local"}
        self._names = frozenset(names)

    def check(self, method: str, headers: Mapping[str, str], visitor: Visitor, *, is_open: bool) -> None:
        """Raise if the request must be refused. ``is_open``: the server has no sign-in."""
        if is_open:
            _check_local(visitor)
        elif not self._answers_to(visitor.host_name):
            raise WrongHost(visitor.host)
        _check_site(method, headers, visitor)

    def _answers_to(self, name: str) -> bool:
        return is_loopback_name(name) or is_address(name) or name in self._names


def _check_local(visitor: Visitor) -> None:
    if visitor.is_forwarded:
        raise OpenToTheWorld("the request came through a proxy or a tunnel")
    if not is_loopback_name(visitor.host_name):
        raise OpenToTheWorld(f"the request was for the host {visitor.host[:100]!r}")
    if visitor.address and not is_loopback_name(visitor.address):
        raise OpenToTheWorld(f"the request came from {visitor.address}")


def _check_site(method: str, headers: Mapping[str, str], visitor: Visitor) -> None:
    """Refuse what another site's page sends. Clients that are no browser send none of these headers."""
    site = headers.get("sec-fetch-site", "")
    if method in _SAFE_METHODS:
        # A link on another site may open the page, but no other site may load our data into its own page.
        if site in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            raise CrossSite(headers.get("origin", site))
        return
    if site and site not in ("same-origin", "none"):
        raise CrossSite(headers.get("origin", site))
    origin = headers.get("origin")
    if origin is None:
        return
    scheme, _, host = origin.lower().partition("://")
    # The browser's own word (same-origin) settles a scheme that a TLS proxy hid from us.
    if host != visitor.host or (scheme != visitor.scheme and site != "same-origin"):
        raise CrossSite(origin)
