"""What needs a person: asks that hold up work, and other things worth a look."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.asks import Ask, AskTopic
from everturn.domain.clock import Clock
from everturn.domain.schedules import ScheduleTrouble
from everturn.domain.store import Store
from everturn.web.access.identity import Scope
from everturn.web.api.gateway import UndecidedPart, undecided_parts
from everturn.web.api.jobs import ShownJob, show_job
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

RECORD_KIND: Final = "dismissed"  # by the id of what was dismissed: since when it needed attention
_LIMIT = 50  # of each kind
_LOST_AGE_MAX_MS = 30 * 24 * 3_600_000
_NeedId = Annotated[str, Meta(pattern=r"^(ask|job|occ|sch)_[0-9a-hjkmnp-tv-z]{26}$")]


class TroubledSchedule(msgspec.Struct, frozen=True):
    """A schedule whose latest run failed, or that was paused (then ``turn_id`` is null). ``id``: what to
    dismiss. ``due_at``: its next time."""

    id: str
    schedule_id: str
    name: str
    at: int
    reason: str
    due_at: int | None
    turn_id: str | None
    session_id: str | None


class Needs(msgspec.Struct, frozen=True):
    """``asks``: work stops until they are answered. The rest holds nothing up. ``total``: of all."""

    asks: tuple[Ask, ...]
    sends: tuple[UndecidedPart, ...]
    jobs: tuple[ShownJob, ...]
    schedules: tuple[TroubledSchedule, ...]
    total: int


class Dismiss(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``id``: of a lost job, a troubled schedule, or an ask about a budget: its turn goes on when the period
    turns over."""

    id: _NeedId


class AnsweredQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    since: Annotated[int, Meta(ge=0, le=2**53)]


class Answered(msgspec.Struct, frozen=True):
    """The latest first."""

    items: tuple[Ask, ...]


class NeedsApi:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def endpoints(self) -> list[AnyEndpoint]:
        tag = "needs"
        return [
            Endpoint(
                method="GET",
                path="/api/needs",
                run=self.get,
                summary="All that waits for you, or is worth a look.",
                tag=tag,
                answer=Needs,
            ),
            Endpoint(
                method="GET",
                path="/api/needs/answered",
                run=self.answered,
                summary="Approvals and questions that were answered since then, the latest first.",
                tag=tag,
                query=AnsweredQuery,
                answer=Answered,
            ),
            Endpoint(
                method="POST",
                path="/api/needs/dismiss",
                run=self.dismiss,
                summary="Do not show a lost job, a troubled schedule or an ask about a budget any longer.",
                tag=tag,
                scope=Scope.CHAT,
                body=Dismiss,
                errors=(e.NotFound,),
            ),
        ]

    async def get(self, call: ApiCall[Nothing, Nothing]) -> Needs:
        owner, store = call.owner, self._store
        dismissed = await self._read_dismissed(owner)
        asks = tuple(
            ask for ask in await store.asks.open(owner) if _is_new(ask.id, ask.created_at, dismissed)
        )
        sends = await undecided_parts(store.delivery, owner)
        jobs = tuple(job for job in await self._jobs(owner) if _is_new(job.id, job.ended_at or 0, dismissed))
        schedules = tuple(one for one in await self._schedules(owner) if _is_new(one.id, one.at, dismissed))
        return Needs(asks, sends, jobs, schedules, sum(map(len, (asks, sends, jobs, schedules))))

    async def dismiss(self, call: ApiCall[Nothing, Dismiss]) -> None:
        owner, records = call.owner, self._store.records
        known = {job.id: job.ended_at or 0 for job in await self._jobs(owner)}
        known |= {one.id: one.at for one in await self._schedules(owner)}
        for ask in await self._store.asks.open(owner):
            if ask.topic is AskTopic.BUDGET:
                known[ask.id] = ask.created_at
        if call.body.id not in known:
            raise e.NotFound("need", call.body.id)
        # What is no longer listed needs no record, so that there are never many.
        for old in (await self._read_dismissed(owner)).keys() - known.keys():
            await records.delete(owner, RECORD_KIND, old)
        await records.put(owner, RECORD_KIND, call.body.id, known[call.body.id])

    async def answered(self, call: ApiCall[AnsweredQuery, Nothing]) -> Answered:
        found = await self._store.asks.list_answered(call.owner, since_ms=call.query.since, limit=_LIMIT)
        return Answered(tuple(found))

    async def _read_dismissed(self, owner: str) -> dict[str, int]:
        return msgspec.convert(await self._store.records.list(owner, RECORD_KIND), dict[str, int])

    async def _jobs(self, owner: str) -> list[ShownJob]:
        since_ms = self._clock.now_ms() - _LOST_AGE_MAX_MS
        return [
            show_job(job) for job in await self._store.jobs.find_lost(owner, since_ms=since_ms, limit=_LIMIT)
        ]

    async def _schedules(self, owner: str) -> list[TroubledSchedule]:
        return [_show_trouble(one) for one in await self._store.schedules.find_troubled(owner, limit=_LIMIT)]


def _is_new(need_id: str, at: int, dismissed: dict[str, int]) -> bool:
    """A schedule that is paused again after it was dismissed is shown again."""
    return at > dismissed.get(need_id, -1)


def _show_trouble(trouble: ScheduleTrouble) -> TroubledSchedule:
    schedule = trouble.schedule
    return TroubledSchedule(
        id=trouble.id,
        schedule_id=schedule.id,
        name=schedule.settings.name,
        at=trouble.at,
        reason=trouble.reason,
        due_at=None if schedule.paused_at else schedule.due_at,
        turn_id=trouble.turn_id,
        session_id=trouble.session_id,
    )
