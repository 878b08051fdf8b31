"""Unfinished backups, and data folders into which a backup is being restored.

A backup is made in ``NAME.unfinished/``, which holds a note and ``backup/``; at the end ``backup/`` is
renamed to ``NAME`` in one step. A data folder may be a mount point and is not renamed: the note lies in it
until everything is restored. The working process locks the note; a note that can be locked is a leftover.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
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
    """The folder of a backup until ``finish`` renames it to ``target``. Without ``finish`` it is removed.

    Raises Invalid if another process is making the same backup, or if the folder is not a leftover.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._folder = target.with_name(target.name + SUFFIX)
        self._note = -1
        self.inside = self._folder / "backup"
        self.sealed = self._folder / "sealed"  # the backup as an archive

    def __enter__(self) -> Self:
        clear(self._folder)
        self._folder.mkdir(mode=0o700, parents=True)
        note = self._folder / NOTE
        self._note = os.open(note, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        # Since the previous line another process may have treated it as a leftover.
        if not _lock(self._note) or not note.exists():
            os.close(self._note)
            raise _in_progress(self._folder)
        try:
            os.write(self._note, _NOTE_TEXT.encode())
        except OSError:
            self.__exit__(None, None, None)
            raise
        return self

    def finish(self, *, sealed: bool = False) -> None:
        """Give the complete, synced backup its name. Raises Invalid if the name was taken meanwhile."""
        if self._target.exists():
            raise Invalid(f"{self._target} exists already.", hint="Name a folder that does not exist.")
        (self.sealed if sealed else self.inside).rename(self._target)
        Disk().sync_folder(self._target.parent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            remove(self._folder)
        except OSError:
            # After a cancellation a thread may still write here, and on a missing disk nothing can be
            # removed. The caller needs the error that ended the backup; the next backup removes the leftover.
            if kind is None:
                raise
        finally:
            os.close(self._note)


class Restoration:
    """A data folder while a backup is restored into it. ``database``: the file that is restored last.

    Left without ``finish``, the note stays and the next restoration clears the folder; if there is nothing
    but the note, it is removed. Raises Invalid if the folder is neither empty nor a leftover, or if another
    process is restoring into it. ``source``: a folder, or an address.
    """

    def __init__(self, home: Path, source: Path | str, database: str) -> None:
        self._home = home
        self._path = home / NOTE
        self._source = source.resolve() if isinstance(source, Path) else source
        self._database = home / database
        self._is_new = not home.exists()
        self._note = -1
        self.unpacked = home / ".unpacked"  # archives are unpacked here
        self.has_database = False  # it has its own address, and an interrupted restoration filled it

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
        if isinstance(self._source, Path) and self._source.is_relative_to(self._home.resolve()):
            raise Invalid(f"{self._source} lies in {self._home}.", hint="Move the backup elsewhere.")
        if not _is_leftover(self._home) or self._database.exists():
            raise Invalid(
                f"{self._home} is not empty; nothing was touched.",
                hint="Move it away, or name another --home.",
            )

    def mark_database_filled(self) -> None:
        """Record that the database server holds the backup, so that it is not filled again."""
        self.has_database = True
        self._write(self._database_line())

    def clear_unpacked(self) -> None:
        if self.unpacked.exists():
            remove(self.unpacked)

    def finish(self) -> None:
        """Remove the note: everything is restored durably."""
        self.clear_unpacked()
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
        if kind is not None:
            with suppress(OSError):
                self.clear_unpacked()  # the next restoration removes what cannot be removed now
        if not self.has_database and [path.name for path in self._home.iterdir()] == [NOTE]:
            self._path.unlink()
            if self._is_new:
                self._home.rmdir()
        os.close(self._note)


def refuse_leftover(home: Path) -> None:
    """Raise Invalid if a restoration into the folder was interrupted or is running.

    The folder is incomplete, and a server would start with an empty list of sessions.
    """
    if _is_leftover(home):
        raise Invalid(
            f"A backup was being restored into {home}, and that was not finished.",
            hint="Run 'everturn restore' again; to begin without the backup, delete the folder.",
        )


def _is_leftover(home: Path) -> bool:
    """True for a leftover. If a server was started in one, it is a data folder in use instead."""
    in_use = ("everturn.db", "workers", "server.lock")
    return (home / NOTE).exists() and not any((home / name).exists() for name in in_use)


def clear(folder: Path) -> bool:
    """Remove the leftover of an interrupted backup; False if there is none. Raises Invalid."""
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
    """Remove every leftover in a folder of backups, except backups in progress and foreign folders.

    Returns the removed ones, and those that could not be removed with the reason: they do not prevent a
    backup.
    """
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
    """True if the folder is an unfinished backup or lies in one."""
    parent = folder.resolve().parent
    return (folder / NOTE).exists() or (parent.name.endswith(SUFFIX) and (parent / NOTE).exists())


def remove(folder: Path) -> None:
    """Remove a tree, the note last: if this is interrupted too, the rest still counts as a leftover."""
    _empty(folder)
    shutil.rmtree(folder)


def _empty(folder: Path) -> None:
    """Remove everything but the note. Folders of workspaces may be read-only, so change their modes first."""
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
