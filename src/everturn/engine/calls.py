"""Runs the tool calls of a step: ask if needed, journal the start, run, journal the result."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from everturn.domain import events as ev
from everturn.domain.asks import Ask, AskTopic, doubt_answers
from everturn.domain.errors import DiskFull, DiskReadOnly, EverturnError, Retry, Stopped
from everturn.domain.fold import CallState
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Call, Outcome
from everturn.domain.probe import Moment
from everturn.domain.store_values import Claim, FileKind
from everturn.domain.tool import (
    CALL_FOUND_TOOL,
    Ruling,
    Tool,
    ToolCall,
    ToolDoubt,
    ToolFile,
    ToolQuestion,
    ToolResult,
    ToolWait,
    Verdict,
)
from everturn.domain.turns import Turn
from everturn.engine.agents import BoundAgent, is_tainted
from everturn.engine.context import head_and_tail, storable
from everturn.engine.progress import digest_of
from everturn.engine.resume import AskDoubt, GiveResult, Judge, RunCall, next_for_call
from everturn.engine.services import TurnServices
from everturn.engine.turn_log import TurnLog
from everturn.engine.turn_workspace import GOING_BACK, TurnWorkspace

_log = logging.getLogger("everturn.engine")
READS_AT_ONCE_MAX = 8
ToolAnswer = ToolResult | ToolQuestion | ToolWait | ToolDoubt


class NewAsk(msgspec.Struct, frozen=True):
    """Something to wait for: an approval, a question, or a delegate, which no event shows."""

    ask: Ask
    payload: ev.Payload | None = None


class AskWording(msgspec.Struct, frozen=True):
    """What the user is shown. ``digest``: of the content that the answer is about."""

    topic: AskTopic
    text: str
    choices: tuple[str, ...]
    digest: str = ""
    label: str = ""


class _Ready(msgspec.Struct, frozen=True):
    """A call that may run now."""

    state: CallState
    tool: Tool
    call: ToolCall
    run: RunCall
    ruling: Ruling


class Calls:
    """Runs the calls of one turn in the model's order. Adjacent calls that only read run concurrently."""

    def __init__(
        self,
        services: TurnServices,
        log: TurnLog,
        claim: Claim,
        agent: BoundAgent,
        files: TurnWorkspace,
        *,
        is_tainted: bool,
    ) -> None:
        self._services = services
        self._log = log
        self._session = claim.session
        self._turn = claim.turn
        self._files = files
        self._agent = agent
        self._was_tainted = is_tainted
        self._known_workspace: Path | None = None

    async def run(self, states: Sequence[CallState]) -> list[NewAsk]:
        """Run the calls in order until one needs the user.

        Returns the questions of that call and of the later ones, so that the user is asked once. No later
        call has run then. Returns an empty list when every call has its result.
        """
        done = 0
        while done < len(states):
            together = await self._readers(states[done:])
            if together:
                questions = await self._run_together(together)
            else:
                questions = await self._resolve_call(states[done])
            done += max(1, len(together))
            if questions:
                later = [await self._question_ahead(other) for other in states[done:]]
                return [*questions, *(found for found in later if found is not None)]
        return []

    async def _readers(self, states: Sequence[CallState]) -> list[_Ready]:
        """The next calls that only read and may run now, if there are several.

        The model asked for all of them before it saw any result, so none depends on another. A call that
        changes something runs alone: a read after it must see the change.
        """
        ready: list[_Ready] = []
        for state in states[:READS_AT_ONCE_MAX]:
            tool = self._agent.tools.get(state.call.name)
            if tool is None or not tool.spec.reads_only:
                break
            found = await self._ready(state, tool)
            if found is None:
                break
            ready.append(found)
        return ready if len(ready) > 1 else []

    async def _ready(self, state: CallState, tool: Tool) -> _Ready | None:
        move = next_for_call(state, tool.spec)
        if not isinstance(move, (Judge, RunCall)) or _is_lasting(state):
            return None
        call = await self._call(state)
        if isinstance(call, ToolResult):
            return None
        run = move if isinstance(move, RunCall) else RunCall(1)
        ruling = await self._services.toolbox.rule(call, tool.spec)
        may_run = ruling.verdict is Verdict.ALLOW or (
            ruling.verdict is Verdict.ASK and run.is_approved and _holds(state, ruling)
        )
        return _Ready(state, tool, call, run, ruling) if may_run else None

    async def _resolve_call(self, state: CallState) -> list[NewAsk]:
        tool = self._agent.tools.get(state.call.name)
        move = next_for_call(state, tool.spec if tool else None)
        if state.files is not None and state.doubt in GOING_BACK:
            await self._files.go_back(await self._workspace(), state.files)
        if isinstance(move, GiveResult):
            given = ToolResult(move.text, move.outcome)
            await self._finish(state, given, is_untrusted=move.is_untrusted)
            return []
        if tool is None:
            await self._finish(state, _unknown_tool(state, self._agent), is_untrusted=False)
            return []
        if isinstance(move, AskDoubt):
            return [await self._ask_doubt(state, move)]
        call = await self._call(state)
        if isinstance(call, ToolResult):
            await self._finish(state, call, is_untrusted=False)
            return []
        run = move if isinstance(move, RunCall) else RunCall(1)
        call = msgspec.structs.replace(call, answer=run.answer)
        return await self._judge_and_run(state, tool, call, run)

    async def _judge_and_run(
        self, state: CallState, tool: Tool, call: ToolCall, run: RunCall
    ) -> list[NewAsk]:
        ruling = await self._services.toolbox.rule(call, tool.spec)
        if ruling.verdict is Verdict.DENY:
            text = f"This call is not allowed: {ruling.reason}"
            await self._finish(state, ToolResult(text, Outcome.DENIED), is_untrusted=False)
            return []
        if ruling.verdict is Verdict.ASK and not (run.is_approved and _holds(state, ruling)):
            return [self._approval(state, ruling)]
        if run.is_approved and state.decision is not None and state.decision.is_lasting:
            await self._services.toolbox.remember(call, state.decision)
        return await self._run(_Ready(state, tool, call, run, ruling))

    async def _question_ahead(self, state: CallState) -> NewAsk | None:
        """The question that this later call will ask, so that the user is asked once for all."""
        tool = self._agent.tools.get(state.call.name)
        move = next_for_call(state, tool.spec if tool else None)
        if tool is None or not isinstance(move, (Judge, AskDoubt)):
            return None
        if isinstance(move, AskDoubt):
            return await self._ask_doubt(state, move)
        call = await self._call(state)
        if isinstance(call, ToolResult):
            return None
        ruling = await self._services.toolbox.rule(call, tool.spec)
        return self._approval(state, ruling) if ruling.verdict is Verdict.ASK else None

    # --- running -----------------------------------------------------------------------------------

    async def _run(self, ready: _Ready) -> list[NewAsk]:
        if not ready.tool.spec.reads_only:
            await self._files.find_changes(ready.call.workspace)  # guard: e01
        await self._start([ready])
        return await self._perform(ready)

    async def _run_together(self, several: Sequence[_Ready]) -> list[NewAsk]:
        """Run calls concurrently. The first error of our own code cancels the others and is raised as is."""
        questions: list[NewAsk] = []
        failures: list[Exception] = []
        await self._start(several)
        async with anyio.create_task_group() as group:

            async def perform(ready: _Ready) -> None:
                try:
                    asked = await self._perform(ready)
                except Exception as error:
                    failures.append(error)
                    group.cancel_scope.cancel()
                else:
                    questions.extend(asked)

            for ready in several:
                group.start_soon(perform, ready, name=f"call {ready.call.id}")
        if failures:
            raise failures[0]
        return questions

    async def _start(self, several: Sequence[_Ready]) -> None:
        # Durable before the effect: otherwise, after a crash, a call that ran would look as if it had not.
        await self._log.append(*map(_started_event, several))
        await self._services.probe.reach(Moment.TOOL_STARTED, self._turn.id)
        await self._services.may_start()

    async def _perform(self, ready: _Ready) -> list[NewAsk]:
        """Run a call whose start is in the journal, and journal its result."""
        state, tool, call = ready.state, ready.tool, ready.call
        result = await self._run_tool(tool, call)
        await self._services.probe.reach(Moment.TOOL_RAN, self._turn.id)
        if isinstance(result, ToolQuestion):
            return [self._ask(state, result)]
        if isinstance(result, ToolDoubt):
            return [await self._ask_doubt(state, AskDoubt(result.text))]
        if isinstance(result, ToolWait):
            return [self._await(state, delegate_id) for delegate_id in result.delegates]
        result = msgspec.structs.replace(result, text=storable(result.text))
        trouble: Retry | Stopped | None = None
        try:
            artifact, text, display = await self._store_output_when_possible(tool, call, result)
        except (Retry, Stopped) as error:
            # The call has taken effect, so its result is journaled without the artifact. The journal has a
            # spool and files have none; without a result the user would be asked whether the call happened.
            trouble, artifact, display = error, None, result.display
            shown = head_and_tail(result.text, tool.spec.output_bytes_max, is_kept=False)
            text = f"{shown}\n[The whole output could not be kept: {error.message}]"
        recorded, text = await self._files.record(tool, call, text)
        is_own = result.is_own and result.outcome is Outcome.OK
        # An error message can quote text from outside: names of files, the words of a plug-in's exception.
        may_quote = result.outcome is Outcome.ERROR and not result.quotes_nothing
        is_untrusted = (tool.spec.is_untrusted and not is_own) or may_quote
        await self._finish(
            state,
            ToolResult(text, result.outcome, display),
            artifact=artifact,
            is_untrusted=is_untrusted,
            recorded=recorded,
            not_kept="" if trouble is None else trouble.message,
        )
        await self._files.record_late()  # guard: e01
        if isinstance(trouble, Stopped):
            raise trouble
        return []

    async def _run_tool(self, tool: Tool, call: ToolCall) -> ToolAnswer:
        output = OutputBatcher(self._services, self._log, call.id)
        timeout_s = tool.spec.timeout_s
        result: ToolAnswer = ToolResult(
            f"{call.name} took longer than {timeout_s:g} seconds and was ended.", Outcome.ERROR
        )
        async with anyio.create_task_group() as group:
            group.start_soon(output.pump, name=f"output of {call.id}")
            group.start_soon(self._end_after, timeout_s, group.cancel_scope, name=f"timeout of {call.id}")
            try:
                result = await tool.run(call, output.emit)
            except EverturnError as error:
                result = ToolResult(error.message, Outcome.ERROR)
            except Exception as error:
                # A failing plug-in must not end the turn: the model gets the error as the result.
                _log.exception("tool %s failed in turn %s", call.name, call.turn_id)
                result = ToolResult(f"{call.name} failed: {type(error).__name__}: {error}", Outcome.ERROR)
            group.cancel_scope.cancel()
        await output.flush()
        return result

    async def _end_after(self, seconds: float, scope: anyio.CancelScope) -> None:
        await self._services.clock.sleep(seconds)
        scope.cancel()

    async def _store_output_when_possible(
        self, tool: Tool, call: ToolCall, result: ToolResult
    ) -> tuple[str | None, str, Json]:
        """Store the output; if the disk is full, try again for a short time. Not for longer, because a crash
        before the result is journaled would leave the call's outcome unknown."""
        clock, settings = self._services.clock, self._services.settings
        until = clock.monotonic() + settings.output_patience_s
        while True:
            try:
                return *await self._store_output(tool, call, result), await self._store_made(call, result)
            except (DiskFull, DiskReadOnly):
                if clock.monotonic() >= until:
                    raise
            await clock.sleep(settings.store_patience_s)

    async def _store_output(self, tool: Tool, call: ToolCall, result: ToolResult) -> tuple[str | None, str]:
        """Store a long output as an artifact. The model gets its head and tail."""
        text = head_and_tail(result.text, tool.spec.output_bytes_max)
        full = result.full_output
        if full is None and text != result.text:
            full = result.text.encode()
        if full is None:
            return None, text
        file = await self._services.store.files.put(
            self._session.owner,
            f"{call.name}-{call.id}.txt",
            "text/plain",
            full,
            kind=FileKind.ARTIFACT,
            session_id=self._session.id,
        )
        return file.id, text

    async def _store_made(self, call: ToolCall, result: ToolResult) -> Json:
        """Store the pictures and files of a result as artifacts; what the page shows of it."""
        display = result.display
        if result.images:
            pictures = [
                ToolFile(f"{call.name}-{number}.{image.media.rpartition('/')[2]}", image.media, image.data)
                for number, image in enumerate(result.images, start=1)
            ]
            display = {"kind": "images", "items": [await self._store_one(one) for one in pictures]}
        if result.files and (display is None or isinstance(display, dict)):
            files: list[Json] = [await self._store_one(one) for one in result.files]
            display = {"kind": "files", **(display or {}), "files": files}
        return display

    async def _store_one(self, made: ToolFile) -> JsonObject:
        file = await self._services.store.files.put(
            self._session.owner,
            made.name,
            made.media,
            made.data,
            kind=FileKind.ARTIFACT,
            session_id=self._session.id,
        )
        return {"id": file.id, "name": made.name, "media": made.media, "size": file.size}

    async def _finish(
        self,
        state: CallState,
        result: ToolResult,
        *,
        artifact: str | None = None,
        is_untrusted: bool,
        recorded: ev.FilesChanged | None = None,
        not_kept: str = "",
    ) -> None:
        note = self._files.take_note()
        finished = ev.ToolFinished(
            state.call.id,
            state.call.name,
            result.outcome,
            f"{note}{result.text}",
            artifact,
            result.display,
            is_untrusted or bool(note),  # it names files
            None if recorded is None else recorded.checkpoint,
            not_kept,
        )
        await self._log.append(*([] if recorded is None else [recorded]), finished)
        await self._services.probe.reach(Moment.TOOL_FINISHED, self._turn.id)

    async def _call(self, state: CallState) -> ToolCall | ToolResult:
        """The call with its parsed arguments, or an error result for the model."""
        arguments = parse_arguments(state.arguments)
        if isinstance(arguments, str):
            return ToolResult(arguments, Outcome.ERROR)
        workspace = await self._workspace()
        messages = self._log.fold().messages
        return ToolCall(
            id=state.call.id,
            name=state.call.name,
            arguments=arguments,
            owner=self._session.owner,
            session_id=self._session.id,
            turn_id=self._turn.id,
            workspace=workspace,
            key=f"{self._turn.id}:{state.call.id}",
            profile=self._turn.profile or self._session.profile,
            is_tainted=self._was_tainted or is_tainted(messages),
            model=next((one.model for one in reversed(messages) if one.model), ""),
        )

    async def _workspace(self) -> Path:
        """The session's folder, with its files in it."""
        if self._known_workspace is None:
            session = self._session
            folder = await self._services.toolbox.workspace(session.owner, session.id, session.project)
            await self._files.arrive(folder)  # guard: e05 postgresql
            self._known_workspace = folder
        return self._known_workspace

    # --- asking ------------------------------------------------------------------------------------

    def _approval(self, state: CallState, ruling: Ruling) -> NewAsk:
        digest = digest_of(state.call.name, state.call.arguments)
        wording = AskWording(AskTopic.APPROVAL, ruling.question, ruling.options, digest, ruling.label)
        ask = new_ask(self._services, self._turn, wording, state.call)
        payload = ev.ApprovalRequested(
            ask.id,
            state.call.id,
            state.call.name,
            state.call.arguments,
            digest,
            ruling.question,
            ruling.label,
            ruling.options,
            ruling.terms,
        )
        return NewAsk(ask, payload)

    def _ask(self, state: CallState, question: ToolQuestion) -> NewAsk:
        text, choices, topic = storable(question.text), tuple(map(storable, question.choices)), question.topic
        wording = AskWording(topic, text, choices, label=question.subject)
        ask = new_ask(self._services, self._turn, wording, state.call)
        return NewAsk(ask, ev.QuestionAsked(ask.id, text, choices, topic, state.call.id))

    def _await(self, state: CallState, delegate_id: str) -> NewAsk:
        """Wait for a delegate; it never expires, because the delegate's turn has an end of its own."""
        wording = AskWording(AskTopic.DELEGATE, delegate_id, ())
        ask = new_ask(self._services, self._turn, wording, state.call)
        return NewAsk(msgspec.structs.replace(ask, arguments="", expires_at=None))

    async def _ask_doubt(self, state: CallState, doubt: AskDoubt) -> NewAsk:
        """Ask about a call in doubt, with what its workspace shows."""
        topic, files = AskTopic.DOUBT, await self._files.in_doubt(state.call.id, await self._workspace())
        choices = doubt_answers(files, is_ours=self._session.project is None)
        ask = new_ask(self._services, self._turn, AskWording(topic, doubt.text, choices), state.call)
        payload = ev.QuestionAsked(ask.id, doubt.text, choices, topic, state.call.id, files)
        return NewAsk(msgspec.structs.replace(ask, files=files), payload)


class OutputBatcher:
    """Journals a tool's output while it runs, limited in events per second and in bytes."""

    def __init__(self, services: TurnServices, log: TurnLog, call_id: str) -> None:
        self._log = log
        self._clock = services.clock
        self._pause_s = 1 / services.settings.tool_output_events_per_s
        self._call_id = call_id
        self._left = services.settings.tool_output_bytes_max
        self._pieces: list[str] = []
        self._has_some = anyio.Event()

    async def emit(self, text: str) -> None:
        if self._left <= 0 or not text:
            return
        text = storable(text)
        data = text.encode()
        if len(data) > self._left:
            text = data[: self._left].decode("utf-8", "ignore")
        self._left -= len(data)
        self._pieces.append(text)
        self._has_some.set()

    async def pump(self) -> None:
        while True:
            await self._has_some.wait()
            await self.flush()
            await self._clock.sleep(self._pause_s)

    async def flush(self) -> None:
        text, self._pieces = "".join(self._pieces), []
        self._has_some = anyio.Event()
        if text:
            await self._log.offer(ev.ToolOutput(self._call_id, text))


def new_ask(services: TurnServices, turn: Turn, wording: AskWording, call: Call | None = None) -> Ask:
    """An ask of this turn, about ``call`` if one is given. Not stored yet."""
    now = services.clock.now_ms()
    lasts_s = services.settings.ask_expires_s
    return Ask(
        id=services.ids.ask(),
        session_id=turn.session_id,
        turn_id=turn.id,
        topic=wording.topic,
        created_at=now,
        text=wording.text,
        choices=wording.choices,
        expires_at=None if lasts_s is None else now + round(lasts_s * 1000),
        call_id=None if call is None else call.id,
        name="" if call is None else call.name,
        arguments="" if call is None else call.arguments,
        digest=wording.digest,
        label=wording.label,
    )


def _started_event(ready: _Ready) -> ev.ToolStarted:
    call, label = ready.call, ready.ruling.label or ready.call.name
    return ev.ToolStarted(
        ready.state.step, call.id, call.name, ready.state.arguments, label, ready.run.attempt
    )


def _holds(state: CallState, ruling: Ruling) -> bool:
    """False if the approval was given under other terms. Between the question and the call, the sandbox can
    be gone, or another worker without one has the turn; what is to be installed can be something else."""
    return set(ruling.terms) <= set(state.terms)  # guard: c02


def _is_lasting(state: CallState) -> bool:
    return state.decision is not None and state.decision.is_lasting


def parse_arguments(text: str) -> JsonObject | str:
    """The arguments, or an error text that tells the model how to correct them."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError) as error:
        return f"The arguments are not valid JSON ({error}). Send the call again with valid JSON."
    if not isinstance(value, dict):
        return "The arguments must be a JSON object. Send the call again."
    return value


def _unknown_tool(state: CallState, agent: BoundAgent) -> ToolResult:
    names = ", ".join(sorted(agent.tools)) or "none"
    text = f"There is no tool {state.call.name!r}. The tools are: {names}."
    if CALL_FOUND_TOOL in agent.tools:
        text += f" Others are called through {CALL_FOUND_TOOL}, with their name and their arguments."
    return ToolResult(text, Outcome.ERROR)
