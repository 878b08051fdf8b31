"""Starts what follows a completed turn: title, memory, compaction. Other ends need nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import anyio
import anyio.abc

from everturn.domain.model import Model
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.store_values import Accepted, Submission
from everturn.domain.turns import Turn, TurnKind, TurnState
from everturn.engine.background import run_logged
from everturn.engine.loop import LoopResult
from everturn.engine.memory_tasks import MemoryTasks
from everturn.engine.preferences import read_preferences
from everturn.engine.services import TurnServices
from everturn.engine.titles import Titler

Args = TypeVarTuple("Args")
Submit = Callable[[str, str, Submission], Awaitable[Accepted]]  # owner, session

_log = logging.getLogger("everturn.engine")


class AfterTurn:
    def __init__(self, services: TurnServices, memory_tasks: MemoryTasks, submit: Submit) -> None:
        self._services = services
        self._memory_tasks = memory_tasks
        self._submit = submit
        self._titler = Titler(services)
        self._group: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        """Run what is started, until ``stop``."""
        async with anyio.create_task_group() as group:
            self._group = group
            await anyio.sleep_forever()

    def stop(self) -> None:
        """Cancel what is under way, and start nothing more."""
        if self._group is not None:
            self._group.cancel_scope.cancel()
            self._group = None

    def start(self, ended: LoopResult) -> None:
        turn, memory = ended.turn, self._services.memory
        if turn.state is not TurnState.COMPLETED:
            return
        if turn.kind is TurnKind.COMPACTION:
            self._memory_tasks.commit(turn.owner, turn.session_id, why="compacted")
        if turn.kind is not TurnKind.MESSAGE:
            return
        self._start(f"title {turn.session_id}", self._make_title, ended)
        if memory is not None and ended.handle is not None:
            seen = (ended.handle, turn.owner, turn.session_id, ended.messages)
            self._start(f"observe {turn.id}", memory.observe, *seen)
        if ended.is_crowded:
            self._start(f"compact {turn.session_id}", self._compact_crowded, turn)

    def _start(self, name: str, act: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        if self._group is not None:
            self._group.start_soon(run_logged, name, act, *args, name=name)

    async def _make_title(self, ended: LoopResult) -> None:
        turn = ended.turn
        session = await self._services.store.sessions.get(turn.owner, turn.session_id)
        if not self._titler.wants_title(session):
            return
        model = await self._title_model(turn.owner, ended.model)
        await self._titler.name(session, turn, model, ended.messages)

    async def _title_model(self, owner: str, answered: str) -> Model:
        services = self._services
        preferred = await read_preferences(services.store.records, owner)
        name = preferred.over(services.settings).title_model
        if name:
            try:
                return await services.models.get(name)
            except ModelTrouble as error:
                # Its key may have been removed. Use the model that has just answered instead.
                _log.info("title model %s: %s", name, error.message)
        return await services.models.get(answered or None)

    async def _compact_crowded(self, turn: Turn) -> None:
        """Compact a nearly full context before the next message needs the room."""
        submission = Submission(kind=TurnKind.COMPACTION, key=f"compact-after-{turn.id}")
        await self._submit(turn.owner, turn.session_id, submission)
