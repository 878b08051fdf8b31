"""Names and media types of files that come from outside."""

from __future__ import annotations

import pytest

from everturn.domain.media import describe_file, safe_name, sniff_media_type


@pytest.mark.parametrize(
    ("head", "name", "media"),
    [
        (b"\xff\xd8\xff\xe0", "x", "image/jpeg"),
        (b"GIF89a", "x", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8", "x", "image/webp"),
        (b"\0\0\0\x20ftypavif", "x", "image/avif"),
        (b"\0\0\0\x20ftypisom", "x", "video/mp4"),
        (b"PK\x03\x04", "x.docx", "application/zip"),
        (b"{}", "x.json", "application/json"),
        ("é".encode() * 300, "x.md", "text/markdown"),
        (("a" + "é" * 300).encode()[:512], "x.txt", "text/plain"),
        (b"\xff\xfe\x00h", "x.txt", "application/octet-stream"),
        (b"", "x", "text/plain"),
        (b"<svg/>", "x.png", "text/plain"),
    ],
)
def test_bytes_say_what_a_file_is(head: bytes, name: str, media: str) -> None:
    assert sniff_media_type(head, name) == media


def test_a_name_never_holds_a_path() -> None:
    assert safe_name("/etc/passwd") == "passwd"
    assert safe_name("..\\..\\x.bat") == "x.bat"
    assert safe_name("a\0b") == "ab"
    assert safe_name("") == "file"
    assert len(safe_name("x" * 999)) == 200


def test_a_file_is_described_by_its_safe_name_and_its_first_bytes() -> None:
    assert describe_file("../notes.md", "ä".encode() * 400) == ("notes.md", "text/markdown")
    assert describe_file("photo.txt", b"\x89PNG\r\n\x1a\n...") == ("photo.txt", "image/png")
