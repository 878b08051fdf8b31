"""Documents as text: every format with its places, and what cannot be read says why. Real files, real
children."""

from __future__ import annotations

import os
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.media import document_kind, sniff_media_type
from everturn.domain.messages import Outcome
from everturn.domain.store_values import FileKind
from everturn.store import Store
from everturn.tools import Sandbox
from everturn.tools.documents import converter as converters
from everturn.tools.documents.converter import Converter
from everturn.tools.documents.document import Document
from tests.office_files import (
    make_docx,
    make_encrypted_pdf,
    make_entity_bomb,
    make_epub,
    make_mail,
    make_pdf,
    make_pptx,
    make_xlsx,
    make_zip_bomb,
)
from tests.unit.tools.kit import OWNER, SESSION, Kit

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=[True, False], ids=["sandbox", "bare"], scope="module")
async def convert(request, anyio_backend, tmp_path_factory):
    """Converts a file in a child, in the sandbox and without one."""
    sandbox = Sandbox(tmp_path_factory.mktemp("home"), is_wanted=request.param)
    await sandbox.open()
    converter = Converter(sandbox, SystemClock())

    async def run(path: Path) -> Document:
        async def pieces() -> AsyncIterator[bytes]:
            with path.open("rb") as file:
                while piece := file.read(1 << 20):
                    yield piece

        with path.open("rb") as file:
            kind = document_kind(path.name, sniff_media_type(file.read(512), path.name))
        return await converter.convert(kind or "text", path.suffix, pieces())

    run.folder = sandbox.home / "documents"
    yield run
    # Nothing is left of what was converted.
    assert [one.name for one in (sandbox.home / "documents").iterdir()] == ["empty"]
    sandbox.close()


def places(document: Document) -> list[str]:
    assert document.error == ""
    return [section.place for section in document.sections]


async def test_word_has_headings_and_tables(convert, tmp_path: Path) -> None:
    found = await convert(make_docx(tmp_path / "a.docx"))
    assert places(found) == ["heading “Annual report”", "heading “Revenue”", "heading “Outlook”"]
    assert found.title == "Annual report"
    assert found.sections[1].text.splitlines()[1:] == [
        "We earned 42 crowns with lamps.",
        "Item | Price",
        "Lamp | 7",
    ]


async def test_excel_has_sheets_rows_dates_and_formulas(convert, tmp_path: Path) -> None:
    found = await convert(make_xlsx(tmp_path / "a.xlsx"))
    assert places(found) == ["sheet “Budget”, rows 1-4", "sheet “Sums”, rows 2-2"]
    assert found.sections[0].text.splitlines() == [
        "1: Name | Day | Amount | Paid",
        "2: Entry 0 | 2026-01-01 | 0 | TRUE",
        "3: Entry 1 | 2026-01-02 | 1.5 | FALSE",
        "4: Entry 2 | 2026-01-03 | 3 | TRUE",
    ]
    assert "=SUM(Budget!C2:C4)" in found.sections[1].text


async def test_each_group_of_rows_repeats_the_names_of_the_columns(convert, tmp_path: Path) -> None:
    found = await convert(make_xlsx(tmp_path / "a.xlsx", rows=1000))
    assert len(found.sections) > 5
    assert all(section.text.startswith("1: Name | Day") for section in found.sections[:-1])
    assert "1001: Entry 999" in found.sections[-2].text


async def test_powerpoint_has_slides_with_notes(convert, tmp_path: Path) -> None:
    found = await convert(make_pptx(tmp_path / "a.pptx"))
    assert places(found) == ["slide 1", "slide 2", "slide 3"]
    assert found.sections[1].text.splitlines() == [
        "# Title 2",
        "First point",
        "Point of slide 2",
        "Notes: Say this on 2",
    ]


async def test_pdf_has_pages(convert, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(make_pdf("First page", "Second page"))
    found = await convert(tmp_path / "a.pdf")
    assert [(one.place, one.text) for one in found.sections] == [
        ("page 1", "First page"),
        ("page 2", "Second page"),
    ]


async def test_epub_has_chapters_in_reading_order(convert, tmp_path: Path) -> None:
    found = await convert(make_epub(tmp_path / "a.epub"))
    assert places(found) == ["chapter 1, heading “The shore”", "chapter 2, heading “The sea”"]
    assert "Sand & stones." in found.sections[0].text


async def test_html_loses_its_scripts(convert, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<title>T</title><script>evil()</script><h2>Part</h2><p>Words</p>")
    found = await convert(tmp_path / "a.html")
    assert (found.title, places(found)) == ("T", ["heading “Part”"])
    assert "evil" not in found.text()


async def test_mail_has_headers_text_and_names_of_attachments(convert, tmp_path: Path) -> None:
    found = await convert(make_mail(tmp_path / "a.eml"))
    assert places(found) == ["headers", "text"]
    assert "Subject: Zážitky z léta" in found.sections[0].text
    assert found.sections[1].text.strip() == "The ferry leaves at nine."
    assert "map.bin" in found.notes[0]


async def test_plain_text_of_another_time_is_read(convert, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("caf\xe9\n".encode("cp1252") * 130)
    assert places(await convert(tmp_path / "a.txt")) == ["lines 1-60", "lines 61-120", "lines 121-130"]


async def test_a_zip_bomb_is_stopped_and_named(convert, tmp_path: Path) -> None:
    found = await convert(make_zip_bomb(tmp_path / "a.docx"))
    assert "ZIP bomb" in found.error


async def test_entities_are_refused(convert, tmp_path: Path) -> None:
    assert "entities" in (await convert(make_entity_bomb(tmp_path / "a.docx"))).error


async def test_an_encrypted_pdf_says_what_to_do(convert, tmp_path: Path) -> None:
    assert "needs a password" in (await convert(make_encrypted_pdf(tmp_path / "a.pdf"))).error


async def test_encrypted_and_old_office_files_say_what_to_do(convert, tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    assert "without a password" in (await convert(tmp_path / "a.docx")).error
    (tmp_path / "a.doc").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    assert ".docx" in (await convert(tmp_path / "a.doc")).error


@pytest.mark.parametrize("cut", [0.3, 0.9])
async def test_a_broken_workbook_is_reported(convert, tmp_path: Path, cut: float) -> None:
    data = make_xlsx(tmp_path / "a.xlsx", rows=500).read_bytes()
    (tmp_path / "a.xlsx").write_bytes(data[: int(len(data) * cut)])
    assert "damaged" in (await convert(tmp_path / "a.xlsx")).error


async def test_a_workbook_with_spoilt_xml_is_reported(convert, tmp_path: Path) -> None:
    source = zipfile.ZipFile(make_xlsx(tmp_path / "a.xlsx"))
    with zipfile.ZipFile(tmp_path / "b.xlsx", "w") as spoilt:
        for name in source.namelist():
            spoilt.writestr(name, source.read(name).replace(b"<row ", b"<row r='x' <"))
    assert "damaged" in (await convert(tmp_path / "b.xlsx")).error


async def test_a_pdf_that_is_none_is_reported(convert, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4\nnothing of the kind")
    assert "not a PDF" in (await convert(tmp_path / "a.pdf")).error


async def test_more_than_the_limit_is_refused_before_it_is_read(convert, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(converters, "BYTES_MAX", 2_000_000)
    (tmp_path / "a.txt").write_bytes(b"word " * 600_000)
    assert "too large" in (await convert(tmp_path / "a.txt")).error


async def test_what_a_crash_left_is_removed_by_the_next_conversion(convert, tmp_path: Path) -> None:
    found = await convert(make_docx(tmp_path / "a.docx"))
    left = convert.folder / "document-left"
    left.write_bytes(b"x")
    os.utime(left, (1, 1))
    assert found == await convert(tmp_path / "a.docx")
    assert not left.exists()


# --- the tools ------------------------------------------------------------------------------------------


async def session_of(store: Store) -> str:
    return (await store.sessions.create(OWNER)).id


async def attach(kit: Kit, path: Path) -> dict[str, str]:
    """Attach the file to a new session; the changes of a call that make it one of this session."""
    session = await session_of(kit.store)
    await put(kit, path, session)
    return {"session_id": session}


async def put(kit: Kit, path: Path, session: str) -> str:
    media = sniff_media_type(path.read_bytes()[:512], path.name)
    file = await kit.store.files.put(OWNER, path.name, media, path.read_bytes(), session_id=session)
    return file.id


async def test_an_attached_document_is_listed_searched_and_read(kit: Kit, tmp_path: Path) -> None:
    here = await attach(kit, make_docx(tmp_path / "report.docx", paragraphs=400))
    listed = await kit.run("list_documents", here)
    assert "report.docx" in listed.text
    found = await kit.run("search_documents", here, query="When does the zeppelin return?")
    assert "report.docx, heading “Outlook”" in found.text.split("\n\n")[0]
    assert "zeppelin" in found.text
    read = await kit.run("read_document", here, document="report.docx", place="outlook")
    assert "Next year the zeppelin returns." in read.text
    assert read.outcome is Outcome.OK
    missing = await kit.run("read_document", here, document="report.docx", place="page 9")
    assert missing.outcome is Outcome.ERROR
    assert "heading “Revenue”" in missing.text


async def test_a_long_document_is_read_in_parts(kit: Kit, tmp_path: Path) -> None:
    here = await attach(kit, make_xlsx(tmp_path / "b.xlsx", rows=5000))
    first = await kit.run("read_document", here, document="b.xlsx")
    assert len(first.text.encode()) <= 48_000
    following = first.text.rsplit("section=", 1)[1].rstrip("]")
    second = await kit.run("read_document", here, document="b.xlsx", section=int(following))
    assert f"[section {following}: sheet “Budget”" in second.text


async def test_it_is_converted_once_and_again_if_its_text_is_gone(
    kit: Kit, tmp_path: Path, monkeypatch
) -> None:
    ran: list[str] = []
    real = Converter.convert

    async def counted(self, kind, suffix, pieces):
        ran.append(kind)
        return await real(self, kind, suffix, pieces)

    monkeypatch.setattr(Converter, "convert", counted)
    here = await attach(kit, make_docx(tmp_path / "a.docx"))
    for _ in range(3):
        await kit.run("read_document", here, document="a.docx")
    assert ran == ["docx"]
    [(file_id, kept)] = (await kit.store.records.list(OWNER, "document")).items()
    await kit.store.records.put(OWNER, "document", file_id, {**kept, "artifact": "fil_" + "0" * 26})
    assert "42 crowns" in (await kit.run("read_document", here, document="a.docx")).text
    assert ran == ["docx", "docx"]
    await kit.toolbox.forget(OWNER, here["session_id"])
    assert await kit.store.records.list(OWNER, "document") == {}


async def test_documents_of_another_session_cannot_be_read(kit: Kit, tmp_path: Path) -> None:
    other = await session_of(kit.store)
    file_id = await put(kit, make_docx(tmp_path / "a.docx"), other)
    here = {"session_id": await session_of(kit.store)}
    refused = await kit.run("read_document", here, document=file_id)
    assert refused.outcome is Outcome.ERROR
    assert "crowns" not in refused.text


async def test_a_document_of_the_workspace_is_read_and_never_one_outside(kit: Kit, tmp_path: Path) -> None:
    make_pptx(kit.workspace / "deck.pptx")
    assert "Point of slide 2" in (await kit.run("read_document", document="deck.pptx", place="slide 2")).text
    outside = make_docx(tmp_path / "outside.docx")
    (kit.workspace / "link.docx").symlink_to(outside)
    for path in ("link.docx", str(outside), "../../outside.docx"):
        refused = await kit.run("read_document", document=path)
        assert refused.outcome is Outcome.ERROR
        assert "crowns" not in refused.text


async def test_what_cannot_be_read_is_said_and_kept_as_said(kit: Kit, tmp_path: Path) -> None:
    here = await attach(kit, make_encrypted_pdf(tmp_path / "a.pdf"))
    assert "needs a password" in (await kit.run("list_documents", here)).text
    found = await kit.run("search_documents", here, query="hidden")
    assert found.outcome is Outcome.ERROR
    assert "needs a password" in found.text


async def test_half_a_gigabyte_is_refused_without_being_read(kit: Kit, tmp_path: Path) -> None:
    here = {"session_id": await session_of(kit.store)}
    with (kit.workspace / "huge.docx").open("wb") as file:
        file.write(b"PK\x03\x04")
        file.truncate(500_000_000)
    refused = await kit.run("read_document", here, document="huge.docx")
    assert "too large" in refused.text
    assert "500,000,000" in refused.text


async def test_a_model_is_shown_the_whole_or_the_beginning(kit: Kit, tmp_path: Path) -> None:
    session = await session_of(kit.store)
    short = await kit.store.files.get(OWNER, await put(kit, make_docx(tmp_path / "a.docx"), session))
    text = await kit.toolbox.show_document(OWNER, session, short, 60_000, can_search=True)
    assert "[heading “Outlook”]\n# Outlook\nNext year the zeppelin returns." in text
    long = await kit.store.files.get(
        OWNER, await put(kit, make_docx(tmp_path / "b.docx", paragraphs=2000), session)
    )
    text = await kit.toolbox.show_document(OWNER, session, long, 60_000, can_search=True)
    assert len(text) < 5_000
    assert "search_documents" in text
    assert "heading “Outlook”" in text
    cut = await kit.toolbox.show_document(OWNER, session, long, 60_000, can_search=False)
    assert 60_000 < len(cut) < 60_200
    assert "left out" in cut
    artifacts = [
        one for one in await kit.store.files.list_uploads(OWNER, session) if one.kind is FileKind.ARTIFACT
    ]
    assert artifacts == []


async def test_every_tool_for_documents_may_be_repeated_and_only_reads(kit: Kit) -> None:
    specs = {tool.spec.name: tool.spec for tool in await kit.toolbox.tools(OWNER, SESSION, None)}
    for name in ("list_documents", "search_documents", "read_document"):
        assert specs[name].is_safe_to_repeat
        assert specs[name].reads_only
        assert specs[name].is_untrusted
