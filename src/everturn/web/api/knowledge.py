"""Knowledge: folders and uploads that sessions can search. Reading it needs the scope that reads
sessions; changing it needs the scope admin, because it decides what the agent may read, and what counts as
the user's own word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain import errors as e
from everturn.domain.ids import Ids
from everturn.domain.media import RAW
from everturn.tools import EverturnToolbox
from everturn.tools.knowledge.book import NAME_CHARS_MAX, Knowledge, KnowledgeFile
from everturn.tools.knowledge.library import KnowledgeLibrary
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.problems import BadRequest, NotJson
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.uploads import FORM, Uploads

_Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
_Users = Annotated[tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=500)]
_Path = Annotated[str, Meta(min_length=1, max_length=1000)]


class KnowledgeError(msgspec.Struct, frozen=True):
    """A file that could not be read, and why."""

    path: str
    error: str


class ShownKnowledge(msgspec.Struct, frozen=True):
    """``machine``: the one that has the folder, if it is not this server's. ``indexed_at``: when all
    that there was had been read. ``waiting``: changed files that are not read yet. ``trouble``: why the
    last look failed."""

    id: str
    name: str
    folder: str | None
    machine: str
    is_own: bool
    is_for_all: bool
    profiles: tuple[str, ...]
    sessions: tuple[str, ...]
    files: int
    sections: int
    indexed_at: int | None
    is_indexing: bool
    waiting: int
    errors: tuple[KnowledgeError, ...]
    trouble: str
    uploads: tuple[KnowledgeFile, ...] = ()


class KnowledgeList(msgspec.Struct, frozen=True):
    knowledge: tuple[ShownKnowledge, ...]


class NewKnowledge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``folder``: an allowed folder of this machine; without one it holds uploads."""

    name: _Name
    folder: _Path | None = None
    is_own: bool = False
    is_for_all: bool = False
    profiles: _Users = ()
    sessions: _Users = ()


class KnowledgeChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays."""

    name: _Name | UnsetType = UNSET
    is_own: bool | UnsetType = UNSET
    is_for_all: bool | UnsetType = UNSET
    profiles: _Users | UnsetType = UNSET
    sessions: _Users | UnsetType = UNSET


class FileName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: _Path


_ONE = "/api/knowledge/{knowledge}"


class KnowledgeApi:
    def __init__(self, toolbox: EverturnToolbox, uploads: Uploads, ids: Ids, audit: Audit) -> None:
        self._toolbox = toolbox
        self._uploads = uploads
        self._ids = ids
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._of_knowledge(), *self._of_files()]

    def _of_knowledge(self) -> list[AnyEndpoint]:
        tag, one = "knowledge", _ONE
        return [
            Endpoint(
                method="GET",
                path="/api/knowledge",
                run=self.list,
                summary="The folders and uploads that sessions can search, with the state of their indexes.",
                tag=tag,
                answer=KnowledgeList,
            ),
            Endpoint(
                method="POST",
                path="/api/knowledge",
                run=self.add,
                summary="Make knowledge of a folder, or an empty one for uploads.",
                tag=tag,
                scope=Scope.ADMIN,
                body=NewKnowledge,
                answer=ShownKnowledge,
                status=201,
                errors=(e.Invalid,),
            ),
            Endpoint(
                method="PATCH",
                path=one,
                run=self.change,
                summary="Change its name, whether it is your own word, and who may search it.",
                tag=tag,
                scope=Scope.ADMIN,
                body=KnowledgeChange,
                answer=ShownKnowledge,
                errors=(e.NotFound, e.Invalid),
            ),
            Endpoint(
                method="DELETE",
                path=one,
                run=self.delete,
                summary="Delete it with its uploads. A folder stays as it is.",
                tag=tag,
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound,),
            ),
        ]

    def _of_files(self) -> list[AnyEndpoint]:
        tag, one = "knowledge", _ONE
        return [
            Endpoint(
                method="POST",
                path=f"{one}/files",
                run=self.put_file,
                summary="Add an upload. One of the same name is replaced.",
                tag=tag,
                scope=Scope.ADMIN,
                query=FileName,
                answer=KnowledgeFile,
                status=201,
                errors=(e.NotFound, e.Invalid, NotJson, BadRequest, e.DiskFull, e.StorageAway),
                takes=(RAW, FORM),
            ),
            Endpoint(
                method="DELETE",
                path=f"{one}/files",
                run=self.delete_file,
                summary="Remove an upload.",
                tag=tag,
                scope=Scope.ADMIN,
                query=FileName,
                status=204,
                errors=(e.NotFound,),
            ),
        ]

    @property
    def _library(self) -> KnowledgeLibrary:
        library = self._toolbox.knowledge
        if library is None:
            raise e.NotFound("knowledge", "here")
        return library

    async def list(self, call: ApiCall[Nothing, Nothing]) -> KnowledgeList:
        found: Sequence[Knowledge] = ()
        if self._toolbox.knowledge is not None:
            found = await self._library.book.of_owner(call.owner)
        return KnowledgeList(tuple([await self._show(one) for one in found]))

    async def add(self, call: ApiCall[Nothing, NewKnowledge]) -> ShownKnowledge:
        given, folder = call.body, call.body.folder
        if folder is not None:
            folder = await self._toolbox.check_project(folder)
        made = await self._library.book.add(
            self._ids,
            Knowledge(
                "",
                call.owner,
                given.name.strip(),
                self._toolbox.clock.now_ms(),
                folder,
                is_own=given.is_own,
                is_for_all=given.is_for_all,
                profiles=given.profiles,
                sessions=given.sessions,
            ),
        )
        await self._audit.note("knowledge.made", call.caller, f"{made.id} {made.name} {folder or ''}")
        self._library.nudge()
        return await self._show(made)

    async def change(self, call: ApiCall[Nothing, KnowledgeChange]) -> ShownKnowledge:
        known = await self._library.book.get(call.owner, call.path["knowledge"])
        given = msgspec.structs.asdict(call.body)
        changed = msgspec.structs.replace(known, **{k: v for k, v in given.items() if v is not UNSET})
        await self._library.book.change(changed)
        own = "is their own word" if changed.is_own else "is text from outside"
        await self._audit.note("knowledge.changed", call.caller, f"{changed.id} {changed.name} {own}")
        return await self._show(changed)

    async def delete(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._library.book.delete(call.owner, call.path["knowledge"])
        await self._audit.note("knowledge.deleted", call.caller, call.path["knowledge"])
        self._library.nudge()

    async def put_file(self, call: ApiCall[FileName, Nothing]) -> KnowledgeFile:
        known = await self._library.book.get(call.owner, call.path["knowledge"])
        async with self._uploads.receive(call.headers, call.receive, call.query.name) as upload:
            now = self._toolbox.clock.now_ms()
            file = await self._library.book.put_file(known, upload.name, upload.path, now)
        self._library.nudge()
        return file

    async def delete_file(self, call: ApiCall[FileName, Nothing]) -> None:
        known = await self._library.book.get(call.owner, call.path["knowledge"])
        await self._library.book.delete_file(known, call.query.name)
        self._library.nudge()

    async def _show(self, one: Knowledge) -> ShownKnowledge:
        state = await self._library.state(one)
        index = state.index
        return ShownKnowledge(
            one.id,
            one.name,
            one.folder,
            state.elsewhere,
            one.is_own,
            one.is_for_all,
            one.profiles,
            one.sessions,
            index.files,
            index.sections,
            index.indexed_at,
            state.is_indexing,
            state.waiting,
            tuple(KnowledgeError(path, error) for path, error in index.errors),
            index.trouble,
            () if one.folder is not None else tuple(await self._library.book.files(one)),
        )
