"""Keeps the indexes up to date with folders and uploads, and searches them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path, PurePath

import anyio
import anyio.to_thread
import msgspec

from everturn.domain.blobs import Blobs
from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, NotFound
from everturn.domain.machine import Machine
from everturn.domain.media import SNIFF_BYTES
from everturn.tools.documents.converter import BYTES_MAX, Converter, too_large
from everturn.tools.documents.document import Document
from everturn.tools.documents.passages import FoundPassage
from everturn.tools.knowledge.book import Knowledge, KnowledgeBook
from everturn.tools.knowledge.folder import FILES_MAX, Listed, kind_of_head, list_folder, open_file, pieces
from everturn.tools.knowledge.index import IndexState, KnowledgeIndex
from everturn.tools.workspaces import Workspaces

_log = logging.getLogger("everturn.tools")
LOOK_EVERY_S = 60.0
_PATIENCE_S = 15.0  # how long a search waits for changed files to be indexed
_FRESH_S = 3.0  # a search this soon after a pass does not start another


class KnowledgeState(msgspec.Struct, frozen=True):
    """``waiting``: changed files that are not indexed yet. ``elsewhere``: the machine that has the folder."""

    index: IndexState
    is_indexing: bool = False
    waiting: int = 0
    elsewhere: str = ""


class _Place(msgspec.Struct):
    """This process's state of one index. Only the holder of the lock changes the index."""

    lock: anyio.Lock
    looked_at: float = float("-inf")
    waiting: int = 0
    is_indexing: bool = False


class KnowledgeLibrary:
    """Builds indexes in the data folder of every machine that serves or searches."""

    def __init__(
        self, book: KnowledgeBook, blobs: Blobs, converter: Converter, clock: Clock, workspaces: Workspaces
    ) -> None:
        self.book = book
        self._folder = workspaces.home / "knowledge"
        self._blobs = blobs
        self._converter = converter
        self._clock = clock
        self._workspaces = workspaces
        self._places: dict[str, _Place] = {}
        self._nudged = anyio.Event()

    # --- indexing ----------------------------------------------------------------------------------

    def nudge(self) -> None:
        """Start a pass over everything soon."""
        self._nudged.set()

    async def serve(self) -> None:
        """Index changes regularly until cancelled.

        Only a server runs this; a search updates what it needs.
        """
        while True:
            self._nudged = anyio.Event()
            try:
                await self._look_at_all()
            except (EverturnError, OSError):
                # The root of a task: if it ended, later changes would not be indexed.
                _log.exception("knowledge could not be looked at; the next look is in a minute")
            async with anyio.create_task_group() as group:
                group.start_soon(self._end_after, LOOK_EVERY_S, group.cancel_scope, name="knowledge pause")
                await self._nudged.wait()
                group.cancel_scope.cancel()

    async def _end_after(self, seconds: float, scope: anyio.CancelScope) -> None:
        await self._clock.sleep(seconds)
        scope.cancel()

    async def _look_at_all(self) -> None:
        known = await self.book.all()
        for knowledge in known:
            await self.look(knowledge)
        await self.book.sweep()
        await anyio.to_thread.run_sync(self._drop_others, {one.id for one in known})

    def _drop_others(self, ids: set[str]) -> None:
        """Delete the indexes of deleted knowledge."""
        for path in self._folder.glob("kno_*.db"):
            if path.stem not in ids:
                KnowledgeIndex(path).delete()
        for name in self._places.keys() - ids:
            del self._places[name]

    async def look(self, knowledge: Knowledge) -> None:
        """Update the index from the current files. Failures are recorded in its state."""
        if not self.book.machine.is_same(knowledge.machine):
            return
        place, index = self._place(knowledge), self.index(knowledge)
        async with place.lock:
            place.is_indexing = True
            try:
                await self._update(knowledge, place, index)
                place.looked_at = self._clock.monotonic()
            except OSError as error:
                why = f"{knowledge.folder} cannot be read: {error.strerror or error}"
                await anyio.to_thread.run_sync(lambda: index.note(at_ms=None, trouble=why))
            except EverturnError as error:
                why = error.message
                await anyio.to_thread.run_sync(lambda: index.note(at_ms=None, trouble=why))
            finally:
                place.is_indexing = False

    async def _update(self, knowledge: Knowledge, place: _Place, index: KnowledgeIndex) -> None:
        listed = await self._list(knowledge)
        known = await anyio.to_thread.run_sync(index.versions)
        gone = [path for path in known if path not in listed.versions]
        changed = [path for path, version in listed.versions.items() if known.get(path) != version]
        if gone:
            await anyio.to_thread.run_sync(index.remove, gone)
        place.waiting = len(changed)
        for path in changed:
            document = await self._convert(knowledge, path, listed.versions[path])
            if document is not None:
                await anyio.to_thread.run_sync(index.put, path, listed.versions[path], document)
            place.waiting -= 1
        trouble = f"Only the first {FILES_MAX:,} files are read." if listed.is_cut else ""
        state = await anyio.to_thread.run_sync(index.state)
        if gone or changed or state.indexed_at is None or state.trouble != trouble:
            now = self._clock.now_ms()
            await anyio.to_thread.run_sync(lambda: index.note(at_ms=now, trouble=trouble))

    async def _list(self, knowledge: Knowledge) -> Listed:
        if knowledge.folder is None:
            return Listed({file.name: file.sha256 for file in await self.book.files(knowledge)})
        # Check each time: a link may have been added on the path, and the roots may have changed.
        folder = await anyio.to_thread.run_sync(self._workspaces.of_project, knowledge.folder)
        return await anyio.to_thread.run_sync(list_folder, folder)

    async def _convert(self, knowledge: Knowledge, path: str, version: str) -> Document | None:
        """Return the file's text, or None if another attempt may succeed; the next pass makes it."""
        suffix = PurePath(path).suffix.lower()
        suffix = suffix if suffix.isascii() and suffix.isprintable() else ""
        if knowledge.folder is None:
            head = b"".join([piece async for piece in self._blobs.read(version, 0, SNIFF_BYTES)])
            kind = kind_of_head(path, head)
            if kind is None:
                return Document(error="It has no text that can be read.")
            found = await self._converter.convert(kind, suffix, self._blobs.read(version))
        else:
            try:
                fd, kind, size = await anyio.to_thread.run_sync(open_file, Path(knowledge.folder), path)
            except OSError as error:
                return Document(error=f"It cannot be opened: {error.strerror or error}.")
            try:
                if kind is None:
                    return Document()  # a picture or a program: nothing to find, but no error
                if size > BYTES_MAX:
                    return too_large(size)
                found = await self._converter.convert(kind, suffix, pieces(fd))
            finally:
                os.close(fd)
        return None if found.is_passing else found

    # --- reading -----------------------------------------------------------------------------------

    async def used_by(self, owner: str, session_id: str, profile: str | None) -> Sequence[Knowledge]:
        """Return what a session may search."""
        return [one for one in await self.book.of_owner(owner) if one.is_used_by(session_id, profile)]

    async def state(self, knowledge: Knowledge) -> KnowledgeState:
        if not self.book.machine.is_same(knowledge.machine):
            return KnowledgeState(IndexState(), elsewhere=Machine.parse(knowledge.machine or "").name)
        place = self._place(knowledge)
        found = await anyio.to_thread.run_sync(self.index(knowledge).state)
        return KnowledgeState(found, place.is_indexing, place.waiting)

    async def find(self, knowledge: Knowledge, query: str, limit: int) -> tuple[list[FoundPassage], str]:
        """Return the passages, best first, and a note on how complete they are."""
        if note := await self._refresh(knowledge):
            return [], note
        hits = await anyio.to_thread.run_sync(self.index(knowledge).find, query, limit)
        named = [
            msgspec.structs.replace(
                hit,
                name=f"{knowledge.name}: {hit.name}",
                document=f"{knowledge.id}/{hit.document}",
                is_own=knowledge.is_own,
            )
            for hit in hits
        ]
        state = await self.state(knowledge)
        waiting = (
            f"{knowledge.name}: {state.waiting} changed files are not indexed yet" if state.waiting else ""
        )
        return named, waiting or state.index.trouble

    async def read(self, knowledge: Knowledge, path: str) -> Document:
        """Return a file's text. Raises NotFound."""
        if note := await self._refresh(knowledge):
            return Document(error=note)
        found = await anyio.to_thread.run_sync(self.index(knowledge).read, path)
        if found is None:
            raise NotFound("file", path)
        return found

    async def _refresh(self, knowledge: Knowledge) -> str:
        """Update an outdated index, for a short time at most; return why nothing can be searched here, if
        so."""
        if not self.book.machine.is_same(knowledge.machine):
            name = Machine.parse(knowledge.machine or "").name
            return f"{knowledge.name} is a folder on the machine {name}, and this server is on another one."
        if self._clock.monotonic() - self._place(knowledge).looked_at > _FRESH_S:
            with anyio.move_on_after(_PATIENCE_S):
                await self.look(knowledge)
        return ""

    def index(self, knowledge: Knowledge) -> KnowledgeIndex:
        return KnowledgeIndex(self._folder / f"{knowledge.id}.db")

    def _place(self, knowledge: Knowledge) -> _Place:
        found = self._places.get(knowledge.id)
        if found is None:
            found = self._places[knowledge.id] = _Place(anyio.Lock())
        return found
