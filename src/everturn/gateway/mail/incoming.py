"""Converts a mail to an update: its sender, its thread, and the sender's own words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from email.utils import getaddresses, parsedate_to_datetime
from typing import Final

import msgspec
from imap_tools import MailMessage

from everturn.domain.delivery import ChatKind, ChatPlace, RemoteFile, Update
from everturn.gateway.mail.authentication import is_authentic
from everturn.gateway.mail.quotes import cut_html_quote, cut_quote, cut_signature, find_forwarded, is_forward
from everturn.gateway.mail.settings import ADDRESS, MailSettings
from everturn.tools.web.readable import readable

TEXT_CHARS_MAX: Final = 100_000
FILES_MAX: Final = 10
_NAME_CHARS_MAX: Final = 200
_TITLE_CHARS_MAX: Final = 200
_IDS: Final = re.compile(r"<([^<>\s]{1,900})>")
_AUTOMATIC_NAMES: Final = ("mailer-daemon", "postmaster", "no-reply", "noreply", "donotreply", "do-not-reply")
# Headers that only programs and mailing lists write.
_AUTOMATIC_HEADERS: Final = ("list-id", "list-unsubscribe", "x-autoreply", "x-autorespond", "feedback-id")


class Ignored(msgspec.Struct, frozen=True):
    """A mail that is not an update; ``reason`` says why."""

    reason: str
    is_automatic: bool = False


class FileRef(msgspec.Struct, frozen=True):
    """Where a file of a mail is. The number of a mail is valid only together with the folder's
    ``validity``; if the server has renumbered its mails, the mail is found by its Message-ID."""

    validity: str
    uid: str
    index: int
    message_id: str


def sender_of(mail: MailMessage, settings: MailSettings) -> str | Ignored:
    """The address of the person who sent the mail, if that is certain and it was a person."""
    found = _headers(mail, "from")
    addresses = getaddresses(found)
    address = addresses[0][1].lower() if len(found) == 1 and len(addresses) == 1 else ""
    if not ADDRESS.fullmatch(address):
        return Ignored("it does not have exactly one sender")
    if _is_automatic(mail, address, settings):
        return Ignored("it was written by a program or a mailing list", is_automatic=True)
    if not is_authentic(
        _headers(mail, "authentication-results"), address.rpartition("@")[2], settings.authserv
    ):
        return Ignored(f"{settings.authserv} does not say that it is authentic")
    return address


def _is_automatic(mail: MailMessage, address: str, settings: MailSettings) -> bool:
    """True if answering could begin a loop: programs that answer each other never stop."""
    return (
        address == settings.address.lower()
        or address.partition("@")[0] in _AUTOMATIC_NAMES
        or _header(mail, "auto-submitted").lower() not in ("", "no")
        or _header(mail, "precedence").lower() in ("bulk", "junk", "list", "auto_reply")
        or _header(mail, "return-path") == "<>"
        or _header(mail, "content-type").lower().startswith("multipart/report")
        or any(_headers(mail, name) for name in _AUTOMATIC_HEADERS)
    )


def read_mail(account: str, sender: str, mail: MailMessage, validity: str) -> Update:
    """Convert a whole mail to an update."""
    message_id = next(_ids(mail, "message-id"), "")
    answered = [*_ids(mail, "references"), *_ids(mail, "in-reply-to")]
    title = clean(mail.subject)[:_TITLE_CHARS_MAX]
    # Some programs refer to a forwarded mail as if it were answered.
    is_reply = bool(answered) and not is_forward(title)
    text = _text(mail, title, is_reply=is_reply)
    forwarded_from = find_forwarded(title, text, mail.html, is_reply=is_reply)
    return Update(
        update_id(sender, mail),
        ChatPlace(
            account, "mail", ChatKind.MAIL, sender, _thread(answered[0] if answered else message_id, mail)
        ),
        sender,
        text,
        tuple(_files(mail, validity, message_id)),
        sender_name=clean(mail.from_values.name if mail.from_values else "")[:_NAME_CHARS_MAX],
        chat_title=" ".join(title.split()),
        sent_at=_sent_at(mail),
        forwarded_from=forwarded_from[:_NAME_CHARS_MAX],
    )


def read_head(account: str, sender: str, mail: MailMessage, note: str) -> Update:
    """The update for a mail whose body is not read; ``note`` says why."""
    update = read_mail(account, sender, mail, "")
    return msgspec.structs.replace(update, text=f"{update.chat_title}\n\n({note})", files=())


def update_id(sender: str, mail: MailMessage) -> str:
    """The same each time the mail is seen, also after the server has renumbered its mails. It contains the
    sender, so that a mail cannot take the id of another person's mail."""
    name = next(_ids(mail, "message-id"), "") or _fingerprint(mail)
    return hashlib.sha256(f"{sender}\n{name}".encode("utf-8", "replace")).hexdigest()


def clean(text: str) -> str:
    """Remove the characters that some store refuses."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _fingerprint(mail: MailMessage) -> str:
    """Identifies a mail without a Message-ID by the headers that do not change."""
    names = ("date", "from", "to", "subject", "received")
    return repr([_headers(mail, name) for name in names])


def _thread(name: str, mail: MailMessage) -> str:
    """Return the Message-ID of the thread's first mail, or a hash if it cannot be used as a name."""
    if name and name.isascii() and name.isprintable() and len(name) <= _NAME_CHARS_MAX:
        return name
    return hashlib.sha256((name or _fingerprint(mail)).encode("utf-8", "replace")).hexdigest()


def _text(mail: MailMessage, subject: str, *, is_reply: bool) -> str:
    text = mail.text if mail.text.strip() else _text_of_page(mail.html, is_reply=is_reply)
    text = clean(text.replace("\r\n", "\n"))
    if is_reply:  # a forwarded mail is wanted whole
        text = cut_quote(text)
    text = cut_signature(text).strip()
    if len(text) > TEXT_CHARS_MAX:
        text = text[:TEXT_CHARS_MAX] + "\n(The mail is longer; the rest was not read.)"
    if len(mail.attachments) > FILES_MAX:
        text += f"\n({len(mail.attachments) - FILES_MAX} more files were left out.)"
    # A single word, such as a command or a code, is read without the subject.
    if is_reply or not subject or len(text.split()) == 1 or text.startswith("/"):
        return text
    return f"{subject}\n\n{text}".strip()


def _text_of_page(page: str, *, is_reply: bool) -> str:
    return readable(cut_html_quote(page) if is_reply else page).text


def _files(mail: MailMessage, validity: str, message_id: str) -> Iterator[RemoteFile]:
    for index, file in enumerate(mail.attachments[:FILES_MAX]):
        ref = FileRef(validity, mail.uid or "", index, message_id)
        name = clean(file.filename)[:_NAME_CHARS_MAX] or (
            "mail.eml" if file.content_type == "message/rfc822" else ""
        )
        yield RemoteFile(msgspec.json.encode(ref).decode(), name, file.content_type, file.size)


def _sent_at(mail: MailMessage) -> int | None:
    try:
        return round(parsedate_to_datetime(mail.date_str).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _ids(mail: MailMessage, header: str) -> Iterator[str]:
    for value in _headers(mail, header):
        yield from (found[1] for found in _IDS.finditer(value))


def _headers(mail: MailMessage, name: str) -> list[str]:
    """The values of all headers with this name, from the top."""
    return [str(value) for value in mail.obj.get_all(name, [])]


def _header(mail: MailMessage, name: str) -> str:
    """The first word of a header; none: empty."""
    return ([*_headers(mail, name), ""][0].split(";")[0]).strip()
