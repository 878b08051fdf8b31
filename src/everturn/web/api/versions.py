"""Versions of a session's files: compared, the history of one, and everything as an archive."""

from __future__ import annotations

import msgspec

from everturn.domain import errors as e
from everturn.domain.checkpoints import NOW, parse_at
from everturn.domain.clock import Clock
from everturn.domain.media import safe_name
from everturn.domain.trees import Kind, show_path
from everturn.web.access.identity import Scope
from everturn.web.api.workspace import READ_ERRORS, At, FilePath, Path
from everturn.web.http.bytes_answer import BytesAnswer, disposition
from everturn.web.http.guard import FILE_POLICY
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.session_files import SessionFiles
from everturn.workspace import Archive, ComparedFile, FileHistory

_ZIP = "application/zip"


class DiffQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``from`` and ``to``: two moments, as ``at`` of other requests. ``path``: one file, line by line."""

    from_: At = msgspec.field(name="from")
    to: At = NOW
    path: Path = ""


class FilesDiff(msgspec.Struct, frozen=True, omit_defaults=True):
    """``changes`` and ``total``: what changed. With a path instead ``path``, a unified diff as ``text``,
    ``is_cut`` (there is more, or the file is too large to be compared) and ``is_binary``."""

    changes: tuple[ComparedFile, ...] | None = None
    total: int | None = None
    path: str | None = None
    text: str | None = None
    is_cut: bool | None = None
    is_binary: bool | None = None


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: FilePath


class ArchiveQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``path``: a folder or a file; default: everything. ``since``: of a folder only the files that differ
    from that moment."""

    path: Path = ""
    at: At = NOW
    since: At = ""


class VersionsApi:
    def __init__(self, files: SessionFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/files/diff",
                run=self.diff,
                summary="What changed between two moments, or how one file did.",
                tag="files",
                scope=Scope.CHAT,
                query=DiffQuery,
                answer=FilesDiff,
                errors=READ_ERRORS,
            ),
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/files/history",
                run=self.history,
                summary="The versions of one file that differ, newest first.",
                tag="files",
                scope=Scope.CHAT,
                query=HistoryQuery,
                answer=FileHistory,
                errors=READ_ERRORS,
            ),
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/files/archive",
                run=self.archive,
                summary="A folder of the workspace, everything, or what changed since, as a ZIP file.",
                tag="files",
                scope=Scope.CHAT,
                query=ArchiveQuery,
                contents={_ZIP: bytes},
                errors=READ_ERRORS,
            ),
        ]

    async def diff(self, call: ApiCall[DiffQuery, Nothing]) -> FilesDiff:
        owner, session, query = call.owner, call.path["session"], call.query
        before = await self._files.tree(owner, session, query.from_)
        after = await self._files.tree(owner, session, query.to)
        if query.path:
            one = await self._files.compare.diff(before, after, query.path)
            return FilesDiff(path=one.path, text=one.text, is_cut=one.is_cut, is_binary=one.is_binary)
        found = await self._files.compare.compare(before, after)
        return FilesDiff(found.changes, found.total)

    async def history(self, call: ApiCall[HistoryQuery, Nothing]) -> FileHistory:
        made = self._files.checkpoints(call.owner, call.path["session"])
        try:
            return await self._files.compare.history(made, call.query.path)
        finally:
            await made.aclose()

    async def archive(self, call: ApiCall[ArchiveQuery, Nothing]) -> BytesAnswer:
        owner, session, query = call.owner, call.path["session"], call.query
        tree = await self._files.tree(owner, session, query.at)
        root = await self._files.versions.find(tree, query.path)
        if root.entry.kind is Kind.LEFT_OUT:
            raise e.NotFound("stored version of", query.path[:200])
        is_now = parse_at(query.at) is None
        now = (await self._files.at(owner, session, query.at)).view if is_now else None
        only = None
        if query.since:
            before = await self._files.tree(owner, session, query.since)
            only = {change.path for change in await self._files.compare.changes(before, tree)}
        pieces = Archive(self._files.versions, self._clock.now_ms() / 1000, now, only).pieces(root)
        name = safe_name(show_path(root.entry.name) or f"files-{session}") + ".zip"
        return BytesAnswer(await anext(pieces, b""), pieces, _head(name), 200)


def _head(name: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", _ZIP.encode()),
        (b"content-disposition", disposition(name, is_shown=False)),
        (b"content-security-policy", FILE_POLICY.encode()),
        (b"cache-control", b"private, no-store"),
    ]
