"""The engine's public interface: accept, cancel, resume and answer; change and read the transcript."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import msgspec

from everturn.domain.asks import Ask
from everturn.domain.budgets import Budget, BudgetKey, BudgetLimit
from everturn.domain.delivery import Received
from everturn.domain.errors import EverturnError, Gone, Invalid, NotFound, NothingToDo, Overloaded
from everturn.domain.events import Event
from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Message
from everturn.domain.parameters import Parameters
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
from everturn.engine.after_turn import AfterTurn
from everturn.engine.agents import Agents
from everturn.engine.arguments import find_misfit
from everturn.engine.background import run_logged
from everturn.engine.budget_watch import BudgetWatch
from everturn.engine.calls import parse_arguments
from everturn.engine.delegates import Delegates, EngineActs
from everturn.engine.lease import lease_of
from everturn.engine.loop import LoopResult
from everturn.engine.maintenance import Maintenance
from everturn.engine.memory_tasks import MemoryTasks
from everturn.engine.moves import Moves
from everturn.engine.parameters import first_model, refuse_unfit
from everturn.engine.runner import Runner
from everturn.engine.services import EngineParts, TurnServices
from everturn.engine.settings import DelegateSettings, EngineSettings
from everturn.engine.turn_hooks import AfterTurnHooks
from everturn.workspace import Restorer

_log = logging.getLogger("everturn.engine")
_STILL_OPEN = "Nothing was decided; the question is still open."


class Engine:
    """Runs turns. An async context manager: accepted turns run inside it, and leaving it releases them.

    Every method that returns has made its result durable first.
    """

    def __init__(self, parts: EngineParts, runtime: Runtime, settings: EngineSettings) -> None:
        store, recorder, clock = parts.store, parts.recorder, runtime.clock
        self.store = store
        self.settings = settings
        self.restorer = None if recorder is None else Restorer(store, recorder, self.folder_of, runtime.probe)
        worker = runtime.ids.worker()
        self._hooks = AfterTurnHooks(parts.hooks, store, clock, worker)
        self._services = TurnServices(
            store,
            parts.models,
            parts.toolbox,
            clock,
            runtime.ids,
            runtime.probe,
            settings,
            lease_of(store, clock, settings),
            BudgetWatch(store, parts.guest_budgets),
            parts.memory,
            recorder,
            self.restorer,
            parts.skills,
            parts.profiles,
            runtime.traces,
            self._hooks,
        )
        self.moves = Moves(store, self.restorer)
        self._memory_tasks = MemoryTasks(parts.memory, clock, settings)
        self._after_turn = AfterTurn(self._services, self._memory_tasks, self.submit)
        agents = Agents(self._services, self._memory_tasks.cache)
        self._runner = Runner(self._services, agents, worker, self._turn_ended)
        if parts.memory is not None:
            parts.memory.assign_worker(self._runner.worker)
        self._maintenance = Maintenance(self._services, self._runner.nudge)
        self.delegates = parts.delegates or Delegates(store, clock, DelegateSettings())
        self.delegates.bind(
            EngineActs(self.cancel, self.delete, self._runner.nudge, self._look_at_budgets, self.restorer)
        )
        self._exits = AsyncExitStack()
        self._is_stopped = False
        self._has_released = False  # every turn was released

    async def __aenter__(self) -> Self:
        group = await self._exits.enter_async_context(anyio.create_task_group())
        self._exits.callback(group.cancel_scope.cancel)
        try:
            await self._services.budgets.look()  # before the first turn is claimed
            await group.start(self._runner.run, name="runner")
            group.start_soon(self._maintenance.run, name="maintenance")
            group.start_soon(self.delegates.run, name="delegates")
            group.start_soon(self._after_turn.run, name="after turns")
            group.start_soon(self._hooks.run, name="hooks")
            await group.start(self._memory_tasks.run, name="memory tasks")
            group.start_soon(run_logged, "restores", self._finish_restores, name="restores")
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
        self._after_turn.stop()
        self._memory_tasks.begin_stop()
        await self._runner.stop(0.0 if is_hurried else grace_s)
        if not is_hurried:
            await self._memory_tasks.stop()
        self._has_released = True

    def status(self) -> JsonObject:
        """The engine's state, for health pages."""
        return {
            "worker": self._runner.worker,
            "running": self._runner.running,
            "is_stopping": self._is_stopped,
            "has_lease": self._services.lease.is_held,
            "trouble": self._runner.trouble,
            "upkeep": dict(self._maintenance.troubles),
            "server_turns_max": self.settings.server_turns_max,
            **self._memory_tasks.status(),
        }

    # --- turns -------------------------------------------------------------------------------------

    async def submit(self, owner: str, session_id: str, submission: Submission) -> Accepted:
        """Accept a message, durably and once per idempotency key, before its turn starts."""
        self._refuse_when_stopped()
        if submission.parameters is not None:
            name = submission.model or submission.preferred_model
            await self._refuse_unfit(owner, session_id, submission.parameters, name, submission.profile)
        began = self._services.clock.monotonic()
        accepted = await self._runner.accept(owner, session_id, submission)
        self._trace_accepted(accepted, began)
        return accepted

    def _trace_accepted(self, accepted: Accepted, began: float) -> None:
        if not accepted.is_repeat and not accepted.is_steering:
            took_s = self._services.clock.monotonic() - began
            self._services.traces.turn_accepted(accepted.turn, took_s)

    async def _refuse_unfit(
        self, owner: str, session_id: str, given: Parameters, name: str | None, profile: str | None = None
    ) -> None:
        if name is None:
            session = await self.store.sessions.get(owner, session_id)
            services = await self._services.for_owner(owner)
            name = first_model(services, session, None, profile)
        await refuse_unfit(self._services.models, given, name)

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
        began = self._services.clock.monotonic()
        received, accepted = await self.store.delivery.inbox.accept(inbox_id, submission)
        if accepted is not None:
            self._trace_accepted(accepted, began)
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
        await self._services.probe.reach(Moment.CANCEL_REQUESTED, turn_id)
        turn = await self.store.turns.cancel(owner, turn_id, by=by)
        await self._stop_cancelled(turn)
        return turn

    async def take_back(self, owner: str, turn_id: str, *, by: str = "", key: str | None = None) -> TakenBack:
        """Cancel a turn and take back the messages that wait behind it; see ``Turns.take_back``."""
        await self._services.probe.reach(Moment.CANCEL_REQUESTED, turn_id)
        taken = await self.store.turns.take_back(owner, turn_id, by=by, key=key)
        await self._stop_cancelled(taken.turn)
        return taken

    async def _stop_cancelled(self, turn: Turn) -> None:
        """Stop the task of a turn whose end is durable, and let the session go on."""
        await self._services.probe.reach(Moment.CANCEL_COMMITTED, turn.id)
        self._runner.cancel_task(turn.id)
        self._services.traces.turn_left(turn.owner, turn.id)  # it may have waited, with no worker to tell it
        await self._services.toolbox.release(turn.id)
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
        tools = await self._services.toolbox.tools(owner, session.id, turn.profile or session.profile)
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
        if await self._services.budgets.look():
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
            new = msgspec.structs.replace(
                new, project=await self._services.toolbox.check_project(new.project)
            )
        session = await self.store.sessions.create(owner, new, request=request)
        if leaving:  # guard: b18
            self._memory_tasks.commit(owner, leaving, why="leave")
        return session

    async def change_session(
        self, owner: str, session_id: str, patch: SessionPatch, *, version: int | None = None
    ) -> Session:
        """Raises Stale, Invalid, WrongState, and as ``Restorer.finish``."""
        refuse_control_characters(
            title=patch.title, profile=patch.profile, model=patch.model, tags=patch.tags
        )
        if isinstance(patch.parameters, Parameters):
            name = patch.model if isinstance(patch.model, str) else None
            await self._refuse_unfit(owner, session_id, patch.parameters, name)
        if isinstance(patch.project, str):
            project = await self._services.toolbox.check_project(patch.project)
            patch = msgspec.structs.replace(patch, project=project)
        if patch.project is not msgspec.UNSET:
            # The files of e.g. an imported session belong into the folder that it has now, not into another.
            await self.moves.finish(owner, session_id)
        return await self.store.sessions.change(owner, session_id, patch, version=version)

    async def delete(self, owner: str, session_id: str, *, is_purge: bool = False) -> None:
        """Stop the session's jobs and its turn, then remove everything of it, and its delegates.
        ``is_purge``: unless it was restored."""
        await self._services.toolbox.stop_jobs(owner, session_id)
        delegates = await self.store.delegates.of_session(owner, session_id)
        await self.store.sessions.delete(owner, session_id, is_purge=is_purge)
        self._runner.cancel_session_task(session_id)
        self._memory_tasks.forget(session_id)
        await self._services.toolbox.forget(owner, session_id)
        if self._services.recorder is not None:
            await self._services.recorder.forget(session_id)
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
        """Release a dead worker's turn (``take_over``) and recover late events, before a session is read.

        Returns the session as it was found, and whether it may have changed since. Called once per read: each
        call counts as one attempt at a journal that was sealed empty (C06).
        """
        session, is_pending = await self.store.journal.read_pending(owner, session_id)
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
        self._memory_tasks.clear(session)
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
        if retried.parameters is not None:
            await self._refuse_unfit(owner, session_id, retried.parameters, retried.model)
        accepted = await self.moves.retry(owner, session_id, retried, request, files)
        self._runner.nudge()
        return accepted

    async def folder_of(self, session: Session) -> Path:
        return await self._services.toolbox.workspace(session.owner, session.id, session.project)

    async def _finish_restores(self) -> None:
        """Finish what was being restored when the last process ended."""
        if self.restorer is not None:  # guard: e02
            for session_id, error in (await self.restorer.finish_all()).items():
                _log.warning("files of %s: %s", session_id, error.message)

    async def branch(self, owner: str, session_id: str, turn_id: str | None, request: Request) -> Session:
        """A new session with the path to the turn, and its files."""
        return await self.moves.branch(owner, session_id, turn_id, request)

    async def _turn_ended(self, claim: Claim, ended: LoopResult) -> None:
        self.delegates.nudge()
        if not claim.session.is_delegate:
            self._after_turn.start(ended)
            self._hooks.nudge()

    def _refuse_when_stopped(self) -> None:
        if self._is_stopped:
            raise Overloaded("The server is stopping. Nothing was stored.", hint="Try again in a moment.")
