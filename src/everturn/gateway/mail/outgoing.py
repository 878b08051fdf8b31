"""Writes an answer as a mail: text and HTML, in the thread of its chat."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final

from markdown_it import MarkdownIt

from everturn.domain.delivery import OutgoingPart
from everturn.domain.errors import PlatformRefused
from everturn.gateway.dialects import Dialect
from everturn.gateway.mail.settings import ADDRESS, MailSettings
from everturn.gateway.rendering import render

FILE_BYTES_MAX: Final = 18_000_000  # a third more when encoded; most servers take 25 MB
REPEAT_NOTE: Final = "*This may be a repeat:*"
_TITLE: Final = "Everturn"
_CHARS_MAX: Final = 1 << 40  # a mail is not split
_HEADER_CHARS_MAX: Final = 900  # a line of a mail has at most 998
_MARKDOWN_SIGN: Final = re.compile(r"[!-/:-@\[-`{-~]")
_ESCAPED: Final = r"\\\g<0>"
_PAGE: Final = (
    '<!DOCTYPE html><html><head><meta charset="utf-8"></head>'
    '<body style="font-family:sans-serif;line-height:1.4">{body}</body></html>'
)


def message_id(part_id: str, settings: MailSettings) -> str:
    """Return the Message-ID of a part. It is the same for every attempt, so that repeats are recognised."""
    return f"<{part_id}@{settings.domain}>"


def write_mail(part: OutgoingPart, settings: MailSettings, now_ms: int) -> bytes:
    """Reads the part's file. Raises PlatformRefused."""
    place = part.chat.place
    if not ADDRESS.fullmatch(place.chat):
        raise PlatformRefused(f"{place.chat[:100]!r} is not a mail address.")
    mail = EmailMessage(policy=SMTP)
    mail["From"] = settings.address
    mail["To"] = place.chat
    mail["Subject"] = _subject(part.chat.title)
    mail["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, UTC))
    mail["Message-ID"] = message_id(part.id, settings)
    if "@" in place.thread:
        mail["In-Reply-To"] = f"<{place.thread}>"
        mail["References"] = f"<{place.thread}>"
    mail["Auto-Submitted"] = "auto-replied"  # programs must not answer it
    words = (REPEAT_NOTE if part.is_repeat else "", part.body.text or _words_about_file(part))
    markdown = "\n\n".join(text for text in words if text)
    mail.set_content("\n\n".join(render(markdown, Dialect.PLAIN, _CHARS_MAX)) + "\n", cte="quoted-printable")
    mail.add_alternative(_PAGE.format(body=_page(markdown)), subtype="html", cte="quoted-printable")
    _attach(mail, part)
    # Lines of 78 characters, the usual limit, would break the names of long threads in two.
    return mail.as_bytes(policy=SMTP.clone(max_line_length=_HEADER_CHARS_MAX))


def _words_about_file(part: OutgoingPart) -> str:
    """Return a text for a file's mail, which would otherwise be empty."""
    return "" if part.file is None else f"Attached: {_MARKDOWN_SIGN.sub(_ESCAPED, part.file.name)}"


def _subject(title: str) -> str:
    words = " ".join("".join(char if char.isprintable() else " " for char in title).split()) or _TITLE
    return words if words.lower().startswith("re:") else f"Re: {words}"


def _page(markdown: str) -> str:
    """Return HTML without pictures: the address of one could leak the answer to its server."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    return str(parser.render(markdown))


def _attach(mail: EmailMessage, part: OutgoingPart) -> None:
    if part.file is None:
        return
    if part.file.path.stat().st_size > FILE_BYTES_MAX:
        raise PlatformRefused(f"The file {part.file.name} is too large for a mail.")
    kind, _, subtype = part.file.media_type.partition(";")[0].strip().partition("/")
    if not (kind.isalnum() and subtype) or kind in ("multipart", "message"):
        kind, subtype = "application", "octet-stream"
    data = part.file.path.read_bytes()
    mail.add_attachment(data, maintype=kind, subtype=subtype, filename=part.file.name)
