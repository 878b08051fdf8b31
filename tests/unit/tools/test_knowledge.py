"""Knowledge is found by its words, stays in step with its folder, and is only shown to those who use it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid, NotFound
from everturn.domain.ids import Ids
from everturn.domain.machine import Machine
from everturn.domain.messages import Outcome
from everturn.tools import Sandbox
from everturn.tools.documents.converter import Converter
from everturn.tools.knowledge.book import Knowledge, KnowledgeBook
from everturn.tools.knowledge.library import KnowledgeLibrary
from everturn.tools.workspaces import Workspaces
from tests.office_files import make_docx, make_encrypted_pdf, make_pdf, make_xlsx
from tests.unit.tools.kit import OWNER, SESSION, Kit

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    papers = tmp_path / "papers"
    (papers / "old").mkdir(parents=True)
    (papers / "notes.md").write_text("# Garden\nThe walnut grows slowly.\n# House\nThe roof leaks.")
    make_docx(papers / "old" / "report.docx")
    (papers / "lease.pdf").write_bytes(make_pdf("Rent", "The landlord is Mrs Novak"))
    return papers


def library(kit: Kit) -> KnowledgeLibrary:
    assert kit.toolbox.knowledge is not None
    return kit.toolbox.knowledge


async def make(kit: Kit, folder: Path | None, **changes) -> Knowledge:
    place = None if folder is None else str(folder)
    given = Knowledge("", OWNER, changes.pop("name", "Papers"), 1, place, sessions=(SESSION,))
    return await library(kit).book.add(Ids(SystemClock()), msgspec.structs.replace(given, **changes))


async def search(kit: Kit, knowledge: Knowledge, query: str) -> list[str]:
    """Where it is found, after a look at what there is now."""
    await library(kit).look(knowledge)
    found, _ = await library(kit).find(knowledge, query, 10)
    return [f"{one.document.partition('/')[2]}, {one.place}" for one in found]


async def test_words_are_found_with_file_and_place(kit: Kit, folder: Path) -> None:
    papers = await make(kit, folder)
    assert await search(kit, papers, "WALNUT") == ["notes.md, heading “Garden”"]
    assert await search(kit, papers, "landlord Novak") == ["lease.pdf, page 2"]
    assert await search(kit, papers, "zeppelin returns") == ["old/report.docx, heading “Outlook”"]
    assert await search(kit, papers, 'quotes " and * AND NEAR(') == await search(
        kit, papers, "quotes and near"
    )


async def test_it_stays_in_step_with_its_folder(kit: Kit, folder: Path) -> None:
    papers = await make(kit, folder)
    assert await search(kit, papers, "walnut")
    (folder / "notes.md").write_text("# Garden\nThe cherry is in bloom.")
    (folder / "lease.pdf").unlink()
    make_xlsx(folder / "budget.xlsx")
    assert await search(kit, papers, "walnut") == []
    assert await search(kit, papers, "landlord") == []
    assert await search(kit, papers, "cherry") == ["notes.md, heading “Garden”"]
    assert await search(kit, papers, "“Entry 2”") == ["budget.xlsx, sheet “Budget”, rows 1-4"]
    state = await library(kit).state(papers)
    assert (state.index.files, state.waiting, state.index.errors) == (3, 0, ())


async def test_unchanged_files_are_not_read_again(kit: Kit, folder: Path, monkeypatch) -> None:
    papers = await make(kit, folder)
    await library(kit).look(papers)
    read: list[str] = []
    real = Converter.convert

    async def counted(self, kind, suffix, pieces):
        read.append(suffix)
        return await real(self, kind, suffix, pieces)

    monkeypatch.setattr(Converter, "convert", counted)
    (folder / "notes.md").write_text("# Other\nwords")
    await library(kit).look(papers)
    await library(kit).look(papers)
    assert read == [".md"]


async def test_links_hidden_files_and_dependencies_are_left_out(
    kit: Kit, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("walnut of somebody else")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "away").symlink_to(tmp_path)
    (folder / ".hidden.txt").write_text("walnut")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "a.txt").write_text("walnut")
    papers = await make(kit, folder)
    assert await search(kit, papers, "walnut") == ["notes.md, heading “Garden”"]


async def test_a_file_that_cannot_be_read_is_named_with_the_reason(kit: Kit, folder: Path) -> None:
    make_encrypted_pdf(folder / "locked.pdf")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    papers = await make(kit, folder)
    await library(kit).look(papers)
    [(path, why)] = (await library(kit).state(papers)).index.errors
    assert path == "locked.pdf"
    assert "needs a password" in why


async def test_a_folder_that_is_gone_keeps_what_was_read_and_says_so(kit: Kit, folder: Path) -> None:
    papers = await make(kit, folder)
    assert await search(kit, papers, "walnut")
    folder.rename(folder.with_name("moved"))
    assert await search(kit, papers, "walnut") == ["notes.md, heading “Garden”"]
    assert "is not there" in (await library(kit).state(papers)).index.trouble
    folder.with_name("moved").rename(folder)
    assert await search(kit, papers, "walnut")
    assert (await library(kit).state(papers)).index.trouble == ""


async def test_a_link_put_in_the_place_of_the_folder_is_not_followed(
    kit: Kit, folder: Path, tmp_path: Path
) -> None:
    papers = await make(kit, folder)
    await library(kit).look(papers)
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret.txt").write_text("treasure")
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(other)
    assert await search(kit, papers, "treasure") == []


async def test_uploads_are_kept_replaced_and_removed(kit: Kit, tmp_path: Path) -> None:
    books, book = await make(kit, None), library(kit).book
    await book.put_file(books, "report.docx", make_docx(tmp_path / "a.docx"), 1)
    assert await search(kit, books, "zeppelin") == ["report.docx, heading “Outlook”"]
    (tmp_path / "a.txt").write_text("The balloon returns.")
    await book.put_file(books, "report.docx", tmp_path / "a.txt", 2)
    assert await search(kit, books, "zeppelin") == []
    assert await search(kit, books, "balloon") == ["report.docx, lines 1-1"]
    await book.delete_file(books, "report.docx")
    assert await search(kit, books, "balloon") == []


async def test_bytes_of_uploads_survive_collection_until_the_knowledge_is_deleted(
    kit: Kit, tmp_path: Path
) -> None:
    books, book = await make(kit, None), library(kit).book
    (tmp_path / "a.txt").write_text("The balloon returns.")
    file = await book.put_file(books, "a.txt", tmp_path / "a.txt", 1)
    blobs = kit.store.blobs
    for _ in range(2):
        await blobs.collect(grace_ms=0, wait_ms=0)
    assert await blobs.find([file.sha256])
    await book.delete(OWNER, books.id)
    for _ in range(2):
        await blobs.collect(grace_ms=0, wait_ms=0)
    assert not await blobs.find([file.sha256])


async def test_what_a_deletion_left_half_done_is_swept(kit: Kit, tmp_path: Path) -> None:
    books, book = await make(kit, None), library(kit).book
    (tmp_path / "a.txt").write_text("words")
    await book.put_file(books, "a.txt", tmp_path / "a.txt", 1)
    await kit.store.records.delete("system", "knowledge", books.id)
    assert await book.sweep() == 1
    assert await book.files(books) == []


async def test_a_damaged_index_is_made_again(kit: Kit, folder: Path) -> None:
    papers = await make(kit, folder)
    assert await search(kit, papers, "walnut")
    path = kit.home / "knowledge" / f"{papers.id}.db"
    path.write_bytes(os.urandom(8192))
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    await library(kit).look(papers)
    assert await search(kit, papers, "walnut") == ["notes.md, heading “Garden”"]


async def test_an_index_that_is_gone_is_made_again_by_a_search(kit: Kit, folder: Path) -> None:
    papers = await make(kit, folder)
    await library(kit).look(papers)
    library(kit).index(papers).delete()
    library(kit)._places.clear()
    found, _ = await library(kit).find(papers, "walnut", 10)
    assert [one.place for one in found] == ["heading “Garden”"]


async def test_only_sessions_and_profiles_that_use_it_find_it(kit: Kit, folder: Path) -> None:
    papers = await make(kit, folder, sessions=("ses_other",))
    assert "walnut" not in (await kit.run("search_documents", query="walnut")).text
    refused = await kit.run("read_document", document=f"{papers.id}/notes.md")
    assert refused.outcome is Outcome.ERROR
    await library(kit).book.change(msgspec.structs.replace(papers, profiles=("default",)))
    found = await kit.run("search_documents", query="walnut")
    assert "Papers: notes.md, heading “Garden”" in found.text
    read = await kit.run("read_document", document=f"{papers.id}/notes.md")
    assert f"such as {papers.id}/" in (await kit.run("read_document", document="notes.md")).text
    assert "walnut grows slowly" in read.text
    assert papers.id in (await kit.run("list_documents")).text
    guest = await kit.run("search_documents", {"owner": "guest"}, query="walnut")
    assert "walnut grows" not in guest.text


async def test_its_text_is_from_outside_unless_the_user_says_that_it_is_their_own(
    kit: Kit, folder: Path
) -> None:
    papers = await make(kit, folder)
    assert not (await kit.run("search_documents", query="walnut")).is_own
    await library(kit).book.change(msgspec.structs.replace(papers, is_own=True))
    assert (await kit.run("search_documents", query="walnut")).is_own
    assert (await kit.run("read_document", document=f"{papers.id}/notes.md")).is_own
    # One hit from elsewhere is enough for the whole result to be from outside.
    await make(kit, folder, name="Found")
    assert not (await kit.run("search_documents", query="walnut")).is_own


async def test_a_folder_of_another_machine_is_named(kit: Kit, folder: Path, tmp_path: Path) -> None:
    papers = await make(kit, folder)
    elsewhere = msgspec.structs.replace(papers, machine="m1@attic")
    book = KnowledgeBook(kit.store.records, kit.store.blobs, Machine("m2", "cellar"))
    other = KnowledgeLibrary(
        book,
        kit.store.blobs,
        Converter(Sandbox(tmp_path / "b"), SystemClock()),
        SystemClock(),
        Workspaces(tmp_path / "b"),
    )
    found, note = await other.find(elsewhere, "walnut", 10)
    assert found == []
    assert "on the machine attic" in note
    assert (await other.state(elsewhere)).elsewhere == "attic"


async def test_uploads_are_searched_by_a_worker_with_an_empty_folder(kit: Kit, tmp_path: Path) -> None:
    books = await make(kit, None)
    await library(kit).book.put_file(books, "report.docx", make_docx(tmp_path / "a.docx"), 1)
    sandbox = Sandbox(tmp_path / "other")
    await sandbox.open()
    book = KnowledgeBook(kit.store.records, kit.store.blobs, Machine("m2", "cellar"))
    other = KnowledgeLibrary(
        book,
        kit.store.blobs,
        Converter(sandbox, SystemClock()),
        SystemClock(),
        Workspaces(tmp_path / "other"),
    )
    found, _ = await other.find(books, "zeppelin", 10)
    sandbox.close()
    assert [one.name for one in found] == ["Papers: report.docx"]


async def test_names_are_unique_and_unknown_ids_are_not_found(kit: Kit, folder: Path) -> None:
    papers = await make(kit, folder)
    with pytest.raises(Invalid):
        await make(kit, folder, name="papers")
    with pytest.raises(NotFound):
        await library(kit).book.get("somebody else", papers.id)
