"""Sessions: list, read, change, delete, and the moves through their history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain import errors as e
from everturn.domain.messages import Message
from everturn.domain.sessions import Labels, NewSession, Page, Session, SessionFilter, SessionPatch
from everturn.domain.settings import TypeForm
from everturn.domain.store import Store
from everturn.domain.store_values import Accepted, Request, RetriedTurn
from everturn.domain.turns import Turn
from everturn.domain.working_copies import FileChoices, FilesChoice
from everturn.engine import Engine
from everturn.web.access.errors import ScopeMissing
from everturn.web.access.identity import Scope
from everturn.web.api.parameters import GivenParameters, plain_of
from everturn.web.deletion import Deletions
from everturn.web.http.problems import PreconditionNeeded
from everturn.web.http.routing import (
    Answer,
    AnyCall,
    AnyEndpoint,
    ApiCall,
    Endpoint,
    Nothing,
    key_from,
    version_from,
)
from everturn.web.preferences import ModelName, PreferencesOf

T = TypeVar("T")
B = TypeVar("B")
_Run = Callable[[ApiCall[Nothing, B]], Awaitable[object]]

KEY_CHARS_MAX = 200
Title = Annotated[str, Meta(max_length=200)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Words = Annotated[str, Meta(min_length=1, max_length=1_000_000)]
TurnId = Annotated[str, Meta(pattern=r"^trn_[0-9a-hjkmnp-tv-z]{26}$")]
SessionId = Annotated[str, Meta(pattern=r"^ses_[0-9a-hjkmnp-tv-z]{26}$")]
MessageId = Annotated[str, Meta(pattern=r"^msg_[0-9a-hjkmnp-tv-z]{26}-[0-9]{4,9}$")]
Limit = Annotated[int, Meta(ge=1, le=200)]
TimeMs = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
TagText = Annotated[str, Meta(min_length=1, max_length=100)]


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``q``: in the title or a tag. ``since`` and ``until``: last active from the first on and before the
    second (milliseconds since 1970)."""

    limit: Limit = 50
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    q: Annotated[str, Meta(max_length=200)] = ""
    archived: bool = False
    pinned: bool | None = None
    tag: TagText | None = None
    project: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    since: TimeMs | None = None
    until: TimeMs | None = None


class MessagesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    before: MessageId | None = None
    limit: Limit = 50


class CreateSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``leaving``: the session that the user leaves; it is committed to memory now."""

    title: Title = ""
    key: Annotated[str, Meta(max_length=KEY_CHARS_MAX)] = ""
    private: bool = False
    project: Annotated[str, Meta(max_length=1000)] | None = None
    profile: Name | None = None
    model: Name | None = None
    leaving: SessionId | None = None


class ChangeSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields to change; fields left out stay as they are."""

    title: Title | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    tags: (
        Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=100)], ...], Meta(max_length=50)]
        | UnsetType
    ) = UNSET
    project: Annotated[str, Meta(max_length=1000)] | UnsetType | None = UNSET
    profile: Name | UnsetType | None = UNSET
    model: Name | UnsetType | None = UNSET
    private: bool | UnsetType = UNSET
    is_unread: bool | UnsetType = UNSET
    parameters: GivenParameters | UnsetType | None = UNSET


class Messages(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page of a session. Follow its events after ``position`` and nothing is missed; to draw an
    active turn, replay them from ``replay_from``. ``queued``: on the newest page, accepted turns that wait to
    run, with their texts; their messages join ``messages`` when they begin."""

    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]  # those that the messages belong to, and the active one
    version: int
    position: int
    replay_from: int
    cursor: str | None = None
    queued: tuple[Turn, ...] = ()


class Deleted(msgspec.Struct, frozen=True):
    """Until ``due_at`` (milliseconds since 1970) POST …/restore brings it back."""

    id: str
    due_at: int


class OfTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``turn_id``: default the last turn."""

    turn_id: TurnId | None = None


Choices = Annotated[dict[str, FilesChoice], Meta(max_length=1000)]


class Moving(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``files``: what happens to files that a user changed: ``restore`` (they become as before), ``keep``
    (the conversation moves alone) or ``both`` (theirs stay beside, under another name). ``choices``: the same
    for single paths. Without a choice the move is refused: ``files_conflict``."""

    files: FilesChoice | None = None
    choices: Choices = {}

    def chosen(self) -> FileChoices:
        return FileChoices(self.files, self.choices)


class MovedSession(Session, frozen=True, kw_only=True):
    """``is_conversation_only``: it works in a project's folder, whose files belong to the user."""

    is_conversation_only: bool = False


class RetryTurn(Moving, frozen=True, forbid_unknown_fields=True):
    """``turn_id``: default the last turn. ``model``: another one than answered before.
    ``parameters``: others than it was asked with."""

    turn_id: TurnId | None = None
    model: ModelName | None = None
    parameters: GivenParameters | None = None


class SelectTurn(Moving, frozen=True, forbid_unknown_fields=True):
    turn_id: TurnId


class EditTurn(Moving, frozen=True, forbid_unknown_fields=True):
    text: Words
    turn_id: TurnId | None = None


class Compact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    focus: Annotated[str, Meta(max_length=2000)] = ""


_FOLDER = (e.WorkspaceUnreadable, e.WorkspaceUnwritable)
_MOVE = (
    e.NotFound,
    e.Gone,
    e.Stale,
    e.Busy,
    e.NothingToDo,
    e.WrongState,
    e.KeyReused,
    e.FilesConflict,
    *_FOLDER,
    PreconditionNeeded,
)
_MOVE_HEADERS = ("If-Match", "Idempotency-Key")


class SessionsApi:
    def __init__(
        self, engine: Engine, store: Store, deletions: Deletions, preferences: PreferencesOf
    ) -> None:
        self._engine = engine
        self._store = store
        self._deletions = deletions
        self._preferences = preferences

    def endpoints(self) -> list[AnyEndpoint]:
        one, tag = "/api/sessions/{session}", "sessions"
        return [*self._all(tag), *self._one(one, tag), *self._moves(one, tag)]

    def _all(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/api/sessions",
                run=self.create,
                summary="Start a session.",
                tag=tag,
                scope=Scope.CHAT,
                body=CreateSession,
                answer=Session,
                status=201,
                errors=(e.KeyReused, e.NotFound, ScopeMissing),
                headers=("Idempotency-Key",),
            ),
            Endpoint(
                method="GET",
                path="/api/sessions",
                run=self.list,
                summary="The sessions, newest activity first.",
                tag=tag,
                query=ListQuery,
                answer=Page[Session],
            ),
            Endpoint(
                method="GET",
                path="/api/labels",
                run=self.labels,
                summary="The tags and projects of your sessions, the most used first.",
                tag=tag,
                answer=Labels,
            ),
        ]

    def _one(self, one: str, tag: str) -> list[AnyEndpoint]:
        gone = (e.NotFound, e.Gone)
        return [
            Endpoint(
                method="GET",
                path=one,
                run=self.get,
                summary="One session.",
                tag=tag,
                answer=Session,
                errors=gone,
            ),
            Endpoint(
                method="PATCH",
                path=one,
                run=self.change,
                summary="Rename, pin, archive, tag, or set what it works with.",
                tag=tag,
                scope=Scope.CHAT,
                body=ChangeSession,
                answer=Session,
                errors=(*gone, e.Stale, e.WrongState, e.DiskFull, *_FOLDER, ScopeMissing),
                headers=("If-Match",),
            ),
            Endpoint(
                method="DELETE",
                path=one,
                run=self.delete,
                summary="Delete a session: it is hidden now and purged a few seconds later.",
                tag=tag,
                scope=Scope.CHAT,
                answer=Deleted,
                status=202,
                errors=gone,
            ),
            Endpoint(
                method="POST",
                path=f"{one}/restore",
                run=self.restore,
                summary="Undo a deletion before it is carried out.",
                tag=tag,
                scope=Scope.CHAT,
                answer=Session,
                errors=(*gone, e.WrongState),
            ),
            Endpoint(
                method="GET",
                path=f"{one}/messages",
                run=self.messages,
                summary="The newest messages, or those before a message.",
                tag=tag,
                query=MessagesQuery,
                answer=Messages,
                errors=gone,
            ),
        ]

    def _moves(self, one: str, tag: str) -> list[AnyEndpoint]:
        def move(
            name: str,
            run: _Run[B],
            summary: str,
            answer: TypeForm,
            body: type[B],
            status: int = 200,
        ) -> AnyEndpoint:
            return Endpoint(
                method="POST",
                path=f"{one}/{name}",
                run=run,
                summary=summary,
                tag=tag,
                scope=Scope.CHAT,
                body=body,
                answer=answer,
                status=status,
                errors=_MOVE,
                headers=_MOVE_HEADERS,
            )

        return [
            move("undo", self.undo, "Go back before the last turn.", MovedSession, Moving),
            move("redo", self.redo, "Bring back what undo took away.", MovedSession, Moving),
            move("clear", self.clear, "Begin anew; undoable.", MovedSession, Moving),
            move("select", self.select, "Show another answer to the same message.", MovedSession, SelectTurn),
            move("retry", self.retry, "Ask again.", Accepted, RetryTurn, 202),
            move("edit", self.edit, "Ask something else instead.", Accepted, EditTurn, 202),
            move("branch", self.branch, "Copy the way to a turn into a new session.", Session, OfTurn, 201),
            move("compact", self.compact, "Summarise what is old.", Accepted, Compact, 202),
        ]

    # --- the list ------------------------------------------------------------------------------------

    async def create(self, call: ApiCall[Nothing, CreateSession]) -> Answer:
        body = call.body
        check_place(call, is_named=body.project is not None or body.profile is not None)
        check_key(body.key)
        session = await self._engine.create_session(
            call.owner,
            NewSession(
                title=body.title,
                key=body.key,
                private=body.private,
                project=body.project,
                profile=body.profile,
                preferred_profile=(await self._preferences.get(call.owner)).profile,
                model=body.model,
            ),
            leaving=body.leaving,
            request=Request(key=key_from(call.headers)),
        )
        return with_tag(session)

    async def list(self, call: ApiCall[ListQuery, Nothing]) -> Page[Session]:
        query = call.query
        wanted = SessionFilter(
            query=query.q,
            archived=query.archived,
            pinned=query.pinned,
            tag=query.tag,
            project=query.project,
            since=query.since,
            until=query.until,
        )
        return await self._store.sessions.list(call.owner, wanted, limit=query.limit, cursor=query.cursor)

    async def labels(self, call: ApiCall[Nothing, Nothing]) -> Labels:
        return await self._store.sessions.labels(call.owner)

    async def get(self, call: ApiCall[Nothing, Nothing]) -> Answer:
        return with_tag(await self._engine.session(call.owner, call.path["session"]))

    async def change(self, call: ApiCall[Nothing, ChangeSession]) -> Answer:
        body = call.body
        # Null is a choice too: it leads out of the profile or the folder that the session has.
        check_place(call, is_named=body.project is not UNSET or body.profile is not UNSET)
        session_id = call.path["session"]
        given = {name: getattr(body, name) for name in body.__struct_fields__}
        if isinstance(body.parameters, GivenParameters):
            given["parameters"] = body.parameters.plain
        patch = SessionPatch(**{name: value for name, value in given.items() if value is not UNSET})
        changed = self._engine.change_session(
            call.owner, session_id, patch, version=version_from(call.headers)
        )
        return with_tag(await self._with_current(call, changed))

    async def delete(self, call: ApiCall[Nothing, Nothing]) -> Deleted:
        session_id = call.path["session"]
        return Deleted(session_id, await self._deletions.delete(call.owner, session_id))

    async def restore(self, call: ApiCall[Nothing, Nothing]) -> Answer:
        return with_tag(await self._deletions.restore(call.owner, call.path["session"]))

    # --- reading -------------------------------------------------------------------------------------

    async def messages(self, call: ApiCall[MessagesQuery, Nothing]) -> Messages:
        page = await self._engine.page(
            call.owner, call.path["session"], before=call.query.before, limit=call.query.limit
        )
        session = page.session
        active = next((turn for turn in page.turns if turn.id == session.active_turn), None)
        return Messages(
            messages=page.messages.items,
            turns=page.turns,
            version=session.version,
            position=session.position,
            replay_from=session.position if active is None else max(0, active.first_position - 1),
            cursor=page.messages.cursor,
            queued=page.queued,
        )

    # --- moves ---------------------------------------------------------------------------------------

    async def undo(self, call: ApiCall[Nothing, Moving]) -> Answer:
        session_id, request = self._move(call)
        moved = self._engine.undo(call.owner, session_id, request, call.body.chosen())
        return _answer_move(await self._with_current(call, moved))

    async def redo(self, call: ApiCall[Nothing, Moving]) -> Answer:
        session_id, request = self._move(call)
        moved = self._engine.redo(call.owner, session_id, request, call.body.chosen())
        return _answer_move(await self._with_current(call, moved))

    async def clear(self, call: ApiCall[Nothing, Moving]) -> Answer:
        session_id, request = self._move(call)
        moved = self._engine.clear(call.owner, session_id, request, call.body.chosen())
        return _answer_move(await self._with_current(call, moved))

    async def select(self, call: ApiCall[Nothing, SelectTurn]) -> Answer:
        session_id, request = self._move(call)
        chosen = call.body.chosen()
        moved = self._engine.select(call.owner, session_id, call.body.turn_id, request, chosen)
        return _answer_move(await self._with_current(call, moved))

    async def retry(self, call: ApiCall[Nothing, RetryTurn]) -> Accepted:
        session_id, request = self._move(call)
        body = call.body
        moved = self._engine.retry(
            call.owner,
            session_id,
            RetriedTurn(body.turn_id, model=body.model, parameters=plain_of(body.parameters)),
            request,
            body.chosen(),
        )
        return await self._with_current(call, moved)

    async def edit(self, call: ApiCall[Nothing, EditTurn]) -> Accepted:
        session_id, request = self._move(call)
        body = call.body
        # The new turn keeps the profile that was chosen for the old one, with words of this caller.
        turn = await self._turn_to_edit(call.owner, session_id, body.turn_id)
        check_place(call, is_named=turn is not None and turn.profile is not None)
        moved = self._engine.retry(
            call.owner, session_id, RetriedTurn(body.turn_id, text=body.text), request, body.chosen()
        )
        return await self._with_current(call, moved)

    async def _turn_to_edit(self, owner: str, session_id: str, turn_id: str | None) -> Turn | None:
        """The turn with this id, or the session's last one; None if the session has none."""
        turn_id = turn_id or (await self._store.sessions.get(owner, session_id)).head
        return None if turn_id is None else await self._store.turns.get(owner, turn_id)

    async def branch(self, call: ApiCall[Nothing, OfTurn]) -> Answer:
        session_id, request = self._move(call)
        moved = self._engine.branch(call.owner, session_id, call.body.turn_id, request)
        return with_tag(await self._with_current(call, moved))

    async def compact(self, call: ApiCall[Nothing, Compact]) -> Accepted:
        session_id, request = self._move(call)
        moved = self._engine.compact(call.owner, session_id, focus=call.body.focus, request=request)
        return await self._with_current(call, moved)

    def _move(self, call: AnyCall) -> tuple[str, Request]:
        """Raises PreconditionNeeded: without a key or a version, a repeated request would move twice."""
        session_id = call.path["session"]
        request = Request(key=key_from(call.headers), version=version_from(call.headers))
        if request.key is None and request.version is None:
            raise PreconditionNeeded
        return session_id, request

    async def _with_current(self, call: AnyCall, change: Awaitable[T]) -> T:
        """Adds the current session to a refusal, so that a stale client need not ask for it."""
        try:
            return await change
        except e.Stale as stale:
            stale.facts["session"] = await self._engine.session(call.owner, call.path["session"])
            raise


def with_tag(session: Session) -> Answer:
    """The session with its version as ETag, ready for If-Match."""
    return Answer(session, headers=((b"etag", b'"%d"' % session.version),))


def _answer_move(session: Session) -> Answer:
    fields = {name: getattr(session, name) for name in session.__struct_fields__}
    moved = MovedSession(**fields, is_conversation_only=session.project is not None)
    return with_tag(moved)


def check_key(key: str) -> None:
    if len(key) > KEY_CHARS_MAX:
        raise e.Invalid(
            f"{key[:40]!r} cannot be the key of a session.", hint=f"At most {KEY_CHARS_MAX} characters."
        )


def check_place(call: AnyCall, *, is_named: bool) -> None:
    """Tokens that may only chat choose neither the folder nor the profile. ``is_named``: the request does."""
    if is_named and not call.caller.may(Scope.ADMIN):
        raise ScopeMissing(Scope.ADMIN)
