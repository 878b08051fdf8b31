"""Names and media types of files that come from outside: neither is believed as it was given."""

from __future__ import annotations

from pathlib import Path

RAW = "application/octet-stream"
PDF = "application/pdf"
SNIFF_BYTES = 512  # how much of a file's beginning decides about its type
NAME_LENGTH_MAX = 200

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"\x7fELF", "application/x-executable"),
    (b"MZ", "application/x-executable"),
)
_MP4_BRANDS = {b"avif": "image/avif", b"avis": "image/avif", b"M4A ": "audio/mp4"}
_TEXT_BY_SUFFIX = {
    ".html": "text/html",
    ".htm": "text/html",
    ".svg": "image/svg+xml",
    ".xml": "application/xml",
    ".json": "application/json",
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".css": "text/css",
    ".js": "text/javascript",
}

_DOCUMENTS = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".docm": "docx",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".pptx": "pptx",
    ".pptm": "pptx",
    ".epub": "epub",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".eml": "mail",
    ".mht": "mail",
    # Formats that are not read. The program says so, and what to do.
    ".doc": "old",
    ".xls": "old",
    ".ppt": "old",
    ".msg": "old",
}
_ZIPPED = frozenset(("docx", "xlsx", "pptx", "epub"))
_UNTYPED = ("application/octet-stream", "application/zip")


def describe_file(name: str, head: bytes) -> tuple[str, str]:
    """A safe name for a file, and its media type."""
    safe = safe_name(name)
    return safe, sniff_media_type(head[:SNIFF_BYTES], safe)


def sniff_media_type(head: bytes, name: str) -> str:
    """The media type that the first bytes show. The name only distinguishes kinds of text."""
    for magic, media_type in _MAGIC:
        if head.startswith(magic):
            return media_type
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    if head[4:8] == b"ftyp":
        return _MP4_BRANDS.get(head[8:12], "video/mp4")
    if b"\0" in head or not _is_text(head):
        return RAW
    return _TEXT_BY_SUFFIX.get(Path(name).suffix.lower(), "text/plain")


def document_kind(name: str, media_type: str) -> str | None:
    """How a file has to be converted; None if it is not a document (an image, plain text, a program).

    What the first bytes show counts more than the name: a PDF is one whatever it is called, and a text is no
    document of an office program."""
    kind = _DOCUMENTS.get(Path(name).suffix.lower())
    if media_type == PDF or kind == "pdf":
        return "pdf"
    if kind in _ZIPPED or kind == "old":
        return kind if media_type in _UNTYPED or media_type.startswith("application/vnd.") else None
    return kind if media_type.startswith(("text/", "message/")) or media_type in _UNTYPED else None


def safe_name(given: str) -> str:
    """A name that is only a name: no folders, no control characters, not too long."""
    last = given.replace("\\", "/").rpartition("/")[2]
    clean = "".join(char for char in last if char.isprintable()).strip().strip(".")
    if len(clean) <= NAME_LENGTH_MAX:
        return clean or "file"
    stem, dot, suffix = clean.rpartition(".")
    if not dot or len(suffix) > 20:
        return clean[:NAME_LENGTH_MAX]
    return stem[: NAME_LENGTH_MAX - len(suffix) - 1] + dot + suffix


def _is_text(head: bytes) -> bool:
    for end in range(len(head), max(len(head) - 4, -1), -1):  # a character may be cut at the end
        try:
            head[:end].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return True
    return False
