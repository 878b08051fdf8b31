"""Uploads and artifacts. Only a file's owner can read it; knowing its hash is not enough."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.media import RAW
from everturn.domain.store import Files
from everturn.domain.store_values import File
from everturn.web.access.identity import Scope
from everturn.web.http.bytes_answer import BytesAnswer, disposition, parse_range
from everturn.web.http.guard import FILE_POLICY
from everturn.web.http.problems import BadRequest, NotJson
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.uploads import FORM, SHOWN, Uploads

_CONTENTS = dict.fromkeys((RAW, *sorted(SHOWN)), bytes)


class UploadQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


class Uploaded(msgspec.Struct, frozen=True):
    id: str
    name: str
    media_type: str
    size: int


class FilesApi:
    def __init__(self, files: Files, uploads: Uploads) -> None:
        self._files = files
        self._uploads = uploads

    def endpoints(self) -> list[AnyEndpoint]:
        gone = (e.NotFound, e.Gone, e.FileMissing, e.FileUnreadable, e.StorageAway)
        return [
            Endpoint(
                method="POST",
                path="/api/uploads",
                run=self.upload,
                summary="Store a file, as raw bytes or as a form with one file.",
                tag="files",
                scope=Scope.CHAT,
                query=UploadQuery,
                answer=Uploaded,
                status=201,
                errors=(NotJson, BadRequest, e.DiskFull, e.StorageAway),
                takes=(RAW, FORM),
            ),
            Endpoint(
                method="GET",
                path="/api/files/{file}",
                run=self.get,
                summary="A file: images to be shown, everything else as a download.",
                tag="files",
                contents=_CONTENTS,
                errors=gone,
            ),
            Endpoint(
                method="GET",
                path="/api/artifacts/{file}",
                run=self.get,
                summary="The full output of a tool.",
                tag="files",
                contents=_CONTENTS,
                errors=gone,
            ),
        ]

    async def upload(self, call: ApiCall[UploadQuery, Nothing]) -> Uploaded:
        async with self._uploads.receive(call.headers, call.receive, call.query.name) as upload:
            file = await self._files.put(call.owner, upload.name, upload.media_type, upload.path)
        return Uploaded(file.id, file.name, file.media_type, file.size)

    async def get(self, call: ApiCall[Nothing, Nothing]) -> BytesAnswer:
        file = await self._files.get(call.owner, call.path["file"])
        start, end = parse_range(call.headers, file.size)
        pieces = self._files.read(file, start, end)
        return await BytesAnswer.open(pieces, start, end, file.size, _media(file), _headers(file))


def _media(file: File) -> str:
    """The type of images that browsers may show. Everything else is plain bytes, which no browser runs."""
    return file.media_type if file.media_type in SHOWN else RAW


def _headers(file: File) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"content-disposition", disposition(file.name, is_shown=file.media_type in SHOWN)),
        (b"content-security-policy", FILE_POLICY.encode()),
        (b"cache-control", b"private, max-age=31536000, immutable"),
        (b"etag", f'"{file.sha256[:32]}"'.encode()),
    )
