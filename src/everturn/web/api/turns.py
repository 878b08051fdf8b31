"""Turns: submit, look at, cancel, resume, the queue; and the approvals and questions they wait for."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.asks import Ask, AskTopic
from everturn.domain.audit import describe_answer, describe_decision
from everturn.domain.store import Store
from everturn.domain.store_values import Accepted, Submission, TakenBack, WhenBusy
from everturn.domain.turns import Turn
from everturn.engine import Engine
from everturn.web.access.audit import Audit
from everturn.web.access.errors import ScopeMissing
from everturn.web.access.identity import Scope
from everturn.web.api.parameters import GivenParameters, plain_of
from everturn.web.api.sessions import Name, SessionId, check_place
from everturn.web.http.routing import AnyCall, AnyEndpoint, ApiCall, Endpoint, Nothing, key_from, version_from
from everturn.web.preferences import PreferencesOf

FileId = Annotated[str, Meta(pattern=r"^fil_[0-9a-hjkmnp-tv-z]{26}$")]


class Submit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=2_000_000)] = ""
    attachments: Annotated[tuple[FileId, ...], Meta(max_length=50)] = ()
    model: Name | None = None
    profile: Name | None = None
    parameters: GivenParameters | None = None
    when_busy: WhenBusy = WhenBusy.QUEUE


class EditQueued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``place``: how many of the queued turns run before it."""

    text: Annotated[str, Meta(min_length=1, max_length=2_000_000)] | None = None
    place: Annotated[int, Meta(ge=0, le=100_000)] | None = None


class AsksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session: SessionId | None = None


class Decide(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``decision``: one of the options that the approval names, e.g. once, session, always, deny.

    ``arguments``: with ``once``, the JSON that the call shall run with instead of what was asked.
    """

    decision: Annotated[str, Meta(pattern=r"^[a-z_]{1,40}$")]
    arguments: Annotated[str, Meta(min_length=2, max_length=1_000_000)] | None = None


class AnswerQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    answer: Annotated[str, Meta(min_length=1, max_length=100_000)]


class AsksOut(msgspec.Struct, frozen=True):
    items: tuple[Ask, ...]


class Queue(msgspec.Struct, frozen=True):
    items: tuple[Turn, ...]


class TurnsApi:
    def __init__(
        self,
        engine: Engine,
        store: Store,
        audit: Audit,
        preferences: PreferencesOf,
    ) -> None:
        self._engine = engine
        self._store = store
        self._audit = audit
        self._preferences = preferences

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._turns(), *self._queue(), *self._asks()]

    def _turns(self) -> list[AnyEndpoint]:
        tag, gone = "turns", (e.NotFound, e.Gone)
        refusals = (e.TextEmpty, e.TextTooLong, e.KeyReused, e.Busy, e.WrongState, ScopeMissing)
        return [
            Endpoint(
                method="POST",
                path="/api/sessions/{session}/turns",
                run=self.submit,
                summary="Send a message. It is durable once the server has answered.",
                tag=tag,
                scope=Scope.CHAT,
                body=Submit,
                answer=Accepted,
                status=202,
                errors=(*gone, *refusals),
                headers=("Idempotency-Key",),
            ),
            Endpoint(
                method="GET",
                path="/api/turns/{turn}",
                run=self.get,
                summary="A turn: state, usage, timeline.",
                tag=tag,
                answer=Turn,
                errors=gone,
            ),
            Endpoint(
                method="POST",
                path="/api/turns/{turn}/cancel",
                run=self.cancel,
                summary="Cancel a turn. What it has produced stays.",
                tag=tag,
                scope=Scope.CHAT,
                answer=Turn,
                errors=gone,
            ),
            Endpoint(
                method="POST",
                path="/api/turns/{turn}/take-back",
                run=self.take_back,
                summary="Cancel a turn and take back the messages that wait behind it.",
                tag=tag,
                scope=Scope.CHAT,
                answer=TakenBack,
                errors=(*gone, e.KeyReused),
                headers=("Idempotency-Key",),
            ),
            Endpoint(
                method="POST",
                path="/api/turns/{turn}/resume",
                run=self.resume,
                summary="Resume an interrupted turn.",
                tag=tag,
                scope=Scope.CHAT,
                answer=Turn,
                errors=(*gone, e.WrongState, e.Busy),
            ),
        ]

    def _queue(self) -> list[AnyEndpoint]:
        path, tag = "/api/sessions/{session}/queue", "turns"
        errors = (e.NotFound, e.Gone, e.WrongState)
        return [
            Endpoint(
                method="GET",
                path=path,
                run=self.queue,
                summary="The queued turns of a session.",
                tag=tag,
                answer=Queue,
                errors=errors,
            ),
            Endpoint(
                method="GET",
                path=f"{path}/{{turn}}",
                run=self.queued,
                summary="One queued turn.",
                tag=tag,
                answer=Turn,
                errors=errors,
            ),
            Endpoint(
                method="PATCH",
                path=f"{path}/{{turn}}",
                run=self.edit_queued,
                summary="Change the text or the place of a queued turn.",
                tag=tag,
                scope=Scope.CHAT,
                body=EditQueued,
                answer=Turn,
                errors=(*errors, e.TextEmpty, e.TextTooLong, e.Stale, ScopeMissing),
                headers=("If-Match",),
            ),
            Endpoint(
                method="DELETE",
                path=f"{path}/{{turn}}",
                run=self.remove_queued,
                summary="Remove a queued turn.",
                tag=tag,
                scope=Scope.CHAT,
                status=204,
                errors=errors,
            ),
        ]

    def _asks(self) -> list[AnyEndpoint]:
        tag, errors = "asks", (e.NotFound, e.Gone, e.WrongState, ScopeMissing)
        return [
            Endpoint(
                method="GET",
                path="/api/approvals",
                run=self.asks,
                summary="All open approvals and questions.",
                tag=tag,
                query=AsksQuery,
                answer=AsksOut,
            ),
            Endpoint(
                method="POST",
                path="/api/approvals/{ask}",
                run=self.decide,
                summary="Decide about one tool call.",
                tag=tag,
                scope=Scope.APPROVE,
                body=Decide,
                answer=Ask,
                errors=errors,
            ),
            Endpoint(
                method="POST",
                path="/api/questions/{ask}",
                run=self.answer,
                summary="Answer a question.",
                tag=tag,
                scope=Scope.READ,  # and chat for a plain question, approve for one about effects
                body=AnswerQuestion,
                answer=Ask,
                errors=errors,
            ),
        ]

    # --- turns ---------------------------------------------------------------------------------------

    async def submit(self, call: ApiCall[Nothing, Submit]) -> Accepted:
        body, session_id = call.body, call.path["session"]
        if body.profile is not None and not call.caller.may(Scope.ADMIN):
            raise ScopeMissing(Scope.ADMIN)
        submission = Submission(
            text=body.text,
            attachments=body.attachments,
            model=body.model,
            preferred_model=await self._preferred_model(call.owner, session_id, body.profile),
            profile=body.profile,
            parameters=plain_of(body.parameters),
            when_busy=body.when_busy,
            may_choose_profile=call.caller.may(Scope.ADMIN),
            key=key_from(call.headers),
        )
        return await self._engine.submit(call.owner, session_id, submission)

    async def _preferred_model(self, owner: str, session_id: str, profile: str | None) -> str | None:
        if profile is not None:
            return None
        return await self._preferences.model_for(await self._store.sessions.get(owner, session_id))

    async def get(self, call: ApiCall[Nothing, Nothing]) -> Turn:
        return await self._store.turns.get(call.owner, call.path["turn"])

    async def cancel(self, call: ApiCall[Nothing, Nothing]) -> Turn:
        return await self._engine.cancel(call.owner, call.path["turn"], by=call.caller.name)

    async def take_back(self, call: ApiCall[Nothing, Nothing]) -> TakenBack:
        return await self._engine.take_back(
            call.owner, call.path["turn"], by=call.caller.name, key=key_from(call.headers)
        )

    async def resume(self, call: ApiCall[Nothing, Nothing]) -> Turn:
        return await self._engine.resume(call.owner, call.path["turn"])

    # --- the queue -----------------------------------------------------------------------------------

    async def queue(self, call: ApiCall[Nothing, Nothing]) -> Queue:
        return Queue(tuple(await self._store.turns.queue(call.owner, call.path["session"])))

    async def queued(self, call: ApiCall[Nothing, Nothing]) -> Turn:
        return await self._find_queued(call)

    async def edit_queued(self, call: ApiCall[Nothing, EditQueued]) -> Turn:
        body = call.body
        if body.text is None and body.place is None:
            raise e.Invalid("There is nothing to change.", hint="Send text, place or both.")
        turn = await self._find_queued(call)
        # It keeps the profile that was chosen for it, with words of this caller.
        check_place(call, is_named=body.text is not None and turn.profile is not None)
        return await self._store.turns.edit_queued(
            call.owner, turn.id, body.text, place=body.place, version=version_from(call.headers)
        )

    async def remove_queued(self, call: ApiCall[Nothing, Nothing]) -> None:
        turn = await self._find_queued(call)
        await self._store.turns.remove_queued(call.owner, turn.id)

    async def _find_queued(self, call: AnyCall) -> Turn:
        waiting = await self._store.turns.queue(call.owner, call.path["session"])
        for turn in waiting:
            if turn.id == call.path["turn"]:
                return turn
        raise e.NotFound("queued turn", call.path["turn"])

    # --- approvals and questions ---------------------------------------------------------------------

    async def asks(self, call: ApiCall[AsksQuery, Nothing]) -> AsksOut:
        return AsksOut(tuple(await self._store.asks.open(call.owner, call.query.session)))

    async def decide(self, call: ApiCall[Nothing, Decide]) -> Ask:
        ask = await self._store.asks.get(call.owner, call.path["ask"])
        if ask.topic != AskTopic.APPROVAL:
            raise e.WrongState(f"{ask.id} is a question.", hint="POST its answer to /api/questions.")
        answered = await self._engine.answer(
            call.owner, ask.id, call.body.decision, by=call.caller.name, arguments=call.body.arguments
        )
        await self._audit.note("approval", call.caller, describe_answer(answered, call.body.decision))
        return answered

    async def answer(self, call: ApiCall[Nothing, AnswerQuestion]) -> Ask:
        if not call.caller.may(Scope.CHAT) and not call.caller.may(Scope.APPROVE):
            raise ScopeMissing(Scope.CHAT)
        ask = await self._store.asks.get(call.owner, call.path["ask"])
        if ask.topic == AskTopic.APPROVAL:
            raise e.WrongState(f"{ask.id} is an approval.", hint="POST the decision to /api/approvals.")
        # "Did it take effect?" and "may it go on?" decide about effects, so they need the same right.
        needed = Scope.CHAT if ask.topic == AskTopic.QUESTION else Scope.APPROVE
        if not call.caller.may(needed):
            raise ScopeMissing(needed)
        answered = await self._engine.answer(call.owner, ask.id, call.body.answer, by=call.caller.name)
        if needed is Scope.APPROVE:
            await self._audit.note("approval", call.caller, describe_decision(ask, call.body.answer))
        return answered
