"""Schedules as values: when something is due, and the fate of each due time."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from everturn.domain.sessions import Page
from everturn.domain.turns import TurnState


class CronRule(msgspec.Struct, frozen=True, tag="cron", tag_field="kind"):
    """Times of the wall clock: minute, hour, day of month, month, day of week."""

    expression: str


class IntervalRule(msgspec.Struct, frozen=True, tag="interval", tag_field="kind"):
    """Every ``every_s`` seconds from ``start_at`` on, unaffected by clock changes of the zone. The first
    time is one interval after ``start_at``; None: when the schedule is made."""

    every_s: Annotated[int, Meta(ge=1, le=10**9)]
    start_at: Annotated[int, Meta(ge=0, le=10**13)] | None = None


class OnceRule(msgspec.Struct, frozen=True, tag="once", tag_field="kind"):
    """One time of the wall clock, such as ``2026-11-20T08:00``."""

    at: str


Rule = CronRule | IntervalRule | OnceRule


class Timing(msgspec.Struct, frozen=True):
    """A rule and the time zone whose clocks it means, e.g. ``Europe/Vienna``."""

    rule: Rule
    timezone: str


class WhenMissed(StrEnum):
    """What happens to times at which no server was running. ALL: the newest ``CAUGHT_UP_MAX`` of them run."""

    LAST = "last"
    ALL = "all"
    SKIP = "skip"


class WhenOverlapping(StrEnum):
    """What happens to a time at which the previous run has not ended. QUEUE: one time waits for its end."""

    QUEUE = "queue"
    SKIP = "skip"
    REPLACE = "replace"


class RunsIn(StrEnum):
    ONE = "one"  # all runs are turns of one session
    NEW = "new"  # each run has a session of its own


class Fate(StrEnum):
    """The fate of a due time. Times that RAN or were CAUGHT_UP have a turn; the others have a reason."""

    RAN = "ran"
    CAUGHT_UP = "caught_up"
    SKIPPED = "skipped"
    MISSED = "missed"


RUNS = frozenset({Fate.RAN, Fate.CAUGHT_UP})
CAUGHT_UP_MAX = 24


class ScheduleSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What its owner chose. ``report_to``: the chat that gets the answers and is asked for approvals.
    ``is_trusted`` False: the text came from outside, so a run has only the rights of such text."""

    name: str
    text: str
    timing: Timing
    when_missed: WhenMissed = WhenMissed.LAST
    when_overlapping: WhenOverlapping = WhenOverlapping.SKIP
    runs_in: RunsIn = RunsIn.ONE
    model: str | None = None
    profile: str | None = None
    report_to: str | None = None
    is_trusted: bool = True


class Schedule(msgspec.Struct, frozen=True):
    """``version`` grows with each change and each time that was settled. ``session_id``: the one session of
    its runs, if there is one already. ``due_at`` None: there is no further time. ``look_at``: when to check
    it; later than ``due_at`` while a run waits for the previous one. None: paused, or no further time."""

    id: str
    owner: str
    version: int
    settings: ScheduleSettings
    session_id: str | None
    due_at: int | None
    look_at: int | None
    paused_at: int | None
    pause_reason: str
    created_at: int

    @property
    def is_waiting(self) -> bool:
        return self.look_at is not None and self.look_at != self.due_at


class Occurrence(msgspec.Struct, frozen=True):
    """One due time and its fate. ``is_manual``: a person started it. Its turn may have been purged since.
    ``cost_usd`` None: not known."""

    id: str
    due_at: int
    fate: Fate
    reason: str
    is_manual: bool
    created_at: int
    turn_id: str | None = None
    session_id: str | None = None
    turn_state: TurnState | None = None
    ended_at: int | None = None
    failure: str = ""
    started_at: int | None = None
    cost_usd: float | None = None


class ScheduleTrouble(msgspec.Struct, frozen=True):
    """A schedule that needs its owner's attention. ``turn_id``: its latest run, which failed; None: the
    schedule was paused. ``id``: of that run, or of the schedule."""

    schedule: Schedule
    id: str
    at: int
    reason: str
    turn_id: str | None = None
    session_id: str | None = None


class PlannedTime(msgspec.Struct, frozen=True):
    due_at: int
    fate: Fate
    reason: str = ""


class DuePlan(msgspec.Struct, frozen=True):
    """The fates planned for a schedule's due times, as it was read, and its next due time."""

    schedule: Schedule
    times: tuple[PlannedTime, ...]
    next_due_at: int | None


class Settlement(msgspec.Struct, frozen=True):
    """The result of a plan. ``replaced``: turns that were cancelled. Empty if the schedule has changed
    since it was read, or if its run waits for the previous one."""

    occurrences: tuple[Occurrence, ...] = ()
    replaced: tuple[str, ...] = ()


class Schedules(Protocol):
    """The part of the store for schedules. Each write is one transaction."""

    async def create(
        self, owner: str, settings: ScheduleSettings, *, due_at: int | None, session_id: str | None = None
    ) -> Schedule:
        """Raises NotFound or Gone for a session or chat that is not there, and Limit."""
        ...

    async def get(self, owner: str, schedule_id: str) -> Schedule:
        """Raises NotFound."""
        ...

    async def list(self, owner: str, *, limit: int = 100, after: str = "") -> Page[Schedule]:
        """Oldest first. ``after``: the cursor of the page before."""
        ...

    async def change(self, schedule: Schedule) -> Schedule:
        """Store the settings, session, next time and pause of ``schedule``. Raises Stale if it was changed
        or was due since it was read, and what ``create`` raises."""
        ...

    async def delete(self, owner: str, schedule_id: str) -> None:
        """Delete the schedule and its history. Sessions and turns stay; a run that is under way goes on."""
        ...

    async def occurrences(
        self, owner: str, schedule_id: str, *, limit: int = 50, before: int | None = None
    ) -> Sequence[Occurrence]:
        """Newest first, those that were due before ``before``."""
        ...

    async def of_turn(self, owner: str, turn_id: str) -> Schedule | None:
        """The schedule of which this turn is a run."""
        ...

    async def find_troubled(self, owner: str, *, limit: int) -> Sequence[ScheduleTrouble]:
        """Schedules whose latest run failed, and schedules that were paused for a reason."""
        ...

    async def due(self, *, limit: int) -> Sequence[Schedule]:
        """Schedules of all owners whose time has come, longest due first. Writes nothing."""
        ...

    async def next_look(self) -> int | None:
        """When the next schedule has to be checked."""
        ...

    async def from_the_future(self, *, limit: int) -> Sequence[Schedule]:
        """Schedules that were settled at a time in the future: the clock was set back since."""
        ...

    async def settle(self, plan: DuePlan) -> Settlement:
        """Give the due times their fates and make the turns of those that run, once."""
        ...

    async def run_now(self, owner: str, schedule_id: str) -> Occurrence:
        """Run it once now, in addition to its times. Raises WrongState while a run is under way, and Gone
        or NotFound if its session was deleted."""
        ...
