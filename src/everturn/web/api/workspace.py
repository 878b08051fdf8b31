"""A session's files over HTTP: folders, file names by a part of them, and bytes, now or as of a turn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path as DiskPath
from typing import Annotated

import anyio.to_thread
import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.checkpoints import NOW
from everturn.domain.media import RAW, SNIFF_BYTES, safe_name, sniff_media_type
from everturn.tools import WorkspaceFile
from everturn.web.access.identity import Scope
from everturn.web.http.bytes_answer import BytesAnswer, disposition, parse_range
from everturn.web.http.guard import FILE_POLICY, MEDIA_POLICY, PDF_POLICY, VIEW_POLICY
from everturn.web.http.problems import BodyTooLarge, FileTagNeeded
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing, Raw
from everturn.web.session_files import SessionFiles
from everturn.web.uploads import Uploads
from everturn.workspace import OpenedFile

_PATH_CHARS_MAX = 2000  # in a query: up to 12 bytes for each, and the head of a request holds 32 KiB
_AT_CHARS_MAX = 60
_PDF = "application/pdf"
_ACTIVE = frozenset({"text/html", "image/svg+xml"})
# Types that browsers show and that cannot do anything.
_PASSIVE = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "audio/", "video/")
_TEXT = "text/plain; charset=utf-8"
_CONTENTS = (RAW, "text/plain", _PDF, *sorted(_ACTIVE), "image/*", "audio/*", "video/*")
_REFUSALS = (e.NotFound, e.Gone, e.Denied, e.Invalid)
READ_ERRORS = (
    *_REFUSALS,
    e.BlobMissing,
    e.BlobDamaged,
    e.FileUnreadable,
    e.TreeUnreadable,
    e.StorageAway,
    e.WorkspaceUnreadable,
)

Path = Annotated[str, Meta(max_length=_PATH_CHARS_MAX)]
FilePath = Annotated[str, Meta(min_length=1, max_length=_PATH_CHARS_MAX)]
At = Annotated[str, Meta(max_length=_AT_CHARS_MAX)]


class FilesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``path``: a folder of the workspace; default: the workspace itself. ``q``: a part of a name, looked
    for in that folder and all below it. ``at``: now | start | trn_… | before:trn_… | made:trn_… | chk_…"""

    path: Path = ""
    q: Annotated[str, Meta(max_length=100)] = ""
    at: At = NOW


class ContentQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``view``: to be shown in a browser; otherwise it is a download."""

    path: FilePath
    at: At = NOW
    view: bool = False


class SaveQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: FilePath


class SavedFile(msgspec.Struct, frozen=True):
    """``checkpoint``: the version of the workspace that holds it; null if there is none yet."""

    path: str
    size: int
    sha256: str
    checkpoint: str | None


class WorkspaceFiles(msgspec.Struct, frozen=True):
    """``is_restoring``: the folder is being brought to another version, which is what is listed.
    ``is_cut``: there are more than these."""

    path: str
    at: str
    is_project: bool
    is_restoring: bool
    files: tuple[WorkspaceFile, ...]
    is_cut: bool


class WorkspaceApi:
    """Needs the scope ``chat``: such a token can have the agent read the same files."""

    def __init__(self, files: SessionFiles, uploads: Uploads) -> None:
        self._files = files
        self._uploads = uploads

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/files",
                run=self.list,
                summary="What is in a folder of the session's workspace, or files by a part of their name.",
                tag="files",
                scope=Scope.CHAT,
                query=FilesQuery,
                answer=WorkspaceFiles,
                errors=READ_ERRORS,
            ),
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/files/content",
                run=self.content,
                summary="The bytes of one file of the session's workspace.",
                tag="files",
                scope=Scope.CHAT,
                query=ContentQuery,
                contents=dict.fromkeys(_CONTENTS, bytes),
                errors=READ_ERRORS,
            ),
            Endpoint(
                method="PUT",
                path="/api/sessions/{session}/files/content",
                run=self.save,
                summary="Save a file over the version that If-Match names; with If-None-Match: * a new one.",
                tag="files",
                scope=Scope.CHAT,
                query=SaveQuery,
                answer=SavedFile,
                takes=(RAW,),
                errors=(
                    *READ_ERRORS,
                    e.StaleFile,
                    e.WrongState,
                    e.DiskFull,
                    e.DiskReadOnly,
                    FileTagNeeded,
                    BodyTooLarge,
                ),
            ),
        ]

    async def list(self, call: ApiCall[FilesQuery, Nothing]) -> WorkspaceFiles:
        query = call.query
        at = await self._files.at(call.owner, call.path["session"], query.at)
        if query.q:
            found = await at.view.search(query.path, query.q)
        else:
            found = await at.view.list(query.path)
        return WorkspaceFiles(
            found.path, query.at or NOW, at.is_project, at.is_restoring, found.files, found.is_cut
        )

    async def content(self, call: ApiCall[ContentQuery, Nothing]) -> BytesAnswer | Raw:
        query = call.query
        at = await self._files.at(call.owner, call.path["session"], query.at)
        file = await at.view.open(query.path)
        media = await _media_of(file) if query.view else RAW
        headers = _headers(file, media)
        if f'"{file.tag}"' in call.headers.get("if-none-match", ""):
            return Raw(b"", media, 304, headers)
        start, end = parse_range(call.headers, file.size)
        return await BytesAnswer.open(file.read(start, end), start, end, file.size, media, headers)

    async def save(self, call: ApiCall[SaveQuery, Nothing]) -> SavedFile:
        tag, path = _tag_from(call.headers), call.query.path
        headers = {**call.headers, "content-type": RAW}  # whatever a client calls it, it is bytes
        async with self._uploads.receive(headers, call.receive, None) as upload:
            sha256 = await anyio.to_thread.run_sync(_hash, upload.path)
            name, made = await self._files.save(call.owner, call.path["session"], path, upload.path, tag)
        return SavedFile(name, upload.size, sha256, None if made is None else made.id)


def _tag_from(headers: Mapping[str, str]) -> str | None:
    """The tag of the version to be replaced; None if no file must be there. Raises FileTagNeeded."""
    if headers.get("if-none-match", "").strip() == "*":
        return None
    tag = headers.get("if-match", "").strip().strip('"')
    if not tag or tag == "*":
        raise FileTagNeeded
    return tag


def _hash(path: DiskPath) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _media_of(file: OpenedFile) -> str:
    """What a browser may show it as; plain bytes if nothing is known to be safe."""
    pieces = file.read(0, min(SNIFF_BYTES, file.size))
    try:
        head = b"".join([piece async for piece in pieces])
    finally:
        await pieces.aclose()
    media = sniff_media_type(head, file.path)
    if media in _ACTIVE:
        return f"{media}; charset=utf-8"
    if media == _PDF or media.startswith(_PASSIVE):
        return media
    return _TEXT if media.startswith(("text/", "application/json", "application/xml")) else RAW


def _headers(file: OpenedFile, media: str) -> tuple[tuple[bytes, bytes], ...]:
    # A browser asks each time, also for a version that never changes: the session may have been deleted.
    headers = [
        (b"content-disposition", disposition(safe_name(file.path), is_shown=media != RAW)),
        (b"content-security-policy", _policy(media).encode()),
        (b"cache-control", b"private, no-cache"),
        (b"etag", f'"{file.tag}"'.encode()),
    ]
    if media != RAW:
        headers.append((b"x-frame-options", b"SAMEORIGIN"))
    return tuple(headers)


def _policy(media: str) -> str:
    if media == RAW:
        return FILE_POLICY
    if media == _PDF:
        return PDF_POLICY
    return MEDIA_POLICY if media.startswith(_PASSIVE) else VIEW_POLICY
