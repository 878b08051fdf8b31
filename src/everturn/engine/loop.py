"""The loop of one turn: decide what comes next and do it, until the turn waits or ends.

Each step's end is durable, so any worker that claims the turn later continues after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

import msgspec

from everturn.domain import events as ev
from everturn.domain.budgets import OverBudget
from everturn.domain.errors import (
    DiskFull,
    DiskReadOnly,
    EverturnError,
    NothingToDo,
    SteeringWaits,
    StorageAway,
    WorkspaceUnreadable,
    WorkspaceUnwritable,
)
from everturn.domain.fold import CallState
from everturn.domain.memory import MemoryProvider
from everturn.domain.messages import Message, Role
from everturn.domain.model import Model
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.probe import Moment
from everturn.domain.store_values import Claim
from everturn.domain.turns import Failure, Turn, TurnKind
from everturn.engine.agents import Agents, BoundAgent, is_tainted
from everturn.engine.calls import AskWording, Calls, NewAsk, new_ask
from everturn.engine.compaction import Compactor
from everturn.engine.outside_texts import OutsideTexts
from everturn.engine.parameters import model_chain
from everturn.engine.resume import (
    AbandonAttempt,
    AskWhether,
    CallModel,
    Complete,
    Fail,
    RunCalls,
    Stop,
    check_resumption,
    next_move,
)
from everturn.engine.saved_files import tell_saved
from everturn.engine.services import TurnServices
from everturn.engine.spending import Spending, ask_about
from everturn.engine.step import ModelSteps
from everturn.engine.turn_log import TurnLog
from everturn.engine.turn_skills import add_named_skill
from everturn.engine.turn_workspace import TurnWorkspace


class LoopResult(msgspec.Struct, frozen=True):
    """How the loop left the turn: ended, waiting for the user, or handed over (``turn.state`` says which).

    The other fields are set only for a completed turn; its title, its compaction and memory need them.
    """

    turn: Turn
    messages: tuple[Message, ...] = ()
    model: str = ""
    is_crowded: bool = False  # the context has passed the threshold
    handle: MemoryProvider | None = None  # of the memory that saw the turn


class TurnLoop:
    def __init__(
        self,
        services: TurnServices,
        agents: Agents,
        claim: Claim,
        log: TurnLog,
        should_stop: Callable[[], bool],
    ) -> None:
        self._services = services
        self._agents = agents
        self._claim = claim
        self._turn = claim.turn
        self._log = log
        self._should_stop = should_stop
        self._files = TurnWorkspace(services, log, claim)
        profile = services.settings.profile(claim.turn.profile or claim.session.profile)
        self.spending = Spending(services, claim.turn, claim.epoch, profile)
        self._steps: ModelSteps | None = None
        self._history: Sequence[Message] = ()
        self._agent: BoundAgent | None = None

    async def run(self) -> LoopResult:
        """Run the turn until it waits or ends. Raises Fenced when another worker has it."""
        spent = check_resumption(self._log.progress, self._log.now_ms(), self._services.settings)
        if spent is not None:
            await self._log.writer.quiet()
            turn = await self._services.store.turns.interrupt(self._turn.id, self._claim.epoch, spent)
            return LoopResult(turn)
        missing = self._services.find_missing_profile(self._turn.profile or self._claim.session.profile)
        if missing is not None:
            return await self._end_without_profile(Failure.from_error(missing))
        if self._turn.kind is TurnKind.COMPACTION:
            return await self._compact()
        return await self._answer()

    async def _end_without_profile(self, failure: Failure) -> LoopResult:
        """A turn that has done something is kept for when the session has a profile again; one that has not
        fails, so that chats and schedules are told."""
        if not self._log.progress.step:
            return await self._fail(failure)
        await self._log.writer.quiet()
        return LoopResult(
            await self._services.store.turns.interrupt(self._turn.id, self._claim.epoch, failure)
        )

    def break_silence(self) -> bool:
        """End the model call that is open now, if one is. Used by the watch over silent models."""
        scope = self._steps.scope if self._steps is not None else None
        if scope is None:
            return False
        scope.cancel()
        return True

    # --- an answer ---------------------------------------------------------------------------------

    async def _answer(self) -> LoopResult:
        session = self._claim.session
        trouble = await self._restore_files()
        if trouble is not None:
            await self._log.writer.quiet()
            failure = Failure.from_error(trouble)
            return LoopResult(
                await self._services.store.turns.interrupt(self._turn.id, self._claim.epoch, failure)
            )
        folder = await self._services.toolbox.workspace(session.owner, session.id, session.project)
        await self._files.arrive_with_instructions(folder)
        question = await OutsideTexts(self._services, self._claim).question()
        if question is not None:
            return await self._wait([question])
        async with self._agents.bind(self._claim, self._services.default_model) as self._agent:
            return await self._answer_with(self._agent)

    async def _restore_files(self) -> EverturnError | None:
        """Bring the folder to what the conversation needs, before any part of the turn reads it. Returns
        what a user has to see to: the turn can be resumed afterwards."""
        if self._services.restorer is None:
            return None
        try:
            await self._services.restorer.finish(self._claim.session)  # guard: e02
        except (DiskFull, DiskReadOnly, StorageAway, WorkspaceUnreadable, WorkspaceUnwritable) as error:
            return error
        return None

    async def _answer_with(self, agent: BoundAgent) -> LoopResult:
        self._history = await agent.history()
        steps = ModelSteps(self._services, self._log, self._claim, agent, self._history, self.spending)
        if self._services.recorder is not None:
            await tell_saved(self._services.store, self._log, self._claim)
        await add_named_skill(self._services, self._log, self._claim, agent.tools)
        tainted = is_tainted(self._history)
        calls = Calls(self._services, self._log, self._claim, agent, self._files, is_tainted=tainted)
        self._steps = steps
        while True:
            if self._should_stop():
                return await self._hand_over()
            await self._take_steering()
            ended = await self._move(steps, calls)
            if ended is not None:
                return ended

    async def _move(self, steps: ModelSteps, calls: Calls) -> LoopResult | None:
        """Do the next thing; return the end, or None to go on."""
        move = next_move(self._log.fold(), self._log.progress, self._log.now_ms(), self._services.settings)
        match move:
            case AbandonAttempt(step):
                await steps.abandon_crashed(step)
            case CallModel(step):
                try:
                    failure = await steps.run(step)
                except OverBudget as reached:
                    return await self._wait_for_budget(reached)
                return await self._fail(failure) if failure is not None else None
            case RunCalls(wished):
                return await self._run_calls(calls, wished)
            case AskWhether():
                wording = AskWording(move.topic, move.text, move.choices)
                ask = new_ask(self._services, self._turn, wording)
                return await self._wait(
                    [NewAsk(ask, ev.QuestionAsked(ask.id, move.text, move.choices, move.topic))]
                )
            case Fail(failure):
                return await self._fail(failure)
            case Stop(by):
                return LoopResult(
                    await self._services.store.turns.cancel(self._turn.owner, self._turn.id, by=by)
                )
            case Complete():
                return await self._complete()
        return None

    async def _run_calls(self, calls: Calls, wished: Sequence[CallState]) -> LoopResult | None:
        questions = await calls.run(wished)
        return await self._wait(questions) if questions else None

    async def _take_steering(self) -> None:
        """Add steering messages between two steps. Before the first step there is nothing to steer."""
        if self._log.progress.steps_finished:
            await self._join_steering()

    async def _join_steering(self) -> None:
        """Move the steering messages that wait in the store into the turn's journal and its fold."""
        await self._log.writer.quiet()
        number = self._log.writer.number + 1
        self._log.add_steering(
            await self._services.store.turns.take_steering(self._turn.id, self._claim.epoch, number)
        )

    # --- ends --------------------------------------------------------------------------------------

    async def _complete(self) -> LoopResult | None:
        """Fold the journal and end the turn. None if a steering message came in first: the turn goes on."""
        await self._log.writer.quiet()
        await self._services.probe.reach(Moment.WRITER_QUIET, self._turn.id)
        folded = self._log.fold(is_ended=True)
        if self._services.hooks is not None and not self._claim.session.is_delegate:
            await self._services.hooks.owe(self._turn)
        provider, handle = self._agent.owed_to if self._agent is not None else (None, "")
        try:
            completed = await self._services.store.turns.complete(
                self._turn.id,
                self._claim.epoch,
                self._log.writer.number,
                folded,
                provider=provider,
                handle=handle,
            )
        except SteeringWaits:
            return None
        if self._agent is not None:
            self._agent.update_baseline(completed, [*self._history, *folded.messages])
        mine = takewhile(lambda message: message.turn_id == self._turn.id, reversed(self._history))
        own = [*mine][::-1]  # the history ends with them
        return LoopResult(
            completed.turn,
            messages=(*own, *folded.messages),
            model=folded.models[-1] if folded.models else "",
            is_crowded=self._is_crowded(),
            handle=self._agent.handle if self._agent is not None else None,
        )

    def _is_crowded(self) -> bool:
        steps = self._steps
        if steps is None or not steps.window:
            return False
        return steps.input_tokens > steps.window * self._services.settings.compact_at

    async def _fail(self, failure: Failure) -> LoopResult:
        await self._log.writer.quiet()
        await self._services.probe.reach(Moment.WRITER_QUIET, self._turn.id)
        return LoopResult(await self._services.store.turns.fail(self._turn.id, self._claim.epoch, failure))

    async def _wait(self, questions: Sequence[NewAsk]) -> LoopResult:
        """Ask, durably, and release the turn. It is claimed again when it was answered."""
        await self._log.writer.quiet()
        turn = await self._services.store.turns.wait(
            self._turn.id,
            self._claim.epoch,
            self._log.writer.number + 1,
            [question.ask for question in questions],
            [question.payload for question in questions if question.payload is not None],
            worked_ms=self._log.progress.works_ms(self._log.now_ms()),
        )
        await self._services.probe.reach(Moment.ASK_COMMITTED, self._turn.id)
        return LoopResult(turn)

    async def _wait_for_budget(self, reached: OverBudget) -> LoopResult:
        """Wait as for a question. Readers are told once in each period of the budget."""
        budget, limit = reached.budget, reached.budget.limit
        ask = ask_about(self._services, self._turn, reached)
        is_known = (budget.id, budget.period_start) in self._log.progress.budgets_reached
        if not is_known:
            await self._log.append(
                ev.BudgetReached(
                    budget.id,
                    limit.key.scope,
                    limit.key.unit,
                    limit.amount,
                    budget.period_start,
                    reached.until,
                    limit.key.subject,
                )
            )
        return await self._wait([NewAsk(ask, ev.QuestionAsked(ask.id, ask.text, ask.choices, ask.topic))])

    async def _hand_over(self) -> LoopResult:
        await self._log.writer.quiet()
        return LoopResult(await self._services.store.turns.hand_over(self._turn.id, self._claim.epoch))

    # --- a compaction ------------------------------------------------------------------------------

    async def _compact(self) -> LoopResult:
        """Run a turn without a message: it holds the session's slot while it shortens the context."""
        done = self._log.fold().messages
        if any(message.role is Role.USER for message in done):
            return await self._answer()
        if not done:
            try:
                failure = await self._summarise()
            except OverBudget as reached:
                return await self._wait_for_budget(reached)
            if failure is not None:
                return await self._fail(failure)
        ended = await self._complete()
        if ended is not None:
            return ended
        # Words that were sent into the compaction are answered by it, like any others.
        await self._join_steering()
        return await self._answer()

    async def _summarise(self) -> Failure | None:
        history = await self._agents.history(self._claim.session, self._turn)
        try:
            model = await self._model()
            await Compactor(self._services, self.spending).compact(
                self._log, self._turn.id, model, history, focus=self._turn.private_note
            )
        except NothingToDo as error:
            return Failure.from_error(error)
        except ModelTrouble as error:
            text = f"The summary could not be made: {error.message} Nothing was changed."
            return Failure("compaction_failed", text, error.hint, error.remedy)
        return None

    async def _model(self) -> Model:
        """The first model of the chain that can be had."""
        trouble: ModelTrouble | None = None
        for name in model_chain(self._services, self._claim.session, self._turn):
            try:
                return await self._services.models.get(name)
            except ModelTrouble as error:
                trouble = error
        raise trouble or ModelTrouble("No model is configured.")
