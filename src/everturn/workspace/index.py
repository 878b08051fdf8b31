"""The index: what the last scan saw of each file, so that the next one reads only what changed.

It is derived and local: if it is lost or damaged, the next scan hashes every file once. So does the first
scan after the machine restarted, because after a power cut a file can hold other bytes than its time stamps
suggest.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, Union

import msgspec

from everturn.domain.trees import EMPTY_TREE, Entry, Reason, Tree

# mtime_ns, ctime_ns, inode, size, mode. Empty: the file must be hashed again whatever its stamp.
Stamp = tuple[int, ...]
_MAGIC: Final = b"everturn-index-1\n"
_IN_MEMORY_MAX: Final = 100_000  # files and folders in the indexes that are kept in memory
_log = logging.getLogger("everturn.workspace")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Folder(msgspec.Struct, frozen=True, array_like=True):
    """What the scan saw of one folder. ``stamps`` go with ``entries``: None for an entry without bytes of
    its own. ``stamp`` is empty if the folder must be listed again."""

    stamp: Stamp
    rules: str
    tree: str
    tree_size: int
    entries: tuple[Entry, ...]
    stamps: tuple[Union[Stamp, None], ...]
    folders: dict[bytes, Folder]
    unlisted: int = 0


# Of an empty workspace: it must be scanned, and its tree need not be stored.
EMPTY_FOLDER: Final = Folder((), "", EMPTY_TREE, 0, (), (), {})


class _Stored(msgspec.Struct, array_like=True):
    boot: str
    root: Folder


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)


def boot_id() -> str:
    """Changes when the machine starts; empty where the kernel has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def load_index(path: Path) -> Folder | None:
    """The index in this file; None if it is missing or damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = memoryview(data)[len(_MAGIC) + 32 :]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : len(_MAGIC) + 32]:
        return None
    try:
        stored = _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None  # written by another version
    if not stored.boot or stored.boot != boot_id():  # guard: e01
        return distrust(stored.root)
    return stored.root


def save_index(path: Path, root: Folder) -> None:
    """Not synced: the checksum shows damage from a power cut. Raises OSError."""
    body = _encoder.encode(_Stored(boot_id(), root))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        temporary.write_bytes(b"".join((_MAGIC, hashlib.sha256(body).digest(), body)))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def distrust(folder: Folder) -> Folder:
    """The same index without its stamps: every file is hashed once more, and stored only if it differs."""
    return msgspec.structs.replace(
        folder,
        stamp=(),
        stamps=tuple(None if stamp is None else () for stamp in folder.stamps),
        folders={name: distrust(inner) for name, inner in folder.folders.items()},
    )


def stored_entries(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """What the tree of a folder has. An index also lists files that were being written."""
    if all(entry.reason is not Reason.PARTIAL for entry in entries):
        return entries
    return tuple(entry for entry in entries if entry.reason is not Reason.PARTIAL)


def trees_of(folder: Folder) -> dict[str, Tree]:
    """The trees of a folder and of all below it, by their hash."""
    found = {folder.tree: Tree(stored_entries(folder.entries), folder.unlisted)}
    for inner in folder.folders.values():
        found |= trees_of(inner)
    return found


class Indexes:
    """The indexes of all sessions: files in one folder. Those of the latest sessions are in memory, too.
    Called from threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._latest: OrderedDict[str, Folder] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, session_id: str) -> Folder | None:
        with self._lock:
            found = self._latest.get(session_id)
        return found or load_index(self._folder / session_id)

    def put(self, session_id: str, index: Folder) -> None:
        with self._lock:
            self._latest[session_id] = index
            self._latest.move_to_end(session_id)
            sizes = {name: _size(each) for name, each in self._latest.items()}
            while sum(sizes.values()) > _IN_MEMORY_MAX:
                gone, _ = self._latest.popitem(last=False)
                del sizes[gone]
        try:
            save_index(self._folder / session_id, index)
        except OSError as error:
            # The next process hashes every file again, which takes longer and loses nothing.
            _log.warning("the index of a workspace was not saved: %s", error)

    def delete(self, session_id: str) -> None:
        with self._lock:
            self._latest.pop(session_id, None)
        (self._folder / session_id).unlink(missing_ok=True)


def _size(folder: Folder) -> int:
    return 1 + len(folder.entries) + sum(map(_size, folder.folders.values()))
