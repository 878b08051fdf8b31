"""Memory: read, change and delete notes, and see which turns are not remembered yet."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.clock import Clock
from everturn.domain.store import Records
from everturn.memory import Memory
from everturn.memory.notebook import Notebooks
from everturn.memory.notes import Note
from everturn.memory.provider_monitor import ProviderState
from everturn.web.access.identity import Scope
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

NOTES_MAX = 1_000
_NoteText = Annotated[str, Meta(min_length=1, max_length=2_000)]
_NoteId = Annotated[str, Meta(pattern="^not_[0-9a-z]{26}$")]


class ShownNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """``source``: ``you``, or where it was learnt; then ``session_id`` and ``turn_id`` lead there."""

    id: str
    text: str
    source: str
    created_at: int | None = None
    session_id: str | None = None
    turn_id: str | None = None


class OwedSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session with finished turns that are not remembered yet."""

    session_id: str
    title: str
    turns: int
    since: int
    is_under_way: bool = False
    attempts: int = 0
    error: str | None = None
    retry_at: int | None = None


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """``owed``: finished turns that are not remembered yet. ``notice``: what the user should know, e.g. that
    the model cannot extract. ``cursor``: there are more notes; give it as ``before``."""

    notes: tuple[ShownNote, ...]
    owed: int
    sessions: tuple[OwedSession, ...]
    provider: str
    remembered_at: int | None = None
    notice: str = ""
    providers: tuple[ProviderState, ...] = ()
    cursor: str | None = None


class NotesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    q: Annotated[str, Meta(max_length=500)] = ""
    limit: Annotated[int, Meta(ge=1, le=NOTES_MAX)] = 200
    before: _NoteId | None = None


class PutNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Without an id: a new note."""

    text: _NoteText
    id: _NoteId | None = None


class WhichNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: _NoteId


class CommitNow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One session, or all that have something to be remembered."""

    session_id: Annotated[str, Meta(pattern="^ses_[0-9a-z]{26}$")] | None = None


class CommittedNow(msgspec.Struct, frozen=True, omit_defaults=True):
    """``turns`` that were remembered by this request; ``errors`` of what could not be."""

    turns: int
    errors: tuple[str, ...] = ()


class MemoryApi:
    def __init__(self, memory: Memory, notebooks: Notebooks, records: Records, clock: Clock) -> None:
        self._memory = memory
        self._notebooks = notebooks
        self._records = records
        self._clock = clock

    def endpoints(self) -> list[AnyEndpoint]:
        tag = "settings"
        return [
            Endpoint(
                method="GET",
                path="/api/memory",
                run=self.read,
                summary="What is remembered, newest first, and what is not remembered yet.",
                tag=tag,
                query=NotesQuery,
                answer=Remembered,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="PUT",
                path="/api/memory",
                run=self.put,
                summary="Write a note, or change one.",
                tag=tag,
                scope=Scope.CHAT,
                body=PutNote,
                answer=ShownNote,
                errors=(e.NotFound, e.Invalid),
            ),
            Endpoint(
                method="DELETE",
                path="/api/memory",
                run=self.forget,
                summary="Delete a note. It is not recalled again in any session.",
                tag=tag,
                scope=Scope.CHAT,
                query=WhichNote,
                status=204,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="POST",
                path="/api/memory/commit",
                run=self.commit,
                summary="Remember finished turns now, without waiting for a boundary.",
                tag=tag,
                scope=Scope.CHAT,
                body=CommitNow,
                answer=CommittedNow,
            ),
        ]

    async def read(self, call: ApiCall[NotesQuery, Nothing]) -> Remembered:
        owner, query = call.owner, call.query
        notes, cursor = await self._page(owner, query)
        owing, settled = await self._memory.ledger.read_status(owner)
        said = await self._records.get(owner, "memory", "notice")
        troubles = await self._notebooks.problems(owner)
        return Remembered(
            notes=tuple(_show_note(note) for note in notes),
            owed=sum(session.turns for session in owing),
            sessions=tuple(
                OwedSession(
                    session_id=session.session_id,
                    title=session.title,
                    turns=session.turns,
                    since=session.since,
                    is_under_way=session.is_under_way,
                    attempts=session.attempts,
                    error=session.error,
                    retry_at=session.retry_at,
                )
                for session in owing
            ),
            provider=self._memory.settings.provider,
            remembered_at=settled["at"] if settled else None,
            notice=" ".join([*([str(said)] if said else []), *troubles]),
            providers=tuple(self._memory.states()),
            cursor=cursor,
        )

    async def _page(self, owner: str, query: NotesQuery) -> tuple[list[Note], str | None]:
        if query.q:
            return await self._notebooks.find(owner, query.q, query.limit), None
        notes = list(reversed(await self._notebooks.notes(owner)))
        if query.before is not None:
            place = next((i for i, note in enumerate(notes) if note.id == query.before), None)
            if place is None:
                raise e.NotFound("note", query.before)
            notes = notes[place + 1 :]
        shown = notes[: query.limit]
        return shown, shown[-1].id if len(notes) > len(shown) else None

    async def put(self, call: ApiCall[Nothing, PutNote]) -> ShownNote:
        body = call.body
        if body.id is None:
            return _show_note(await self._notebooks.remember(call.owner, body.text, self._clock.now_ms()))
        note = await self._notebooks.edit(call.owner, body.id, body.text)
        await self._memory.ledger.drop_recalled(call.owner)
        return _show_note(note)

    async def forget(self, call: ApiCall[WhichNote, Nothing]) -> None:
        await self._notebooks.forget(call.owner, call.query.id)
        await self._memory.ledger.drop_recalled(call.owner)

    async def commit(self, call: ApiCall[Nothing, CommitNow]) -> CommittedNow:
        wanted = call.body.session_id
        owing = await self._memory.ledger.list_owing(call.owner) if wanted is None else []
        turns, errors = 0, []
        for session_id in [wanted] if wanted is not None else [each.session_id for each in owing]:
            done = await self._memory.commit_session(call.owner, session_id)
            turns += done.turns
            if done.error:
                errors.append(done.error)
        return CommittedNow(turns, tuple(errors))


def _show_note(note: Note) -> ShownNote:
    return ShownNote(
        id=note.id,
        text=note.text,
        source=note.source,
        created_at=note.created_at,
        session_id=note.session_id,
        turn_id=note.turn_id,
    )
