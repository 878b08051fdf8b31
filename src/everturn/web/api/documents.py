"""Search, export and import."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Final, Literal, TypeVar

import anyio.to_thread
import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.ids import check_id
from everturn.domain.media import RAW, describe_file, safe_name
from everturn.domain.messages import Role
from everturn.domain.sessions import Hit, MessageFilter, Session
from everturn.domain.store import Store
from everturn.domain.store_values import ImportedSession, SearchOrder
from everturn.engine import Engine
from everturn.importers import Imported, import_history, open_history, recognize
from everturn.store.sessions import documents
from everturn.store.sessions.documents import Document
from everturn.store.sessions.export_html import html
from everturn.store.sessions.export_text import markdown
from everturn.web.access.errors import ScopeMissing
from everturn.web.access.identity import Scope
from everturn.web.api.sessions import (
    ChangeSession,
    SessionId,
    TagText,
    TimeMs,
    check_key,
    check_place,
    with_tag,
)
from everturn.web.http.bytes_answer import BytesAnswer, disposition
from everturn.web.http.guard import FILE_POLICY
from everturn.web.http.problems import BadRequest, NotJson
from everturn.web.http.routing import JSON, Answer, AnyEndpoint, ApiCall, Endpoint, Nothing, Raw
from everturn.web.preferences import PreferencesOf
from everturn.web.uploads import FORM, Uploads
from everturn.workspace import SessionArchive, ZipSink, import_archive, open_archive

B = TypeVar("B")
ZIP: Final = "application/zip"
EXPORT_SESSIONS_MAX: Final = 200
TextFormat = Literal["json", "md", "html"]
_MEDIA: Final = {"json": JSON, "md": "text/markdown; charset=utf-8", "html": "text/html; charset=utf-8"}


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``since`` and ``until``: only messages from the first on and before the second. ``tag``: only in
    sessions that have it."""

    q: Annotated[str, Meta(min_length=1, max_length=500)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: SearchOrder = SearchOrder.NEWEST
    session: SessionId | None = None
    since: TimeMs | None = None
    until: TimeMs | None = None
    role: Role | None = None
    tag: TagText | None = None


class Hits(msgspec.Struct, frozen=True):
    items: tuple[Hit, ...]


class ExportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["json", "md", "html", "archive"] = "json"


class ExportSeveralQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``sessions``: their ids, with commas between them."""

    sessions: Annotated[str, Meta(min_length=1, max_length=EXPORT_SESSIONS_MAX * 40)]
    format: TextFormat = "md"


class ImportedHistory(msgspec.Struct, frozen=True):
    """What became of each conversation of another system's export."""

    source: str
    items: tuple[Imported, ...]


class DocumentsApi:
    """``uploads``: receives archives."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        preferences: PreferencesOf,
        uploads: Uploads,
        *,
        import_bytes_max: int,
    ) -> None:
        self._engine = engine
        self._store = store
        self._preferences = preferences
        self._uploads = uploads
        self._import_bytes_max = import_bytes_max

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._reads(), *self._imports()]

    def _reads(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/search",
                run=self.search,
                summary="Search messages.",
                tag="sessions",
                query=SearchQuery,
                answer=Hits,
            ),
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/export",
                run=self.export,
                summary="The whole session: JSON, Markdown, HTML, or with its files as a ZIP archive.",
                tag="sessions",
                query=ExportQuery,
                contents={JSON: Document, "text/markdown": str, "text/html": str, ZIP: bytes},
                errors=(e.NotFound, e.Gone, e.StorageAway, ScopeMissing),
            ),
            Endpoint(
                method="GET",
                path="/api/export",
                run=self.export_several,
                summary="Several sessions in one ZIP file, each as JSON, Markdown or HTML.",
                tag="sessions",
                query=ExportSeveralQuery,
                contents={ZIP: bytes},
                errors=(e.NotFound, e.Gone),
            ),
        ]

    def _imports(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/api/sessions/import",
                run=self.import_,
                summary="Import an exported session.",
                tag="sessions",
                scope=Scope.CHAT,
                body=Document,
                answer=Session,
                status=201,
                errors=(e.BadImport, e.DiskFull, ScopeMissing),
                body_bytes_max=self._import_bytes_max,
            ),
            Endpoint(
                method="POST",
                path="/api/sessions/import/archive",
                run=self.import_archive,
                summary="Import a session with its files from an archive, whole or not at all.",
                tag="sessions",
                scope=Scope.CHAT,
                answer=Session,
                status=201,
                errors=(NotJson, BadRequest, e.BadImport, e.DiskFull, e.StorageAway, ScopeMissing),
                takes=(RAW, FORM),
            ),
            Endpoint(
                method="POST",
                path="/api/sessions/import/history",
                run=self.import_history,
                summary="Import an export of ChatGPT, Claude, Open WebUI or LibreChat, nothing of it twice.",
                tag="sessions",
                scope=Scope.CHAT,
                answer=ImportedHistory,
                errors=(NotJson, BadRequest, e.BadImport, e.DiskFull, e.StorageAway),
                takes=(RAW, FORM),
            ),
        ]

    async def search(self, call: ApiCall[SearchQuery, Nothing]) -> Hits:
        query = call.query
        within = MessageFilter(query.session, query.since, query.until, query.role, query.tag)
        found = await self._store.search.find(
            call.owner, query.q, limit=query.limit, order=query.order, within=within
        )
        return Hits(tuple(found))

    # --- export --------------------------------------------------------------------------------------

    async def export(self, call: ApiCall[ExportQuery, Nothing]) -> Raw | BytesAnswer:
        session = await self._engine.session(call.owner, call.path["session"])
        if call.query.format == "archive":
            if not call.caller.may(Scope.CHAT):  # as each of its files alone
                raise ScopeMissing(Scope.CHAT)
            pieces = SessionArchive(self._store).pieces(call.owner, session.id)
            head = [(b"content-type", ZIP.encode()), *_headers(session, "zip")]
            return BytesAnswer(await anext(pieces, b""), pieces, head, 200)
        body = await self._write(call.owner, session, call.query.format)
        return Raw(body, _MEDIA[call.query.format], 200, _headers(session, call.query.format))

    async def export_several(self, call: ApiCall[ExportSeveralQuery, Nothing]) -> BytesAnswer:
        ids = list(dict.fromkeys(check_id(one, "ses") for one in call.query.sessions.split(",") if one))
        if not 0 < len(ids) <= EXPORT_SESSIONS_MAX:
            raise e.Invalid(
                f"{len(ids)} sessions cannot be exported at once.", hint=f"Name 1 to {EXPORT_SESSIONS_MAX}."
            )
        sessions = [await self._engine.session(call.owner, one) for one in ids]
        head = [(b"content-type", ZIP.encode()), (b"cache-control", b"no-store")]
        head.append((b"content-disposition", disposition("everturn-sessions.zip", is_shown=False)))
        pieces = self._zip(call.owner, sessions, call.query.format)
        return BytesAnswer(await anext(pieces, b""), pieces, head, 200)

    async def _zip(
        self, owner: str, sessions: Sequence[Session], form: TextFormat
    ) -> AsyncGenerator[bytes, None]:
        """One file for each session; those of one name are numbered."""
        sink = ZipSink()
        names: Counter[str] = Counter()
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:  # type: ignore[call-overload]  # it needs write() and flush()
            for session in sessions:
                body = await self._write(owner, session, form)
                name = _name_of(session)
                names[name.casefold()] += 1
                number = f" {names[name.casefold()]}" if names[name.casefold()] > 1 else ""
                await anyio.to_thread.run_sync(file.writestr, safe_name(f"{name}{number}.{form}"), body)
                yield sink.take()
        yield sink.take()

    async def _write(self, owner: str, session: Session, form: TextFormat) -> bytes:
        if form == "json":
            return msgspec.json.encode(await documents.export_document(self._store, owner, session.id))
        session, turns, messages = await self._store.transcript.export(owner, session.id)
        shown = documents.path_to_head(session, turns, messages)
        if form == "md":
            return markdown(session, shown).encode()
        return (await anyio.to_thread.run_sync(html, session, shown)).encode()

    # --- import --------------------------------------------------------------------------------------

    async def import_(self, call: ApiCall[Nothing, Document]) -> Answer:
        document = await self._with_allowed_profile(call, call.body)
        return with_tag(await documents.import_document(self._store, call.owner, document, describe_file))

    async def import_archive(self, call: ApiCall[Nothing, Nothing]) -> Answer:
        async with self._uploads.receive(call.headers, call.receive, None) as upload:
            archive = await anyio.to_thread.run_sync(open_archive, upload.path)
            try:
                document = await self._with_allowed_profile(call, archive.document)
                session = await import_archive(self._store, call.owner, archive, document, describe_file)
            finally:
                archive.close()
        return with_tag(session)

    async def import_history(self, call: ApiCall[Nothing, Nothing]) -> ImportedHistory:
        """Each conversation is imported whole or not at all; those before an error stay."""
        preferred = (await self._preferences.get(call.owner)).profile

        def place(made: ImportedSession) -> ImportedSession:
            session = msgspec.structs.replace(made.session, profile=preferred)
            return msgspec.structs.replace(made, session=session)

        async with self._uploads.receive(call.headers, call.receive, None) as upload:
            source = await anyio.to_thread.run_sync(recognize, upload.path, upload.name)
            history = await anyio.to_thread.run_sync(open_history, source, upload.path, upload.name)
            try:
                results = import_history(self._store, call.owner, history, describe_file, place)
                return ImportedHistory(source, tuple([one async for one in results]))
            finally:
                history.close()

    async def _with_allowed_profile(self, call: ApiCall[Nothing, B], document: Document) -> Document:
        """The document under the preferred profile, if the caller may not choose one: a document that names
        none would lead out of it."""
        _check(call, document)
        if call.caller.may(Scope.ADMIN):
            return document
        preferred = (await self._preferences.get(call.owner)).profile
        session = msgspec.structs.replace(document.session, profile=preferred)
        return msgspec.structs.replace(document, session=session)


def _check(call: ApiCall[Nothing, B], document: Document) -> None:
    """Apply the bounds of creating and changing a session to what the document says. Raises BadImport."""
    session = document.session
    profiles = (session.profile, *(turn.profile for turn in document.turns))
    check_place(call, is_named=any(profile is not None for profile in profiles))
    check_key(session.key)
    said = {"title": session.title, "tags": session.tags, "profile": session.profile, "model": session.model}
    try:
        msgspec.convert(said, ChangeSession)
    except msgspec.ValidationError as error:
        raise e.BadImport(f"The session in this document cannot be taken: {error}.") from error


def _name_of(session: Session) -> str:
    """Its title without what separates folders, or its id."""
    return " ".join((session.title or "").replace("/", " ").replace("\\", " ").split()) or session.id


def _headers(session: Session, suffix: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"content-disposition", disposition(safe_name(f"{_name_of(session)}.{suffix}"), is_shown=False)),
        (b"content-security-policy", FILE_POLICY.encode()),
        (b"cache-control", b"no-store"),
    )
