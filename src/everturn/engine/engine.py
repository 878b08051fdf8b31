"""The engine's public interface: accept, cancel, resume and answer; change and read the transcript."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVarTuple

import anyio
import anyio.abc
import msgspec

from everturn.domain.asks import Ask
from everturn.domain.budgets import Budget, BudgetKey, BudgetLimit
from everturn.domain.clock import call_within
from everturn.domain.delivery import Received
from everturn.domain.errors import EverturnError, Gone, Invalid, NotFound, NothingToDo, Overloaded, Refused
from everturn.domain.events import Event
from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Message
from everturn.domain.model import Model
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.probe import Moment
from everturn.domain.runtime import Runtime
from everturn.domain.schedules import DuePlan, Occurrence, Settlement
from everturn.domain.sessions import (
    NEW_SESSION,
    NewSession,
    Page,
    Session,
    SessionPatch,
    refuse_control_characters,
)
from everturn.domain.store_values import (
    NO_REQUEST,
    Accepted,
    Claim,
    Request,
    RetriedTurn,
    Submission,
    TakenBack,
    TranscriptPage,
    WhenBusy,
)
from everturn.domain.turns import Turn, TurnKind, TurnState
from everturn.domain.working_copies import ASK, FileChoices
from everturn.engine.agent_cache import AgentCache
from everturn.engine.agents import Agents, WarmAgent
from everturn.engine.arguments import find_misfit
from everturn.engine.budget_watch import BudgetWatch
from everturn.engine.calls import parse_arguments
from everturn.engine.delegates import Delegates, EngineActs
from everturn.engine.lease import lease_of
from everturn.engine.loop import LoopResult
from everturn.engine.maintenance import Maintenance
from everturn.engine.moves import Moves
from everturn.engine.preferences import read_preferences
from everturn.engine.runner import Runner
from everturn.engine.services import EngineParts, TurnServices
from everturn.engine.settings import DelegateSettings, EngineSettings
from everturn.engine.titles import Titler
from everturn.workspace import Restorer

Args = TypeVarTuple("Args")

_log = logging.getLogger("everturn.engine")
_STILL_OPEN = "Nothing was decided; the question is still open."


class Engine:
    """Runs turns. An async context manager: accepted turns run inside it, and leaving it releases them.

    Every method that returns has made its result durable first.
    """

    def __init__(self, parts: EngineParts, runtime: Runtime, settings: EngineSettings) -> None:
        store, memory, recorder = parts.store, parts.memory, parts.recorder
        clock, ids = runtime.clock, runtime.ids
        self.store = store
        self._probe = runtime.probe
        self._clock = clock
        self.settings = settings
        self._models = parts.models
        self._toolbox = parts.toolbox
        self._memory = memory
        self._recorder = recorder
        self._lease = lease_of(store, clock, settings)
        self._budgets = BudgetWatch(store, parts.guest_budgets)
        restorer = None if recorder is None else Restorer(store, recorder, self.folder_of, self._probe)
        self.moves = Moves(store, restorer)
        self.restorer = restorer
        services = TurnServices(
            store,
            parts.models,
            parts.toolbox,
            clock,
            ids,
            self._probe,
            settings,
            self._lease,
            self._budgets,
            memory,
            recorder,
            restorer,
        )
        self._cache: AgentCache[WarmAgent] = AgentCache(
            clock=clock, retire=self._retire, start=self._start_memory_task, bounds=settings.cache
        )
        self._agents = Agents(services, self._cache)
        self._runner = Runner(services, self._agents, ids.worker(), self._turn_ended)
        if memory is not None:
            memory.assign_worker(self._runner.worker)
        self._titler = Titler(services)
        self._maintenance = Maintenance(services, self._runner.nudge)
        self.delegates = parts.delegates or Delegates(store, clock, DelegateSettings())
        self.delegates.bind(
            EngineActs(self.cancel, self.delete, self._runner.nudge, self._look_at_budgets, restorer)
        )
        self._exits = AsyncExitStack()
        self._background: anyio.abc.TaskGroup | None = None
        self._memory_tasks: anyio.abc.TaskGroup | None = None
        self._is_stopped = False
        self._has_released = False  # every turn was released

    async def __aenter__(self) -> Self:
        group = await self._exits.enter_async_context(anyio.create_task_group())
        self._exits.callback(group.cancel_scope.cancel)
        try:
            await self._budgets.look()  # before the first turn is claimed
            await group.start(self._runner.run, name="runner")
            group.start_soon(self._maintenance.run, name="maintenance")
            group.start_soon(self.delegates.run, name="delegates")
            group.start_soon(self._run_background, name="background")
            await group.start(self._run_memory_tasks, name="memory tasks")
            group.start_soon(self._log_errors, "restores", self._finish_restores, name="restores")
        except BaseException:
            # ``__aexit__`` is not called after a failed ``__aenter__``: end the tasks here.
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if kind is None or issubclass(kind, Exception):
                await self.stop(0.0 if kind else self.settings.stop_grace_s)
        finally:
            await self._exits.aclose()
        return None

    async def stop(self, grace_s: float) -> None:
        """Accept nothing more, give running turns this long, then release the rest. Safe to call twice.

        After a call that was cancelled, the next one only releases the turns and waits for nothing else.
        What memory is owed stays owed.
        """
        if self._has_released:
            return
        is_hurried, self._is_stopped = self._is_stopped, True
        if self._background is not None:
            self._background.cancel_scope.cancel()
        await self._runner.stop(0.0 if is_hurried else grace_s)
        if not is_hurried:
            await self._stop_memory_tasks()
        self._has_released = True

    def status(self) -> JsonObject:
        """The engine's state, for health pages."""
        return {
            "worker": self._runner.worker,
            "running": self._runner.running,
            "is_stopping": self._is_stopped,
            "has_lease": self._lease.is_held,
            "trouble": self._runner.trouble,
            "upkeep": dict(self._maintenance.troubles),
            "server_turns_max": self.settings.server_turns_max,
            "cache": self._cache.status(),
            "memory": self._memory.status() if self._memory is not None else None,
        }

    # --- turns -------------------------------------------------------------------------------------

    async def submit(self, owner: str, session_id: str, submission: Submission) -> Accepted:
        """Accept a message, durably and once per idempotency key, before its turn starts."""
        self._refuse_when_stopped()
        return await self._runner.accept(owner, session_id, submission)

    @property
    def worker(self) -> str:
        """The id under which this process runs turns."""
        return self._runner.worker

    def nudge(self) -> None:
        """Look for turns to run now: something outside has queued one."""
        self._runner.nudge()

    async def submit_received(
        self, inbox_id: str, submission: Submission
    ) -> tuple[Received, Accepted | None]:
        """Make a received message a turn of its chat's session; see ``Inbox.accept``."""
        self._refuse_when_stopped()
        received, accepted = await self.store.delivery.inbox.accept(inbox_id, submission)
        if accepted is not None:
            if submission.when_busy == WhenBusy.INTERRUPT and not accepted.is_repeat:
                self._runner.cancel_session_task(accepted.turn.session_id, but=accepted.turn.id)
            self._runner.nudge()
        return received, accepted

    async def settle_schedule(self, plan: DuePlan) -> Settlement:
        """Give due times of a schedule their fates and start what runs; see ``Schedules.settle``."""
        self._refuse_when_stopped()
        settlement = await self.store.schedules.settle(plan)
        for turn_id in settlement.replaced:
            self._runner.cancel_task(turn_id)
        if settlement.occurrences:
            self._runner.nudge()
        return settlement

    async def run_schedule(self, owner: str, schedule_id: str) -> Occurrence:
        """Run a schedule once, now; see ``Schedules.run_now``."""
        self._refuse_when_stopped()
        occurrence = await self.store.schedules.run_now(owner, schedule_id)
        self._runner.nudge()
        return occurrence

    async def cancel(self, owner: str, turn_id: str, *, by: str = "") -> Turn:
        """End a turn now and keep what it has produced. An ended turn is returned as it is."""
        await self._probe.reach(Moment.CANCEL_REQUESTED, turn_id)
        turn = await self.store.turns.cancel(owner, turn_id, by=by)
        await self._stop_cancelled(turn)
        return turn

    async def take_back(self, owner: str, turn_id: str, *, by: str = "", key: str | None = None) -> TakenBack:
        """Cancel a turn and take back the messages that wait behind it; see ``Turns.take_back``."""
        await self._probe.reach(Moment.CANCEL_REQUESTED, turn_id)
        taken = await self.store.turns.take_back(owner, turn_id, by=by, key=key)
        await self._stop_cancelled(taken.turn)
        return taken

    async def _stop_cancelled(self, turn: Turn) -> None:
        """Stop the task of a turn whose end is durable, and let the session go on."""
        await self._probe.reach(Moment.CANCEL_COMMITTED, turn.id)
        self._runner.cancel_task(turn.id)
        self.delegates.nudge()
        try:
            # A turn that was asked again and never began.
            await self.moves.finish(turn.owner, turn.session_id)
        except EverturnError as error:
            # The next turn does it.
            _log.warning("the files of session %s: %s", turn.session_id, error.message)
        self._runner.nudge()

    async def resume(self, owner: str, turn_id: str) -> Turn:
        """Resume an interrupted turn at the head."""
        self._refuse_when_stopped()
        turn = await self.store.turns.resume(owner, turn_id)
        self._runner.nudge()
        return turn

    async def answer(
        self, owner: str, ask_id: str, answer: str, *, by: str, arguments: str | None = None
    ) -> Ask:
        """Answer an approval or a question. Its turn continues when all of its asks are answered.

        ``arguments`` replace those of the approved call. They must fit the tool's schema, and the policy
        checks the changed call before it runs.
        """
        if arguments is not None:
            await self._check_arguments(owner, ask_id, arguments)
        ask = await self.store.asks.answer(owner, ask_id, answer, by=by, arguments=arguments)
        self._runner.nudge()
        return ask

    async def _check_arguments(self, owner: str, ask_id: str, arguments: str) -> None:
        ask = await self.store.asks.get(owner, ask_id)
        given = parse_arguments(arguments)
        if isinstance(given, str):
            raise Invalid("The arguments are not a JSON object.", hint=_STILL_OPEN)
        turn = await self.store.turns.get(owner, ask.turn_id)
        session = await self.store.sessions.get(owner, ask.session_id)
        tools = await self._toolbox.tools(owner, session.id, turn.profile or session.profile)
        spec = next((tool.spec for tool in tools if tool.spec.name == ask.name), None)
        wrong = None if spec is None else find_misfit(spec.schema.parameters, given)
        if wrong is not None:
            raise Invalid(f"The arguments do not fit {ask.name}: {wrong}.", hint=_STILL_OPEN)

    async def put_budget(self, owner: str, limit: BudgetLimit) -> Budget:
        """Set a budget; it holds from the next model call on. See ``Budgets.put``."""
        budget = await self.store.budgets.put(owner, limit)
        await self._look_at_budgets()
        return budget

    async def remove_budget(self, owner: str, key: BudgetKey) -> None:
        await self.store.budgets.remove(owner, key)
        await self._look_at_budgets()

    async def _look_at_budgets(self) -> None:
        if await self._budgets.look():
            self._runner.nudge()

    async def compact(
        self, owner: str, session_id: str, *, focus: str = "", request: Request = NO_REQUEST
    ) -> Accepted:
        """Queue a compaction. It takes the session's turn slot, so later messages wait for it."""
        page = await self.store.transcript.messages(owner, session_id, limit=2)
        if len(page.items) < 2:
            raise NothingToDo("There is nothing to compact yet.", hint="Go on; it is short enough.")
        submission = Submission(
            kind=TurnKind.COMPACTION, note=focus, key=request.key, version=request.version
        )
        return await self.submit(owner, session_id, submission)

    # --- sessions ----------------------------------------------------------------------------------

    async def create_session(
        self,
        owner: str,
        new: NewSession = NEW_SESSION,
        *,
        leaving: str | None = None,
        request: Request = NO_REQUEST,
    ) -> Session:
        """A new session. What the session ``leaving`` owes to memory is committed in the background."""
        self._refuse_when_stopped()
        refuse_control_characters(title=new.title, key=new.key, profile=new.profile, model=new.model)
        if new.project is not None:
            new = msgspec.structs.replace(new, project=await self._toolbox.check_project(new.project))
        session = await self.store.sessions.create(owner, new, request=request)
        if leaving and self._memory is not None:  # guard: b18
            self._start_memory_task(f"leave {leaving}", self._memory.commit_session, owner, leaving)
        return session

    async def change_session(
        self, owner: str, session_id: str, patch: SessionPatch, *, version: int | None = None
    ) -> Session:
        """Raises Stale, Invalid, WrongState, and as ``Restorer.finish``."""
        refuse_control_characters(
            title=patch.title, profile=patch.profile, model=patch.model, tags=patch.tags
        )
        if isinstance(patch.project, str):
            project = await self._toolbox.check_project(patch.project)
            patch = msgspec.structs.replace(patch, project=project)
        if patch.project is not msgspec.UNSET:
            # The files of e.g. an imported session belong into the folder that it has now, not into another.
            await self.moves.finish(owner, session_id)
        return await self.store.sessions.change(owner, session_id, patch, version=version)

    async def delete(self, owner: str, session_id: str, *, is_purge: bool = False) -> None:
        """Stop the session's jobs and its turn, then remove everything of it, and its delegates.
        ``is_purge``: unless it was restored."""
        await self._toolbox.stop_jobs(owner, session_id)
        delegates = await self.store.delegates.of_session(owner, session_id)
        await self.store.sessions.delete(owner, session_id, is_purge=is_purge)
        self._runner.cancel_session_task(session_id)
        self._cache.forget_session(session_id)
        if self._memory is not None:
            self._memory.forget(session_id)
        await self._toolbox.forget(owner, session_id)
        if self._recorder is not None:
            await self._recorder.forget(session_id)
        self.delegates.nudge()
        for delegate in delegates:
            with contextlib.suppress(NotFound, Gone):  # deleted before, or by another worker
                await self.delete(owner, delegate.id)

    async def session(self, owner: str, session_id: str) -> Session:
        """The session as it is now, after a pending recovery."""
        session, has_changed = await self._recover(owner, session_id)
        return await self.store.sessions.get(owner, session_id) if has_changed else session

    async def page(
        self, owner: str, session_id: str, *, before: str | None = None, limit: int = 50
    ) -> TranscriptPage:
        """A page of the session with its turns, read at one moment, after a pending recovery."""
        await self._recover(owner, session_id)
        return await self.store.transcript.page(owner, session_id, before=before, limit=limit)

    async def messages(
        self, owner: str, session_id: str, *, before: str | None = None, limit: int = 50
    ) -> Page[Message]:
        return (await self.page(owner, session_id, before=before, limit=limit)).messages

    def follow(self, owner: str, session_id: str, after: int) -> AsyncGenerator[Sequence[Event], None]:
        """The session's durable events after this position, then those to come, in batches."""
        return self.store.journal.follow(owner, session_id, after)

    async def _recover(self, owner: str, session_id: str) -> tuple[Session, bool]:
        """Take over a dead worker's turn and recover late events, before a session is read.

        Returns the session as it was found, and whether it may have changed since. Called once per read: each
        call counts as one attempt at a journal that was sealed empty (C06).
        """
        session, is_pending = await self.store.journal.pending(owner, session_id)
        is_foreign = session.active_turn is not None and not self._runner.holds(session.active_turn)
        is_stray = session.active_state is TurnState.RUNNING and is_foreign and not self._is_stopped
        if is_stray:
            await self._runner.take_over()  # guard: c01
        if is_pending:
            await self.store.journal.recover(owner, session_id)
        return session, is_stray or is_pending

    # --- the transcript ----------------------------------------------------------------------------

    async def undo(self, owner: str, session_id: str, request: Request, files: FileChoices = ASK) -> Session:
        """This and the other moves take the files along. Raises FilesConflict before anything has moved."""
        return await self.moves.undo(owner, session_id, request, files)

    async def redo(self, owner: str, session_id: str, request: Request, files: FileChoices = ASK) -> Session:
        return await self.moves.redo(owner, session_id, request, files)

    async def clear(self, owner: str, session_id: str, request: Request, files: FileChoices = ASK) -> Session:
        session = await self.moves.clear(owner, session_id, request, files)
        # A cleared session starts with what memory has now, so its agent is evicted. Memory can be slow: wait
        # neither for the agent to close nor for the commit of what the session owes.
        self._agents.evict(session)
        if self._memory is not None:
            self._start_memory_task(f"cleared {session_id}", self._memory.commit_session, owner, session_id)
        return session

    async def select(
        self, owner: str, session_id: str, turn_id: str, request: Request, files: FileChoices = ASK
    ) -> Session:
        return await self.moves.select(owner, session_id, turn_id, request, files)

    async def retry(
        self,
        owner: str,
        session_id: str,
        retried: RetriedTurn,
        request: Request,
        files: FileChoices = ASK,
    ) -> Accepted:
        """Answer the same message again, or an edited one, as a sibling of the turn."""
        self._refuse_when_stopped()
        accepted = await self.moves.retry(owner, session_id, retried, request, files)
        self._runner.nudge()
        return accepted

    async def folder_of(self, session: Session) -> Path:
        return await self._toolbox.workspace(session.owner, session.id, session.project)

    async def _finish_restores(self) -> None:
        """Finish what was being restored when the last process ended."""
        if self.restorer is not None:  # guard: e02
            for session_id, error in (await self.restorer.finish_all()).items():
                _log.warning("files of %s: %s", session_id, error.message)

    async def branch(self, owner: str, session_id: str, turn_id: str | None, request: Request) -> Session:
        """A new session with the path to the turn, and its files."""
        return await self.moves.branch(owner, session_id, turn_id, request)

    # --- after a turn ------------------------------------------------------------------------------

    async def _turn_ended(self, claim: Claim, ended: LoopResult) -> None:
        """Start what follows a completed turn: title, memory, compaction. Other ends need nothing."""
        turn, memory = ended.turn, self._memory
        self.delegates.nudge()
        if claim.session.is_delegate:
            return
        if turn.state is TurnState.COMPLETED and turn.kind is TurnKind.COMPACTION and memory is not None:
            self._start_memory_task(
                f"compacted {turn.session_id}", memory.commit_session, turn.owner, turn.session_id
            )
        if turn.state is not TurnState.COMPLETED or turn.kind is not TurnKind.MESSAGE:
            return
        self._start_background(f"title {turn.session_id}", self._make_title, ended)
        if memory is not None and ended.handle is not None:
            seen = (ended.handle, turn.owner, turn.session_id, ended.messages)
            self._start_background(f"observe {turn.id}", memory.observe, *seen)
        if ended.is_crowded:
            self._start_background(f"compact {turn.session_id}", self._compact_crowded, turn)

    async def _make_title(self, ended: LoopResult) -> None:
        turn = ended.turn
        session = await self.store.sessions.get(turn.owner, turn.session_id)
        if not self._titler.wants_title(session):
            return
        model = await self._title_model(turn.owner, ended.model)
        await self._titler.name(session, turn, model, ended.messages)

    async def _title_model(self, owner: str, answered: str) -> Model:
        preferred = await read_preferences(self.store.records, owner)
        name = preferred.over(self.settings).title_model
        if name:
            try:
                return await self._models.get(name)
            except ModelTrouble as error:
                # Its key may have been removed. Use the model that has just answered instead.
                _log.info("title model %s: %s", name, error.message)
        return await self._models.get(answered or None)

    async def _compact_crowded(self, turn: Turn) -> None:
        """Compact a nearly full context before the next message needs the room."""
        submission = Submission(kind=TurnKind.COMPACTION, key=f"compact-after-{turn.id}")
        await self.submit(turn.owner, turn.session_id, submission)

    # --- memory and the agent cache ----------------------------------------------------------------

    async def _run_memory_tasks(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Run commits and evictions. They continue while turns are stopped, until shutdown ends them."""
        async with anyio.create_task_group() as group:
            self._memory_tasks = group
            group.start_soon(self._cache.run, name="agent cache")
            if self._memory is not None:
                group.start_soon(self._memory.run, name="memory")
            task_status.started()
            await anyio.sleep_forever()

    def _start_memory_task(self, name: str, act: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        if self._memory_tasks is not None:
            self._memory_tasks.start_soon(self._log_errors, name, act, *args, name=name)

    async def _stop_memory_tasks(self) -> None:
        """Commit what is owed to memory, within a time limit, then close the agents and their handles."""
        if self._memory is not None:
            await self._memory.drain()
        if self._memory_tasks is not None:
            # What is still under way did not finish in time: cancel it before closing what it uses.
            self._memory_tasks.cancel_scope.cancel()
            self._memory_tasks = None
        try:
            await call_within(self._clock, self.settings.drain_s, self._cache.close)
        except TimeoutError:
            _log.warning("not every agent could be closed in %g s", self.settings.drain_s)
        if self._memory is not None:
            await self._memory.close()

    async def _retire(self, warm: WarmAgent) -> None:
        if self._memory is not None and warm.handle is not None:
            await self._memory.release(warm.handle, is_last=self._is_stopped)

    async def _run_background(self) -> None:
        async with anyio.create_task_group() as group:
            self._background = group
            await anyio.sleep_forever()

    def _start_background(self, name: str, act: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        if self._background is not None and not self._is_stopped:
            self._background.start_soon(self._log_errors, name, act, *args, name=name)

    async def _log_errors(self, name: str, act: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        """The root of a background task: log its errors, so that they affect no turn."""
        try:
            await act(*args)
        except (Refused, ModelTrouble) as error:
            _log.info("%s: %s", name, error.message)
        except EverturnError as error:
            _log.warning("%s: %s", name, error.message)
        except Exception:
            _log.exception("%s failed", name)

    def _refuse_when_stopped(self) -> None:
        if self._is_stopped:
            raise Overloaded("The server is stopping. Nothing was stored.", hint="Try again in a moment.")
