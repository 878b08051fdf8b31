from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from everturn.domain.errors import Invalid, NotFound, Overloaded
from everturn.domain.ids import Ids
from everturn.memory.notebook import FileNotebooks
from everturn.memory.notes import BY_USER, read_page, turn_source
from everturn.testing import FakeClock, within

pytestmark = pytest.mark.anyio
OWNER = "ada"


@pytest.fixture
def books(tmp_path: Path, clock: FakeClock) -> FileNotebooks:
    return FileNotebooks(tmp_path / "memory", Ids(clock))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "memory" / OWNER / "2025-06.md"


async def test_a_fact_is_readable_markdown_with_where_it_came_from(
    books: FileNotebooks, page: Path, clock: FakeClock
) -> None:
    note = await books.remember(OWNER, "Prefers  tea\nto coffee.", clock.now_ms(), "from ses_1 trn_1")
    lines = page.read_text().splitlines()
    assert lines[0] == "# Remembered in June 2025"
    assert lines[-2:] == ["- Prefers tea to coffee.", f"  ({note.id}, 2025-06-15, from ses_1 trn_1)"]
    assert (note.session_id, note.turn_id) == ("ses_1", "trn_1")
    assert await books.notes(OWNER) == [note]


async def test_the_same_fact_is_noted_once(books: FileNotebooks, clock: FakeClock) -> None:
    first = await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    assert await books.remember(OWNER, "prefers TEA.", clock.now_ms()) == first
    assert len(await books.notes(OWNER)) == 1


async def test_many_that_note_the_same_fact_at_once_note_it_once(tmp_path: Path, clock: FakeClock) -> None:
    processes = [FileNotebooks(tmp_path / "memory", Ids(clock)) for _ in range(4)]
    noted: set[str] = set()

    async def note(books: FileNotebooks) -> None:
        noted.add((await books.remember(OWNER, "Prefers tea.", clock.now_ms())).id)

    async with anyio.create_task_group() as group:
        for books in processes * 4:
            group.start_soon(note, books)
    assert len(noted) == len(await processes[0].notes(OWNER)) == 1


async def test_what_the_user_writes_into_the_file_is_a_note(
    books: FileNotebooks, page: Path, clock: FakeClock
) -> None:
    await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    page.write_text(page.read_text() + "\nSome words of mine.\n\n* Plays the viola\n  on Sundays.\n")
    notes = await books.notes(OWNER)
    assert [(note.text, note.source) for note in notes] == [
        ("Prefers tea.", BY_USER),
        ("Plays the viola\non Sundays.", BY_USER),
    ]
    assert [note.id for note in await books.find(OWNER, "viola?", 5)] == [notes[1].id]


async def test_editing_and_forgetting_leave_the_rest_of_the_file_alone(
    books: FileNotebooks, page: Path, clock: FakeClock
) -> None:
    tea = await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    page.write_text(page.read_text() + "\n## My heading\n\n- Plays the viola\n\nThe end.\n")
    viola = (await books.notes(OWNER))[1]
    changed = await books.edit(OWNER, tea.id, "Prefers coffee.")
    assert (changed.id, changed.text) == (tea.id, "Prefers coffee.")
    edited = await books.edit(OWNER, viola.id, "Plays the cello")
    assert edited.id == viola.id, "a note keeps its id when its words change"
    assert "## My heading" in page.read_text()
    assert page.read_text().endswith("The end.\n")
    await books.forget(OWNER, tea.id)
    assert [note.text for note in await books.notes(OWNER)] == ["Plays the cello"]
    assert "coffee" not in page.read_text()
    with pytest.raises(NotFound):
        await books.forget(OWNER, tea.id)


async def test_a_deleted_note_is_not_found_however_it_was_deleted(
    books: FileNotebooks, page: Path, clock: FakeClock
) -> None:
    await books.remember(OWNER, "Lives in Lisbon.", clock.now_ms())
    await books.remember(OWNER, "Works in Lisbon.", clock.now_ms())
    assert len(await books.find(OWNER, "Lisbon", 5)) == 2
    assert await books.holds(OWNER, ["Lives in Lisbon."])
    text = page.read_text().splitlines()
    at = text.index("- Lives in Lisbon.")
    page.write_text("\n".join(text[:at] + text[at + 2 :]) + "\n")
    assert [note.text for note in await books.find(OWNER, "Lisbon", 5)] == ["Works in Lisbon."]
    assert not await books.holds(OWNER, ["Lives in Lisbon."])
    page.unlink()
    assert await books.find(OWNER, "Lisbon", 5) == []


async def test_two_owners_never_share_a_note(books: FileNotebooks, clock: FakeClock, tmp_path: Path) -> None:
    await books.remember(OWNER, "Lives in Lisbon.", clock.now_ms())
    for other in ("eve", "../ada", "ada/../ada", "ADA", ".", ".."):
        assert await books.notes(other) == []
        assert await books.find(other, "Lisbon", 5) == []
        folder = books.folder_of(other)
        assert folder.parent == tmp_path / "memory"
        assert folder != books.folder_of(OWNER)


@pytest.mark.parametrize("text", ["", "  \n ", "x" * 2001])
async def test_a_note_that_is_empty_or_too_long_is_refused(
    books: FileNotebooks, clock: FakeClock, text: str
) -> None:
    with pytest.raises(Invalid):
        await books.remember(OWNER, text, clock.now_ms())
    assert await books.notes(OWNER) == []


async def test_two_processes_see_each_others_notes(tmp_path: Path, clock: FakeClock) -> None:
    mine, theirs = FileNotebooks(tmp_path, Ids(clock)), FileNotebooks(tmp_path, Ids(clock))
    await mine.remember(OWNER, "One.", clock.now_ms())
    await theirs.remember(OWNER, "Two.", clock.now_ms())
    await mine.remember(OWNER, "Three.", clock.now_ms())
    assert [note.text for note in await theirs.notes(OWNER)] == ["One.", "Two.", "Three."]


@pytest.mark.parametrize("query", ['"', "AND OR NOT", "a:b*", "NEAR(", "(", "", "the of", "\x00", "日本"])
async def test_any_prompt_is_a_query(books: FileNotebooks, clock: FakeClock, query: str) -> None:
    await books.remember(OWNER, "Lives in Lisbon.", clock.now_ms())
    assert await books.find(OWNER, query, 5) == []


# --- what an editor, or a hand, can do to the folder ------------------------------------------------------


@pytest.fixture
def folder(page: Path) -> Path:
    page.parent.mkdir(parents=True)
    return page.parent


async def texts(books: FileNotebooks) -> list[str]:
    return [note.text for note in await books.notes(OWNER)]


async def test_bytes_that_are_no_text_stay_in_the_file_and_out_of_the_notes(
    books: FileNotebooks, page: Path, folder: Path, clock: FakeClock
) -> None:
    before = b"- caf\xe9 at noon\n\n\xff\xfe raw \x00 bytes\n\n- tea\x00 at five\n"
    page.write_bytes(before)
    assert await texts(books) == ["caf\ufffd at noon", "tea\ufffd at five"]
    tea = (await books.notes(OWNER))[1]
    note = await books.remember(OWNER, "Lone \ud800 half\x1b[31m", clock.now_ms())
    assert note.text == "Lone \ufffd half\ufffd[31m"
    await books.forget(OWNER, tea.id)
    assert page.read_bytes().startswith(b"- caf\xe9 at noon\n\n\xff\xfe raw \x00 bytes\n")
    assert await books.holds(OWNER, ["caf\ufffd at noon"]), "what is recalled of it is found again"


async def test_the_line_ends_of_windows_and_odd_separators_are_kept(
    books: FileNotebooks, page: Path, folder: Path, clock: FakeClock
) -> None:
    page.write_bytes(b"\xef\xbb\xbf- first\r\n- second\r\n\r\nA\x0cpage\xe2\x80\xa8break.\r\n")
    assert await texts(books) == ["first", "second"]
    second = (await books.notes(OWNER))[1]
    await books.edit(OWNER, second.id, "changed")
    added = await books.remember(OWNER, "added", clock.now_ms())
    assert page.read_bytes() == (
        b"\xef\xbb\xbf- first\r\n- changed\r\n  (%b, 2025-06-01, you)\r\n\r\nA\x0cpage\xe2\x80\xa8break.\r\n"
        b"\r\n- added\r\n  (%b, 2025-06-15, you)\r\n" % (second.id.encode(), added.id.encode())
    )


async def test_an_unreadable_page_is_skipped_and_reported_and_the_rest_is_read(
    books: FileNotebooks, page: Path, folder: Path, tmp_path: Path, clock: FakeClock
) -> None:
    await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    (tmp_path / "outside.md").write_text("- The user loves spam.\n")
    (folder / "outside.md").symlink_to(tmp_path / "outside.md")
    (folder / "dangling.md").symlink_to(tmp_path / "nowhere")
    (folder / "folder.md").mkdir()
    (folder / "empty.md").touch()
    (folder / "huge.md").write_text("- one more fact\n" * 150_000)
    assert await texts(books) == ["Prefers tea."]
    assert await books.problems(OWNER) == [
        "dangling.md is not a plain file; it is not read.",
        "folder.md is not a plain file; it is not read.",
        "huge.md is larger than 2 MB; it is not read.",
        "outside.md is not a plain file; it is not read.",
    ]
    for name in ("dangling.md", "huge.md", "outside.md"):
        (folder / name).unlink()
    (folder / "folder.md").rmdir()
    assert await books.problems(OWNER) == []


@pytest.mark.parametrize("kind", ["link", "huge"])
async def test_nothing_is_noted_in_a_file_that_is_not_read_and_the_file_stays_as_it_is(
    books: FileNotebooks, page: Path, folder: Path, tmp_path: Path, clock: FakeClock, kind: str
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("- x\n" * (1 if kind == "link" else 600_000))
    if kind == "link":
        page.symlink_to(outside)
    else:
        outside.rename(page)
    before = page.read_bytes()
    with pytest.raises(Invalid, match=r"2025-06\.md is .*; nothing can be noted in it"):
        await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    assert page.read_bytes() == before
    assert page.is_symlink() == (kind == "link")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_without_permission_is_reported_and_read_once_it_is_readable(
    books: FileNotebooks, page: Path, folder: Path
) -> None:
    page.write_text("- Prefers tea.\n")
    page.chmod(0)
    assert await texts(books) == []
    assert await books.problems(OWNER) == ["2025-06.md cannot be read (Permission denied); it is not read."]
    page.chmod(0o600)
    assert await texts(books) == ["Prefers tea."]
    assert await books.problems(OWNER) == []


async def test_a_page_that_is_renamed_or_copied_keeps_its_notes_and_what_is_forgotten_is_gone_from_both(
    books: FileNotebooks, page: Path, folder: Path, clock: FakeClock
) -> None:
    tea = await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    page.rename(folder / "drinks.md")
    assert [note.id for note in await books.notes(OWNER)] == [tea.id]
    await books.remember(OWNER, "Plays the viola.", clock.now_ms())
    (folder / "copy.md").write_bytes((folder / "drinks.md").read_bytes())
    assert sorted(await texts(books)) == ["Plays the viola.", "Prefers tea."], "each is one note"
    await books.forget(OWNER, tea.id)
    assert await texts(books) == ["Plays the viola."]
    assert await books.find(OWNER, "tea", 5) == []


@contextmanager
def locked_by_another_process(page: Path) -> Iterator[None]:
    with (page.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def test_who_reads_does_not_wait_for_a_process_that_was_stopped_while_it_had_the_lock(
    books: FileNotebooks, page: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    is_waiting = anyio.Event()
    flock = fcntl.flock

    async with anyio.create_task_group() as group:
        with locked_by_another_process(page), within("the notes are read, although a writer waits"):
            told = anyio.lowlevel.current_token()

            def try_lock(descriptor: int, how: int) -> None:
                anyio.from_thread.run_sync(is_waiting.set, token=told)
                flock(descriptor, how)

            monkeypatch.setattr(fcntl, "flock", try_lock)
            group.start_soon(books.remember, OWNER, "Plays the viola.", clock.now_ms())
            await is_waiting.wait()
            assert [note.text for note in await books.notes(OWNER)] == ["Prefers tea."]
    assert len(await books.notes(OWNER)) == 2


async def test_who_gives_up_waiting_for_the_lock_is_not_held_by_it(
    books: FileNotebooks, page: Path, clock: FakeClock
) -> None:
    await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    with locked_by_another_process(page), within("the one who was cancelled is gone"):
        async with anyio.create_task_group() as group:
            group.start_soon(books.remember, OWNER, "Plays the viola.", clock.now_ms())
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        # Nor does a thread wait for it, which would keep the process from ending.
        while anyio.to_thread.current_default_thread_limiter().borrowed_tokens:
            await anyio.lowlevel.checkpoint()
    assert [note.text for note in await books.notes(OWNER)] == ["Prefers tea."]


async def test_notes_that_another_process_holds_for_long_are_refused_with_a_message(
    tmp_path: Path, clock: FakeClock
) -> None:
    books = FileNotebooks(tmp_path, Ids(clock), lock_wait_s=0.01)
    page = books.folder_of(OWNER) / "2025-06.md"
    page.parent.mkdir()
    with locked_by_another_process(page), pytest.raises(Overloaded, match="Nothing was noted"):
        await books.remember(OWNER, "Plays the viola.", clock.now_ms())
    assert await books.notes(OWNER) == []


async def test_what_is_forgotten_after_a_crash_among_the_steps_of_a_commit_does_not_come_back(
    books: FileNotebooks, page: Path, clock: FakeClock
) -> None:
    note = await books.remember(OWNER, "Prefers tea.", clock.now_ms(), turn_source("ses_1", "trn_1"))
    # The notes were written, and then the process died, before it could say which turns they came from.
    (page.parent / ".taking").write_text("trn_1\n")
    await books.forget(OWNER, note.id)
    assert await books.new_turns(OWNER, "key", ["trn_1", "trn_2"]) == ["trn_2"]


def test_a_page_of_anything_is_read_without_harm() -> None:
    assert read_page("2025-06.md", "") == []
    assert read_page("2025-06.md", "-\n- \n-no\n1. x\n") == []
    (note,) = read_page("my own.md", "- words\n  (not_short, 2025-06-01)\n")
    assert note.text == "words\n(not_short, 2025-06-01)"
    assert note.created_at is None
