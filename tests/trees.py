"""Workspaces for tests: bytes kept in a dict, and a folder read plainly, to compare a tree with."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from everturn.domain.trees import Kind, Tree, decode_tree
from everturn.tools.disk_sync import DiskSync
from everturn.workspace import Change, Folder, IgnoreRules, Limits, Restore, Restored, Scan
from everturn.workspace.scan import Source

Content = dict[bytes, tuple[str, int, bytes]]  # path -> kind, mode, bytes


class KeptBytes:
    """Stores what a scan gives it. ``calls`` has the number of sources of each call."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.calls: list[int] = []

    def put(self, sources: Sequence[Source]) -> list[tuple[str, int]]:
        self.calls.append(len(sources))
        return [self._put_one(source) for source in sources]

    def _put_one(self, source: Source) -> tuple[str, int]:
        if not isinstance(source, bytes):
            with source() as file:
                source = file.read()
        sha256 = hashlib.sha256(source).hexdigest()
        self.blobs[sha256] = source
        return sha256, len(source)

    def load(self, sha256: str) -> Tree:
        return decode_tree(self.blobs[sha256], sha256)

    def fetch(self, sha256: str) -> Iterator[bytes]:
        yield self.blobs[sha256]

    def content(self, tree: str, path: bytes = b"") -> Content:
        """Everything that a tree holds, with what lies in its folders."""
        found: Content = {}
        for entry in self.load(tree).entries:
            at = path + b"/" + entry.name if path else entry.name
            if entry.kind is Kind.LEFT_OUT:
                continue
            is_folder = entry.kind is Kind.FOLDER
            found[at] = (entry.kind, entry.mode, b"" if is_folder else self.blobs[entry.sha256])
            if is_folder:
                found |= self.content(entry.sha256, at)
        return found


def scan(
    root: Path,
    kept: KeptBytes,
    known: Folder | None = None,
    *,
    rules: IgnoreRules | None = None,
    limits: Limits | None = None,
    start_ns: int | None = None,
) -> Folder:
    handle = os.open(root, os.O_RDONLY)
    try:
        rules = rules or IgnoreRules.of_workspace()
        return Scan(rules, limits or Limits(), kept.put, start_ns=start_ns).run(handle, known)
    finally:
        os.close(handle)


class QuickDisk(DiskSync):
    """Syncs nothing: a sync of the whole file system takes seconds while other tests write."""

    def sync_file_system(self, folder: Path) -> None:
        pass


def restore(
    root: Path,
    kept: KeptBytes,
    changes: Sequence[Change],
    seen: Folder | None = None,
    disk: DiskSync | None = None,
) -> Restored:
    handle = os.open(root, os.O_RDONLY)
    try:
        return Restore(handle, kept.fetch, seen=seen, disk=disk or QuickDisk()).run(changes)
    finally:
        os.close(handle)


def plain(root: Path) -> Content:
    """What is in a folder, read without any index."""
    found: Content = {}
    for parent, folders, files in os.walk(os.fsencode(root)):
        for name in [*folders, *files]:
            path = os.path.join(parent, name)
            at = os.path.relpath(path, os.fsencode(root))
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found[at] = ("link", 0, os.readlink(path))
            elif stat.S_ISDIR(mode):
                found[at] = ("folder", mode & 0o777, b"")
            else:
                found[at] = ("file", mode & 0o777, Path(os.fsdecode(path)).read_bytes())
    return found
