"""What runs beside the turns for memory and the agent cache: commits and evictions."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import anyio
import anyio.abc

from everturn.domain.clock import Clock, call_within
from everturn.domain.json_types import JsonObject
from everturn.domain.sessions import Session
from everturn.engine.agent_cache import AgentCache
from everturn.engine.agents import WarmAgent, key_of
from everturn.engine.background import run_logged
from everturn.engine.settings import EngineSettings
from everturn.memory import Memory

Args = TypeVarTuple("Args")

_log = logging.getLogger("everturn.engine")


class MemoryTasks:
    """Owns the agent cache. Its tasks continue while turns are stopped, until ``stop`` ends them.

    ``memory`` None: memory is switched off, and only the cache has tasks.
    """

    def __init__(self, memory: Memory | None, clock: Clock, settings: EngineSettings) -> None:
        self._memory = memory
        self._clock = clock
        self._drain_s = settings.drain_s
        self._group: anyio.abc.TaskGroup | None = None
        self._is_stopping = False
        self.cache: AgentCache[WarmAgent] = AgentCache(
            clock=clock, retire=self._retire, start=self._start, bounds=settings.cache
        )

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self.cache.run, name="agent cache")
            if self._memory is not None:
                group.start_soon(self._memory.run, name="memory")
            task_status.started()
            await anyio.sleep_forever()

    def commit(self, owner: str, session_id: str, *, why: str) -> None:
        """Commit what the session owes to memory, in the background."""
        if self._memory is not None:
            self._start(f"{why} {session_id}", self._memory.commit_session, owner, session_id)

    def clear(self, session: Session) -> None:
        """Evict the agent of a session that was cleared, and commit what the session owes.

        A cleared session starts with what memory has now. Memory can be slow: this waits neither for the
        agent to close nor for the commit.
        """
        self.cache.evict(key_of(session, session.profile), "cleared")
        self.commit(session.owner, session.id, why="cleared")

    def forget(self, session_id: str) -> None:
        """Drop what is kept in memory for a deleted session."""
        self.cache.forget_session(session_id)
        if self._memory is not None:
            self._memory.forget(session_id)

    def begin_stop(self) -> None:
        """From now on each handle that is released is released for the last time."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Commit what is owed to memory, within a time limit, then close the agents and their handles."""
        if self._memory is not None:
            await self._memory.drain()
        if self._group is not None:
            # What is still under way did not finish in time: cancel it before closing what it uses.
            self._group.cancel_scope.cancel()
            self._group = None
        try:
            await call_within(self._clock, self._drain_s, self.cache.close)
        except TimeoutError:
            _log.warning("not every agent could be closed in %g s", self._drain_s)
        if self._memory is not None:
            await self._memory.close()

    def status(self) -> JsonObject:
        memory = None if self._memory is None else self._memory.status()
        return {"cache": self.cache.status(), "memory": memory}

    def _start(self, name: str, act: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        if self._group is not None:
            self._group.start_soon(run_logged, name, act, *args, name=name)

    async def _retire(self, warm: WarmAgent) -> None:
        if self._memory is not None and warm.handle is not None:
            await self._memory.release(warm.handle, is_last=self._is_stopping)
