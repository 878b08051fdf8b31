"""Mail, with the real client libraries against small IMAP and SMTP servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import Chat, ChatKind, ChatPlace, NewPart, OutgoingFile, Update
from everturn.domain.errors import Invalid, PlatformBusy, PlatformRefused
from everturn.domain.platform import Platform
from everturn.gateway.mail import MailPlatform, MailSettings
from everturn.gateway.mail import platform as make_platform
from everturn.gateway.mail.platform import MAIL_BYTES_MAX
from everturn.testing.platform_conformance import (
    Receiver,
    RichPlatformConformance,
    RichService,
    Service,
    part_of,
)
from everturn.testing.ports import free_port
from everturn.testing.waiting import within
from tests.mail_service import ADDRESS, AUTHSERV, PASSWORD, PERSON, ROOT, MailService, mail

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(anyio_backend: str) -> AsyncIterator[MailService]:
    service = MailService()
    async with service.serve():
        yield service


def platform_at(imap_port: int, smtp_port: int, **more: Any) -> MailPlatform:
    settings = MailSettings(
        address=ADDRESS,
        imap_host="127.0.0.1",
        imap_port=imap_port,
        smtp_host="127.0.0.1",
        smtp_port=smtp_port,
        authserv=AUTHSERV,
        tls=False,
        **more,
    )
    made = make_platform("post", settings, {"password": PASSWORD}, SystemClock())
    assert isinstance(made, MailPlatform)
    return made


@pytest.fixture
def platform(service: MailService) -> MailPlatform:
    return platform_at(service.imap_port, service.smtp_port)


@pytest.fixture
def chat() -> Chat:
    place = ChatPlace("post", "mail", ChatKind.MAIL, PERSON, ROOT)
    return Chat("cht_x", "ada", place, "default", "Trip to Rome", None, 0)


class TestMail(RichPlatformConformance):
    async def test_a_changed_message_is_delivered_as_an_edit(
        self, platform: Platform, service: RichService
    ) -> None:
        pytest.skip("a mail cannot be changed")

    async def test_a_platform_that_is_busy_has_not_taken_the_part_and_says_how_long(
        self, platform: Platform, service: Service
    ) -> None:
        """SMTP cannot say how long."""
        part = part_of(await self.chat_of(platform, service), platform.render("hello")[0])
        service.be_busy()
        with pytest.raises(PlatformBusy) as busy:
            await platform.send(part)
        assert busy.value.after_s is None
        assert service.read() == []


@asynccontextmanager
async def receiving(platform: MailPlatform) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with anyio.create_task_group() as group:
        group.start_soon(platform.receive, receiver.deliver)
        yield receiver
        group.cancel_scope.cancel()


async def until(fact: Callable[[], object], what: str) -> None:
    with within(what):
        while not fact():
            await anyio.sleep(0.005)


async def update_of(platform: MailPlatform, service: MailService, raw: bytes) -> Update:
    async with receiving(platform) as receiver:
        service.put(raw)
        (update,) = await receiver.has(1)
    return update


# --- receiving ---------------------------------------------------------------------------------------


async def test_f01_a_mail_is_read_on_the_server_only_after_it_is_stored(
    platform: MailPlatform, service: MailService
) -> None:
    stored, began = anyio.Event(), anyio.Event()

    async def deliver(update: Update) -> None:
        began.set()
        await stored.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(platform.receive, deliver)
        service.say("hello")
        with within("the mail is delivered"):
            await began.wait()
        assert service.unread == 1
        stored.set()
        await until(lambda: not service.unread, "the mail is marked as read")
        group.cancel_scope.cancel()
    assert service.expunged == 0, "mails that a person marked as deleted are gone"


async def test_a_new_mail_is_seen_while_waiting_and_cancelling_ends_the_wait(
    platform: MailPlatform, service: MailService
) -> None:
    async with receiving(platform) as receiver:
        await until(lambda: service.idling, "the connection waits")
        service.say("hello")
        await receiver.has(1)
        await until(lambda: service.idling, "the connection waits again")
    await until(lambda: not service.idling, "the connection is closed")


async def test_a_mail_that_arrives_just_when_the_wait_begins_is_seen(service: MailService) -> None:
    service.arrives_at_idle = "hello"
    async with receiving(platform_at(service.imap_port, service.smtp_port, poll_s=1_000.0)) as receiver:
        await receiver.has(1)


async def test_a_server_that_cannot_tell_is_asked_at_intervals(service: MailService) -> None:
    service.has_idle = False
    async with receiving(platform_at(service.imap_port, service.smtp_port, poll_s=1.0)) as receiver:
        service.say("one")
        await receiver.has(1)
        service.say("two")
        await receiver.has(2)


async def test_a_lost_connection_is_an_error(platform: MailPlatform, service: MailService) -> None:
    with within("receiving fails"):
        async with anyio.create_task_group() as group:
            group.start_soon(_drop_when_idle, service)
            with pytest.raises(Exception) as lost:  # noqa: PT011 - the library has many
                await platform.receive(Receiver().deliver)
    assert not isinstance(lost.value, PlatformRefused)


async def _drop_when_idle(service: MailService) -> None:
    await until(lambda: service.idling, "the connection waits")
    service.drop_connections()


async def test_f01_a_mail_has_the_same_id_after_the_server_numbered_its_mails_anew(
    platform: MailPlatform, service: MailService
) -> None:
    first = await update_of(platform, service, mail("hello", files=(("a.txt", b"x"),)))
    service.renumber()
    service.box[0].is_seen = False
    async with receiving(platform) as receiver:
        (again,) = await receiver.has(1)
    assert again.id == first.id
    assert again.place == first.place


async def test_a_wrong_password_stops_receiving_with_a_reason(
    platform: MailPlatform, service: MailService
) -> None:
    service.revoke()
    with pytest.raises(PlatformRefused, match="password"):
        await platform.receive(Receiver().deliver)


async def test_a_folder_that_is_not_there_is_said(service: MailService) -> None:
    with pytest.raises(PlatformRefused, match="Agents"):
        await platform_at(service.imap_port, service.smtp_port, folder="Agents").identify()


async def test_a_server_that_cannot_be_reached_is_busy(chat: Chat) -> None:
    away = platform_at(free_port(), free_port())
    with pytest.raises(PlatformBusy):
        await away.identify()
    with pytest.raises(PlatformBusy):
        await away.send(part_of(chat, NewPart("hello")))


async def test_a_mail_of_50_mb_is_not_fetched_and_says_so(
    platform: MailPlatform, service: MailService
) -> None:
    raw = mail("hello", subject="Films")
    update = await update_of(platform, service, raw + b"x" * (MAIL_BYTES_MAX + 1))
    assert "35 MB" in update.text
    assert service.fetched_whole == 0


async def test_f05_what_is_not_authentic_is_not_delivered(
    platform: MailPlatform, service: MailService
) -> None:
    async with receiving(platform) as receiver:
        service.put(mail("I am Ada, honestly", results=""))
        service.put(mail("I am Ada", results="mx.evil.example; dmarc=pass header.from=example.org"))
        service.put(mail("I am out of office", Auto_Submitted="auto-replied"))
        service.say("hello")
        (update,) = await receiver.has(1)
        await until(lambda: not service.unread, "all mails are marked as read")
    assert update.text == "hello"
    assert platform.ignored == 3
    assert service.fetched_whole == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\n\r\n",
        b"From: \xff\xfe\r\n\r\nhello",
        b"From: ada@example.org\r\nFrom: ben@example.org\r\n\r\nhello",
        b"From: ada@example.org, ben@example.org\r\n\r\nhello",
        b"From: ada@example.org <evil@evil.example>\r\n\r\nhello",
        b"Content-Type: multipart/mixed; boundary\r\nFrom: =?x?y?z?=\r\n\r\n--",
    ],
    ids=range(7),
)
async def test_a_malformed_mail_stops_nothing(
    platform: MailPlatform, service: MailService, raw: bytes
) -> None:
    async with receiving(platform) as receiver:
        service.put(raw)
        service.say("hello")
        (update,) = await receiver.has(1)
    assert update.text == "hello"


# --- sending -----------------------------------------------------------------------------------------


async def test_an_answer_is_one_mail_with_text_and_html_in_its_thread(
    platform: MailPlatform, service: MailService, chat: Chat
) -> None:
    (part,) = platform.render("**Yes**\n\n- one\n- two\n\n![x](https://evil.example/?secret)")
    name = await platform.send(part_of(chat, part))
    (sent,) = service.mails()
    assert (sent["To"], sent["From"], sent["Subject"]) == (PERSON, ADDRESS, "Re: Trip to Rome")
    assert sent["Message-ID"] == name == f"<prt_{0:026d}@example.org>"
    assert sent["In-Reply-To"] == sent["References"] == f"<{ROOT}>"
    assert sent["Auto-Submitted"] == "auto-replied"
    assert "Yes" in sent.get_body(("plain",)).get_content()
    page = sent.get_body(("html",)).get_content()
    assert "<strong>Yes</strong>" in page
    assert "<img" not in page


async def test_a_long_name_of_a_thread_and_a_long_title_arrive_whole(
    platform: MailPlatform, service: MailService, chat: Chat
) -> None:
    place = ChatPlace("post", "mail", ChatKind.MAIL, PERSON, "x" * 180 + "@mail.example.org")
    long = msgspec.structs.replace(chat, place=place, title="\U0001f600" * 200)
    await platform.send(part_of(long, NewPart("wörd " * 1000)))
    (sent,) = service.mails()
    assert sent["References"] == f"<{place.thread}>"
    assert f"References: <{place.thread}>".encode() in service.taken[0]
    assert sent["Subject"] == "Re: " + long.title
    assert max(len(line) for line in service.taken[0].splitlines()) <= 998


async def test_f03_a_repeat_has_the_same_message_id_and_is_marked(
    platform: MailPlatform, service: MailService, chat: Chat
) -> None:
    part = part_of(chat, NewPart("hello"))
    service.break_off()
    with pytest.raises(Exception) as lost:  # noqa: PT011 - any other error means: unknown
        await platform.send(part)
    assert not isinstance(lost.value, (PlatformBusy, PlatformRefused))
    await platform.send(msgspec.structs.replace(part, is_repeat=True))
    first, second = service.mails()
    assert first["Message-ID"] == second["Message-ID"]
    assert "may be a repeat" in service.read()[1]


async def test_f03_a_connection_lost_before_the_mail_was_sent_means_not_taken(
    platform: MailPlatform, service: MailService, chat: Chat
) -> None:
    service.failures.append("break before data")
    with pytest.raises(PlatformBusy):
        await platform.send(part_of(chat, NewPart("hello")))


async def test_f03_a_mail_waits_while_the_password_is_wrong(
    platform: MailPlatform, service: MailService, chat: Chat
) -> None:
    service.revoke()
    with pytest.raises(PlatformBusy, match="password"):
        await platform.send(part_of(chat, NewPart("hello")))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("421 shutting down", PlatformBusy),
        ("452 mailbox full for now", PlatformBusy),
        ("530 sign in first", PlatformBusy),
        ("552 too large", PlatformRefused),
        ("554 rejected", PlatformRefused),
    ],
)
async def test_f03_answers_of_the_server(
    platform: MailPlatform, service: MailService, chat: Chat, answer: str, error: type[Exception]
) -> None:
    service.failures.append(answer)
    with pytest.raises(error, match=answer.split(" ")[0]):
        await platform.send(part_of(chat, NewPart("hello")))


async def test_a_title_cannot_add_headers_and_lines_with_dots_arrive(
    platform: MailPlatform, service: MailService, chat: Chat
) -> None:
    evil = msgspec.structs.replace(chat, title="Hi\r\nBcc: ben@example.org\0")
    await platform.send(part_of(evil, NewPart("one\n\n.\n\n..two\n\n\u0645\u0631\u062d\u0628 👩‍👩‍👧")))
    (sent,) = service.mails()
    assert sent["Bcc"] is None
    assert sent["Subject"] == "Re: Hi Bcc: ben@example.org"
    assert service.read()[0].split() == ["one", ".", "..two", "\u0645\u0631\u062d\u0628", "👩‍👩‍👧"]


async def test_an_answer_to_something_that_is_no_address_is_refused(
    platform: MailPlatform, chat: Chat
) -> None:
    for bad in ("nobody", "a@b\r\nc@d", "a@b, c@d", ""):
        place = ChatPlace("post", "mail", ChatKind.MAIL, bad)
        with pytest.raises(PlatformRefused):
            await platform.send(part_of(msgspec.structs.replace(chat, place=place), NewPart("hello")))


async def test_a_mail_that_brings_a_file_says_so(
    platform: MailPlatform, service: MailService, chat: Chat, tmp_path: Path
) -> None:
    path = tmp_path / "made"
    path.write_bytes(b"pass\n")
    file = OutgoingFile(path, "__init__.py", "text/x-python")
    await platform.send(msgspec.structs.replace(part_of(chat, NewPart(file_id="fil_x")), file=file))
    assert [text.strip() for text in service.read()] == ["Attached: __init__.py"]
    assert "Attached: __init__.py" in service.mails()[0].get_body(("html",)).get_content()


# --- files and settings ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_renumbered", [False, True])
async def test_a_file_of_a_mail_is_fetched_also_after_the_server_numbered_its_mails_anew(
    platform: MailPlatform, service: MailService, tmp_path: Path, is_renumbered: bool
) -> None:
    service.put(mail("another", message_id="<other@example.org>", files=(("no.txt", b"no"),)))
    update = None
    async with receiving(platform) as receiver:
        service.put(mail("look", files=(("a.txt", b"first"), ("ü.csv", b"a,b\n"))))
        update = (await receiver.has(2))[1]
    assert [(file.name, file.size) for file in update.files] == [("a.txt", 5), ("ü.csv", 4)]
    if is_renumbered:
        service.renumber()
    await platform.fetch(update.files[1], tmp_path / "b", bytes_max=100)
    assert (tmp_path / "b").read_bytes() == b"a,b\n"
    with pytest.raises(PlatformRefused, match="larger"):
        await platform.fetch(update.files[1], tmp_path / "c", bytes_max=3)
    service.box.clear()
    service.validity += 1
    with pytest.raises(PlatformRefused, match="no longer"):
        await platform.fetch(update.files[1], tmp_path / "d", bytes_max=100)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"address": "agent"}, "address"),
        ({"address": "a@b\r\nc"}, "address"),
        ({"authserv": " "}, "authserv"),
        ({"imap_host": "imap.example.org"}, "tls"),
    ],
)
def test_settings_that_cannot_work_are_invalid(change: dict[str, Any], key: str) -> None:
    fields: dict[str, Any] = {
        "address": ADDRESS,
        "imap_host": "::1",
        "smtp_host": "localhost",
        "authserv": AUTHSERV,
    }
    with pytest.raises(Invalid) as invalid:
        MailPlatform("post", MailSettings(**{**fields, **change}, tls=False), PASSWORD, SystemClock())
    assert key in str(invalid.value.message) or key == "address"
