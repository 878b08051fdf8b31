"""A stand-in for a mail provider on loopback: a small IMAP server, a small SMTP server, and people who write."""

from __future__ import annotations

import asyncio
import re
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import SMTP, default
from typing import Any

import msgspec

ADDRESS, PASSWORD, AUTHSERV = "agent@example.org", "secret", "mx.example.org"
PERSON = "ada@example.org"
ROOT = "root@example.org"
OPTIONS = {
    "address": ADDRESS,
    "imap_host": "127.0.0.1",
    "smtp_host": "127.0.0.1",
    "authserv": AUTHSERV,
    "tls": False,
}
AUTHENTIC = f"{AUTHSERV}; dmarc=pass (p=none) header.from=example.org"


class Stored(msgspec.Struct):
    uid: int
    raw: bytes
    is_seen: bool = False


class MailService:
    """``failures``: what the next mails that are handed in meet, in order. ``tls``: with encryption, SMTP by
    STARTTLS unless ``smtp_begins_encrypted``."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.smtp_begins_encrypted = False
        self.has_starttls = tls is not None
        self.passwords_in_the_clear = 0
        self.imap_port = self.smtp_port = 0
        self.password = PASSWORD
        self.box: list[Stored] = []
        self.taken: list[bytes] = []  # mails that were handed in and accepted
        self.failures: list[str] = []
        self.validity = 1
        self.has_idle = True
        self.arrives_at_idle = ""  # a mail that arrives just when a connection begins to wait
        self.expunged = 0
        self.fetched_whole = 0
        self.idling = 0  # connections that wait
        self.logins = 0
        self._uid = 0
        self._parsed: list[EmailMessage] = []
        self._changed = asyncio.Event()
        self._writers: set[StreamWriter] = set()

    # --- people --------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Write in the one thread."""
        self.put(mail(text, references=f"<{ROOT}>"))

    def put(self, raw: bytes) -> None:
        self._uid += 1
        self.box.append(Stored(self._uid, raw))
        self._changed.set()

    def renumber(self) -> None:
        """Number all mails anew, as a server does after it was restored from a backup."""
        self.validity += 1
        for number, stored in enumerate(reversed(self.box), start=100):
            stored.uid = number
        self._uid = 1000

    def mails(self) -> list[EmailMessage]:
        """The mails that were handed in; each is parsed once."""
        for raw in self.taken[len(self._parsed) :]:
            parsed = BytesParser(policy=default).parsebytes(raw)
            assert isinstance(parsed, EmailMessage)
            self._parsed.append(parsed)
        return self._parsed

    def read(self) -> list[str]:
        return [mail.get_body(("plain",)).get_content() for mail in self.mails()]

    def files(self) -> list[tuple[str, bytes]]:
        found = [part for mail in self.mails() for part in mail.iter_attachments()]
        return [(part.get_filename() or "", _bytes(part.get_content())) for part in found]

    @property
    def unread(self) -> int:
        return sum(not stored.is_seen for stored in self.box)

    # --- failures ------------------------------------------------------------------------------------

    def be_busy(self) -> None:
        self.failures.append("451 try again later")

    def refuse(self) -> None:
        self.failures.append("550 no such user")

    def break_off(self) -> None:
        self.failures.append("break off")

    def revoke(self) -> None:
        self.password = "another"

    def drop_connections(self) -> None:
        for writer in self._writers:
            writer.close()

    # --- the servers ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        imap = await asyncio.start_server(self._serve_imap, "127.0.0.1", 0, limit=1 << 20, ssl=self.tls)
        smtp_tls = self.tls if self.smtp_begins_encrypted else None
        smtp = await asyncio.start_server(self._serve_smtp, "127.0.0.1", 0, limit=1 << 20, ssl=smtp_tls)
        self.imap_port = imap.sockets[0].getsockname()[1]
        self.smtp_port = smtp.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            imap.close()
            smtp.close()
            self.drop_connections()
            while self._writers:
                await asyncio.sleep(0.001)

    async def _serve_imap(self, reader: StreamReader, writer: StreamWriter) -> None:
        await self._serve(_Imap(self, reader, writer).run, writer)

    async def _serve_smtp(self, reader: StreamReader, writer: StreamWriter) -> None:
        await self._serve(_Smtp(self, reader, writer).run, writer)

    async def _serve(self, run, writer: StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await run()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client went away
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError, TimeoutError):
                # After a handshake that the client broke off, asyncio would wait for ever.
                await asyncio.wait_for(writer.wait_closed(), 1)
            self._writers.discard(writer)

    def mark_read(self, stored: Stored) -> None:
        stored.is_seen = True

    def take(self, raw: bytes) -> None:
        self.taken.append(raw)

    async def more_than(self, known: int) -> None:
        """Return when there are more mails than these."""
        while len(self.box) <= known:
            self._changed.clear()
            await self._changed.wait()


def mail(
    text: str = "",
    *,
    sender: str = PERSON,
    subject: str = "",
    message_id: str = "",
    references: str = "",
    html: str = "",
    files: tuple[tuple[str, bytes], ...] = (),
    results: str = AUTHENTIC,
    **headers: Any,
) -> bytes:
    made = EmailMessage(policy=SMTP)
    if results:
        made["Authentication-Results"] = results
    made["From"] = sender
    made["To"] = ADDRESS
    made["Subject"] = subject
    made["Date"] = "Mon, 16 Nov 2026 09:00:00 +0000"
    made["Message-ID"] = message_id or f"<m{next(_numbers)}@example.org>"
    if references:
        made["References"] = references
    for name, value in headers.items():
        made[name.replace("_", "-")] = value
    if text or not html:
        made.set_content(text)
    if html and text:
        made.add_alternative(html, subtype="html")
    elif html:
        made.set_content(html, subtype="html")
    for name, data in files:
        made.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return made.as_bytes()


def _bytes(content: Any) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)


_numbers = iter(range(1, 1 << 30))


class _Imap:
    def __init__(self, service: MailService, reader: StreamReader, writer: StreamWriter) -> None:
        self._service = service
        self._known = 0  # how many mails the client has been told of
        self._reader = reader
        self._writer = writer

    async def run(self) -> None:
        await self._say("* OK ready")
        while line := (await self._reader.readline()).decode():
            tag, command, rest = (*line.strip().split(" ", 2), "")[:3]
            if command.upper() == "UID":
                command, _, rest = rest.partition(" ")
                command = f"UID {command}"
            await self._answer(tag, command.upper(), rest)

    async def _answer(self, tag: str, command: str, rest: str) -> None:
        service, status = self._service, "OK done"
        if command in ("SELECT", "UID SEARCH"):
            self._known = len(service.box)
        if command == "CAPABILITY":
            await self._say("* CAPABILITY IMAP4rev1" + (" IDLE" if service.has_idle else ""))
        elif command == "LOGIN":
            service.logins += 1
            is_right = rest == f'"{ADDRESS}" "{service.password}"'
            status = "OK welcome" if is_right else "NO [AUTHENTICATIONFAILED] wrong password"
        elif command == "SELECT":
            await self._say(f"* {len(service.box)} EXISTS\r\n* OK [UIDVALIDITY {service.validity}] valid")
            status = "OK [READ-WRITE] selected" if rest.strip('"') == "INBOX" else "NO no such folder"
        elif command == "UID SEARCH":
            await self._say(" ".join(["* SEARCH", *map(str, self._search(rest))]))
        elif command == "UID FETCH":
            await self._fetch(rest)
        elif command == "UID STORE":
            service.mark_read(self._find(rest))
        elif command == "EXPUNGE":
            service.expunged += 1
        elif command == "IDLE":
            await self._idle()
        elif command == "LOGOUT":
            await self._say("* BYE")
        await self._say(f"{tag} {status}")

    def _search(self, criteria: str) -> list[int]:
        wanted = re.search(r'HEADER "Message-ID" "(.+?)"', criteria)
        if wanted:
            return [one.uid for one in self._service.box if b"Message-ID: " + wanted[1].encode() in one.raw]
        assert "UNSEEN" in criteria
        assert "SINCE" in criteria
        return [one.uid for one in self._service.box if not one.is_seen]

    def _find(self, rest: str) -> Stored:
        return next(one for one in self._service.box if one.uid == int(rest.split(" ")[0]))

    async def _fetch(self, rest: str) -> None:
        stored = self._find(rest)
        is_head = "HEADER" in rest
        self._service.fetched_whole += not is_head
        data = stored.raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if is_head else stored.raw
        head = (
            f"* 1 FETCH (UID {stored.uid} FLAGS () RFC822.SIZE {len(stored.raw)} BODY[] {{{len(data)}}}\r\n"
        )
        self._writer.write(head.encode() + data + b")\r\n")
        await self._writer.drain()

    async def _idle(self) -> None:
        consent = "+ idling"
        if self._service.arrives_at_idle:
            self._service.say(self._service.arrives_at_idle)
            self._service.arrives_at_idle = ""
            self._known = len(self._service.box)
            consent += f"\r\n* {self._known} EXISTS"
        await self._say(consent)
        self._service.idling += 1
        change = asyncio.create_task(self._service.more_than(self._known))
        done = asyncio.create_task(self._reader.readline())
        try:
            await asyncio.wait([change, done], return_when=asyncio.FIRST_COMPLETED)
            if change.done():
                await self._say(f"* {len(self._service.box)} EXISTS")
            await done
        finally:
            self._service.idling -= 1
            change.cancel()

    async def _say(self, line: str) -> None:
        self._writer.write(line.encode() + b"\r\n")
        await self._writer.drain()


class _Smtp:
    def __init__(self, service: MailService, reader: StreamReader, writer: StreamWriter) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer

    async def run(self) -> None:
        await self._say("220 ready")
        while line := (await self._reader.readline()).decode().strip():
            word = line.split(" ")[0].upper()
            if word == "EHLO":
                offered = "250-STARTTLS\r\n" if self._service.has_starttls else ""
                await self._say(f"250-mail\r\n{offered}250 AUTH PLAIN")
            elif word == "STARTTLS":
                await self._say("220 go on")
                if not await self._encrypt():
                    return
            elif word == "AUTH":
                self._service.passwords_in_the_clear += self._writer.get_extra_info("cipher") is None
                is_right = self._service.password == PASSWORD
                await self._say("235 welcome" if is_right else "535 wrong password")
            elif word == "DATA":
                await self._say("354 go on")
                if not await self._take():
                    return
            elif word == "MAIL" and self._service.failures[:1] == ["break before data"]:
                self._service.failures.pop(0)
                return
            else:
                await self._say("250 fine")

    async def _encrypt(self) -> bool:
        # Not by the writer's own method: if the client refuses, it leaves the writer without a transport.
        assert self._service.tls is not None
        plain, loop = self._writer.transport, asyncio.get_running_loop()
        protocol: Any = plain.get_protocol()
        found = await loop.start_tls(plain, protocol, self._service.tls, server_side=True)
        if found is not None:
            self._writer = StreamWriter(found, protocol, self._reader, loop)
        return found is not None

    async def _take(self) -> bool:
        lines = []
        while (line := await self._reader.readline()) != b".\r\n":
            if not line:
                return False
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        failure = self._service.failures.pop(0) if self._service.failures else ""
        if failure not in ("", "break off"):
            await self._say(failure)
            return True
        self._service.take(b"".join(lines))
        if failure:
            return False
        await self._say("250 taken")
        return True

    async def _say(self, line: str) -> None:
        self._writer.write(line.encode() + b"\r\n")
        await self._writer.drain()
