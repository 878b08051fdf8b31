"""Makes and changes schedules: what the page, the command line and the agent's tool share."""

from __future__ import annotations

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import Invalid, Stale
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.schedules import Schedule, Schedules, ScheduleSettings, Timing
from everturn.domain.sessions import refuse_control_characters
from everturn.schedules.description import describe
from everturn.schedules.plan import replan
from everturn.schedules.sentences import Reading, read_sentence, read_when
from everturn.schedules.times import check_timing, clock_changes, next_times

NAME_CHARS_MAX = 200
PREVIEW_TIMES = 5
_TRIES = 3


class Preview(msgspec.Struct, frozen=True):
    """A rule in words and its next times. ``clock_changes``: those of them before which the clocks change."""

    words: str
    times: tuple[int, ...]
    clock_changes: tuple[int, ...] = ()


class ReadSentence(msgspec.Struct, frozen=True):
    """What a sentence says, and the next times of its rule; None if the rule is not clear."""

    reading: Reading
    preview: Preview | None = None


class ScheduleBook:
    """``timezone``: of schedules that name none."""

    def __init__(self, schedules: Schedules, clock: Clock, timezone: str = "UTC") -> None:
        self._schedules = schedules
        self._clock = clock
        self.timezone = timezone

    def preview(self, timing: Timing) -> Preview:
        """Raises Invalid for a rule that cannot be read or never fires, and for an unknown time zone."""
        now = self._clock.now_ms()
        checked = check_timing(timing, now)
        times = next_times(checked, now, PREVIEW_TIMES)
        return Preview(describe(checked), tuple(times), tuple(clock_changes(checked, times)))

    def read(self, sentence: str, timezone: str | None = None) -> ReadSentence:
        """Raises Invalid as ``preview``."""
        reading = read_sentence(sentence, timezone or self.timezone, self._clock.now_ms())
        return ReadSentence(reading, None if reading.timing is None else self.preview(reading.timing))

    def read_when(self, words: str, timezone: str | None = None, *, now_ms: int | None = None) -> Timing:
        """A rule in words. ``now_ms``: when they were written. Raises Invalid if they are not clear."""
        said_at = self._clock.now_ms() if now_ms is None else now_ms
        return read_when(words, timezone or self.timezone, said_at)

    async def add(self, owner: str, settings: ScheduleSettings, session_id: str | None = None) -> Schedule:
        now = self._clock.now_ms()
        settings = _check_settings(settings, now)
        due_at = next(iter(next_times(settings.timing, now, 1)))
        return await self._schedules.create(owner, settings, due_at=due_at, session_id=session_id)

    async def change(self, owner: str, schedule_id: str, **changes: Json) -> Schedule:
        """Change settings by their names, ``session_id``, or ``is_paused``. A schedule that is continued,
        or whose rule changes, is next due after now. Raises Stale if ``version`` is given and is old."""
        version = changes.pop("version", None)
        for tries_left in reversed(range(_TRIES)):
            schedule = await self._schedules.get(owner, schedule_id)
            if version is not None and version != schedule.version:
                raise Stale(schedule_id, version, schedule.version, what="Schedule")
            try:
                return await self._schedules.change(self._apply(schedule, dict(changes)))
            except Stale:  # it was due just now
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _apply(self, schedule: Schedule, changes: JsonObject) -> Schedule:
        now = self._clock.now_ms()
        is_paused = changes.pop("is_paused", schedule.paused_at is not None)
        session_id = changes.pop("session_id", schedule.session_id)
        settings = msgspec.structs.replace(schedule.settings, **changes)
        is_new_timing = settings.timing != schedule.settings.timing
        if is_new_timing or not changes.keys() <= {"timing"}:
            settings = _check_settings(settings, now, has_new_timing=is_new_timing)
        changed = msgspec.structs.replace(schedule, settings=settings, session_id=session_id)
        if is_new_timing or (schedule.paused_at is not None and not is_paused):
            changed = replan(changed, now)
        if is_paused and schedule.paused_at is None:
            return msgspec.structs.replace(changed, paused_at=now, pause_reason="")
        if not is_paused:
            return msgspec.structs.replace(changed, paused_at=None, pause_reason="")
        return changed


def _check_settings(
    settings: ScheduleSettings, now_ms: int, *, has_new_timing: bool = True
) -> ScheduleSettings:
    if not settings.name.strip() or len(settings.name) > NAME_CHARS_MAX:
        raise Invalid(f"A name has 1 to {NAME_CHARS_MAX} characters.", hint="Choose another name.")
    refuse_control_characters(name=settings.name, model=settings.model, profile=settings.profile)
    if not has_new_timing:
        return settings
    return msgspec.structs.replace(settings, timing=check_timing(settings.timing, now_ms))
