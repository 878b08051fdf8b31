"""What a person can configure about the server; every bound has its unit in its name."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import msgspec

from everturn.domain.errors import Invalid

PAGE_FOLDER = Path(__file__).parent / "page"
_BASE_PATH = re.compile(r"(/(?!\.+(/|$))[A-Za-z0-9._~-]+)*")


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    home: Path
    host: str = "127.0.0.1"
    port: int = 8420
    base_path: str = ""  # "/everturn" where a proxy serves other things beside us
    hosts: tuple[str, ...] = ()  # names under which people reach us, besides loopback and addresses
    trusted_proxies: tuple[str, ...] = ()  # addresses or networks whose forwarding headers we believe
    password: str | None = None
    page: Path = PAGE_FOLDER

    body_bytes_max: int = 4_000_000
    import_bytes_max: int = 200_000_000
    upload_bytes_max: int = 100_000_000
    head_bytes_max: int = 32_768
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0  # between two pieces of a body
    requests_max: int = 400  # at once, streams not counted
    streams_max: int = 10_000
    streams_per_owner_max: int = 6_000
    stream_sessions_max: int = 50
    heartbeat_s: float = 15.0
    send_timeout_s: float = 30.0  # a reader that takes nothing for so long is cut off
    undo_delete_s: float = 10.0
    completion_timeout_s: float = 1800.0
    grace_s: float = 20.0  # what running turns get at shutdown
    opens_browser: bool = False

    def __post_init__(self) -> None:
        """Raises Invalid: what is wrong here would show as a refused request, far from its cause."""
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy.strip(), strict=False)
            except ValueError as error:
                raise Invalid(
                    f"The trusted proxy {proxy!r} is no address and no network.",
                    hint="Like 127.0.0.1 or 10.0.0.0/8; several with commas (EVERTURN_TRUSTED_PROXIES).",
                    key="trusted_proxies",
                ) from error
        if not _BASE_PATH.fullmatch(self.root):
            raise Invalid(
                f"The base path {self.base_path!r} is no path.",
                hint="Like /agent: letters, digits and -._~ between slashes (EVERTURN_BASE_PATH).",
                key="base_path",
            )

    @property
    def root(self) -> str:
        """The base path without its last slash: empty, or ``/something``."""
        trimmed = self.base_path.strip("/")
        return f"/{trimmed}" if trimmed else ""
