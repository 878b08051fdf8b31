"""Hands a mail to the SMTP server."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiosmtplib
import anyio.to_thread

from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.gateway.mail.network import bad_certificate, connect_public
from everturn.gateway.mail.settings import MailSettings

_TIMEOUT_S: Final = 25.0
_TLS_PORT: Final = 465
_NEEDS_LOGIN: Final = (530, 535, 538)


async def submit(settings: MailSettings, password: str, recipient: str, mail: bytes) -> None:
    """Raises PlatformBusy if the server certainly did not take the mail, PlatformRefused if it never will.
    If the connection is lost once the mail is being sent, it raises another error: the outcome is unknown."""
    async with connect(settings, password) as client:
        with_mail = f"{settings.smtp_host} did not take the mail"
        try:
            await client.mail(settings.address)
            await client.rcpt(recipient)
        except aiosmtplib.SMTPResponseException as error:
            raise _answer(error, with_mail) from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise PlatformBusy(f"{with_mail}: {error}") from error
        try:
            await client.data(mail)
        except aiosmtplib.SMTPResponseException as error:
            raise _answer(error, with_mail) from error


@asynccontextmanager
async def connect(
    settings: MailSettings, password: str, *, is_login_final: bool = False
) -> AsyncIterator[aiosmtplib.SMTP]:
    """A client that has signed in. ``is_login_final``: refuse a wrong password. When a mail is sent, it
    waits for the right one instead. Raises PlatformRefused, PlatformBusy."""
    is_tls = settings.tls and settings.smtp_port == _TLS_PORT
    checked = await _open_socket(settings, is_final=is_login_final) if settings.is_public_only else None
    client = aiosmtplib.SMTP(
        hostname=settings.smtp_host,
        port=None if checked else settings.smtp_port,
        sock=checked,
        username=settings.login,
        password=password,
        local_hostname=settings.domain,  # the machine's own name stays private
        timeout=_TIMEOUT_S,
        use_tls=is_tls,
        start_tls=settings.tls and not is_tls,
    )
    try:
        try:
            await client.connect()
        except aiosmtplib.SMTPAuthenticationError as error:
            message = f"{settings.smtp_host} refuses the user or the password. It says: {error.message}"
            is_final = is_login_final and error.code >= 500
            raise (PlatformRefused(message) if is_final else PlatformBusy(message)) from error
        except (aiosmtplib.SMTPException, OSError) as error:
            refused = bad_certificate(settings.smtp_host, error)
            if refused is not None and is_login_final:
                raise refused from error
            reason = refused.message if refused else f"{settings.smtp_host} cannot be used: {error}"
            raise PlatformBusy(reason) from error  # a mail waits until that is fixed
        yield client
    finally:
        client.close()


async def _open_socket(settings: MailSettings, *, is_final: bool) -> socket.socket:
    host, port = settings.smtp_host, settings.smtp_port
    try:
        found = await anyio.to_thread.run_sync(connect_public, host, port, _TIMEOUT_S)
    except PlatformRefused as error:
        if is_final:
            raise
        raise PlatformBusy(error.message) from error  # a mail waits until the setting is corrected
    except OSError as error:
        raise PlatformBusy(f"{host} cannot be used: {error}") from error
    found.setblocking(False)
    return found


def _answer(error: aiosmtplib.SMTPResponseException, what: str) -> PlatformBusy | PlatformRefused:
    message = f"{what}: {error.code} {error.message}"
    is_final = 500 <= error.code < 600 and error.code not in _NEEDS_LOGIN
    return PlatformRefused(message) if is_final else PlatformBusy(message)
