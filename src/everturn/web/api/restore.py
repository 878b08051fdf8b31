"""What a move or a restore does to a session's files, and restoring them, over HTTP."""

from __future__ import annotations

from pathlib import Path as DiskPath
from typing import Annotated, Literal

import anyio.to_thread
import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.checkpoints import FileChange, parse_at
from everturn.domain.store import Store
from everturn.domain.working_copies import FileChoices, FilesChoice, KeptFile, Move, PlanNeeded
from everturn.engine import Engine
from everturn.tools.policy.guarded import any_guarded
from everturn.web.access.errors import ScopeMissing
from everturn.web.access.identity import Scope
from everturn.web.api.sessions import Choices, TurnId
from everturn.web.api.workspace import FilePath
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.session_files import SessionFiles
from everturn.workspace import ComparedFile, ShownPlan, to_path

_PATHS_MAX = 1000
At = Annotated[str, Meta(min_length=1, max_length=60)]
Paths = Annotated[tuple[FilePath, ...], Meta(max_length=_PATHS_MAX)]
_UNREADABLE = (e.BlobMissing, e.BlobDamaged, e.FileUnreadable, e.TreeUnreadable, e.StorageAway)
_FOLDER = (e.WorkspaceUnreadable, e.WorkspaceUnwritable, e.DiskFull)
_REFUSALS = (e.NotFound, e.Gone, e.NothingToDo, e.Invalid, *_FOLDER, *_UNREADABLE)


Action = Literal["undo", "redo", "clear", "select", "retry", "edit", "restore"]


class PlanQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``turn_id``: for select, retry and edit. ``at`` and ``path``: for restore."""

    action: Action
    turn_id: TurnId | None = None
    at: At | None = None
    path: FilePath | None = None


class FilesPlanned(msgspec.Struct, frozen=True):
    """The first of the ``changes`` to the folder, and how many there are in ``total``. ``conflicts``: files
    that a user changed and that would be overwritten, with what they did to them. ``is_project``: the folder
    belongs to the user, so a move leaves it alone. ``digest`` names what was shown, for restore."""

    digest: str = ""
    changes: tuple[ComparedFile, ...] = ()
    total: int = 0
    conflicts: tuple[FileChange, ...] = ()
    is_project: bool = False


class RestoreFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``digest``: of the plan that the user was shown. ``paths``: only these files and folders. What the user
    changed is overwritten, unless ``choices`` say otherwise for a path."""

    at: At
    digest: Annotated[str, Meta(min_length=1, max_length=100)]
    paths: Paths = ()
    choices: Choices = {}


class FilesAreRestored(msgspec.Struct, frozen=True):
    """``kept``: what was left as it was, and why."""

    changes: tuple[FileChange, ...] = ()
    total: int = 0
    kept: tuple[KeptFile, ...] = ()


class RestoreApi:
    def __init__(self, engine: Engine, store: Store, files: SessionFiles) -> None:
        self._engine = engine
        self._store = store
        self._files = files

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/files/plan",
                run=self.plan,
                summary="What a move through the history, or a restore, would change in the files.",
                tag="files",
                scope=Scope.CHAT,
                query=PlanQuery,
                answer=FilesPlanned,
                errors=(*_REFUSALS, e.WrongState),
            ),
            Endpoint(
                method="POST",
                path="/api/sessions/{session}/files/restore",
                run=self.restore,
                summary="Restore files as a plan showed it. The conversation stays where it is.",
                tag="files",
                scope=Scope.CHAT,
                body=RestoreFiles,
                answer=FilesAreRestored,
                errors=(
                    *_REFUSALS,
                    e.WrongState,
                    e.Denied,
                    e.FilesConflict,
                    e.Busy,
                    e.DiskReadOnly,
                    ScopeMissing,
                ),
            ),
        ]

    async def plan(self, call: ApiCall[PlanQuery, Nothing]) -> FilesPlanned:
        query, session_id = call.query, call.path["session"]
        session = await self._store.sessions.get(call.owner, session_id)
        if query.action == "restore":
            paths = () if query.path is None else (query.path,)
            shown = await self._restore_plan(call.owner, session_id, query.at or "", paths)
        else:
            move = Move.RETRY if query.action == "edit" else Move(query.action)
            shown = await self._engine.moves.plan(call.owner, session_id, move, query.turn_id)
        is_project = session.project is not None
        if shown is None:
            return FilesPlanned(is_project=is_project)
        found = await self._files.compare.compare(shown.plan.present, shown.plan.wanted)
        return FilesPlanned(shown.digest, found.changes, found.total, shown.conflicts, is_project)

    async def restore(self, call: ApiCall[Nothing, RestoreFiles]) -> FilesAreRestored:
        body, session_id = call.body, call.path["session"]
        session = await self._store.sessions.get(call.owner, session_id)
        await self._files.check_profile(session, "restored")
        shown = await self._restore_plan(call.owner, session_id, body.at, body.paths)
        if shown is None:
            raise e.NothingToDo("The files of sessions are not recorded here.")
        if shown.digest != body.digest:  # guard: e06
            raise _outdated_error(shown)
        await self._check_guarded(call, shown)  # guard: e06
        choices = FileChoices(FilesChoice.RESTORE, body.choices)
        try:
            done = await self._engine.moves.restore(call.owner, session_id, shown, choices)
        except PlanNeeded:
            raise _outdated_error(shown) from None
        return FilesAreRestored(done.changes, done.changes_total, done.kept)

    async def _check_guarded(self, call: ApiCall[Nothing, RestoreFiles], shown: ShownPlan) -> None:
        """Tools ask before they write what other programs run in a project, so who restores it must be one
        who may answer. A command can have made it and a save recorded it before it was set aside."""
        session = await self._store.sessions.get(call.owner, call.path["session"])
        if session.project is None or call.caller.may(Scope.APPROVE):
            return
        found = await self._files.compare.compare(shown.plan.present, shown.plan.wanted)
        paths = [change.path for change in found.changes]
        is_guarded = await anyio.to_thread.run_sync(any_guarded, DiskPath(session.project), paths)
        if is_guarded or len(paths) < found.total:  # of more than are listed nothing is known
            raise ScopeMissing(Scope.APPROVE)

    async def _restore_plan(
        self, owner: str, session_id: str, at: str, paths: tuple[str, ...]
    ) -> ShownPlan | None:
        point = parse_at(at)
        if point is None:
            raise e.Invalid("The files of now need no restore.", hint="Name a turn or a checkpoint with at.")
        tree = await self._store.checkpoints.tree_at(owner, session_id, point)
        places = tuple(to_path(path) for path in paths)
        return await self._engine.moves.plan_restore(owner, session_id, tree, places)


def _outdated_error(shown: ShownPlan) -> e.FilesConflict:
    return e.FilesConflict(
        shown.conflicts, "The files have changed since the plan was shown. Nothing was restored."
    )
