"""Moves through a session's history: the conversation, and its files with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from everturn.domain.errors import NothingToDo, WorkspaceUnreadable
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.domain.store_values import Accepted, Request, RetriedTurn
from everturn.domain.working_copies import (
    ASK,
    FileChoices,
    FilesChoice,
    Move,
    MoveFiles,
    PlanNeeded,
    RestoredFiles,
)
from everturn.workspace import Restorer, ShownPlan

T = TypeVar("T")
_PLANS_MAX: Final = 5  # per move, while others record in the same folder


class Moves:
    """Without a restorer, a move leaves all files as they are."""

    def __init__(self, store: Store, restorer: Restorer | None) -> None:
        self._store = store
        self._restorer = restorer

    async def undo(self, owner: str, session_id: str, request: Request, choices: FileChoices) -> Session:
        async def run(files: MoveFiles | None) -> Session:
            return await self._store.transcript.undo(owner, session_id, request, files=files)

        return await self._move(owner, session_id, Move.UNDO, None, choices, run)

    async def redo(self, owner: str, session_id: str, request: Request, choices: FileChoices) -> Session:
        async def run(files: MoveFiles | None) -> Session:
            return await self._store.transcript.redo(owner, session_id, request, files=files)

        return await self._move(owner, session_id, Move.REDO, None, choices, run)

    async def clear(self, owner: str, session_id: str, request: Request, choices: FileChoices) -> Session:
        """Keeps the files unless the caller says otherwise."""

        async def run(files: MoveFiles | None) -> Session:
            return await self._store.transcript.clear(owner, session_id, request, files=files)

        if choices.files is None:
            choices = FileChoices(FilesChoice.KEEP)
        return await self._move(owner, session_id, Move.CLEAR, None, choices, run)

    async def select(
        self, owner: str, session_id: str, turn_id: str, request: Request, choices: FileChoices
    ) -> Session:
        async def run(files: MoveFiles | None) -> Session:
            return await self._store.transcript.select(owner, session_id, turn_id, request, files=files)

        return await self._move(owner, session_id, Move.SELECT, turn_id, choices, run)

    async def retry(
        self,
        owner: str,
        session_id: str,
        retried: RetriedTurn,
        request: Request,
        choices: FileChoices,
    ) -> Accepted:
        """The files follow when the new turn is claimed."""

        async def run(files: MoveFiles | None) -> Accepted:
            return await self._store.transcript.retry(owner, session_id, retried, request, files=files)

        return await self._move(owner, session_id, Move.RETRY, retried.turn_id, choices, run)

    async def branch(self, owner: str, session_id: str, turn_id: str | None, request: Request) -> Session:
        """The copy has the files of the turn it branches from; from the head, those in the folder now."""
        session = await self._store.sessions.get(owner, session_id)
        is_last = turn_id in (None, session.head) and session.active_turn is None
        files = None
        if self._restorer is not None and is_last and session.project is None:
            files = MoveFiles((await self._restorer.plan_branch(session)).plan)
        return await self._store.transcript.branch(owner, session_id, turn_id, request, files=files)

    async def plan(self, owner: str, session_id: str, move: Move, turn_id: str | None) -> ShownPlan | None:
        """What a move would do to the files; None if it leaves them as they are."""
        if self._restorer is None:
            return None
        session = await self._store.sessions.get(owner, session_id)
        return await self._restorer.plan_move(session, move, turn_id)

    async def _move(
        self,
        owner: str,
        session_id: str,
        move: Move,
        turn_id: str | None,
        choices: FileChoices,
        run: Callable[[MoveFiles | None], Awaitable[T]],
    ) -> T:
        """Move the conversation, then the folder. Raises FilesConflict before anything has moved.

        A plan is made only where the store asks for one: a repeated request gets its first answer, and most
        moves concern no files.
        """
        is_with_files = self._restorer is not None and choices.files is not FilesChoice.KEEP
        files = MoveFiles() if is_with_files else None
        for _ in range(_PLANS_MAX):
            try:
                moved = await run(files)
            except PlanNeeded:
                shown = await self.plan(owner, session_id, move, turn_id)
                files = MoveFiles(None if shown is None else shown.decide(choices))
            else:
                await self.finish(owner, session_id)
                return moved
        raise WorkspaceUnreadable(
            "The files of the session were recorded again and again meanwhile. Nothing was changed."
        )

    async def finish(self, owner: str, session_id: str) -> RestoredFiles | None:
        """Bring the folder to what is wanted, also if the caller has gone meanwhile."""
        done: RestoredFiles | None = None
        if self._restorer is not None:
            with anyio.CancelScope(shield=True):
                session = await self._store.sessions.get(owner, session_id)
                done = await self._restorer.finish(session)
        return done

    async def plan_restore(
        self, owner: str, session_id: str, tree: str, paths: tuple[bytes, ...]
    ) -> ShownPlan | None:
        if self._restorer is None:
            return None
        session = await self._store.sessions.get(owner, session_id)
        return await self._restorer.plan_restore(session, tree, paths)

    async def restore(
        self, owner: str, session_id: str, shown: ShownPlan, choices: FileChoices = ASK
    ) -> RestoredFiles:
        """Restore files, the conversation stays. What a user changed is overwritten unless chosen otherwise:
        they have seen the plan. Raises PlanNeeded if it is outdated, NothingToDo, Busy."""
        if shown.plan.present == shown.plan.wanted:
            raise NothingToDo("The files are already as they were then.")
        plan = shown.decide(FileChoices(choices.files or FilesChoice.RESTORE, choices.paths))
        await self._store.working_copies.restore(owner, session_id, plan)
        return await self.finish(owner, session_id) or RestoredFiles()
