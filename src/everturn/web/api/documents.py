"""Search, export and import."""

from __future__ import annotations

from typing import Annotated, Literal

import anyio.to_thread
import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.messages import Attachment, Message
from everturn.domain.sessions import Hit, Session
from everturn.engine import Engine
from everturn.store import Store
from everturn.web import exporting
from everturn.web.api.sessions import SessionId, SessionsApi, tagged
from everturn.web.exporting import Document, ExportedFile
from everturn.web.guard import FILE_POLICY
from everturn.web.identity import Scope
from everturn.web.routing import JSON, Answer, AnyEndpoint, Call, Endpoint, Nothing, Raw
from everturn.web.uploads import safe_name, sniffed

_FILES_BYTES_MAX = 100_000_000  # of attachments in one document


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    q: Annotated[str, Meta(min_length=1, max_length=500)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["newest", "relevance"] = "newest"
    session: SessionId | None = None


class Hits(msgspec.Struct, frozen=True):
    items: tuple[Hit, ...]


class ExportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["json", "md", "html"] = "json"


class DocumentsApi:
    def __init__(self, engine: Engine, store: Store, sessions: SessionsApi, *, import_bytes_max: int) -> None:
        self._engine = engine
        self._store = store
        self._sessions = sessions
        self._import_bytes_max = import_bytes_max

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/search",
                run=self.search,
                summary="Find words in messages.",
                tag="sessions",
                query=SearchQuery,
                answer=Hits,
            ),
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/export",
                run=self.export,
                summary="The whole session as one document: JSON, Markdown or HTML.",
                tag="sessions",
                query=ExportQuery,
                media="*/*",
                errors=(e.NotFound, e.Gone),
            ),
            Endpoint(
                method="POST",
                path="/api/sessions/import",
                run=self.import_,
                summary="Bring in an exported session.",
                tag="sessions",
                scope=Scope.CHAT,
                body=Document,
                answer=Session,
                status=201,
                errors=(e.BadImport, e.DiskFull),
                body_bytes_max=self._import_bytes_max,
            ),
        ]

    async def search(self, call: Call[SearchQuery, Nothing]) -> Hits:
        query = call.query
        found = await self._store.search.find(
            call.owner, query.q, limit=query.limit, order=query.order, session_id=query.session
        )
        hidden = await self._sessions.hidden()
        return Hits(tuple(hit for hit in found if hit.session_id not in hidden))

    # --- export --------------------------------------------------------------------------------------

    async def export(self, call: Call[ExportQuery, Nothing]) -> Raw:
        session = await self._sessions.visible(call.owner, call.path["session"])
        session, turns, messages = await self._store.transcript.export(call.owner, session.id)
        if call.query.format == "json":
            files = await self._files_of(call.owner, messages)
            document = Document(
                format=exporting.FORMAT,
                version=exporting.VERSION,
                session=session,
                turns=tuple(turns),
                messages=tuple(messages),
                files=tuple(files),
            )
            return _download(session, msgspec.json.encode(document), JSON, "json")
        shown = exporting.path_to_head(session, turns, messages)
        if call.query.format == "md":
            text = exporting.markdown(session, shown)
            return _download(session, text.encode(), "text/markdown; charset=utf-8", "md")
        text = exporting.html(session, shown)
        return _download(session, text.encode(), "text/html; charset=utf-8", "html")

    async def _files_of(self, owner: str, messages: list[Message]) -> list[ExportedFile]:
        wanted = {
            part.file_id: part
            for message in messages
            for part in message.parts
            if isinstance(part, Attachment)
        }
        files, size = [], 0
        for file_id, part in wanted.items():
            size += part.size
            if size > _FILES_BYTES_MAX:
                break  # the document stays readable; what does not fit keeps its name and size
            path = await self._store.files.path(owner, file_id)
            content = await anyio.to_thread.run_sync(path.read_bytes)
            files.append(ExportedFile(file_id, part.name, part.media_type, content))
        return files

    # --- import --------------------------------------------------------------------------------------

    async def import_(self, call: Call[Nothing, Document]) -> Answer:
        document = exporting.checked(call.body)
        renamed = {}
        for file in document.files:
            name = safe_name(file.name)
            stored = await self._store.files.put(
                call.owner, name, sniffed(file.content[:512], name), file.content
            )
            renamed[file.id] = stored.id
        session = await self._store.transcript.import_session(
            call.owner,
            document.session,
            exporting.settled(document.turns),
            exporting.with_files(document, renamed),
        )
        return tagged(session)


def _download(session: Session, body: bytes, media: str, suffix: str) -> Raw:
    name = f"{session.id}.{suffix}"
    headers = (
        (b"content-disposition", f'attachment; filename="{name}"'.encode()),
        (b"content-security-policy", FILE_POLICY.encode()),
        (b"cache-control", b"no-store"),
    )
    return Raw(body, media, 200, headers)
