"""A user's notes and the index over them.

The Markdown pages hold the notes; the index is in memory and derived from them. With SQLite the pages are
files that the user may edit, with PostgreSQL they are rows that every server reads. A page that has changed
is read again before every answer. So a search finds only what is on a page.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec

from everturn.domain.errors import Invalid, NotFound, Overloaded, WrongState
from everturn.domain.ids import Ids
from everturn.domain.memory import NotePages
from everturn.memory.index import Index
from everturn.memory.notes import (
    BY_USER,
    Note,
    append_notes,
    day_of,
    new_page,
    one_line,
    page_of,
    read_page,
    render_note,
    replace_note,
)
from everturn.memory.pages import PAGE_BYTES_MAX, FolderPages, Pages, PagesLocked, RowPages, Signature
from everturn.store.files.disk import Disk

T = TypeVar("T")

_TAKEN = ".taken"  # the turns that are noted; an older release wrote keys of segments
_TAKING = ".taking"  # the turns whose notes are being written
_TAKEN_MAX = 5_000  # turns; a repeated commit comes soon or never
_LOCK_WAIT_S = 30.0  # for another process that writes the same pages, which takes milliseconds
_LOCK_POLL_S = (0.002, 0.1)  # first and longest wait between two attempts to lock
_RACES_MAX = 20  # attempts to write while other servers change the same notes


class Notebook:
    """The notes of one owner. Synchronous; ``Notebooks`` calls it from threads.

    A thread lock guards the index; the pages guard themselves against other processes.
    """

    def __init__(self, pages: Pages) -> None:
        self._source = pages
        self._lock = threading.RLock()
        self._pages: dict[str, tuple[Signature, list[Note]]] = {}
        self._every: list[Note] = []
        self._by_id: dict[str, Note] = {}
        self._lines: set[str] = set()
        self._index = Index()
        self._unread: dict[str, str] = {}  # page -> why it was skipped

    # --- reading -------------------------------------------------------------------------------------

    def notes(self) -> list[Note]:
        """All notes, oldest first; a note that is in two places is listed once."""
        with self._lock:
            self._refresh()
            return list(self._every)

    def find(self, query: str, limit: int) -> list[Note]:
        """The best matches for the query, best first."""
        with self._lock:
            self._refresh()
            return [self._by_id[found] for found in self._index.find(query, limit) if found in self._by_id]

    def get(self, note_id: str) -> Note:
        with self._lock:
            self._refresh()
            note = self._by_id.get(note_id)
        if note is None:
            raise NotFound("note", note_id)
        return note

    def holds(self, lines: Sequence[str]) -> bool:
        """Whether every one of these facts is still noted, word for word."""
        with self._lock:
            self._refresh()
            return all(line in self._lines for line in lines)

    def problems(self) -> list[str]:
        """Messages for the user about files that were skipped."""
        with self._lock:
            self._refresh()
            return [f"{page} {why}; it is not read." for page, why in sorted(self._unread.items())]

    # --- writing -------------------------------------------------------------------------------------

    def remember(self, note: Note) -> Note:
        """Add the note unless an equal one exists; the check and the write are one step."""
        words = one_line(note.text).casefold()
        with self._lock_pages():
            known = next((each for each in self._every if one_line(each.text).casefold() == words), None)
            if known is not None:
                return known
            self._add([note])
            return self.get(note.id)

    def _add(self, notes: Sequence[Note]) -> None:
        for page in sorted({page_of(note.day) for note in notes}):
            new = [note for note in notes if page_of(note.day) == page]
            self._write(page, append_notes(self._text(page) or new_page(page), new))

    def edit(self, note_id: str, text: str) -> Note:
        with self._lock_pages():
            note = self.get(note_id)
            new = msgspec.structs.replace(note, text=text)
            if note.lines == 1:
                # A line that the user wrote: its id was derived from the old text, so store it with the note.
                new = msgspec.structs.replace(new, source=BY_USER)
            self._write(note.page, replace_note(self._text(note.page), note, render_note(new)))
            return self.get(note_id)

    def forget(self, note_id: str) -> Note:
        with self._lock_pages():
            note = self.get(note_id)
            while (copy := self._by_id.get(note_id)) is not None:
                # A user who moved notes may have left copies: delete all of them.
                self._write(copy.page, replace_note(self._text(copy.page), copy, ()))
            return note

    # --- segments ------------------------------------------------------------------------------------

    def new_turns(self, key: str, turns: Sequence[str]) -> list[str]:
        """The turns of a segment that are not noted yet, under this key or another one."""
        with self._lock_pages():
            taken = set(self._read_taken())
            return [] if key in taken else [turn for turn in turns if turn not in taken]

    def record_turns(self, turns: Sequence[str], notes: Sequence[Note]) -> None:
        """Write the notes of these turns and mark the turns as noted, durably.

        Facts that exist already are skipped, and so are facts of turns that another process has noted
        meanwhile.
        """
        with self._lock_pages():
            taken = set(self._read_taken())
            known = {line.casefold() for line in self._lines}
            new = [n for n in notes if n.turn_id not in taken and one_line(n.text).casefold() not in known]
            if new:
                # Written before the notes: after a crash in between, ``_finish_interrupted`` sees it.
                self._source.write(_TAKING, _join_lines(turns))
                self._add(new)
            self._mark_taken(turns)

    def _finish_interrupted(self) -> None:
        """Finish ``record_turns`` after a crash.

        A page is written as a whole: if one of the notes is there, all are, and the turns count as noted; if
        none is, they do not.
        """
        turns = set(self._read_lines(_TAKING))
        if not turns:
            return
        if any(note.is_extracted and note.turn_id in turns for note in self._by_id.values()):
            self._mark_taken(sorted(turns))
        self._source.delete(_TAKING)

    def _mark_taken(self, turns: Sequence[str]) -> None:
        every = list(dict.fromkeys((*self._read_taken(), *turns)))[-_TAKEN_MAX:]
        self._source.write(_TAKEN, _join_lines(every))
        self._source.delete(_TAKING)

    def _read_taken(self) -> list[str]:
        return self._read_lines(_TAKEN)

    def _read_lines(self, name: str) -> list[str]:
        return (self._source.read(name) or b"").decode("utf-8", "replace").splitlines()

    # --- whole pages ---------------------------------------------------------------------------------

    def contents(self) -> dict[str, bytes]:
        """All pages that can be read, as they are."""
        with self._lock:
            self._refresh()
            return {page: self._text(page).encode("utf-8", "surrogateescape") for page in self._pages}

    def records(self) -> dict[str, bytes]:
        """What the notebook keeps beside the pages, after finishing an interrupted write."""
        with self._lock_pages():
            taken = self._source.read(_TAKEN)
            return {} if taken is None else {_TAKEN: taken}

    def replace(self, contents: Mapping[str, bytes], expected: Mapping[str, bytes] | None = None) -> None:
        """Write these pages, whatever they held. Raises WrongState if one is not as ``expected``."""
        with self._lock_pages():
            for page, content in (expected or {}).items():
                if self._text(page).encode("utf-8", "surrogateescape") != content:
                    raise WrongState(
                        f"{page} was changed meanwhile. Nothing was written.", hint="Edit it again."
                    )
            _refuse_large(contents)
            for page, content in contents.items():
                self._write(page, content.decode("utf-8", "surrogateescape"))

    def adopt(self, contents: Mapping[str, bytes], records: Mapping[str, bytes]) -> None:
        """Take in the pages of another notebook: new pages as they are; of others, unknown notes.

        Adopting the same again changes nothing.
        """
        with self._lock_pages():
            for page, content in contents.items():
                self._adopt_page(page, content.decode("utf-8", "surrogateescape"))
            taken = records.get(_TAKEN, b"").decode("utf-8", "replace").splitlines()
            if not set(taken) <= set(self._read_taken()):
                self._mark_taken(taken)

    def _adopt_page(self, page: str, text: str) -> None:
        before = self._text(page)
        if not before:
            self._write(page, text)
            return
        new = [
            note
            for note in read_page(page, text)
            if note.id not in self._by_id and one_line(note.text) not in self._lines
        ]
        if new:
            self._write(page, append_notes(before, new))

    # --- inside --------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read the files that have changed on disk since the last call."""
        found, self._unread = self._source.list()
        if {page: signature for page, (signature, _) in self._pages.items()} == found:
            return
        for page in [page for page in self._pages if page not in found]:
            self._index.drop(page)
            del self._pages[page]
        for page, signature in found.items():
            if page in self._pages and self._pages[page][0] == signature:
                continue
            try:
                notes = read_page(page, self._text(page))
            except OSError as error:
                # Tried again on the next call; a file deleted since the listing is then not listed.
                self._unread[page] = f"cannot be read ({error.strerror})"
                self._index.drop(page)
                self._pages.pop(page, None)
                continue
            self._pages[page] = (signature, notes)
            self._index.put(page, notes)
        every = [note for page in sorted(self._pages) for note in self._pages[page][1]]
        self._by_id = {note.id: note for note in reversed(every)}
        self._every = [note for note in every if self._by_id[note.id] is note]
        self._lines = {one_line(note.text) for note in every}

    def _text(self, page: str) -> str:
        """The text of a file. Bytes that are not UTF-8 survive reading and writing."""
        if page in self._unread:
            raise Invalid(
                f"{page} {self._unread[page]}; nothing can be noted in it.",
                hint=f"Rename it, or make several files of it, in {self._source.place}.",
            )
        return (self._source.read(page) or b"").decode("utf-8", "surrogateescape")

    def _write(self, page: str, text: str) -> None:
        self._source.write(page, text.encode("utf-8", "surrogateescape"))
        self._refresh()

    @contextmanager
    def _lock_pages(self) -> Iterator[None]:
        """Lock the pages against other writers; read their changes and finish an interrupted write first.

        Readers do not lock. Raises PagesLocked.
        """
        with self._source.lock(), self._lock:
            self._refresh()
            self._finish_interrupted()
            yield


class Notebooks(ABC):
    """The notebooks of all owners. Keeps the most recently used ones open."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    @abstractmethod
    async def _read(self, owner: str, work: Callable[[Notebook], T]) -> T:
        """Run ``work``, which changes nothing, on the owner's notebook."""

    @abstractmethod
    async def _write(self, owner: str, work: Callable[[Notebook], T]) -> T:
        """Run ``work`` on the owner's notebook; what it writes is durable on return."""

    async def notes(self, owner: str) -> list[Note]:
        return await self._read(owner, lambda book: book.notes())

    async def get(self, owner: str, note_id: str) -> Note:
        """Raises NotFound."""
        return await self._read(owner, lambda book: book.get(note_id))

    async def find(self, owner: str, query: str, limit: int) -> list[Note]:
        return await self._read(owner, lambda book: book.find(query, limit))

    async def problems(self, owner: str) -> list[str]:
        return await self._read(owner, lambda book: book.problems())

    async def holds(self, owner: str, lines: Sequence[str]) -> bool:
        return not lines or await self._read(owner, lambda book: book.holds(lines))

    async def remember(self, owner: str, text: str, at_ms: int, source: str = BY_USER) -> Note:
        """Note one fact, or return the existing note for it. Raises Invalid."""
        fact = _validate(text)
        return await self._write(owner, lambda book: book.remember(self.new(fact, at_ms, source)))

    async def edit(self, owner: str, note_id: str, text: str) -> Note:
        fact = _validate(text)
        return await self._write(owner, lambda book: book.edit(note_id, fact))

    async def forget(self, owner: str, note_id: str) -> Note:
        return await self._write(owner, lambda book: book.forget(note_id))

    async def new_turns(self, owner: str, key: str, turns: Sequence[str]) -> list[str]:
        return await self._write(owner, lambda book: book.new_turns(key, turns))

    async def record_turns(self, owner: str, turns: Sequence[str], notes: Sequence[Note]) -> None:
        await self._write(owner, lambda book: book.record_turns(turns, notes))

    async def contents(self, owner: str) -> dict[str, bytes]:
        """The pages as they are, by name."""
        return await self._read(owner, lambda book: book.contents())

    async def replace(
        self, owner: str, contents: Mapping[str, bytes], expected: Mapping[str, bytes] | None = None
    ) -> None:
        """Write whole pages. Raises WrongState if one is not as ``expected``."""
        await self._write(owner, lambda book: book.replace(contents, expected))

    async def adopt(self, owner: str, contents: Mapping[str, bytes], records: Mapping[str, bytes]) -> None:
        """Take in the pages of another notebook."""
        await self._write(owner, lambda book: book.adopt(contents, records))

    def new(self, text: str, at_ms: int, source: str) -> Note:
        return Note(self._ids.make("not"), one_line(text), day_of(at_ms), source)


class FileNotebooks(Notebooks):
    """Each owner has a folder of Markdown files, which the user may edit."""

    def __init__(
        self,
        folder: Path,
        ids: Ids,
        disk: Disk | None = None,
        *,
        open_max: int = 16,
        lock_wait_s: float = _LOCK_WAIT_S,
    ) -> None:
        super().__init__(ids)
        self._lock_wait_s = lock_wait_s
        self._folder = folder
        self._disk = disk or Disk()
        self._open_max = open_max
        self._open: OrderedDict[str, Notebook] = OrderedDict()

    def folder_of(self, owner: str) -> Path:
        # Quoted, so that a name such as ".." or "a/b" stays inside the folder.
        return self._folder / (quote(owner, safe="@ -_").replace(".", "%2E") or "%")

    async def records(self, owner: str) -> dict[str, bytes]:
        return await self._write(owner, lambda book: book.records())

    async def _read(self, owner: str, work: Callable[[Notebook], T]) -> T:
        return await self._write(owner, work)

    async def _write(self, owner: str, work: Callable[[Notebook], T]) -> T:
        book = self._open.get(owner)
        if book is None:
            book = self._open[owner] = Notebook(FolderPages(self.folder_of(owner), self._disk))
        self._open.move_to_end(owner)
        while len(self._open) > self._open_max:
            self._open.popitem(last=False)
        wait_s, wait_max_s = _LOCK_POLL_S
        give_up_at = anyio.current_time() + self._lock_wait_s
        while True:
            try:
                # Abandoned on cancellation: a hanging disk must not hold up a turn or the shutdown.
                return await anyio.to_thread.run_sync(work, book, abandon_on_cancel=True)
            except PagesLocked as error:
                if anyio.current_time() >= give_up_at:
                    raise Overloaded(
                        f"Another process has held the notes for {self._lock_wait_s:g} s. Nothing was noted.",
                        hint="Try again. If it stays so, look for a stopped everturn (state T in ps).",
                    ) from error
            await anyio.sleep(wait_s)
            wait_s = min(wait_s * 2, wait_max_s)


class _Copy:
    """The copy of one owner's rows, and the notebook over it. ``lock``: one task at a time uses it."""

    def __init__(self) -> None:
        self.pages = RowPages()
        self.book = Notebook(self.pages)
        self.lock = anyio.Lock()


class StoredNotebooks(Notebooks):
    """The pages are rows of the store, the same on every server.

    A change is made on the copy and stored in one transaction, if the rows are still those of the copy; else
    the copy follows the store and the change is made again.
    """

    def __init__(self, rows: NotePages, ids: Ids, *, open_max: int = 16) -> None:
        super().__init__(ids)
        self._rows = rows
        self._open_max = open_max
        self._open: OrderedDict[str, _Copy] = OrderedDict()

    async def _read(self, owner: str, work: Callable[[Notebook], T]) -> T:
        copy = self._copy(owner)
        async with copy.lock:
            await self._refresh(owner, copy)
            return await anyio.to_thread.run_sync(work, copy.book)

    async def _write(self, owner: str, work: Callable[[Notebook], T]) -> T:
        copy = self._copy(owner)
        async with copy.lock:
            for _ in range(_RACES_MAX):
                await self._refresh(owner, copy)
                try:
                    result = await anyio.to_thread.run_sync(work, copy.book)
                    if await self._store(owner, copy):
                        return result
                finally:
                    copy.pages.roll_back()
        raise Overloaded(
            "Other servers kept changing the notes. Nothing was noted.", hint="Try again in a moment."
        )

    async def _store(self, owner: str, copy: _Copy) -> bool:
        changes = copy.pages.changes
        if changes and not await self._rows.replace(owner, copy.pages.hashes, changes):
            return False
        copy.pages.commit()
        return True

    async def _refresh(self, owner: str, copy: _Copy) -> None:
        hashes = await self._rows.hashes(owner)
        known = copy.pages.hashes
        if hashes != known:
            changed = [name for name, found in hashes.items() if known.get(name) != found]
            copy.pages.update(hashes, await self._rows.read(owner, changed))

    def _copy(self, owner: str) -> _Copy:
        copy = self._open.setdefault(owner, _Copy())
        self._open.move_to_end(owner)
        while len(self._open) > self._open_max:
            self._open.popitem(last=False)
        return copy


def _refuse_large(contents: Mapping[str, bytes]) -> None:
    for page, content in contents.items():
        if len(content) > PAGE_BYTES_MAX:
            raise Invalid(
                f"{page} has {len(content):,} bytes; the limit is {PAGE_BYTES_MAX:,}. Nothing was written.",
                hint="Make several pages of it.",
            )


def _join_lines(words: Sequence[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


def _validate(text: str) -> str:
    fact = one_line(text)
    if not fact:
        raise Invalid("The note is empty.", hint="Write something, or delete the note.")
    if len(fact) > 2_000:
        raise Invalid(f"The note has {len(fact):,} characters; the limit is 2,000.", hint="Split it.")
    return fact
