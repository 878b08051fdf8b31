"""The text of a PDF reaches the model; a broken PDF is reported to the model and fails nothing."""

from __future__ import annotations

from pathlib import Path

from everturn.engine.attachments import pdf_text


def document(*pages: str) -> bytes:
    """A small valid PDF with one line of text per page."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for index, text in enumerate(pages):
        content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * index} 0 R >>".encode()
        )
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content))
    body, places = b"%PDF-1.4\n", []
    for number, value in enumerate(objects, start=1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, value)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    tail = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(body))
    return body + head + table + tail


def test_the_words_of_every_page_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(document("First page", "Second page"))
    assert pdf_text(path, 10_000).split("\n\n") == ["First page", "Second page"]


def test_a_long_document_is_cut_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(document("0123456789", "never read"))
    text = pdf_text(path, 4)
    assert text.startswith("0123")
    assert "left out" in text
    assert "never" not in text


def test_a_file_that_is_no_pdf_is_reported_as_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"%PDF-1.4\nnothing of the kind")
    assert "cannot be read" in pdf_text(path, 100)
