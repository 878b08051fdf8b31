"""The documents that are attached to sessions, each converted once.

A document's text is stored as an artifact of the session that first converted it, so every worker finds it.
If the artifact is gone, the document is converted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from everturn.domain.errors import FileMissing, Gone, NotFound
from everturn.domain.media import document_kind
from everturn.domain.store import Files, Records
from everturn.domain.store_values import File, FileKind
from everturn.tools.documents.converter import BYTES_MAX, Converter, too_large
from everturn.tools.documents.document import Document

_KIND = "document"
_VERSION = 1  # of the conversion; results of earlier versions are converted again
_PLACES_SHOWN = 40
_HEAD_CHARS = 3_000
_ATTACHED_MAX = 200


class _Kept(msgspec.Struct, frozen=True):
    """Where a document's text is."""

    artifact: str
    session_id: str
    version: int


class Documents:
    def __init__(self, converter: Converter, files: Files, records: Records) -> None:
        self._converter = converter
        self._files = files
        self._records = records

    async def list_attached(self, owner: str, session_id: str) -> Sequence[File]:
        """Return the session's attached files that have text, newest first."""
        found = await self._files.list_uploads(owner, session_id, limit=_ATTACHED_MAX)
        return [file for file in found if kind_of(file) is not None]

    async def read(self, owner: str, session_id: str, file: File) -> Document:
        """Return the file as text, from its artifact if it was converted before.

        Raises what reading files raises.
        """
        kept = await self._load_kept(owner, file)
        if kept is not None:
            return kept
        found = await self._convert(file)
        if not found.is_passing:
            artifact = await self._files.put(
                owner,
                f"{file.name}.text.json",
                "application/json",
                msgspec.json.encode(found),
                kind=FileKind.ARTIFACT,
                session_id=session_id,
            )
            value = msgspec.to_builtins(_Kept(artifact.id, session_id, _VERSION))
            await self._records.put(owner, _KIND, file.id, value)
        return found

    async def forget(self, owner: str, session_id: str) -> None:
        """Forget the texts that are deleted with a session."""
        for name, value in (await self._records.list(owner, _KIND)).items():
            if value["session_id"] == session_id:
                await self._records.delete(owner, _KIND, name)

    async def _load_kept(self, owner: str, file: File) -> Document | None:
        value = await self._records.get(owner, _KIND, file.id)
        if value is None:
            return None
        kept = msgspec.convert(value, _Kept)
        if kept.version != _VERSION:
            return None
        try:
            artifact = await self._files.get(owner, kept.artifact)
            content = b"".join([piece async for piece in self._files.read(artifact)])
        except (NotFound, Gone, FileMissing):
            return None  # it was deleted with the session that converted it
        return msgspec.json.decode(content, type=Document)

    async def _convert(self, file: File) -> Document:
        if file.size > BYTES_MAX:
            return too_large(file.size)
        kind = kind_of(file)
        if kind is None:
            return Document(error=f"It has no text that can be read ({file.media_type}).")
        suffix = PurePath(file.name).suffix.lower()
        return await self._converter.convert(kind, suffix if suffix.isascii() else "", self._files.read(file))


def kind_of(file: File) -> str | None:
    """Return how the file is converted; None if it has no text."""
    return document_kind(file.name, file.media_type) or (
        "text" if file.media_type.startswith("text/") or file.media_type.endswith(("json", "xml")) else None
    )


def show(document: Document, file: File, chars_max: int, *, can_search: bool) -> str:
    """Return what the model sees of an attached document: all of it, or its beginning and how to read on."""
    if document.error:
        return f"[This document could not be read. {document.error} Tell the user.]"
    whole = document.text()
    if len(whole) <= chars_max:
        return whole
    if not can_search:
        return f"{whole[:chars_max]}\n[The rest is left out: the document is longer than what is read.]"
    places = list(dict.fromkeys(section.place for section in document.sections if section.place))
    more = f" … ({len(places)} in all)" if len(places) > _PLACES_SHOWN else ""
    return (
        f"{whole[:_HEAD_CHARS]}\n[This is only the beginning: {len(whole):,} characters in "
        f"{len(document.sections)} sections. Search it with search_documents and read on with "
        f"read_document, document {file.id!r}. "
        f"Places: {'; '.join(places[:_PLACES_SHOWN])}{more}]"
    )
