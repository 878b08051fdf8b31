"""Delegates: the sessions that work for a turn. They are opened, steered and cancelled like any session."""

from __future__ import annotations

import msgspec

from everturn.domain import errors as e
from everturn.domain.checkpoints import FileChange, TurnFiles
from everturn.domain.delegates import Delegate
from everturn.domain.fold import fold
from everturn.domain.store import Store
from everturn.domain.turns import Bar, BarKind, Failure, Turn, TurnState, Usage
from everturn.domain.working_copies import FilesChoice
from everturn.engine import Engine
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.session_files import SessionFiles
from everturn.workspace import Recorder


class ShownDelegate(msgspec.Struct, frozen=True):
    """``id``: of its session, which can be opened like any other. ``turn_id``: the turn that does the task.
    ``parent_turn``: the turn that it works for, ``call_id``: the call there that started it. ``asks``: its
    open approvals and questions. ``activity``: what it does or said last, in one line. ``files``: what it
    changed in its copy; ``is_applied`` and ``is_refused``: what became of them. ``failure``: why it
    failed."""

    id: str
    turn_id: str
    parent_session: str
    parent_turn: str
    call_id: str
    name: str
    depth: int
    state: TurnState
    is_waited: bool
    is_stopping: bool
    created_at: int
    started_at: int | None
    ended_at: int | None
    model: str | None
    usage: Usage
    asks: int
    activity: str
    files: TurnFiles | None
    is_applied: bool
    is_refused: bool
    failure: Failure | None
    timeline: tuple[Bar, ...]


class DelegatesOut(msgspec.Struct, frozen=True):
    """Each is followed by its own delegates."""

    items: tuple[ShownDelegate, ...]


class ApplyFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``on_conflict``: about files that were changed meanwhile. ``restore`` takes the delegate's, ``keep``
    leaves them, ``both`` keeps them beside it under another name. Without it nothing is written if there are
    any."""

    on_conflict: FilesChoice | None = None


class FilesApplied(msgspec.Struct, frozen=True):
    changes: tuple[FileChange, ...]
    total: int


class DelegatesApi:
    """``files``: knows in which folders a request may change something."""

    def __init__(
        self, engine: Engine, store: Store, recorder: Recorder, audit: Audit, files: SessionFiles
    ) -> None:
        self._engine = engine
        self._store = store
        self._recorder = recorder
        self._audit = audit
        self._files = files

    def endpoints(self) -> list[AnyEndpoint]:
        tag, gone = "delegates", (e.NotFound, e.Gone)
        return [
            Endpoint(
                method="GET",
                path="/api/turns/{turn}/delegates",
                run=self.list,
                summary="The delegates of a turn, each followed by its own.",
                tag=tag,
                answer=DelegatesOut,
                errors=gone,
            ),
            Endpoint(
                method="GET",
                path="/api/delegates/{delegate}",
                run=self.get,
                summary="A delegate: its state, times, usage and files.",
                tag=tag,
                answer=ShownDelegate,
                errors=gone,
            ),
            Endpoint(
                method="POST",
                path="/api/delegates/{delegate}/stop",
                run=self.stop,
                summary="Stop a delegate. Its turn is cancelled; its parent gets what it has so far.",
                tag=tag,
                scope=Scope.CHAT,
                answer=ShownDelegate,
                errors=gone,
            ),
            Endpoint(
                method="POST",
                path="/api/delegates/{delegate}/apply",
                run=self.apply,
                summary="Bring the files that a delegate made into its parent's folder.",
                tag=tag,
                scope=Scope.APPROVE,
                body=ApplyFiles,
                answer=FilesApplied,
                errors=(
                    *gone,
                    *(e.WrongState, e.Invalid, e.Denied, e.FilesConflict, e.WorkspaceUnreadable),
                    *(e.WorkspaceUnwritable, e.DiskFull, e.StorageAway, e.BlobMissing, e.BlobDamaged),
                ),
            ),
            Endpoint(
                method="POST",
                path="/api/delegates/{delegate}/refuse",
                run=self.refuse,
                summary="Record that the files of a delegate are not wanted. They stay with it.",
                tag=tag,
                scope=Scope.APPROVE,
                answer=ShownDelegate,
                errors=(*gone, e.WrongState),
            ),
        ]

    async def list(self, call: ApiCall[Nothing, Nothing]) -> DelegatesOut:
        found = await self._store.delegates.of_turn(call.owner, call.path["turn"])
        return DelegatesOut(tuple([await self._show(one) for one in found]))

    async def get(self, call: ApiCall[Nothing, Nothing]) -> ShownDelegate:
        found = await self._store.delegates.get(call.owner, call.path["delegate"])
        return await self._show(found)

    async def _show(self, delegate: Delegate) -> ShownDelegate:
        """With what its turn did so far."""
        if delegate.result is not None:
            turn = await self._get_turn(delegate)
            return show_delegate(delegate, turn.timeline if turn else (), turn.failure if turn else None)
        folded = fold(delegate.turn_id, await self._store.journal.of_turn(delegate.owner, delegate.turn_id))
        calls = [bar.label for bar in folded.timeline if bar.kind is BarKind.TOOL]
        activity = calls[-1] if calls else delegate.activity
        now = msgspec.structs.replace(delegate, usage=folded.usage, activity=activity)
        return show_delegate(now, folded.timeline)

    async def _get_turn(self, delegate: Delegate) -> Turn | None:
        try:
            return await self._store.turns.get(delegate.owner, delegate.turn_id)
        except (e.NotFound, e.Gone):
            return None  # its session was deleted

    async def stop(self, call: ApiCall[Nothing, Nothing]) -> ShownDelegate:
        delegate = await self._engine.delegates.stop(call.owner, call.path["delegate"])
        await self._audit.note("delegate.stopped", call.caller, delegate.id)
        return await self._show(delegate)

    async def apply(self, call: ApiCall[Nothing, ApplyFiles]) -> FilesApplied:
        delegate = await self._store.delegates.get(call.owner, call.path["delegate"])
        session = await self._store.sessions.get(call.owner, delegate.parent_session)
        await self._files.check_profile(session, "applied")
        choice = call.body.on_conflict
        applied = await self._engine.delegates.apply_for_user(delegate, choice)
        if applied.conflicts and choice is None:
            raise e.FilesConflict(applied.conflicts)
        await self._recorder.save(session, await self._engine.folder_of(session))
        total = applied.restored.changes_total
        await self._audit.note("delegate.applied", call.caller, f"{delegate.id}: {total} files")
        return FilesApplied(applied.restored.changes, applied.restored.changes_total)

    async def refuse(self, call: ApiCall[Nothing, Nothing]) -> ShownDelegate:
        delegate = await self._store.delegates.get(call.owner, call.path["delegate"])
        if delegate.result is None:
            raise e.WrongState(f"Delegate {delegate.id} is still at work.", hint="Wait until it has ended.")
        await self._engine.delegates.refuse(delegate)
        await self._audit.note("delegate.refused", call.caller, delegate.id)
        return await self._show(await self._store.delegates.get(call.owner, delegate.id))


def show_delegate(
    delegate: Delegate, timeline: tuple[Bar, ...], failure: Failure | None = None
) -> ShownDelegate:
    result = delegate.result
    return ShownDelegate(
        id=delegate.id,
        turn_id=delegate.turn_id,
        parent_session=delegate.parent_session,
        parent_turn=delegate.parent_turn,
        call_id=delegate.call_id,
        name=delegate.name,
        depth=delegate.depth,
        state=delegate.state,
        is_waited=delegate.is_waited,
        is_stopping=delegate.stop_asked_at is not None and result is None,
        created_at=delegate.created_at,
        started_at=delegate.started_at,
        ended_at=delegate.ended_at,
        model=delegate.model,
        usage=delegate.usage,
        asks=delegate.asks,
        activity=delegate.activity,
        files=None if result is None else result.files,
        is_applied=delegate.applied_at is not None,
        is_refused=delegate.refused_at is not None,
        failure=failure,
        timeline=timeline,
    )
