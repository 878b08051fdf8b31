"""Connections to mail servers. Unless config.toml allows it, only to public addresses, as web fetch does."""

from __future__ import annotations

import imaplib
import socket
import ssl
from contextlib import suppress

from imap_tools import MailBox

from everturn.domain.errors import PlatformRefused
from everturn.tools.web.fetch import is_public


def connect_public(host: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to the address that was checked, not to the name, which could resolve to another address the
    next time.
    Raises PlatformRefused if the host has an address that is not public, OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for address in addresses:
        if not is_public(address):
            refused = PlatformRefused(f"{host} is at {address}, which is not a public address.")
            refused.hint = "Set the account up in config.toml, with private_hosts = true."
            raise refused
    for address in addresses[:-1]:
        with suppress(OSError):  # the next address may answer
            return socket.create_connection((address, port), timeout_s)
    return socket.create_connection((addresses[-1], port), timeout_s)


def bad_certificate(host: str, error: BaseException) -> PlatformRefused | None:
    """The error to show if the server's certificate is the reason; None if it is another one."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLCertVerificationError):
        found = found.__cause__ or found.__context__
    if found is None:
        return None
    reason = found.verify_message.removesuffix(".")
    refused = PlatformRefused(f"{host} has no valid certificate: {reason}. The password was not sent.")
    refused.hint = "Correct the name of the server, or its certificate."
    return refused


class PublicMailBox(MailBox):
    """A mailbox at a public address."""

    def _get_mailbox_client(self) -> imaplib.IMAP4:
        return _PublicClient(self._host, self._port, ssl_context=self._ssl_context, timeout=self._timeout)


class _PublicClient(imaplib.IMAP4_SSL):
    def _create_socket(self, timeout: float) -> socket.socket:
        plain = connect_public(self.host, self.port, timeout)
        wrapped: ssl.SSLSocket = self.ssl_context.wrap_socket(plain, server_hostname=self.host)
        return wrapped
