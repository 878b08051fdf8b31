"""PDF, EPUB, HTML, mail and plain text as sections."""

from __future__ import annotations

import email
import email.policy
import posixpath
from collections.abc import Iterable, Mapping
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import unquote

from everturn.domain.extras import install_command
from everturn.tools.documents.document import TEXT_BYTES_MAX, Document, Section
from everturn.tools.documents.packed import PackedDocument, PackedUnreadable
from everturn.tools.web.readable import readable

_PAGES_MAX = 5_000
_LINES = 60  # per section of a plain text


def read_pdf(path: Path) -> Document:
    try:
        from pypdf import PasswordType, PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError as error:
        raise PackedUnreadable(f"Reading PDFs needs the extra 'pdf': {install_command('pdf')}") from error
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise PackedUnreadable(
                "It is encrypted and needs a password. Save it without one, then attach it again."
            )
        count = len(reader.pages)
    except DependencyError as error:
        raise PackedUnreadable(
            "It is encrypted, and cannot be decrypted here: pip install cryptography."
        ) from error
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise PackedUnreadable(f"It is damaged or not a PDF ({error}). Print it to a new PDF.") from error
    sections: list[Section] = []
    notes: list[str] = []
    left = TEXT_BYTES_MAX
    for number in range(1, min(count, _PAGES_MAX) + 1):
        try:
            text = reader.pages[number - 1].extract_text().strip()
        except (
            PyPdfError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
            RecursionError,
        ) as error:
            # Broken pages are common; read the others.
            notes.append(f"Page {number} cannot be read: {error}.")
            continue
        sections.append(Section(f"page {number}", text))
        left -= len(text.encode("utf-8", "replace"))
        if left < 0:
            notes.append(f"The pages after {number} were left out: the document is too long.")
            break
    if count > _PAGES_MAX:
        notes.append(f"Only the first {_PAGES_MAX:,} of {count:,} pages were read.")
    if not any(section.text for section in sections):
        raise PackedUnreadable(
            " ".join(
                ["It has no text that can be read: its pages are pictures, as after scanning.", *notes[:3]]
            )
        )
    title = str(reader.metadata.title or "")[:200] if reader.metadata else ""
    return Document(title, tuple(sections), tuple(notes[:20]))


def read_epub(path: Path) -> Document:
    package = PackedDocument(path)
    main = ""

    def container(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal main
        if tag == "rootfile":
            main = main or attributes.get("full-path", "")

    package.xml("META-INF/container.xml", container)
    if package.has("META-INF/encryption.xml") and b"EncryptedData" in package.read("META-INF/encryption.xml"):
        raise PackedUnreadable("It is protected against copying (DRM), so it cannot be read.")
    items: dict[str, str] = {}
    spine: list[str] = []

    def manifest(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "item":
            target = posixpath.join(posixpath.dirname(main), unquote(attributes.get("href", "")))
            items[attributes.get("id", "")] = posixpath.normpath(target)
        elif tag == "itemref":
            spine.append(attributes.get("idref", ""))

    package.xml(main, manifest)
    sections: list[Section] = []
    for number, name in enumerate((items[one] for one in spine if one in items), 1):
        if package.has(name):
            found = _html(package.read(name).decode("utf-8", "replace"))
            sections += [_within(f"chapter {number}", section) for section in found.sections]
    return Document("", tuple(sections))


def _within(chapter: str, section: Section) -> Section:
    return Section(f"{chapter}, {section.place}" if section.place else chapter, section.text)


def read_html(path: Path) -> Document:
    return _html(decode(path.read_bytes()))


def _html(page: str) -> Document:
    found = readable(page)
    return Document(found.title, tuple(by_heading(found.text)))


def by_heading(text: str) -> Iterable[Section]:
    """Split the text into sections that each begin with a heading."""
    place, words, is_code = "", list[str](), False
    for line in text.split("\n"):
        is_code ^= line.startswith("```")
        heading = line.lstrip("#").strip() if line.startswith("#") and not is_code else ""
        if heading and line.lstrip("#").startswith(" "):
            if any(words):
                yield Section(place, "\n".join(words).strip())
            place, words = f"heading “{heading[:100]}”", []
        words.append(line)
    if any(words):
        yield Section(place, "\n".join(words).strip())


def read_mail(path: Path) -> Document:
    with path.open("rb") as file:
        mail = email.message_from_binary_file(file, policy=email.policy.default)
    if not isinstance(mail, EmailMessage) or not mail.keys():
        raise PackedUnreadable("It is not a mail: it has no headers.")
    shown = (f"{name}: {_header(mail, name)}" for name in ("From", "To", "Cc", "Date", "Subject"))
    head = "\n".join(line for line in shown if not line.endswith(": "))
    body = mail.get_body(("plain", "html"))
    text = ""
    if body is not None:
        content = _content(body)
        text = readable(content).text if body.get_content_type() == "text/html" else content
    sections = [Section("headers", head), Section("text", text)]
    notes: list[str] = []
    for part in mail.iter_attachments():
        name = part.get_filename() or part.get_content_type()
        if part.get_content_type() in ("text/plain", "text/csv", "text/markdown"):
            sections.append(Section(f"attachment {name[:100]}", _content(part)))
        else:
            notes.append(f"The attachment {name[:100]!r} was not read: save it, then attach it by itself.")
    return Document(_header(mail, "Subject")[:200], tuple(sections), tuple(notes[:20]))


def _header(mail: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(mail.get(name, "")).split())
    except (ValueError, IndexError, AttributeError):
        return ""  # the parser of headers fails on some that are malformed


def _content(part: object) -> str:
    if not isinstance(part, EmailMessage) or part.is_multipart():
        return ""
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        return data.decode(part.get_content_charset() or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return decode(data)


def read_text(path: Path) -> Document:
    """Split plain text into sections: Markdown by heading, anything else by lines."""
    text = decode(path.read_bytes())
    if "\0" in text[:4096]:
        raise PackedUnreadable("It is not text.")
    if path.suffix.lower() in (".md", ".markdown"):
        return Document("", tuple(by_heading(text)))
    lines = text.splitlines()
    groups = range(0, len(lines), _LINES)
    return Document(
        "",
        tuple(
            Section(f"lines {at + 1}-{min(at + _LINES, len(lines))}", "\n".join(lines[at : at + _LINES]))
            for at in groups
        ),
    )


def decode(data: bytes) -> str:
    for mark, charset in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if data.startswith(mark):
            return data.decode(charset, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")
