"""Settings of the server. Every bound has its unit in its name."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from everturn.domain.errors import Invalid

PAGE_FOLDER = Path(__file__).parent / "page"
_BASE_PATH = re.compile(r"(/(?!\.+(/|$))[A-Za-z0-9._~-]+)*")


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Fields with a description are settings of config.toml; the others are fixed bounds."""

    home: Path
    host: Annotated[
        str, Meta(description="Address to listen on. Any address but loopback requires a password.")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(description="Port to listen on; 0 picks a free one.")] = 8420
    base_path: Annotated[
        str, Meta(description="Path under which a reverse proxy serves Everturn, such as /everturn.")
    ] = ""
    public_url: Annotated[
        str,
        Meta(description="Where others reach the page, such as https://agent.example.org; chats link to it."),
    ] = ""
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Host names under which browsers reach the server, besides loopback and IP addresses."
        ),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(description="Addresses or networks of proxies whose forwarding headers are trusted."),
    ] = ()
    password: Annotated[
        str | None, Meta(description="Password for signing in. `everturn password` stores a hash instead.")
    ] = None
    page: Path = PAGE_FOLDER

    body_bytes_max: int = 4_000_000
    import_bytes_max: Annotated[int, Meta(description="Largest session file that can be imported.")] = (
        200_000_000
    )
    archive_bytes_max: Annotated[
        int,
        Meta(
            description="Largest session archive (with files) that can be imported. It is streamed to disk."
        ),
    ] = 20_000_000_000
    upload_bytes_max: Annotated[int, Meta(description="Largest file that can be uploaded or attached.")] = (
        100_000_000
    )
    head_bytes_max: int = 32_768
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0  # between two pieces of a body
    requests_max: Annotated[int, Meta(description="Requests served at once, not counting event streams.")] = (
        400
    )
    streams_max: Annotated[int, Meta(description="Event streams open at once.")] = 10_000
    streams_per_owner_max: int = 6_000
    stream_sessions_max: int = 50
    heartbeat_s: Annotated[
        float,
        Meta(description="Interval of keep-alives on event streams. Keep it below a proxy's idle timeout."),
    ] = 15.0
    send_timeout_s: float = 30.0  # a client that reads nothing for this long is disconnected
    undo_delete_s: Annotated[
        float, Meta(description="How long a deleted session can be restored with Undo.")
    ] = 10.0
    completion_timeout_s: Annotated[
        float, Meta(description="Longest wait of a request to the OpenAI-compatible API.")
    ] = 1800.0
    grace_s: Annotated[float, Meta(description="Time that running turns get to finish at shutdown.")] = 20.0
    opens_browser: Annotated[
        bool, Meta(description="Open the page in a browser at the start (`everturn serve --open`).")
    ] = False

    def __post_init__(self) -> None:
        """Raises Invalid: what is wrong here would show as a refused request, far from its cause."""
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy.strip(), strict=False)
            except ValueError as error:
                raise Invalid(
                    f"The trusted proxy {proxy!r} is neither an address nor a network.",
                    hint="Like 127.0.0.1 or 10.0.0.0/8; several with commas (EVERTURN_TRUSTED_PROXIES).",
                    key="trusted_proxies",
                ) from error
        if not _BASE_PATH.fullmatch(self.root):
            raise Invalid(
                f"The base path {self.base_path!r} is not a path.",
                hint="Like /agent: letters, digits and -._~ between slashes (EVERTURN_BASE_PATH).",
                key="base_path",
            )

        if self.public_url and not _is_public(self.public_url):
            raise Invalid(
                f"The public address {self.public_url!r} cannot be opened from elsewhere.",
                hint="Like https://agent.example.org: the page's whole address, with a host others know.",
                key="public_url",
            )

    @property
    def root(self) -> str:
        """The base path without its last slash: empty, or ``/something``."""
        trimmed = self.base_path.strip("/")
        return f"/{trimmed}" if trimmed else ""


def _is_public(address: str) -> bool:
    """False for what a chat on another device could not open. Telegram refuses messages with such a link."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    host = parts.hostname or ""
    is_local = host == "localhost" or host.startswith("127.") or host == "::1" or not re.search(r"[.:]", host)
    return parts.scheme in ("http", "https") and not is_local and not parts.query and not parts.fragment
