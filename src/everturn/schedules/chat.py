"""The command ``/schedule`` of a chat: list, pause, continue and run schedules, and make one from a sentence.

A command may run again after a crash, before its row is settled: it then gives the same answer again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Protocol

import msgspec

from everturn.domain.audit import AuditLog, name_author
from everturn.domain.delivery import Chat, Received
from everturn.domain.errors import WrongState
from everturn.domain.schedules import Occurrence, Schedule, Schedules, ScheduleSettings, Timing
from everturn.domain.store import Records
from everturn.domain.timezones import find_zone
from everturn.schedules.book import Preview, ReadSentence, ScheduleBook
from everturn.schedules.description import describe

_LISTED_MAX = 20
_CODE_CHARS = 4
_DRAFT = "schedule_draft"  # the kind of the record: one for each chat
_HOW = (
    "`/schedule every weekday at 8 summarise my inbox` makes one. "
    "`/schedule pause CODE`, `continue CODE` and `run CODE` change one of them."
)
_NOTHING_WAITS = "Nothing waits for a yes. Write the sentence again."


class CommandStore(Protocol):
    """What the command reads and writes of the store."""

    @property
    def schedules(self) -> Schedules: ...

    @property
    def records(self) -> Records: ...


class CommandEngine(Protocol):
    async def run_schedule(self, owner: str, schedule_id: str) -> Occurrence: ...


class _Draft(msgspec.Struct, frozen=True):
    """How a sentence was read, until the person confirms it. ``taken_by``: the message that confirmed it."""

    name: str
    text: str
    timing: Timing
    shown_at: int
    taken_by: str = ""


class ScheduleCommand:
    def __init__(
        self, store: CommandStore, book: ScheduleBook, engine: CommandEngine, audit: AuditLog
    ) -> None:
        self._audit = audit
        self._store = store
        self._engine = engine
        self._book = book
        self._acts: Mapping[str, Callable[[Received, Schedule], Awaitable[str]]] = {
            "pause": self._pause,
            "continue": self._continue,
            "run": self._run,
        }

    async def __call__(self, received: Received, rest: str) -> str:
        """The answer. No schedule is made before the person has seen how it was read, and confirmed it."""
        word, _, code = rest.partition(" ")
        if not rest:
            return await self._list(received.chat.owner)
        if rest.lower() == "yes":
            return await self._make(received)
        act = self._acts.get(word.lower())
        if act is not None and " " not in code.strip():
            found = await self._find(received.chat.owner, code.strip())
            return await act(received, found) if isinstance(found, Schedule) else found
        return await self._read(received, rest)

    # --- those that there are ------------------------------------------------------------------------

    async def _list(self, owner: str) -> str:
        page = await self._store.schedules.list(owner, limit=_LISTED_MAX)
        more = ["There are more, see the browser."] if page.cursor else []
        lines = [_line(schedule) for schedule in page.items]
        return "\n".join([*(lines or ["There are no schedules."]), *more, "", _HOW])

    async def _find(self, owner: str, code: str) -> Schedule | str:
        if code:
            page = await self._store.schedules.list(owner, limit=1000)
            found = [one for one in page.items if _code(one) == code.lower() or one.id == code]
            if len(found) == 1:
                return found[0]
        return "Say which one, with a code that `/schedule` lists."

    async def _note(self, what: str, received: Received, schedule: Schedule, detail: str = "") -> None:
        about = f"{schedule.id} {schedule.settings.name}{detail}"
        await self._audit.write(what, name_author(received), detail=about)

    async def _pause(self, received: Received, schedule: Schedule) -> str:
        await self._book.change(schedule.owner, schedule.id, is_paused=True)
        await self._note("schedule.changed", received, schedule, ": paused")
        return f"Paused: {schedule.settings.name}. `/schedule continue {_code(schedule)}` continues it."

    async def _continue(self, received: Received, schedule: Schedule) -> str:
        changed = await self._book.change(schedule.owner, schedule.id, is_paused=False)
        await self._note("schedule.changed", received, schedule, ": continued")
        return f"Continued: {_line(changed)}"

    async def _run(self, received: Received, schedule: Schedule) -> str:
        newest = await self._store.schedules.occurrences(schedule.owner, schedule.id, limit=1)
        if not any(one.is_manual and one.created_at >= received.received_at for one in newest):
            try:
                await self._engine.run_schedule(schedule.owner, schedule.id)
            except WrongState as error:
                return f"{error.message} {error.hint}".strip()
        await self._note("schedule.run", received, schedule)
        where = "here" if schedule.settings.report_to == received.chat.id else "where it reports"
        return f"Started: {schedule.settings.name}. Its answer comes {where}."

    # --- a new one -----------------------------------------------------------------------------------

    async def _read(self, received: Received, sentence: str) -> str:
        read = self._book.read(sentence)
        reading = read.reading
        if reading.question or reading.timing is None or read.preview is None:
            return _open_question(read)
        draft = _Draft(reading.name, reading.text, reading.timing, received.received_at)
        await self._store.records.put(
            received.chat.owner, _DRAFT, received.chat.id, msgspec.to_builtins(draft)
        )
        zone = find_zone(reading.timing.timezone)
        times = [
            f"- {datetime.fromtimestamp(at / 1000, zone):%a %-d %b %Y %H:%M}" for at in read.preview.times
        ]
        note = [f"{reading.note}"] if reading.note else []
        return "\n".join(
            [
                f"**{_words(read.preview, reading.timing)}**",
                *times,
                *note,
                "",
                f"Each time the agent is sent, and answers here: {reading.text}",
                "",
                "`/schedule yes` makes it.",
            ]
        )

    async def _make(self, received: Received) -> str:
        chat = received.chat
        draft = await self._draft(chat)
        if draft is None or draft.taken_by not in ("", received.id):
            return _NOTHING_WAITS
        settings = ScheduleSettings(
            draft.name, draft.text, draft.timing, profile=chat.profile, report_to=chat.id
        )
        # It may have been made by this message already, before a crash.
        page = await self._store.schedules.list(chat.owner, limit=1000)
        made = [one for one in page.items if one.created_at >= received.received_at]
        schedule = next((one for one in made if one.settings.text == draft.text), None)
        if schedule is None:
            schedule = await self._book.add(chat.owner, settings)
        await self._note("schedule.made", received, schedule)
        taken = msgspec.structs.replace(draft, taken_by=received.id)
        await self._store.records.put(chat.owner, _DRAFT, chat.id, msgspec.to_builtins(taken))
        return f"Made: {_line(schedule)}"

    async def _draft(self, chat: Chat) -> _Draft | None:
        kept = await self._store.records.get(chat.owner, _DRAFT, chat.id)
        return None if kept is None else msgspec.convert(kept, _Draft)


def _open_question(read: ReadSentence) -> str:
    reading = read.reading
    choices = [f"`/schedule {choice.sentence}`" for choice in reading.choices]
    return "\n".join([reading.question or "When should it run?", reading.detail, *choices]).strip()


def _words(preview: Preview, timing: Timing) -> str:
    return preview.words if timing.timezone in preview.words else f"{preview.words}, {timing.timezone}"


def _code(schedule: Schedule) -> str:
    return schedule.id[-_CODE_CHARS:].lower()


def _line(schedule: Schedule) -> str:
    zone = find_zone(schedule.settings.timing.timezone)
    if schedule.paused_at is not None:
        state = f"paused{f': {schedule.pause_reason}' if schedule.pause_reason else ''}"
    elif schedule.due_at is None:
        state = "over"
    else:
        state = f"next {datetime.fromtimestamp(schedule.due_at / 1000, zone):%a %-d %b %H:%M}"
    return f"`{_code(schedule)}` {schedule.settings.name}: {describe(schedule.settings.timing)}, {state}"
