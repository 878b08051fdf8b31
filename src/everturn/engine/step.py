"""One step of a turn: a model call with retries and fallbacks, streamed into the journal."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import msgspec

from everturn.domain import events as ev
from everturn.domain.errors import NothingToDo, Remedy
from everturn.domain.messages import Call, Message, Role
from everturn.domain.model import (
    Finish,
    Model,
    ModelRequest,
    ProgressChunk,
    ReasoningChunk,
    TextChunk,
)
from everturn.domain.model_errors import ContextTooLong, ModelTimeout, ModelTrouble, StreamCut
from everturn.domain.probe import Moment
from everturn.domain.store_values import Claim
from everturn.domain.turns import Failure
from everturn.engine.agents import BoundAgent
from everturn.engine.attachments import Attachments
from everturn.engine.compaction import Compactor
from everturn.engine.context import build_request, estimate_tokens, show, storable
from everturn.engine.model_call import backoff_s
from everturn.engine.parameters import fit, model_chain, parameters_of
from everturn.engine.progress import CRASH
from everturn.engine.resume import choose_model, continues
from everturn.engine.services import TurnServices
from everturn.engine.spending import Spending
from everturn.engine.turn_log import TurnLog

_FULL = 0.95  # of the context window: above this, compact before calling the model


class ModelSteps:
    """Calls the models of one turn."""

    def __init__(
        self,
        services: TurnServices,
        log: TurnLog,
        claim: Claim,
        agent: BoundAgent,
        history: Sequence[Message],
        spending: Spending,
    ) -> None:
        session, turn = claim.session, claim.turn
        self._services = services
        self._log = log
        self._turn = turn
        self._spending = spending
        self._agent = agent
        self._history = history
        self._compactor = Compactor(services, spending)
        self._attachments = Attachments(services, session.owner, session.id)
        self._chain = model_chain(services, session, turn)
        self._parameters = parameters_of(services, session, turn)
        self.scope: anyio.CancelScope | None = None  # of the stream that is open now
        self.input_tokens = 0  # of the newest request, as estimated
        self.window: int | None = None

    async def run(self, step: int) -> Failure | None:
        """Run the step. Returns why the turn must fail if no model could answer."""
        self._log.progress.enter(step)
        last: ModelTrouble | None = None
        while True:
            name = choose_model(self._chain, self._log.progress, self._services.settings.model_attempts_max)
            if name is None:
                return self._describe_failure(last)
            try:
                await self._attempt(step, name)
                return None
            except ModelTrouble as error:
                last = error
            try:
                await self._abandon(step, name, last)
            except RoomNotMade as error:
                return Failure.from_error(error)

    async def abandon_crashed(self, step: int) -> None:
        """Journal the end of the attempt that was open when the worker died."""
        folded = self._log.fold()
        name = folded.open_step.model if folded.open_step is not None else ""
        goes_on = await self._can_continue(name)
        await self._log.append(ev.StepAbandoned(step, CRASH, continues=goes_on, model=name))

    async def _attempt(self, step: int, name: str) -> None:
        started = ev.StepStarted(step, name, self._log.progress.attempt + 1)
        try:
            model = await self._services.models.get(name)
        except ModelTrouble:
            # Count it as an attempt; otherwise a model that is never ready would be tried forever.
            await self._log.append(started)
            raise
        fitted = fit(self._parameters, model.abilities)
        request = fitted.apply(await self._request(step, model))
        started = msgspec.structs.replace(started, parameters=fitted.journaled)
        reserved = await self._spending.reserve(
            model, request, self.input_tokens, step=step, name=f"answer:{started.attempt}"
        )
        if reserved is not None:
            request = msgspec.structs.replace(request, output_tokens_max=reserved.output_tokens)
        await self._log.append(started)
        if fitted.left_out:
            words = " or ".join(fitted.left_out)
            await self._log.offer(ev.Progress(f"{model.name} does not take {words}, and answers without"))
        await self._services.may_start()
        await self._services.probe.reach(Moment.MODEL_CALLED, self._turn.id)
        try:
            finish = await self._stream(step, model, request)
        except ModelTrouble as error:
            await self._spending.settle_broken_off(was_taken=isinstance(error, (ModelTimeout, StreamCut)))
            raise
        calls = tuple(self._with_unique_id(call, step) for call in finish.calls)
        finished = (
            ev.StepFinished(step, finish.reason, calls, finish.reasoning),
            ev.StepUsage(step, model.name, finish.usage, self._agent.record_call(model, finish.usage)),
        )
        if reserved is None:
            await self._log.append(*finished)
        else:
            used = await self._spending.measure(reserved, finish.usage)
            await self._log.append_settled(self._services.store.budgets, [used], *finished)
        await self._services.probe.reach(Moment.STEP_FINISHED, self._turn.id)

    async def _request(self, step: int, model: Model) -> ModelRequest:
        """Build the request; compact first if it would not fit the model's window."""
        request = await self._build(step, model)
        self.window = model.abilities.context_tokens
        if self.window and self.input_tokens > self.window * _FULL and not self._log.progress.compactions:
            await self._make_room(model)
            request = await self._build(step, model)
        return request

    async def _build(self, step: int, model: Model) -> ModelRequest:
        folded = self._log.fold()
        text = ""
        if folded.open_step is not None and folded.open_step.step == step and folded.open_step.open_text:
            if folded.open_step.model == model.name and continues(folded, model.abilities):
                text = folded.open_step.open_text
            else:
                # Another model's partial answer cannot be continued. It is kept as an abandoned attempt.
                await self._log.append(
                    ev.StepAbandoned(step, "switched", retry_in_ms=0, model=folded.open_step.model)
                )
                folded = self._log.fold()
        own = _without_open(folded.messages) if text else folded.messages
        history = [*self._history, *own]
        abilities = model.abilities
        prefix = self._agent.prefix(abilities)
        can_search = any(tool.name == "search_documents" for tool in prefix.tools)
        unseen = self._agent.unseen(history, model)
        files = await self._attachments.load(unseen, abilities, can_search=can_search)
        given = self._agent.show_history(self._history, model, files)
        shown = show(history, model=model.name, abilities=abilities, files=files, before=given)
        self.input_tokens = estimate_tokens(prefix, shown, text)
        return build_request(
            prefix, shown, files=files, continue_from=text, output_tokens_max=abilities.output_tokens
        )

    async def _stream(self, step: int, model: Model, request: ModelRequest) -> Finish:
        """Stream the model's output into the journal. Raises ModelTrouble."""
        log, probe, turn_id, spending = self._log, self._services.probe, self._turn.id, self._spending
        finish: Finish | None = None
        with anyio.CancelScope() as self.scope:
            async with model.stream(request) as chunks:
                async for chunk in chunks:
                    kind = type(chunk)
                    if kind is TextChunk:
                        spending.output_chars += len(chunk.text)  # type: ignore[union-attr]  # as below
                        await log.offer_text(step, storable(chunk.text))  # type: ignore[union-attr]  # the kind was checked by its class above
                        await probe.reach(Moment.DELTA_OFFERED, turn_id)
                    elif isinstance(chunk, ReasoningChunk):
                        spending.output_chars += len(chunk.text)
                        await log.offer_reasoning(step, storable(chunk.text))
                        await probe.reach(Moment.DELTA_OFFERED, turn_id)
                    elif isinstance(chunk, ProgressChunk):
                        await log.offer(ev.Progress(chunk.label, chunk.done, chunk.total))
                    elif isinstance(chunk, Finish):
                        finish = chunk
        scope, self.scope = self.scope, None
        if finish is not None:
            return finish
        if scope.cancelled_caught:
            silence_s = self._services.settings.model_silence_max_s
            raise ModelTimeout(f"{model.name} sent nothing for {silence_s:g} seconds.")
        raise StreamCut(f"The stream of {model.name} ended without its end marker.")

    async def _abandon(self, step: int, name: str, error: ModelTrouble) -> None:
        """Journal that the attempt failed and when it is retried, then wait until then."""
        progress, settings = self._log.progress, self._services.settings
        if isinstance(error, RoomNotMade):
            await self._log.append(ev.StepAbandoned(step, error.reason, error.message, model=name))
            raise error
        if isinstance(error, ContextTooLong) and not progress.compactions:
            await self._log.append(
                ev.StepAbandoned(step, error.reason, error.message, retry_in_ms=0, model=name)
            )
            await self._make_room(await self._services.models.get(name))
            return
        attempt = progress.attempts.get(name, 0)
        wait_s = backoff_s(settings, self._turn.id, attempt, error)
        if attempt >= settings.model_attempts_max:
            wait_s = None
        goes_on = wait_s is not None and await self._can_continue(name)
        retry_in_ms = None if wait_s is None else round(wait_s * 1000)
        await self._log.append(
            ev.StepAbandoned(step, error.reason, error.message, goes_on, retry_in_ms, name)
        )
        if wait_s is not None:
            await self._services.clock.sleep(wait_s)

    async def _can_continue(self, name: str) -> bool:
        try:
            model = await self._services.models.get(name)
        except ModelTrouble:
            return False  # it is not available now
        return continues(self._log.fold(), model.abilities)

    async def _make_room(self, model: Model) -> None:
        """Compact within the turn. Raises RoomNotMade."""
        history = [*self._history, *self._log.fold().messages]
        try:
            await self._compactor.compact(self._log, self._turn.id, model, history)
        except NothingToDo as error:
            raise RoomNotMade(
                "The message is longer than the model's window, and there is nothing older to summarise.",
                hint="Shorten it, attach it as a file, or choose a model with a larger window.",
                remedy=Remedy.CHOOSE_MODEL,
            ) from error
        except ModelTrouble as error:
            raise RoomNotMade(
                f"The context is too long, and its summary failed: {error.message} Nothing was lost.",
                hint="Retry, or compact by hand.",
                remedy=Remedy.RETRY,
            ) from error

    def _describe_failure(self, last: ModelTrouble | None) -> Failure:
        if last is not None:
            return Failure.from_error(last)
        reason, message = self._log.progress.trouble or ("trouble", "No model could be called.")
        return Failure(f"model_{reason}", message, "Retry, or choose another model.", Remedy.CHOOSE_MODEL)

    def _with_unique_id(self, call: Call, step: int) -> Call:
        """The call with an id that is unique in the turn: some models use one id for several calls."""
        taken = self._log.progress.call_ids
        ident = call.id
        while not ident or ident in taken:
            ident = f"{call.id or 'call'}_{step}_{len(taken) + 1}"
            if ident in taken:
                ident += "x"
        taken.add(ident)
        return call if ident == call.id else msgspec.structs.replace(call, id=ident)


class RoomNotMade(ModelTrouble):
    code = "compaction_failed"
    reason = "compaction_failed"


def _without_open(messages: Sequence[Message]) -> list[Message]:
    """The messages without the partial answer, which the model gets as a prefix to continue."""
    newest = max(index for index, message in enumerate(messages) if message.role is Role.ASSISTANT)
    return [message for index, message in enumerate(messages) if index != newest]
