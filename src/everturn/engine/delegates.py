"""Delegates: starts them for tool calls, gives their results to their parents, stops and removes those that
are no longer wanted (E09).

What a crash cuts off is found again by ``look``: every step of it can be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.delegates import Delegate, DelegateBounds, DelegateName, DelegateTask, NewDelegates
from everturn.domain.errors import EverturnError, Gone, Invalid, NotFound, WrongState
from everturn.domain.store import Store
from everturn.domain.tool import ToolCall
from everturn.domain.turns import Turn
from everturn.domain.working_copies import FilesChoice
from everturn.engine.settings import DelegateSettings
from everturn.workspace import Applied, MadeFiles, Restorer

_log = logging.getLogger("everturn.engine")
_Due = TypeVar("_Due")
_AT_ONCE = 8  # more would take the connections of others


class _Cancel(Protocol):
    async def __call__(self, owner: str, turn_id: str, *, by: str = "") -> Turn: ...


class _Delete(Protocol):
    async def __call__(self, owner: str, session_id: str, *, is_purge: bool = False) -> None: ...


class EngineActs(msgspec.Struct, frozen=True):
    """What delegates need of the engine that runs them."""

    cancel: _Cancel
    delete: _Delete
    nudge: Callable[[], None]
    look_at_budgets: Callable[[], Awaitable[None]]
    restorer: Restorer | None


class Delegates:
    """Made before the toolbox, whose tools use it; the engine binds itself to it and runs it."""

    def __init__(self, store: Store, clock: Clock, settings: DelegateSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._acts: EngineActs | None = None
        self._nudged = anyio.Event()
        self._sweep_at = 0.0  # when to look for those that a crash left without a parent
        self.trouble = ""  # why the last look failed

    def bind(self, acts: EngineActs) -> None:
        self._acts = acts

    @property
    def _engine(self) -> EngineActs:
        if self._acts is None:
            raise WrongState("No engine runs here.")
        return self._acts

    # --- for tools ---------------------------------------------------------------------------------

    async def start(
        self, call: ToolCall, tasks: Sequence[DelegateTask], *, is_waited: bool
    ) -> Sequence[Delegate]:
        """Start delegates for a tool call, once however often it is repeated. Raises TooManyDelegates,
        DelegatesTooDeep, WrongState, and Invalid if the paths of a task name no file."""
        bounds = DelegateBounds(self._settings.depth_max, self._settings.at_once_max)
        chosen = await self._choose_files(call, tasks)
        new = NewDelegates(call.turn_id, call.id, chosen, is_waited, call.is_tainted, bounds)
        started = await self._store.delegates.start(new)
        if any(task.budget_tokens is not None or task.budget_usd is not None for task in tasks):
            await self._engine.look_at_budgets()
        self._engine.nudge()
        return started

    async def _choose_files(self, call: ToolCall, tasks: Sequence[DelegateTask]) -> tuple[DelegateTask, ...]:
        """The tasks with the trees that their paths name. What they hold is from before this call: the
        calls of a step that change files run one after the other."""
        if not any(task.paths for task in tasks):
            return tuple(tasks)
        restorer = self._engine.restorer
        if restorer is None:
            raise Invalid("There are no files here to choose from.", hint="Leave `paths` out.")
        present = (await self._store.working_copies.get(call.owner, call.session_id)).tree
        return tuple(
            [
                msgspec.structs.replace(task, tree=await restorer.select(present, task.paths))
                if task.paths
                else task
                for task in tasks
            ]
        )

    async def get(self, call: ToolCall, delegate_id: str) -> Delegate:
        """A delegate of the session that calls. Raises NotFound for those of others."""
        delegate = await self._store.delegates.get(call.owner, delegate_id)
        if delegate.parent_session != call.session_id:
            raise NotFound("delegate", delegate_id)
        return delegate

    async def stop(self, owner: str, delegate_id: str) -> Delegate:
        """Ask it to stop; its turn is cancelled soon."""
        delegate = await self._store.delegates.ask_to_stop(owner, delegate_id)
        self.nudge()
        return delegate

    async def apply(
        self, delegate: Delegate, paths: Sequence[bytes] = (), choice: FilesChoice | None = None
    ) -> Applied:
        """Bring the files that a delegate made into its parent's folder. With conflicts and no choice,
        nothing is written. Raises WrongState if it is still at work, Invalid if there are no files."""
        return await self._apply(delegate, MadeFiles(delegate.base, "", tuple(paths)), choice)

    async def apply_for_user(self, delegate: Delegate, choice: FilesChoice | None = None) -> Applied:
        """The same at a user's request, who may write any file. The caller records the folder."""
        return await self._apply(delegate, MadeFiles(delegate.base, "", may_guard=True), choice)

    async def _apply(self, delegate: Delegate, made: MadeFiles, choice: FilesChoice | None) -> Applied:
        if delegate.result is None:
            raise WrongState(f"Delegate {delegate.id} is still at work.", hint="Wait until it has ended.")
        restorer = self._engine.restorer
        made = msgspec.structs.replace(made, tree=delegate.result.tree)
        if restorer is None or made.base == made.tree:
            raise Invalid(f"Delegate {delegate.id} changed no files.")
        session = await self._store.sessions.get(delegate.owner, delegate.parent_session)
        applied = await restorer.apply(session, made, choice)
        if choice is not None or not applied.conflicts:
            await self._store.delegates.settle_files(delegate.owner, delegate.id, is_applied=True)
        return applied

    async def refuse(self, delegate: Delegate) -> None:
        """Record that the parent does not want the files."""
        await self._store.delegates.settle_files(delegate.owner, delegate.id, is_applied=False)

    # --- upkeep ------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """Look now: a turn has ended or begun to wait."""
        self._nudged.set()

    async def run(self) -> None:
        while True:
            # Cleared before looking, so that a nudge meanwhile is not lost.
            self._nudged = anyio.Event()
            try:
                await self.look()
                self.trouble = ""
            except EverturnError as error:
                if self.trouble != error.message:
                    _log.warning("delegates: %s", error.message)
                self.trouble = error.message
            except Exception as error:
                # The root of a task: recorded, and tried again.
                _log.exception("the upkeep of delegates failed")
                self.trouble = f"{type(error).__name__}: {error}"
            await self._wait_nudge()

    async def _wait_nudge(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_wait, group.cancel_scope, name="delegates pause")
            await self._nudged.wait()
            group.cancel_scope.cancel()

    async def _end_wait(self, scope: anyio.CancelScope) -> None:
        await self._clock.sleep(self._settings.look_s)
        scope.cancel()

    async def look(self) -> None:
        """Stop, give and remove what is due. Another worker may do the same at the same time. Raises the
        first error when everything was tried: what one delegate runs into holds up no other."""
        is_sweep = self._clock.monotonic() >= self._sweep_at
        due = await self._store.delegates.due(orphans=is_sweep)
        errors = [
            *await self._each(self._stop, due.to_stop),
            *await self._each(self._give, due.to_give),
            *await self._each(self._remove, due.orphans),
        ]
        if is_sweep and not due.orphans:
            self._sweep_at = self._clock.monotonic() + self._settings.sweep_s
        if len(errors) < len(due.to_stop) + len(due.to_give):
            self.nudge()  # there may be more, and what was stopped has a result now
        if errors:
            raise errors[0]

    async def _each(
        self, act: Callable[[_Due], Awaitable[None]], ones: Sequence[_Due]
    ) -> list[EverturnError]:
        """Some at a time, so that they share a commit; what went wrong."""
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        errors: list[EverturnError] = []

        async def run(one: _Due) -> None:
            async with limiter:
                error = await self._try(act, one)
            if error is not None:
                errors.append(error)

        async with anyio.create_task_group() as group:
            for number, one in enumerate(ones):
                group.start_soon(run, one, name=f"delegates {number}")
        return errors

    async def _try(self, act: Callable[[_Due], Awaitable[None]], one: _Due) -> EverturnError | None:
        try:
            await act(one)
        except (NotFound, Gone):
            pass  # deleted meanwhile
        except EverturnError as error:  # guard: e09
            return error
        return None

    async def _stop(self, one: DelegateName) -> None:
        await self._engine.cancel(one.owner, one.turn_id, by="parent")

    async def _give(self, delegate_id: str) -> None:
        if await self._store.delegates.give(delegate_id) is not None:
            self._engine.nudge()

    async def _remove(self, one: DelegateName) -> None:
        await self._engine.delete(one.owner, one.session_id)
