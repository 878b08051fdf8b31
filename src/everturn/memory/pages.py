"""Where the pages of a notebook are: the files of a folder, or a copy of rows of the store."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from everturn.domain.memory import StoredPage
from everturn.store.files.disk import Disk, report_errors, write_atomically

PAGE_BYTES_MAX = 2_000_000  # about 20,000 facts; a larger page is skipped and reported
_TOO_LARGE = f"is larger than {PAGE_BYTES_MAX // 1_000_000} MB"

Signature = tuple[int, ...] | str  # differs if the page differs


class PagesLocked(Exception):
    """Another process is writing these pages; nothing was done."""


class Pages(Protocol):
    """Pages by name. Names that begin with a dot are no pages: the notebook keeps its own records there."""

    @property
    def place(self) -> str:
        """Where a user finds them."""
        ...

    def list(self) -> tuple[dict[str, Signature], dict[str, str]]:
        """The pages with their signatures; and those that are not read, with the reason."""
        ...

    def read(self, name: str) -> bytes | None:
        """Raises OSError."""
        ...

    def write(self, name: str, content: bytes) -> None: ...

    def delete(self, name: str) -> None: ...

    def lock(self) -> AbstractContextManager[None]:
        """Keep other writers out. Raises PagesLocked instead of waiting."""
        ...


def is_page(name: str) -> bool:
    """Whether this names a page. The name of a row in a foreign backup must not lead out of a folder."""
    return name.endswith(".md") and not name.startswith(".") and not {"/", "\\", "\0"} & set(name)


class FolderPages:
    """Files, each written whole or not at all. Another program may change them at any time."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk

    @property
    def place(self) -> str:
        return str(self._folder)

    def list(self) -> tuple[dict[str, Signature], dict[str, str]]:
        """Links are not followed: their targets were not written as notes."""
        found: dict[str, Signature] = {}
        skipped: dict[str, str] = {}
        if not self._folder.is_dir():
            return found, skipped
        for page in sorted(os.listdir(self._folder)):
            if not is_page(page):
                continue
            try:
                status = os.lstat(self._folder / page)
            except FileNotFoundError:
                continue  # deleted since the listing
            if not stat.S_ISREG(status.st_mode):
                skipped[page] = "is not a plain file"
            elif status.st_size > PAGE_BYTES_MAX:
                skipped[page] = _TOO_LARGE
            else:
                found[page] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return found, skipped

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        write_atomically(self._disk, self._folder / name, content)

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """A thread that waits for a stopped process cannot be ended, so this does not wait."""
        with report_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise PagesLocked from error
            yield
        finally:
            os.close(descriptor)


class RowPages:
    """A copy of the store's rows, and the changes that are to be written there in one transaction."""

    place = "the database"

    def __init__(self) -> None:
        self._rows: dict[str, StoredPage] = {}
        self._changes: dict[str, bytes | None] = {}

    @property
    def hashes(self) -> dict[str, str]:
        """The rows that this is a copy of, by the hashes that the store names."""
        return {name: row.sha256 for name, row in self._rows.items()}

    @property
    def changes(self) -> Mapping[str, bytes | None]:
        """What was written since the copy was made; None for a deleted page."""
        return {name: new for name, new in self._changes.items() if new != self._read_stored(name)}

    def update(self, hashes: Mapping[str, str], rows: Mapping[str, StoredPage]) -> None:
        """Follow the store: drop what has gone, take what has come."""
        self._rows = {name: row for name, row in (self._rows | dict(rows)).items() if name in hashes}

    def commit(self) -> None:
        """The changes are stored: they are part of the copy now."""
        for name, content in self.changes.items():
            if content is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = StoredPage(hash_of(content), content)
        self._changes = {}

    def roll_back(self) -> None:
        self._changes = {}

    def list(self) -> tuple[dict[str, Signature], dict[str, str]]:
        found: dict[str, Signature] = {}
        skipped: dict[str, str] = {}
        for name in sorted({*self._rows, *self._changes}):
            content = self.read(name)
            if content is None or not is_page(name):
                continue
            row = self._rows.get(name)
            if name not in self._changes and row is not None and not row.is_whole:
                skipped[name] = "is damaged in the database"
            elif len(content) > PAGE_BYTES_MAX:
                skipped[name] = _TOO_LARGE
            else:
                found[name] = hash_of(content) if name in self._changes or row is None else row.sha256
        return found, skipped

    def read(self, name: str) -> bytes | None:
        return self._changes[name] if name in self._changes else self._read_stored(name)

    def _read_stored(self, name: str) -> bytes | None:
        row = self._rows.get(name)
        return None if row is None else row.content

    def write(self, name: str, content: bytes) -> None:
        self._changes[name] = content

    def delete(self, name: str) -> None:
        self._changes[name] = None

    def lock(self) -> AbstractContextManager[None]:
        """None is needed: the store compares before it writes."""
        return nullcontext()


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
