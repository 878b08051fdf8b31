"""Schedules: each time gets its fate once, together with its turn if it runs (F08, F09)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain.errors import Gone, Limit, NotFound, Stale, WrongState
from everturn.domain.ids import check_id
from everturn.domain.messages import Source
from everturn.domain.notifications import NoticeKind
from everturn.domain.probe import Moment
from everturn.domain.schedules import (
    RUNS,
    DuePlan,
    Fate,
    Occurrence,
    PlannedTime,
    RunsIn,
    Schedule,
    ScheduleSettings,
    ScheduleTrouble,
    Settlement,
    WhenOverlapping,
)
from everturn.domain.sessions import Page
from everturn.domain.store_values import Submission
from everturn.domain.turns import Failure, TurnState
from everturn.store.delivery.chats import find_chat
from everturn.store.delivery.replies import numbers_of, owe_reply
from everturn.store.notices import NoticeCause, owe_notices
from everturn.store.scripts.common import shown_session
from everturn.store.scripts.queries.delivery import CHAT
from everturn.store.scripts.queries.schedules import (
    ACTIVE_RUNS,
    NEXT_LOOK,
    OCCURRENCE,
    OCCURRENCE_INSERT,
    OCCURRENCES,
    SCHEDULE,
    SCHEDULE_OF_TURN,
    SCHEDULES,
    SCHEDULES_COUNT,
    SCHEDULES_DUE,
    SCHEDULES_FROM_THE_FUTURE,
    SCHEDULES_TROUBLED,
    ActiveRun,
    OccurrenceColumns,
    ScheduleColumns,
    TroubledColumns,
)
from everturn.store.scripts.rows import to_json, usage_of
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.sessions.sessions import start_session
from everturn.store.turns import endings, submissions

PER_OWNER_MAX = 10_000
OCCURRENCES_KEPT = 1_000  # of each schedule
WAIT_MS = 5_000  # between two checks of a run that waits for the previous one
# Clocks of servers differ. A time less far in the future than this counts as now.
SKEW_MS = 60_000
PLATFORM = "schedule"  # as the source of a run's message names it
_FAR = 2**62
_SESSION_DELETED = "Its session was deleted."
_settings = msgspec.json.Decoder(ScheduleSettings)
_failure = msgspec.json.Decoder(Failure)


class Schedules:
    def __init__(self, db: Database, *, text_bytes_max: int) -> None:
        self._db = db
        self._text_bytes_max = text_bytes_max

    async def create(
        self, owner: str, settings: ScheduleSettings, *, due_at: int | None, session_id: str | None = None
    ) -> Schedule:
        self._check(settings)
        return await self._db.write(_create, owner, settings, due_at, session_id)

    async def get(self, owner: str, schedule_id: str) -> Schedule:
        return schedule_of(await self._db.read(_find, owner, schedule_id))

    async def list(self, owner: str, *, limit: int = 100, after: str = "") -> Page[Schedule]:
        return await self._db.read(_list, owner, limit, after)

    async def change(self, schedule: Schedule) -> Schedule:
        self._check(schedule.settings)
        return await self._db.write(_change, schedule)

    async def delete(self, owner: str, schedule_id: str) -> None:
        await self._db.write(_delete, owner, schedule_id)

    async def occurrences(
        self, owner: str, schedule_id: str, *, limit: int = 50, before: int | None = None
    ) -> Sequence[Occurrence]:
        return await self._db.read(_occurrences, owner, schedule_id, limit, before)

    async def of_turn(self, owner: str, turn_id: str) -> Schedule | None:
        row = await self._db.read(_of_turn, owner, turn_id)
        return None if row is None else schedule_of(row)

    async def find_troubled(self, owner: str, *, limit: int) -> Sequence[ScheduleTrouble]:
        return [_trouble_of(row) for row in await self._db.read(_find_troubled, owner, limit)]

    async def due(self, *, limit: int) -> Sequence[Schedule]:
        return await self._db.read(_due, limit)

    async def next_look(self) -> int | None:
        return await self._db.read(_next_look)

    async def from_the_future(self, *, limit: int) -> Sequence[Schedule]:
        return await self._db.read(_from_the_future, limit)

    async def settle(self, plan: DuePlan) -> Settlement:
        return await self._db.write(_settle, plan)

    async def run_now(self, owner: str, schedule_id: str) -> Occurrence:
        return await self._db.write(_run_now, owner, schedule_id)

    def _check(self, settings: ScheduleSettings) -> None:
        for text in (settings.text, settings.name):
            submissions.check_submission(Submission(text=text), self._text_bytes_max)


def schedule_of(row: ScheduleColumns) -> Schedule:
    return Schedule(
        row.id,
        row.owner,
        row.version,
        _settings.decode(row.settings),
        row.session_id,
        row.due_at,
        row.look_at,
        row.paused_at,
        row.pause_reason,
        row.created_at,
    )


def _trouble_of(row: TroubledColumns) -> ScheduleTrouble:
    schedule = schedule_of(row)
    if row.run_session is None:
        paused_at = row.paused_at or row.created_at
        return ScheduleTrouble(schedule, id=schedule.id, at=paused_at, reason=row.pause_reason)
    return ScheduleTrouble(
        schedule,
        id=row.run_id or schedule.id,
        at=row.run_ended_at or row.created_at,
        reason=_failure.decode(row.run_failure).message if row.run_failure else "",
        turn_id=row.run_turn,
        session_id=row.run_session,
    )


def occurrence_of(row: OccurrenceColumns) -> Occurrence:
    return Occurrence(
        row.id,
        row.due_at,
        Fate(row.fate),
        row.reason,
        bool(row.is_manual),
        row.created_at,
        row.turn_id,
        row.session_id,
        TurnState(row.turn_state) if row.turn_state else None,
        row.ended_at,
        _failure.decode(row.failure).message if row.failure else "",
        row.started_at,
        usage_of(row.usage).cost_usd,
    )


# --- making and changing ------------------------------------------------------------------------------


def _create(
    tx: Tx, owner: str, settings: ScheduleSettings, due_at: int | None, session_id: str | None
) -> Script[Schedule]:
    if (yield from SCHEDULES_COUNT.only(owner)) >= PER_OWNER_MAX:
        raise Limit(f"There are {PER_OWNER_MAX} schedules already.", hint="Delete some first.")
    yield from _check_references(tx, owner, settings, session_id)
    schedule_id = tx.ids.make("sch")
    yield q("schedule_insert", schedule_id, owner, to_json(settings), session_id, due_at, tx.now)
    tx.touch(owner, schedule_id)
    return schedule_of((yield from _find(tx, owner, schedule_id)))


def _check_references(tx: Tx, owner: str, settings: ScheduleSettings, session_id: str | None) -> Script[None]:
    if session_id is not None:
        yield from shown_session(tx, owner, session_id)
    if settings.report_to is not None:
        yield from find_chat(tx, owner, settings.report_to)


def _find(tx: Tx, owner: str, schedule_id: str) -> Script[ScheduleColumns]:
    row = yield from SCHEDULE.first(schedule_id)
    if row is None or row.owner != owner:
        check_id(schedule_id, "sch")
        raise NotFound("schedule", schedule_id)
    return row


def _lock(tx: Tx, owner: str, schedule_id: str) -> Script[ScheduleColumns]:
    """Take the schedule's lock, then read it as it is under the lock. It comes before all other locks."""
    if tx.dialect == "postgresql":
        yield q("schedule_lock", schedule_id)
    return (yield from _find(tx, owner, schedule_id))


def _list(tx: Tx, owner: str, limit: int, after: str) -> Script[Page[Schedule]]:
    rows = yield from SCHEDULES.all(owner, after, limit + 1)
    items = tuple(map(schedule_of, rows[:limit]))
    return Page(items, cursor=items[-1].id if len(rows) > limit else None)


def _change(tx: Tx, wanted: Schedule) -> Script[Schedule]:
    row = yield from _lock(tx, wanted.owner, wanted.id)
    if row.version != wanted.version:
        raise Stale(wanted.id, wanted.version, row.version, what="Schedule")
    session_id = wanted.session_id if wanted.session_id != row.session_id else None  # a new one must exist
    yield from _check_references(tx, wanted.owner, wanted.settings, session_id)
    yield from _write(tx, row, wanted)
    # After the clock was set back, future times may be recorded as missed.
    yield q("occurrences_to_come", row.schedule_no, tx.now)  # guard: f08
    return schedule_of((yield from _find(tx, wanted.owner, wanted.id)))


def _write(tx: Tx, row: ScheduleColumns, wanted: Schedule) -> Script[None]:
    look_at = None if wanted.paused_at is not None else wanted.due_at
    tx.touch(row.owner, row.id)
    yield q(
        "schedule_change",
        row.schedule_no,
        to_json(wanted.settings),
        wanted.session_id,
        wanted.due_at,
        look_at,
        tx.now,
        wanted.paused_at,
        wanted.pause_reason,
    )


def _delete(tx: Tx, owner: str, schedule_id: str) -> Script[None]:
    row = yield from _lock(tx, owner, schedule_id)
    yield q("schedule_delete", row.schedule_no)
    tx.touch(owner, schedule_id)


# --- reading ------------------------------------------------------------------------------------------


def _occurrences(
    tx: Tx, owner: str, schedule_id: str, limit: int, before: int | None
) -> Script[list[Occurrence]]:
    row = yield from _find(tx, owner, schedule_id)
    rows = yield from OCCURRENCES.all(row.schedule_no, _FAR if before is None else before, limit)
    return [occurrence_of(found) for found in rows]


def _of_turn(tx: Tx, owner: str, turn_id: str) -> Script[ScheduleColumns | None]:
    return (yield from SCHEDULE_OF_TURN.first(turn_id, owner))


def _find_troubled(tx: Tx, owner: str, limit: int) -> Script[list[TroubledColumns]]:
    return (yield from SCHEDULES_TROUBLED.all(owner, limit))


def _due(tx: Tx, limit: int) -> Script[list[Schedule]]:
    return [schedule_of(row) for row in (yield from SCHEDULES_DUE.all(tx.now, limit))]


def _next_look(tx: Tx) -> Script[int | None]:
    return (yield from NEXT_LOOK.first())


def _from_the_future(tx: Tx, limit: int) -> Script[list[Schedule]]:
    rows = yield from SCHEDULES_FROM_THE_FUTURE.all(tx.now + SKEW_MS, limit)
    return [schedule_of(row) for row in rows]


# --- running ------------------------------------------------------------------------------------------


def _settle(tx: Tx, plan: DuePlan) -> Script[Settlement]:
    seen = plan.schedule
    try:
        row = yield from _lock(tx, seen.owner, seen.id)
    except NotFound:
        return Settlement()
    if row.version != seen.version or row.look_at is None:  # guard: f08
        return Settlement()  # another worker was faster, or its owner changed it
    schedule = schedule_of(row)
    times = plan.times
    replaced: tuple[str, ...] = ()
    active = yield from _active(row, times)
    if active:  # guard: f09
        match schedule.settings.when_overlapping:
            case WhenOverlapping.QUEUE:
                yield q("schedule_wait", row.schedule_no, tx.now + WAIT_MS)
                tx.touch(row.owner, row.id)
                return Settlement()
            case WhenOverlapping.REPLACE:
                replaced = yield from _cancel(tx, schedule, active)
            case WhenOverlapping.SKIP:
                times = tuple(_skip(time, _still_active(active)) for time in times)
    if (yield from _has_lost_session(tx, schedule)):
        times = tuple(_skip(time, _SESSION_DELETED) for time in times)
        schedule = msgspec.structs.replace(schedule, paused_at=tx.now, pause_reason=_SESSION_DELETED)
        words = f"{schedule.settings.name}\nPaused. {_SESSION_DELETED}"
        cause = NoticeCause(NoticeKind.SCHEDULE, schedule.id, words=words, time=tx.now)
        yield from owe_notices(tx, schedule.owner, cause)  # guard: f10
    made = []
    for time in times:
        occurrence, schedule = yield from _add(tx, row, schedule, time)
        made += [] if occurrence is None else [occurrence]
    yield from _write(tx, row, msgspec.structs.replace(schedule, due_at=plan.next_due_at))
    yield q("occurrences_prune", row.schedule_no, OCCURRENCES_KEPT)
    return Settlement(tuple(made), replaced)


def _active(row: ScheduleColumns, times: Sequence[PlannedTime]) -> Script[list[ActiveRun]]:
    """Runs that have not ended, if a time wants to run now."""
    if not any(time.fate in RUNS for time in times):
        return []
    return (yield from ACTIVE_RUNS.all(row.schedule_no))


def _cancel(tx: Tx, schedule: Schedule, active: Sequence[ActiveRun]) -> Script[tuple[str, ...]]:
    for run in active:
        yield from endings.cancel(tx, schedule.owner, run.id, PLATFORM)
    return tuple(run.id for run in active)


def _still_active(active: Sequence[ActiveRun]) -> str:
    if any(run.state == TurnState.WAITING for run in active):
        return "The previous run was waiting for an answer."
    return "The previous run was still going."


def _skip(time: PlannedTime, reason: str) -> PlannedTime:
    return PlannedTime(time.due_at, Fate.SKIPPED, reason) if time.fate in RUNS else time


def _has_lost_session(tx: Tx, schedule: Schedule) -> Script[bool]:
    if schedule.settings.runs_in is RunsIn.NEW or schedule.session_id is None:
        return False
    try:
        yield from shown_session(tx, schedule.owner, schedule.session_id)
    except (Gone, NotFound):
        return True
    return False


def _add(
    tx: Tx, row: ScheduleColumns, schedule: Schedule, time: PlannedTime, *, is_manual: bool = False
) -> Script[tuple[Occurrence | None, Schedule]]:
    """Give the time its fate, with its turn if it runs; None if it has one already. Also returns the
    schedule with its present session."""
    occurrence_id = tx.ids.make("occ")
    number = yield from OCCURRENCE_INSERT.first(
        occurrence_id, row.schedule_no, time.due_at, time.fate.value, time.reason, int(is_manual), tx.now
    )
    if number is None:  # guard: f08
        return None, schedule
    if time.fate in RUNS:
        session_id = yield from _session(tx, schedule)
        if schedule.settings.runs_in is RunsIn.ONE:
            schedule = msgspec.structs.replace(schedule, session_id=session_id)
        turn_no = yield from _start(tx, schedule, session_id, time.due_at)
        yield q("occurrence_turn", number, turn_no)
    tx.probe.pass_by(Moment.OCCURRENCE_WRITTEN, occurrence_id)
    tx.moments.append((Moment.OCCURRENCE_COMMITTED, occurrence_id))
    return occurrence_of((yield from OCCURRENCE.only(number))), schedule


def _session(tx: Tx, schedule: Schedule) -> Script[str]:
    """The session of the next run."""
    settings = schedule.settings
    if settings.runs_in is RunsIn.ONE and schedule.session_id is not None:
        return schedule.session_id
    key, profile = f"{PLATFORM}:{schedule.id}", settings.profile or ""
    return (yield from start_session(tx, schedule.owner, key, profile, title=settings.name)).id


def _start(tx: Tx, schedule: Schedule, session_id: str, due_at: int) -> Script[int]:
    """Queue the turn of a run, and owe its reply to the chat that gets the reports."""
    settings = schedule.settings
    source = Source(PLATFORM, settings.name, due_at, settings.is_trusted)
    asked = Submission(
        text=settings.text, model=settings.model, profile=settings.profile or None, source=source
    )
    accepted = yield from submissions.accept(tx, schedule.owner, session_id, asked)
    chat = None if settings.report_to is None else (yield from CHAT.first(settings.report_to, schedule.owner))
    if chat is not None:
        return (yield from owe_reply(tx, chat.chat_no, accepted.turn.id))
    return (yield from numbers_of(accepted.turn.id)).turn_no


def _run_now(tx: Tx, owner: str, schedule_id: str) -> Script[Occurrence]:
    row = yield from _lock(tx, owner, schedule_id)
    schedule = schedule_of(row)
    time = PlannedTime(tx.now, Fate.RAN)
    active = yield from _active(row, [time])
    if active:
        hint = "Wait for its end, or stop it."
        raise WrongState(f"{_still_active(active)} Nothing was started.", hint=hint)
    if (yield from _has_lost_session(tx, schedule)):
        raise Gone("session", schedule.session_id or "")
    occurrence, changed = yield from _add(tx, row, schedule, time, is_manual=True)
    if occurrence is None:
        raise WrongState("It has just been run. Nothing was started.", hint="Look at its history.")
    tx.touch(owner, schedule_id)
    if changed.session_id != schedule.session_id:
        yield from _write(tx, row, changed)
    return occurrence
