"""Real files of office programs, made by the libraries that write them, and harmful ones made by hand."""

from __future__ import annotations

import datetime
import zipfile
from email.message import EmailMessage
from pathlib import Path

import openpyxl
from docx import Document
from pptx import Presentation


def make_docx(path: Path, *, paragraphs: int = 0) -> Path:
    document = Document()
    document.add_heading("Annual report", 0)
    document.add_paragraph("What happened this year.")
    document.add_heading("Revenue", 1)
    document.add_paragraph("We earned 42 crowns with lamps.")
    table = document.add_table(2, 2)
    for cell, text in zip(
        (*table.rows[0].cells, *table.rows[1].cells), ("Item", "Price", "Lamp", "7"), strict=True
    ):
        cell.text = text
    for number in range(paragraphs):
        document.add_paragraph(f"Paragraph {number} says nothing that anybody looks for, at some length.")
    document.add_heading("Outlook", 1)
    document.add_paragraph("Next year the zeppelin returns.")
    document.save(str(path))
    return path


def make_xlsx(path: Path, *, rows: int = 3) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Budget"
    sheet.append(["Name", "Day", "Amount", "Paid"])
    for number in range(rows):
        day = datetime.date(2026, 1, 1) + datetime.timedelta(days=number)
        sheet.append([f"Entry {number}", day, number * 1.5, number % 2 == 0])
    book.create_sheet("Sums")["B2"] = "=SUM(Budget!C2:C4)"
    book.save(path)
    return path


def make_pptx(path: Path, *, slides: int = 3) -> Path:
    deck = Presentation()
    for number in range(1, slides + 1):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = f"Title {number}"
        slide.placeholders[1].text = f"First point\nPoint of slide {number}"
        slide.notes_slide.notes_text_frame.text = f"Say this on {number}"
    deck.save(str(path))
    return path


def make_mail(path: Path) -> Path:
    mail = EmailMessage()
    mail["From"] = "olga@example.org"
    mail["To"] = "ivo@example.org"
    mail["Subject"] = "Zážitky z léta"
    mail.set_content("The ferry leaves at nine.")
    mail.add_alternative("<p>The <b>ferry</b> leaves at nine.</p>", subtype="html")
    mail.add_attachment(b"secret", maintype="application", subtype="octet-stream", filename="map.bin")
    path.write_bytes(mail.as_bytes())
    return path


def make_epub(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("mimetype", "application/epub+zip")
        book.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/content.opf"/></rootfiles></container>',
        )
        book.writestr(
            "OEBPS/content.opf",
            '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="one.xhtml"/>'
            '<item id="b" href="two.xhtml"/></manifest><spine><itemref idref="b"/><itemref idref="a"/></spine>'
            "</package>",
        )
        book.writestr("OEBPS/one.xhtml", "<html><body><h1>The sea</h1><p>Waves.</p></body></html>")
        book.writestr(
            "OEBPS/two.xhtml", "<html><body><h1>The shore</h1><p>Sand &amp; stones.</p></body></html>"
        )
    return path


def make_zip_bomb(path: Path, mebibytes: int = 400) -> Path:
    """A Word file of a few hundred kilobytes whose text unpacks to hundreds of megabytes."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open("word/document.xml", "w") as text,
    ):
        text.write(b"<document><body><p><t>")
        for _ in range(mebibytes):
            text.write(b"a" * 1024 * 1024)
    return path


def make_entity_bomb(path: Path) -> Path:
    """A Word file with entities that grow."""
    lines = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(
            "word/document.xml",
            f'<!DOCTYPE d [<!ENTITY l0 "lol">{lines}]><document><p><t>&l11;</t></p></document>',
        )
    return path


def make_pdf(*pages: str) -> bytes:
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


def make_encrypted_pdf(path: Path) -> Path:
    from pypdf import PdfReader, PdfWriter

    plain = path.with_suffix(".plain")
    plain.write_bytes(make_pdf("Hidden words"))
    writer = PdfWriter(clone_from=PdfReader(plain))
    writer.encrypt("open sesame")
    writer.write(path)
    return path
