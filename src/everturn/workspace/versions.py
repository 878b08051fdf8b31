"""Reading a workspace as it was: the folders and files of a tree, from the blobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from everturn.domain.blobs import Blobs
from everturn.domain.errors import Denied, Invalid, NotFound
from everturn.domain.trees import EMPTY_TREE, Entry, Kind, Tree, decode_tree, show_path
from everturn.workspace.scan import join

LINKS_MAX: Final = 40  # as the kernel follows


class Found(msgspec.Struct, frozen=True):
    """What a path leads to. ``path`` is without links; empty for the workspace itself."""

    path: bytes
    entry: Entry


class Versions:
    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def tree(self, sha256: str) -> Tree:
        """Raises TreeUnreadable, and what reading a blob raises."""
        if sha256 == EMPTY_TREE:
            return Tree()  # never stored: it is the same everywhere
        return decode_tree(await self.bytes_of(sha256), sha256)

    async def bytes_of(self, sha256: str) -> bytes:
        return b"".join([piece async for piece in self._blobs.read(sha256)])

    def read(self, entry: Entry, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        return self._blobs.read(entry.sha256, start, end)

    async def find(self, root: str, path: str, *, follows: bool = True) -> Found:
        """What is at this path in a tree. Links inside the tree are followed; the last name only if
        ``follows``.

        A name that is not UTF-8 is found as it is shown. Raises NotFound, Denied if the path leads out.
        """
        folders = [Found(b"", Entry(b"", Kind.FOLDER, sha256=root))]
        waiting = _names(path)
        links = 0
        while waiting:
            name = waiting.pop(0)
            if name == b"..":
                if len(folders) == 1:
                    raise _outside(path)
                folders.pop()
                continue
            found = await self._child(folders[-1], name, path)
            if found.entry.kind is Kind.LINK and (waiting or follows):
                links += 1
                if links > LINKS_MAX:
                    raise NotFound("file", path[:200])
                waiting = await self._target(found.entry, path) + waiting
            else:
                folders.append(found)
        return folders[-1]

    async def walk(self, root: str, path: bytes = b"") -> AsyncGenerator[tuple[bytes, Entry], None]:
        """Everything in a folder, in the order of its names; a folder comes before what is in it. Links are
        not followed."""
        waiting = [(path, Entry(b"", Kind.FOLDER, sha256=root))]
        while waiting:
            here, entry = waiting.pop()
            if here != path:
                yield here, entry
            if entry.kind is Kind.FOLDER:
                inner = (await self.tree(entry.sha256)).entries
                waiting += [(join(here, one.name), one) for one in reversed(inner)]

    async def _child(self, folder: Found, name: bytes, asked: str) -> Found:
        if folder.entry.kind is not Kind.FOLDER:
            raise NotFound("file", asked[:200])
        text = show_path(name)
        entries = (await self.tree(folder.entry.sha256)).entries
        for entry in (*(one for one in entries if one.name == name), *entries):
            if show_path(entry.name) == text:
                return Found(join(folder.path, entry.name), entry)
        raise NotFound("file", asked[:200])

    async def _target(self, link: Entry, asked: str) -> list[bytes]:
        target = await self.bytes_of(link.sha256)
        if target.startswith(b"/"):
            raise _outside(asked)
        return [name for name in target.split(b"/") if name not in (b"", b".")]


def _names(path: str) -> list[bytes]:
    if path.startswith("/") or "\0" in path:
        raise _outside(path)
    try:
        names = path.encode().split(b"/")
    except UnicodeEncodeError as error:
        raise Invalid(f"{path[:200]!r} is not a path.") from error
    return [name for name in names if name not in (b"", b".")]


def _outside(path: str) -> Denied:
    return Denied(f"{path[:200]!r} is outside the workspace; only files inside it can be read.")
