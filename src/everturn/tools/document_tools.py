"""Tools for documents: what there is, where something stands in it, and a part of it."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Annotated

import anyio.to_thread
import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.media import SNIFF_BYTES, document_kind, sniff_media_type
from everturn.domain.messages import Outcome
from everturn.domain.store_values import File
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.documents.converter import BYTES_MAX, Converter, too_large
from everturn.tools.documents.document import Document, Section
from everturn.tools.documents.documents import Documents
from everturn.tools.documents.passages import FoundPassage, find, words_of
from everturn.tools.knowledge.book import Knowledge
from everturn.tools.knowledge.library import KnowledgeLibrary
from everturn.tools.paths import FolderHandle
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed

_HITS_MAX = 12
_CACHED_MAX = 4
_PIECE_BYTES = 1 << 20
_TIMEOUT_S = 300.0
_NAMES_SHOWN = 20
DocumentName = Annotated[
    str, "As list_documents names it: an attached file by id or name, or a file of the workspace by its path"
]


class Opened(msgspec.Struct, frozen=True):
    """A document that a tool reads: its name for people, how the tools name it, its text."""

    name: str
    id: str
    document: Document
    is_own: bool = False  # from knowledge that the user calls their own


class _FileVersion(msgspec.Struct, frozen=True):
    path: str
    modified: int
    size: int
    inode: int


class DocumentShelf:
    """Opens the documents that one call may read: attached ones, those of knowledge that its session
    uses, and those in its workspace."""

    def __init__(self, documents: Documents, converter: Converter, library: KnowledgeLibrary | None) -> None:
        self._documents = documents
        self._converter = converter
        self._library = library
        self._cache: dict[_FileVersion, Document] = {}  # of workspaces; the last one is the latest

    async def list_attached(self, call: ToolCall) -> Sequence[File]:
        return await self._documents.list_attached(call.owner, call.session_id)

    async def open_file(self, call: ToolCall, file: File) -> Opened:
        return Opened(file.name, file.id, await self._documents.read(call.owner, call.session_id, file))

    async def open(self, call: ToolCall, name: str) -> Opened:
        """Raises ToolFailed if there is none of this name, or it cannot be read."""
        files = await self.list_attached(call)
        file = next((one for one in files if name in (one.id, one.name)), None)
        found = None if file is None else await self.open_file(call, file)
        found = found or await self._open_known(call, name) or await self._open_path(call, name)
        if found.document.error:
            raise ToolFailed(f"{found.name} could not be read. {found.document.error}")
        return found

    async def knowledge(self, call: ToolCall) -> Sequence[Knowledge]:
        """What the session of this call may search."""
        if self._library is None:
            return ()
        return await self._library.used_by(call.owner, call.session_id, call.profile)

    async def find_known(self, knowledge: Knowledge, query: str) -> tuple[list[FoundPassage], str]:
        return ([], "") if self._library is None else await self._library.find(knowledge, query, _HITS_MAX)

    async def _open_known(self, call: ToolCall, name: str) -> Opened | None:
        """A file of knowledge, named as a search names it."""
        for knowledge in await self.knowledge(call):
            for start in (f"{knowledge.id}/", f"{knowledge.name}: "):
                if self._library is not None and name.startswith(start):
                    path = name.removeprefix(start)
                    document = await self._library.read(knowledge, path)
                    shown, document_id = f"{knowledge.name}: {path}", f"{knowledge.id}/{path}"
                    return Opened(shown, document_id, document, is_own=knowledge.is_own)
        return None

    async def _open_path(self, call: ToolCall, path: str) -> Opened:
        try:
            fd, version = await anyio.to_thread.run_sync(_open, call, path)
        except FileNotFoundError as error:
            known_as = ""
            if knowledge := await self.knowledge(call):
                known_as = (
                    f" One of knowledge is named as search_documents names it, such as {knowledge[0].id}/…"
                )
            raise ToolFailed(
                f"There is no document {path!r}, attached or in the workspace. list_documents names the "
                f"attached ones.{known_as}"
            ) from error
        try:
            known = self._cache.pop(version, None) or await self._convert(fd, path, version.size)
        finally:
            os.close(fd)
        self._cache[version] = known
        if len(self._cache) > _CACHED_MAX:
            del self._cache[next(iter(self._cache))]
        return Opened(path, path, known)

    async def _convert(self, fd: int, path: str, size: int) -> Document:
        if size > BYTES_MAX:
            return too_large(size)
        head = os.pread(fd, SNIFF_BYTES, 0)
        media_type = sniff_media_type(head, path)
        kind = document_kind(path, media_type) or (
            "text" if media_type.startswith(("text/", "application/j")) else ""
        )
        if not kind:
            return Document(error=f"It is not a document with text ({media_type}).")
        suffix = PurePath(path).suffix.lower()
        return await self._converter.convert(kind, suffix if suffix.isascii() else "", _pieces(fd))


def _open(call: ToolCall, path: str) -> tuple[int, _FileVersion]:
    with FolderHandle(call.workspace) as files:
        # NONBLOCK: opening a named pipe must not hang the tool.
        fd = files.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise ToolFailed(f"{path} is not a regular file.")
            name = str(call.workspace / files.name(path))
        except BaseException:
            os.close(fd)
            raise
    return fd, _FileVersion(name, found.st_mtime_ns, found.st_size, found.st_ino)


async def _pieces(fd: int) -> AsyncIterator[bytes]:
    at = 0
    while piece := await anyio.to_thread.run_sync(os.pread, fd, _PIECE_BYTES, at):
        yield piece
        at += len(piece)


class ListDocuments(Action):
    """List the documents of this conversation: the attached ones with their ids and sizes, and the
    knowledge (folders and collections of files) that it can search."""

    name = "list_documents"
    is_safe_to_repeat = True
    reads_only = True
    timeout_s = _TIMEOUT_S

    def __init__(self, shelf: DocumentShelf) -> None:
        self._shelf = shelf

    async def act(self, call: ToolCall, emit: Emit) -> ToolResult:
        rows: list[str] = []
        for file in (await self._shelf.list_attached(call))[:_NAMES_SHOWN]:
            found = (await self._shelf.open_file(call, file)).document
            count = len(found.sections)
            sections = "1 section" if count == 1 else f"{count} sections"
            what = found.error or f"{sections}, {found.chars:,} characters"
            rows.append(f"{file.id} {file.name}: {what}")
        known = [f"{one.id} {one.name}: knowledge, search it" for one in await self._shelf.knowledge(call)]
        return ToolResult("\n".join([*(rows or ["[no documents are attached]"]), *known]))


class SearchDocuments(Action):
    """Search the attached documents and the knowledge of this conversation for words; the best sections
    come first.

    In your answer, quote what you use with the document's name and the place.
    """

    name = "search_documents"
    is_safe_to_repeat = True
    reads_only = True
    timeout_s = _TIMEOUT_S

    def __init__(self, shelf: DocumentShelf) -> None:
        self._shelf = shelf

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        query: Annotated[str, "Words to look for; also try other words for the same thing"],
        document: Annotated[
            str, "Only this document or knowledge, by id, name or path; everything if left out"
        ] = "",
    ) -> ToolResult:
        if not words_of(query):
            raise ToolFailed("The query has no words.")
        notes: list[str] = []
        hits: list[FoundPassage] = []
        known = [one for one in await self._shelf.knowledge(call) if document in ("", one.id, one.name)]
        for opened in [] if document and known else await self._open_all(call, document):
            if opened.document.error:
                notes.append(f"{opened.name} could not be read. {opened.document.error}")
                continue
            sections = opened.document.sections
            hits += await anyio.to_thread.run_sync(partial(find, sections, query, opened.name, opened.id))
        hits.sort(key=lambda one: one.rank)
        learnt: list[FoundPassage] = []
        for knowledge in known:
            found, note = await self._shelf.find_known(knowledge, query)
            learnt += found
            notes += [note] if note else []
        # Their ranks cannot be compared: each gets its share of what is shown.
        half = max(_HITS_MAX // 2, _HITS_MAX - len(learnt))
        return found_result([*hits[:half], *sorted(learnt, key=lambda one: one.rank)], notes)

    async def _open_all(self, call: ToolCall, document: str) -> list[Opened]:
        if document:
            return [await self._shelf.open(call, document)]
        files = await self._shelf.list_attached(call)
        return [await self._shelf.open_file(call, file) for file in files[:_NAMES_SHOWN]]

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=one_line(arguments["query"]))


class ReadDocument(Action):
    """Read a part of a document (Word, Excel, PowerPoint, PDF, EPUB, HTML, mail, text) from a section on.

    In your answer, quote what you use with the document's name and the place.
    """

    name = "read_document"
    is_safe_to_repeat = True
    reads_only = True
    timeout_s = _TIMEOUT_S

    def __init__(self, shelf: DocumentShelf) -> None:
        self._shelf = shelf

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        document: DocumentName,
        section: Annotated[Annotated[int, msgspec.Meta(ge=1)], "Begin at this section"] = 1,
        place: Annotated[str, "Or at this place, such as 'page 12', 'slide 3', 'sheet “Budget”'"] = "",
    ) -> ToolResult:
        opened = await self._shelf.open(call, document)
        sections = opened.document.sections
        first = _section_of(sections, place) if place else section
        if first > len(sections):
            raise ToolFailed(f"{opened.name} has {len(sections)} sections; there is no section {first}.")
        return part_result(opened, first, self.spec.output_bytes_max - 1_000)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=one_line(f"{arguments['document']} {arguments['place']}".strip()))


def document_tools(shelf: DocumentShelf) -> tuple[Action, ...]:
    return (ListDocuments(shelf), SearchDocuments(shelf), ReadDocument(shelf))


def _section_of(sections: Sequence[Section], place: str) -> int:
    """The first section whose place is this one, or begins with it, or holds it."""
    wanted = place.casefold().strip()
    places = [section.place.casefold() for section in sections]
    for fits in (str.__eq__, str.startswith, str.__contains__):
        for number, known in enumerate(places, 1):
            if fits(known, wanted):
                return number
    shown = "; ".join(list(dict.fromkeys(one.place for one in sections if one.place))[:_NAMES_SHOWN])
    raise ToolFailed(f"There is no place {place!r} in it. Places: {shown or 'it has none; use section'}.")


def found_result(hits: Sequence[FoundPassage], notes: Sequence[str]) -> ToolResult:
    """What was found, each with its document and place. An error if nothing was found because of what is
    noted."""
    rows = [
        f"{one.name}, {one.place} (section {one.section} of {one.document}):\n{one.excerpt}"
        for one in hits[:_HITS_MAX]
    ]
    more = [f"[{len(hits) - _HITS_MAX} more sections; narrow the search]"] if len(hits) > _HITS_MAX else []
    text = "\n\n".join([*(rows or ["[nothing found]"]), *more, *(f"[{note}]" for note in notes)])
    outcome = Outcome.ERROR if notes and not rows else Outcome.OK
    is_own = bool(rows) and not notes and all(one.is_own for one in hits[:_HITS_MAX])
    return ToolResult(text, outcome, display={"kind": "found", "count": len(hits)}, is_own=is_own)


def part_result(opened: Opened, first: int, bytes_max: int) -> ToolResult:
    """The sections from ``first`` on, as far as they fit."""
    rows: list[str] = []
    size = 0
    for number, one in enumerate(opened.document.sections[first - 1 :], first):
        row = f"[section {number}{': ' if one.place else ''}{one.place}]\n{one.text}"
        size += len(row.encode()) + 2
        if size > bytes_max and rows:
            break
        rows.append(row)
    count = len(opened.document.sections)
    last = first + len(rows) - 1
    end = f"[sections {first} to {last} of {count}" + (
        f"; go on with section={last + 1}]" if last < count else "]"
    )
    notes = [f"[{note}]" for note in opened.document.notes] if last == count else []
    text = "\n\n".join([opened.name, *rows, *notes, end])
    display: JsonObject = {"kind": "document", "name": opened.name, "sections": [first, last, count]}
    return ToolResult(text, display=display, is_own=opened.is_own)
