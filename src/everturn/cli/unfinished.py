"""A backup that is being made, and a data folder into which one is being restored.

A backup is made in a folder beside its place, under a name that says so, until it is whole:
``copy.unfinished/`` holds a note and ``backup/``, which becomes ``copy`` in one step at the end. A data
folder stays where it is, because it may be a mount point: the note lies in it until everything is there.
Whoever works holds a lock on the note: one that can be locked was left behind by a process that is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from everturn.domain.errors import Invalid
from everturn.store.files.disk import Disk

SUFFIX = ".unfinished"
NOTE = "UNFINISHED"
_NOTE_TEXT = (
    "A backup of Everturn is being made here, or its making was cut off. It is not whole and cannot be\n"
    "restored. The next 'everturn backup' to the same place clears it; it can also be deleted by hand.\n"
)
_RESTORING_TEXT = (
    "A backup of Everturn is being restored into this folder, or its restoration was cut off. The next\n"
    "'everturn restore' into it clears what is here and begins again.\n"
)


class UnfinishedBackup:
    """The folder for a backup that is to become ``target``. Left without ``finish``, nothing of it stays.

    Raises Invalid if somebody else is at it, or if what has its name is not ours.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._folder = target.with_name(target.name + SUFFIX)
        self._note = -1
        self.inside = self._folder / "backup"

    def __enter__(self) -> Self:
        clear(self._folder)
        self._folder.mkdir(mode=0o700, parents=True)
        note = self._folder / NOTE
        self._note = os.open(note, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        # Between the line before and this one another process may have taken it for a leftover.
        if not _lock(self._note) or not note.exists():
            os.close(self._note)
            raise _in_progress(self._folder)
        try:
            os.write(self._note, _NOTE_TEXT.encode())
        except OSError:
            self.__exit__(None, None, None)
            raise
        return self

    def finish(self) -> None:
        """Give the whole, synced backup its name. Raises Invalid if that was taken meanwhile."""
        if self._target.exists():
            raise Invalid(f"{self._target} exists already.", hint="Name a folder that does not exist.")
        self.inside.rename(self._target)
        Disk().sync_folder(self._target.parent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        remove(self._folder)
        os.close(self._note)


class Restoration:
    """A data folder while a backup is restored into it. ``database`` is the file that comes last.

    Left without ``finish``, the note stays and the next restoration clears the folder; where nothing but the
    note was put into it, the note goes too. Raises Invalid if the folder is not empty and not a leftover, or
    if somebody else is at it.
    """

    def __init__(self, home: Path, source: Path, database: str) -> None:
        self._home = home
        self._path = home / NOTE
        self._source = source.resolve()
        self._database = home / database
        self._is_new = not home.exists()
        self._note = -1
        self.has_database = (
            False  # it has an address of its own, and a restoration that was cut off filled it
        )

    def __enter__(self) -> Self:
        is_leftover = not self._is_new and any(self._home.iterdir())
        if is_leftover:
            self._refuse_foreign_folder()
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._note = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        if not _lock(self._note) or not self._path.exists():
            os.close(self._note)
            raise Invalid(
                f"Another process is restoring into {self._home}.",
                hint="Wait for it, or name another --home.",
            )
        if is_leftover:
            self.has_database = self._database_line() in os.read(self._note, 10_000)
            _empty(self._home)
        else:
            self._write(_RESTORING_TEXT.encode())
        return self

    def _refuse_foreign_folder(self) -> None:
        if self._source.is_relative_to(self._home.resolve()):
            raise Invalid(f"{self._source} lies in {self._home}.", hint="Move the backup elsewhere.")
        # A server that was started in a leftover has made it its own.
        in_use = (self._database, self._home / "workers", self._home / "server.lock")
        if not self._path.exists() or any(path.exists() for path in in_use):
            raise Invalid(
                f"{self._home} is not empty; nothing was touched.",
                hint="Move it away, or name another --home.",
            )

    def mark_database_filled(self) -> None:
        """The database with an address of its own holds the backup: it is not filled again."""
        self.has_database = True
        self._write(self._database_line())

    def finish(self) -> None:
        """Everything is there, durably."""
        self._path.unlink()
        Disk().sync_folder(self._home)

    def _database_line(self) -> bytes:
        return f"The database holds {self._source}.\n".encode()

    def _write(self, text: bytes) -> None:
        os.write(self._note, text)
        Disk().sync_file(self._note)
        Disk().sync_folder(self._home)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.has_database and [path.name for path in self._home.iterdir()] == [NOTE]:
            self._path.unlink()
            if self._is_new:
                self._home.rmdir()
        os.close(self._note)


def clear(folder: Path) -> bool:
    """Remove what a backup that was cut off has left; False if there is nothing. Raises Invalid."""
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        folder.rmdir()
        return True
    try:
        note = os.open(folder / NOTE, os.O_WRONLY | os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise Invalid(
            f"{folder} is in the way, and is not an unfinished backup.",
            hint="Move it away, or name another folder.",
        ) from error
    try:
        if not _lock(note):
            raise _in_progress(folder)
        remove(folder)
        return True
    finally:
        os.close(note)


def clear_all(parent: Path) -> tuple[list[Path], list[tuple[Path, OSError]]]:
    """Remove every leftover in a folder of backups; what is being made now, or is not ours, stays. Also says
    what could not be looked at or removed, and why: somebody else's leftover keeps nobody from a backup."""
    cleared, left = [], []
    for folder in sorted(parent.glob(f"*{SUFFIX}")):
        try:
            if clear(folder):
                cleared.append(folder)
        except Invalid:
            continue
        except OSError as error:
            left.append((folder, error))
    return cleared, left


def is_unfinished(folder: Path) -> bool:
    """Whether this is such a folder, or what lies in one."""
    parent = folder.resolve().parent
    return (folder / NOTE).exists() or (parent.name.endswith(SUFFIX) and (parent / NOTE).exists())


def remove(folder: Path) -> None:
    """Remove a tree. The note goes last, so that what a second cut leaves is still known for what it is."""
    _empty(folder)
    shutil.rmtree(folder)


def _empty(folder: Path) -> None:
    """Remove all but the note, whatever modes folders have: those of workspaces are copied with theirs."""
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(parent) / name
            if not path.is_symlink():
                path.chmod(0o700)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != NOTE:
            path.unlink()


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _in_progress(folder: Path) -> Invalid:
    return Invalid(
        f"Another process is making this backup: it holds {folder}.", hint="Wait for it, or name another one."
    )
