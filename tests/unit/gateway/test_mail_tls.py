"""Mail over encrypted connections, with a real certificate: the password goes only to a server that proves who it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import Chat, ChatKind, ChatPlace, NewPart
from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.gateway.mail import MailPlatform, MailSettings
from everturn.gateway.mail import platform as make_platform
from everturn.testing.platform_conformance import Receiver, part_of
from tests.certificates import make_certificate
from tests.mail_service import ADDRESS, AUTHSERV, PASSWORD, PERSON, ROOT, MailService

pytestmark = pytest.mark.anyio
Encrypted = Callable[..., AbstractAsyncContextManager[tuple[MailService, MailPlatform]]]


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Encrypted:
    """A service with a certificate for this address, and a platform that trusts it."""

    @asynccontextmanager
    async def open_both(
        address: str = "127.0.0.1", *, is_trusted: bool = True, starttls: bool = True, offered: bool = True
    ) -> AsyncIterator[tuple[MailService, MailPlatform]]:
        context, certificate = make_certificate(tmp_path, address)
        if is_trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        service = MailService(context)
        service.smtp_begins_encrypted = not starttls
        service.has_starttls = offered
        async with service.serve():
            if not starttls:
                monkeypatch.setattr("everturn.gateway.mail.submission._TLS_PORT", service.smtp_port)
            settings = MailSettings(
                address=ADDRESS,
                imap_host="127.0.0.1",
                imap_port=service.imap_port,
                smtp_host="127.0.0.1",
                smtp_port=service.smtp_port,
                authserv=AUTHSERV,
                private_hosts=True,
            )
            made = make_platform("post", settings, {"password": PASSWORD}, SystemClock())
            assert isinstance(made, MailPlatform)
            yield service, made

    return open_both


@pytest.fixture
def chat() -> Chat:
    place = ChatPlace("post", "mail", ChatKind.MAIL, PERSON, ROOT)
    return Chat("cht_x", "ada", place, "default", "Trip to Rome", None, 0)


@pytest.mark.parametrize("starttls", [True, False])
async def test_mails_come_and_go_over_encrypted_connections(
    encrypted: Encrypted, chat: Chat, starttls: bool
) -> None:
    async with encrypted(starttls=starttls) as (service, platform):
        assert (await platform.identify()).id == ADDRESS
        service.say("hello")
        receiver = Receiver()
        async with anyio.create_task_group() as group:
            group.start_soon(platform.receive, receiver.deliver)
            await receiver.has(1)
            group.cancel_scope.cancel()
        await platform.send(part_of(chat, NewPart("the answer", "markdown")))
        assert "the answer" in service.read()[0]
        assert not service.passwords_in_the_clear


@pytest.mark.parametrize(
    ("address", "is_trusted", "reason"),
    [("127.0.0.1", False, "self-signed"), ("127.0.0.9", True, "not valid for '127.0.0.1'")],
)
async def test_a_server_with_a_wrong_certificate_gets_no_password_and_the_reason_is_said(
    encrypted: Encrypted, chat: Chat, address: str, is_trusted: bool, reason: str
) -> None:
    async with encrypted(address, is_trusted=is_trusted) as (service, platform):
        with pytest.raises(PlatformRefused, match=f"127.0.0.1 has no valid certificate: .*{reason}"):
            await platform.identify()
        with pytest.raises(PlatformBusy, match=f"no valid certificate: .*{reason}"):  # it waits
            await platform.send(part_of(chat, NewPart("the answer", "markdown")))
        assert (service.logins, service.passwords_in_the_clear, service.taken) == (0, 0, [])


async def test_a_server_without_starttls_gets_no_password(encrypted: Encrypted, chat: Chat) -> None:
    async with encrypted(offered=False) as (service, platform):
        with pytest.raises(PlatformBusy, match="STARTTLS"):
            await platform.send(part_of(chat, NewPart("the answer", "markdown")))
        assert (service.passwords_in_the_clear, service.taken) == (0, [])
