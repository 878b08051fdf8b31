"""G01: the same notes are recalled on every server. Both kinds of notebook keep the same promises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.ids import Ids
from everturn.domain.memory import NotePages
from everturn.domain.runtime import Runtime
from everturn.memory import BuiltMemory, build_memory, import_notes
from everturn.memory.notebook import FileNotebooks, Notebooks, StoredNotebooks
from everturn.memory.notes import turn_source
from everturn.store import Store
from everturn.testing import FakeClock, ScriptedModel, ScriptedModels
from tests.conftest import OpenAnother
from tests.waiting import HeldUp, until

pytestmark = pytest.mark.anyio
OWNER = "ada"
only_postgres = pytest.mark.parametrize("store_kind", ["postgresql"], indirect=True)

OpenBooks = Callable[[], Notebooks]


@pytest.fixture
def open_books(store: Store, tmp_path: Path, clock: FakeClock) -> OpenBooks:
    """The notebooks of one more process: on the same files, or on the same rows."""

    def open_one() -> Notebooks:
        if store.notes is None:
            return FileNotebooks(tmp_path / "memory", Ids(clock))
        return StoredNotebooks(store.notes, Ids(clock))

    return open_one


def texts(notes: list[Any]) -> list[str]:
    return [note.text for note in notes]


# --- both kinds ----------------------------------------------------------------------------------------


async def test_g01_what_one_process_notes_changes_and_forgets_every_other_sees(
    open_books: OpenBooks, clock: FakeClock
) -> None:
    mine, theirs = open_books(), open_books()
    assert await theirs.notes(OWNER) == []
    tea = await mine.remember(OWNER, "Prefers  tea\nto coffee.", clock.now_ms(), "from ses_1 trn_1")
    assert await theirs.notes(OWNER) == [tea]
    assert (tea.session_id, tea.turn_id) == ("ses_1", "trn_1")
    assert texts(await theirs.find(OWNER, "coffee?", 5)) == ["Prefers tea to coffee."]
    assert await theirs.holds(OWNER, ["Prefers tea to coffee."])
    assert (await theirs.edit(OWNER, tea.id, "Prefers milk.")).id == tea.id
    assert texts(await mine.find(OWNER, "milk", 5)) == ["Prefers milk."]
    assert await mine.find(OWNER, "coffee", 5) == []
    await mine.forget(OWNER, tea.id)
    assert await theirs.notes(OWNER) == []
    with pytest.raises(NotFound):
        await theirs.get(OWNER, tea.id)
    assert await theirs.notes("eve") == []


async def test_g01_many_that_note_the_same_fact_at_once_note_it_once(
    open_books: OpenBooks, clock: FakeClock
) -> None:
    processes = [open_books() for _ in range(3)]
    noted: set[str] = set()

    async def note(books: Notebooks) -> None:
        noted.add((await books.remember(OWNER, "Prefers tea.", clock.now_ms())).id)

    async with anyio.create_task_group() as group:
        for books in processes * 3:
            group.start_soon(note, books)
    assert len(noted) == len(await processes[0].notes(OWNER)) == 1


async def test_g01_a_turn_that_two_processes_commit_is_noted_once(
    open_books: OpenBooks, clock: FakeClock
) -> None:
    first, second = open_books(), open_books()
    at, source = clock.now_ms(), turn_source("ses_1", "trn_1")
    assert await first.new_turns(OWNER, "key", ["trn_1", "trn_2"]) == ["trn_1", "trn_2"]
    await first.record_turns(OWNER, ["trn_1"], [first.new("Keeps bees.", at, source)])
    await second.record_turns(OWNER, ["trn_1"], [second.new("Keeps many bees.", at, source)])
    assert texts(await first.notes(OWNER)) == ["Keeps bees."]
    assert await second.new_turns(OWNER, "key", ["trn_1", "trn_2"]) == ["trn_2"]
    assert await open_books().new_turns(OWNER, "trn_1", ["trn_2"]) == []


async def test_g01_pages_come_out_and_go_in_byte_for_byte(open_books: OpenBooks, clock: FakeClock) -> None:
    books = open_books()
    note = await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    before = await books.contents(OWNER)
    assert list(before) == [note.page]
    changed = before[note.page] + b"\r\n- Plays the viola\r\n\r\nBytes: \xff\xfe\r\n"
    await books.replace(OWNER, {note.page: changed, "mine.md": b"- My own page\n"}, before)
    assert await open_books().contents(OWNER) == {note.page: changed, "mine.md": b"- My own page\n"}
    assert texts(await open_books().notes(OWNER)) == ["Prefers tea.", "Plays the viola", "My own page"]
    with pytest.raises(WrongState, match="changed meanwhile"):
        await books.replace(OWNER, {note.page: b""}, before)
    with pytest.raises(Invalid, match="limit"):
        await books.replace(OWNER, {"big.md": b"x" * 2_000_001})
    assert set(await open_books().contents(OWNER)) == {note.page, "mine.md"}
    assert await books.problems(OWNER) == []


async def test_g01_a_prompt_recalls_what_another_process_noted(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    def built(folder: str) -> BuiltMemory:
        models = ScriptedModels(ScriptedModel(clock=clock))
        home = tmp_path / (folder if store.kind == "postgresql" else "one")
        return build_memory(store, models, home, Runtime(clock, Ids(clock)))

    first, second = built("one"), built("two")
    await first.notebooks.remember(OWNER, "Lives in Lisbon.", clock.now_ms())
    handle = await second.memory.open()
    assert "Lives in Lisbon." in await handle.recall(OWNER, "key", "What is on in Lisbon?")
    assert "Lives in Lisbon." in await handle.recall(OWNER, "key", "")


# --- rows ----------------------------------------------------------------------------------------------


class Racing:
    """Rows that another server changes between reading and writing, once."""

    def __init__(self, rows: NotePages, act: Callable[[], Awaitable[object]]) -> None:
        self._rows = rows
        self._act: Callable[[], Awaitable[object]] | None = act
        self.hashes, self.read = rows.hashes, rows.read

    async def replace(
        self, owner: str, expected: Mapping[str, str], changes: Mapping[str, bytes | None]
    ) -> bool:
        act, self._act = self._act, None
        if act is not None:
            await act()
        return await self._rows.replace(owner, expected, changes)


@only_postgres
async def test_g01_a_change_between_reading_and_writing_is_kept(store: Store, clock: FakeClock) -> None:
    assert store.notes is not None
    other = StoredNotebooks(store.notes, Ids(clock))
    now = clock.now_ms()
    racing = Racing(store.notes, lambda: other.remember(OWNER, "Came first.", now))
    books = StoredNotebooks(racing, Ids(clock))
    await books.remember(OWNER, "Came second.", now)
    assert (
        texts(await books.notes(OWNER)) == texts(await other.notes(OWNER)) == ["Came first.", "Came second."]
    )
    again = StoredNotebooks(Racing(store.notes, lambda: other.remember(OWNER, "Same.", now)), Ids(clock))
    same = await again.remember(OWNER, "same.", now)
    assert same.text == "Same."
    assert len(await other.notes(OWNER)) == 3


@only_postgres
async def test_g01_of_two_changes_based_on_the_same_notes_the_second_is_refused(
    store: Store, store_url: str, open_another: OpenAnother, held_up: HeldUp
) -> None:
    """The first has compared the notes with what it was based on, and has not committed."""
    other = await open_another()
    assert store.notes is not None
    assert other.notes is not None
    assert await store.notes.replace(OWNER, {}, {"a.md": b"- Tea\n"})
    before = await store.notes.hashes(OWNER)
    done: dict[str, bool] = {}

    async def replace(notes: NotePages, page: str) -> None:
        done[page] = await notes.replace(OWNER, before, {page: b"- Coffee\n"})

    async def second_waits_or_is_done() -> bool:
        waiting = await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(done) or int(waiting) == 2

    connection = await asyncpg.connect(store_url)
    async with anyio.create_task_group() as group, connection.transaction():
        await connection.execute("SELECT 1 FROM notes WHERE page = 'a.md' FOR UPDATE")
        await held_up.start(group, store, replace, store.notes, "a.md")
        group.start_soon(replace, other.notes, "b.md")
        await until("the second waits, or did not", second_waits_or_is_done)
    await connection.close()
    assert done == {"a.md": True, "b.md": False}


@only_postgres
async def test_g01_a_write_that_fails_leaves_the_notes_as_they_were(store: Store, clock: FakeClock) -> None:
    assert store.notes is not None

    async def fail() -> None:
        raise OSError("the database is away")

    books = StoredNotebooks(Racing(store.notes, fail), Ids(clock))
    with pytest.raises(OSError, match="away"):
        await books.remember(OWNER, "Is not stored.", clock.now_ms())
    assert await books.notes(OWNER) == []
    assert await books.find(OWNER, "stored", 5) == []


@only_postgres
async def test_g01_a_damaged_page_is_named_and_the_others_are_read(
    store: Store, store_url: str, clock: FakeClock
) -> None:
    assert store.notes is not None
    books = StoredNotebooks(store.notes, Ids(clock))
    note = await books.remember(OWNER, "Prefers tea.", clock.now_ms())
    await books.replace(OWNER, {"mine.md": b"- My own page\n"})
    connection = await asyncpg.connect(store_url)
    await connection.execute("UPDATE notes SET content = set_byte(content, 3, 0) WHERE page = $1", note.page)
    await connection.close()
    fresh = StoredNotebooks(store.notes, Ids(clock))
    assert texts(await fresh.notes(OWNER)) == ["My own page"]
    assert await fresh.problems(OWNER) == [f"{note.page} is damaged in the database; it is not read."]
    with pytest.raises(Invalid, match="damaged"):
        await fresh.remember(OWNER, "Not over the damage.", clock.now_ms())
    await fresh.replace(OWNER, {"mine.md": b"- Still writable\n"})
    assert texts(await fresh.notes(OWNER)) == ["Still writable"]


@only_postgres
async def test_g01_a_row_whose_name_leads_elsewhere_is_no_page(
    store: Store, store_url: str, clock: FakeClock
) -> None:
    assert store.notes is not None
    books = StoredNotebooks(store.notes, Ids(clock))
    await books.replace(OWNER, {"mine.md": b"- My own page\n"})
    connection = await asyncpg.connect(store_url)
    await connection.execute("INSERT INTO notes SELECT owner, '../out.md', content, sha256, 0 FROM notes")
    await connection.close()
    assert list(await books.contents(OWNER)) == ["mine.md"]


# --- importing a folder --------------------------------------------------------------------------------


def built_in(store: Store, home: Path, clock: FakeClock) -> BuiltMemory:
    models = ScriptedModels(ScriptedModel(clock=clock))
    return build_memory(store, models, home, Runtime(clock, Ids(clock)))


@only_postgres
async def test_g01_folders_of_two_machines_are_imported_once_and_renamed(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    now, source = clock.now_ms(), turn_source("ses_1", "trn_1")
    one = FileNotebooks(tmp_path / "one" / "memory", Ids(clock))
    two = FileNotebooks(tmp_path / "two" / "memory", Ids(clock))
    for books, own in ((one, "Only on the first."), (two, "Only on the second.")):
        await books.remember(OWNER, "On both.", now)
        await books.remember(OWNER, own, now)
        await books.remember("../eve", f"Eve: {own}", now)
    await two.record_turns(OWNER, ["trn_1"], [two.new("Keeps bees.", now, source)])
    whole = await one.contents(OWNER)
    for name in ("one", "two", "two"):
        built = built_in(store, tmp_path / name, clock)
        await import_notes(built, tmp_path / name, Ids(clock))
        if name == "one":
            assert await built.notebooks.contents(OWNER) == whole
    assert sorted(texts(await built.notebooks.notes(OWNER))) == [
        "Keeps bees.",
        "On both.",
        "Only on the first.",
        "Only on the second.",
    ]
    assert len(await built.notebooks.notes("../eve")) == 2
    assert await built.notebooks.new_turns(OWNER, "key", ["trn_1"]) == []
    for name in ("one", "two"):
        assert not (tmp_path / name / "memory").exists()
        assert (tmp_path / name / "memory.imported" / OWNER).is_dir()


@only_postgres
async def test_g01_an_import_that_was_cut_off_before_the_renaming_is_repeated_without_doubles(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    home = tmp_path / "home"
    await FileNotebooks(home / "memory", Ids(clock)).remember(OWNER, "Prefers tea.", clock.now_ms())
    built = built_in(store, home, clock)
    await import_notes(built, home, Ids(clock))
    (home / "memory.imported").rename(home / "memory")  # as if the process had died just before
    note = (await built.notebooks.notes(OWNER))[0]
    await built.notebooks.edit(OWNER, note.id, "Prefers coffee.")
    await import_notes(built, home, Ids(clock))
    assert texts(await built.notebooks.notes(OWNER)) == ["Prefers coffee."]
    assert (home / "memory.imported").is_dir()


async def test_g01_with_sqlite_the_folder_stays_the_truth(
    store: Store, tmp_path: Path, clock: FakeClock, store_kind: str
) -> None:
    home = tmp_path / "home"
    built = built_in(store, home, clock)
    await import_notes(built, home, Ids(clock))
    await built.notebooks.remember(OWNER, "Prefers tea.", clock.now_ms())
    assert (home / "memory").exists() is (store_kind == "sqlite")
