"""Answers for OpenAI clients: from the agent (a turn of a session) or from a bare model."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import anyio
import msgspec

from everturn.domain import events as ev
from everturn.domain.asks import (
    DECLINE,
    AskTopic,
    BudgetAnswer,
    Decision,
    DoubtAnswer,
    InstructionsAnswer,
    LimitAnswer,
    SignInAnswer,
)
from everturn.domain.errors import EverturnError, Retry, WrongState
from everturn.domain.ids import message_id
from everturn.domain.messages import Message, Outcome, Result, Role, Text
from everturn.domain.runtime import Runtime
from everturn.domain.sessions import NewSession, Session
from everturn.domain.store import Store
from everturn.domain.store_values import Accepted, ImportedSession, Request, Submission
from everturn.domain.turns import ENDED, Turn, TurnState
from everturn.engine import Engine
from everturn.web.background import Background
from everturn.web.deletion import Deletions
from everturn.web.http.problems import BadRequest
from everturn.web.openai.chat_wire import (
    AGENT,
    ChatMessage,
    ChatRequest,
    conversation,
    image_bytes,
    system_of,
)
from everturn.web.openai.pieces import AnswerEnd, Answering, Piece
from everturn.web.preferences import PreferencesOf

_log = logging.getLogger("everturn.web.openai.completions")
_RETRY_S = 2.0

_CAUTIOUS: dict[AskTopic, str] = {
    AskTopic.LIMIT: LimitAnswer.STOP,
    AskTopic.REPEAT: LimitAnswer.STOP,
    AskTopic.DOUBT: DoubtAnswer.CHECK,
    AskTopic.INSTRUCTIONS: InstructionsAnswer.NOT_NOW,
    AskTopic.SIGN_IN: SignInAnswer.SKIP,
    AskTopic.BUDGET: BudgetAnswer.STOP,
}
BY = "the API client"
_NO_ANSWER = "No user can answer here. Choose sensibly yourself and say what you chose."
_RESTART = "\n\n[The connection to the model broke; the answer starts again.]\n\n"


class TurnLost(EverturnError):
    """The turn behind the answer did not complete."""

    code = "turn_not_completed"
    status = 502


class Completions(Background):
    """Answers requests, and looks after turns of durable sessions whose client gave up waiting: such a turn
    continues, and would otherwise wait forever for an answer to its questions."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        deletions: Deletions,
        preferences: PreferencesOf,
        runtime: Runtime,
        *,
        timeout_s: float,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._store = store
        self._deletions = deletions
        self._preferences = preferences
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._timeout_s = timeout_s

    # --- the agent -----------------------------------------------------------------------------------

    async def session_named(self, owner: str, name: str) -> Session:
        """The durable session that a header names: by id, or by a name of the client's own."""
        if name.startswith("ses_"):
            return await self._engine.session(owner, name)
        key = f"v1:{name}"
        found = await self._store.sessions.on_key(owner, key)
        if found:
            return await self._engine.session(owner, found[0])
        # The creation key makes two first requests at once end up in one session.
        preferred = (await self._preferences.get(owner)).profile
        return await self._engine.create_session(
            owner, NewSession(key=key, preferred_profile=preferred), request=Request(key=key)
        )

    async def in_session(
        self, owner: str, session: Session, request: ChatRequest, key: str | None
    ) -> Answering:
        """The last message becomes a turn; the session itself remembers what was before."""
        submission = await self._submission(session, request, key=key)
        accepted = await self._engine.submit(owner, session.id, submission)
        try:
            async with aclosing(self._answer_of(owner, session.id, accepted)) as answer:
                async for piece in answer:
                    yield piece
        except (GeneratorExit, anyio.get_cancelled_exc_class()):
            name = f"see out {accepted.turn.id}"
            self.group.start_soon(self._see_out, owner, session.id, accepted, name=name)
            raise

    async def _see_out(self, owner: str, session_id: str, accepted: Accepted) -> None:
        """The client is gone: keep answering the turn's questions until it ends."""
        while True:
            try:
                async with aclosing(self._answer_of(owner, session_id, accepted)) as answer:
                    async for _ in answer:
                        pass
                return
            except Retry as error:
                _log.info("turn %s goes on without its client: %s", accepted.turn.id, error.message)
            except EverturnError as error:  # the turn failed, or was deleted with its session
                _log.debug("turn %s went on without its client: %s", accepted.turn.id, error.message)
                return
            except Exception:  # the root of a task beside all others
                _log.exception("turn %s cannot be seen out", accepted.turn.id)
                return
            await self._clock.sleep(_RETRY_S)

    async def alone(self, owner: str, request: ChatRequest) -> Answering:
        """An answer that leaves nothing behind: no session in the list, nothing for memory."""
        async with self._ephemeral(owner, request) as session:
            submission = await self._submission(session, request, key=None)
            accepted = await self._engine.submit(owner, session.id, submission)
            async with aclosing(self._answer_of(owner, session.id, accepted)) as answer:
                async for piece in answer:
                    yield piece

    async def _submission(self, session: Session, request: ChatRequest, *, key: str | None) -> Submission:
        last = request.messages[-1]
        if last.role != "user":
            raise BadRequest("The last message must be the user's.", hint="The agent answers a user.")
        system = system_of(request.messages)
        text = f"[Instructions from the application]\n{system}\n\n{last.words}" if system else last.words
        files = []
        for number, url in enumerate(last.images, 1):
            data, media = image_bytes(url)
            stored = await self._store.files.put(session.owner, f"image-{number}", media, data)
            files.append(stored.id)
        preferred = await self._preferences.model_for(session)
        return Submission(text=text, attachments=tuple(files), preferred_model=preferred, key=key)

    @asynccontextmanager
    async def _ephemeral(self, owner: str, request: ChatRequest) -> AsyncIterator[Session]:
        """A private session with the client's history, deleted afterwards whatever happens."""
        session, turns, messages = self._history(owner, conversation(request.messages)[:-1])
        preferred = (await self._preferences.get(owner)).profile
        session = msgspec.structs.replace(session, profile=preferred)
        # Stored with the time of its purge: a crash leaves nothing behind.
        due_at = self._clock.now_ms() + round(self._timeout_s * 1000)
        made = await self._store.transcript.import_session(
            owner, ImportedSession(session, turns, messages, purge_at=due_at)
        )
        self._deletions.schedule_purge(owner, made.id, due_at)
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await self._engine.delete(owner, made.id)
                self._deletions.forget(made.id)

    def _history(self, owner: str, talk: list[ChatMessage]) -> tuple[Session, list[Turn], list[Message]]:
        now = self._clock.now_ms()
        turns: list[Turn] = []
        messages: list[Message] = []
        for one in talk:
            if one.role == "tool" or not one.words:
                continue  # the agent has tools of its own; those of others mean nothing to it
            if one.role == "user" or not turns:
                parent = turns[-1].id if turns else None
                turns.append(
                    Turn(
                        self._ids.turn(),
                        "",
                        owner,
                        TurnState.COMPLETED,
                        1,
                        now,
                        parent_id=parent,
                        ended_at=now,
                    )
                )
                ordinal = 0 if one.role == "user" else 1
            turn = turns[-1]
            role = Role.USER if one.role == "user" else Role.ASSISTANT
            messages.append(
                Message(message_id(turn.id, ordinal), turn.id, role, (Text(one.words),), now, ordinal)
            )
            ordinal += 1
        session_id = self._ids.session()
        head = turns[-1].id if turns else None
        session = Session(
            session_id,
            owner,
            1,
            0,
            now,
            now,
            private=True,
            head=head,
            title="API",
            is_title_given=True,
        )
        return session, turns, messages

    # --- a turn as an answer -------------------------------------------------------------------------

    async def _answer_of(self, owner: str, session_id: str, accepted: Accepted) -> Answering:
        yield Piece(turn=accepted.turn)  # accepted: from here on the client may wait
        turn = accepted.turn
        if accepted.is_repeat and turn.state in ENDED:
            for piece in await self._repeat_answer(owner, session_id, turn):
                yield piece
            return
        listener = _Listener(self._engine, owner, turn.id)
        batches = self._engine.follow(owner, session_id, accepted.cursor)
        async with aclosing(batches) as closing:
            async for events in closing:
                for event in events:
                    if isinstance(event.payload, ev.DelegateStarted) and event.payload.turn_id == turn.id:
                        self._answer_for(owner, event.payload.delegate_id)
                    if event.turn_id != turn.id:
                        continue
                    async for piece in listener.take(event.payload):
                        yield piece
                        if isinstance(piece, AnswerEnd):
                            return

    def _answer_for(self, owner: str, delegate_id: str) -> None:
        """Answer what a delegate of the turn asks, as the turn's own questions: its parent waits for it."""
        name = f"answer for delegate {delegate_id}"
        self.group.start_soon(self._see_out_delegate, owner, delegate_id, name=name)

    async def _see_out_delegate(self, owner: str, delegate_id: str) -> None:
        try:
            delegate = await self._store.delegates.get(owner, delegate_id)
            turn = await self._store.turns.get(owner, delegate.turn_id)
        except EverturnError as error:  # deleted with its parent
            _log.debug("delegate %s is not followed: %s", delegate_id, error.message)
            return
        await self._see_out(owner, delegate_id, Accepted(turn, 0))

    async def _repeat_answer(self, owner: str, session_id: str, turn: Turn) -> list[Piece | AnswerEnd]:
        """A repeated request: its events may be pruned, its messages are there."""
        if turn.state is not TurnState.COMPLETED:
            raise TurnLost(f"The turn ended as {turn.state}.", hint="Its session has what was said so far.")
        path = await self._store.transcript.context(owner, session_id, upto=turn.id)
        own = [message for message in path if message.turn_id == turn.id]
        said = [message.text for message in own if message.role is Role.ASSISTANT and message.text]
        results = [part for message in own for part in message.parts if isinstance(part, Result)]
        denied = [result.name for result in results if result.outcome is Outcome.DENIED]
        return [Piece(text="\n\n".join(said) + _note(denied)), AnswerEnd(usage=turn.usage)]


class _Listener:
    """Turns a turn's events into the pieces of one answer, and denies what would need a person."""

    def __init__(self, engine: Engine, owner: str, turn_id: str) -> None:
        self._engine = engine
        self._owner = owner
        self._turn_id = turn_id
        self._step = 0
        self._has_said = False
        self._asked: dict[str, str] = {}  # what needs approval: ask -> name of the tool
        self._denied: list[str] = []

    async def take(self, payload: ev.AnyPayload | ev.Unknown) -> Answering:
        match payload:
            case ev.TextDelta():
                if self._has_said and payload.step != self._step:
                    yield Piece(text="\n\n")
                self._has_said, self._step = True, payload.step
                yield Piece(text=payload.text)
            case ev.ReasoningDelta():
                yield Piece(reasoning=payload.text)
            case ev.StepAbandoned(continues=False) if self._has_said and payload.step == self._step:
                self._has_said = False
                yield Piece(text=_RESTART)
            case ev.ApprovalRequested():
                self._asked[payload.ask_id] = payload.name
                await self._answer(payload.ask_id, Decision.DENY)
            case ev.ApprovalResolved(decision=Decision.DENY, by=by) if (
                by == BY and payload.ask_id in self._asked
            ):
                # Also where another listener was faster: a repeated request, or one that has given up.
                self._denied.append(self._asked[payload.ask_id])
            case ev.QuestionAsked():
                await self._answer(payload.ask_id, answer_to(payload))
            case ev.TurnCompleted():
                if self._denied:
                    yield Piece(text=_note(self._denied))
                yield AnswerEnd(usage=payload.usage)
            case ev.TurnCancelled():
                raise TurnLost("The turn was cancelled.", hint="Its session has what was said so far.")
            case ev.TurnFailed() | ev.TurnInterrupted():
                raise TurnLost(
                    payload.failure.message, hint=payload.failure.hint, reason=payload.failure.code
                )

    async def _answer(self, ask_id: str, answer: str) -> None:
        try:
            await self._engine.answer(self._owner, ask_id, answer, by=BY)
        except WrongState:
            # The page, or an earlier attempt of the same request, answered first. That answer holds.
            _log.debug("%s is answered already", ask_id)


def _note(denied: list[str]) -> str:
    if not denied:
        return ""
    names = ", ".join(dict.fromkeys(denied))
    return f"\n\n(Denied, because approvals cannot be given over this API: {names}.)"


def answer_to(question: ev.QuestionAsked) -> str:
    """The answer in place of an absent user: stop at limits, repeat no call whose outcome is unknown, and
    decide nothing about texts from outside."""
    if question.topic != AskTopic.QUESTION:
        return _CAUTIOUS[question.topic]
    return DECLINE if DECLINE in question.choices else _NO_ANSWER


def is_agent(model: str) -> bool:
    return model == AGENT
