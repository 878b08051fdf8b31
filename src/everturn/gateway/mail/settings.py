"""How a mailbox is reached."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from everturn.domain.errors import Invalid

ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_Port = Annotated[int, Meta(ge=1, le=65535)]


class MailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``authserv``: the name that the mail server gives itself in Authentication-Results headers, such as
    ``mx.example.org``. Without it no mail is trusted. ``tls``: can be switched off on this machine only.
    """

    address: str
    imap_host: str
    smtp_host: str
    authserv: str
    imap_port: _Port = 993
    smtp_port: _Port = 465  # any other port begins with STARTTLS
    user: str = ""  # for signing in; empty: the address
    folder: str = "INBOX"
    poll_s: Annotated[float, Meta(ge=1, le=1500)] = 60.0  # at the latest; servers with IDLE tell at once
    tls: bool = True

    @property
    def login(self) -> str:
        return self.user or self.address

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2].lower()

    def check(self) -> None:
        """Raises Invalid."""
        if not ADDRESS.fullmatch(self.address):
            raise Invalid(f"{self.address!r} is not a mail address.", hint="Correct it.", key="address")
        if not self.authserv.strip():
            hint = "Set it to the name that stands first in the Authentication-Results header of your mails."
            raise Invalid("authserv is empty.", hint=hint, key="authserv")
        if not self.tls and not {self.imap_host, self.smtp_host} <= set(_LOOPBACK):
            raise Invalid(
                "tls is off for another machine.", hint="The password would be readable.", key="tls"
            )
