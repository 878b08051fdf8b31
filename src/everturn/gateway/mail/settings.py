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
    address: Annotated[str, Meta(description="The agent's address.")]
    imap_host: Annotated[str, Meta(description="The server that mails are read from.")]
    smtp_host: Annotated[str, Meta(description="The server that answers are sent by.")]
    # Without it no mail can be trusted.
    authserv: Annotated[
        str,
        Meta(description="The name of your mail server that stands first in Authentication-Results headers."),
    ]
    imap_port: Annotated[_Port, Meta(description="Port of the IMAP server.")] = 993
    smtp_port: Annotated[
        _Port, Meta(description="Port of the SMTP server. Any other than 465 begins with STARTTLS.")
    ] = 465
    user: Annotated[str, Meta(description="For signing in, if it is not the address.")] = ""
    folder: Annotated[str, Meta(description="The folder that mails are read from.")] = "INBOX"
    poll_s: Annotated[
        float, Meta(ge=1, le=1500, description="How often to look for mails at servers without IDLE.")
    ] = 60.0
    tls: Annotated[bool, Meta(description="false: no encryption, for servers on this machine only.")] = True

    private_hosts: Annotated[
        bool, Meta(description="true: the servers may have addresses that are not public.")
    ] = False

    @property
    def is_public_only(self) -> bool:
        """Without TLS the servers are on this machine."""
        return self.tls and not self.private_hosts

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
