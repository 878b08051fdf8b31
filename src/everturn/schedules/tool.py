"""The agent's tool for schedules. What makes one run needs the user's approval each time.

The question shows the rule in words, its zone, its next five times and the whole text. No earlier answer
covers it: neither a run of a schedule nor text from outside may make one that the user has not seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from everturn.domain.budgets import (
    AMOUNT_MAX,
    MICROS,
    BudgetLimit,
    Budgets,
    BudgetScope,
    Unit,
    describe_amount,
    make_key,
    make_limit,
)
from everturn.domain.errors import EverturnError, Invalid
from everturn.domain.model import Models
from everturn.domain.owners import is_guest
from everturn.domain.schedules import RunsIn, Schedule, Schedules, ScheduleSettings, Timing
from everturn.domain.sessions import SessionChat
from everturn.domain.store import Sessions, Turns
from everturn.domain.timezones import find_zone
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.schedules.book import ScheduleBook
from everturn.schedules.description import describe
from everturn.schedules.sentences import name_of
from everturn.tools.names import SCHEDULES_TOOL
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed

TEXT_CHARS_MAX = 4_000  # more does not fit into a question
_LISTED_MAX = 50
_PAUSE_KEY = "pause schedules"

When = Annotated[str, "In words: every weekday at 8; every 6 hours; tomorrow at 9. Or five fields of cron"]
ScheduleId = Annotated[str, "The schedule, as list shows it; not for add"]
Task = Annotated[str, "What you are told at each time: complete, you will not see this conversation"]
Zone = Annotated[str, "Such as Europe/Vienna; empty: the user's"]
Model = Annotated[str, "The model of the runs, as provider:name; empty: the profile's"]
Dollars = Annotated[Annotated[float, Meta(ge=0, le=AMOUNT_MAX / MICROS)] | None, "What each run may cost"]
Report = Annotated[
    Literal["", "here", "page"],
    "Where answers go: here, the chat in which the user asks, or only the page; empty: here",
]


class ToolStore(Protocol):
    """What the tool reads and writes of the store."""

    @property
    def schedules(self) -> Schedules: ...

    @property
    def sessions(self) -> Sessions: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def budgets(self) -> Budgets: ...


class Given(msgspec.Struct, frozen=True):
    """The arguments of a call. An empty one changes nothing."""

    action: str
    schedule_id: str
    name: str
    text: str
    when: str
    timezone: str
    new_sessions: bool | None
    model: str
    budget_usd: float | None
    report_to: str


class SchedulesTool(Action):
    """Messages that are sent to you at set times, such as reminders and regular reports. "add" makes one,
    "list" shows them; "change", "pause", "continue" and "delete" take an id. The user approves what you make
    or change. Answers go to the chat in which the user asked, if it was in one."""

    name = SCHEDULES_TOOL
    asks_when = "it makes, changes, continues, pauses or deletes a schedule"
    is_untrusted = False

    def __init__(self, store: ToolStore, book: ScheduleBook, models: Models | None = None) -> None:
        """``models`` None: names of models are not checked."""
        self._models = models
        self._store = store
        self._book = book
        self._acts: Mapping[str, Callable[[ToolCall, Given], Awaitable[str]]] = {
            "list": self._list,
            "add": self._add,
            "change": self._change,
            "pause": self._pause,
            "continue": self._continue,
            "delete": self._delete,
        }

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        action: Literal["list", "add", "change", "pause", "continue", "delete"],
        schedule_id: ScheduleId = "",
        name: Annotated[str, "A few words"] = "",
        text: Task = "",
        when: When = "",
        timezone: Zone = "",
        new_sessions: Annotated[bool | None, "A session for each run, in place of one for all"] = None,
        model: Model = "",
        budget_usd: Dollars = None,
        report_to: Report = "",
    ) -> ToolResult:
        given = Given(
            action, schedule_id, name, text, when, timezone, new_sessions, model, budget_usd, report_to
        )
        try:
            _refuse_guest(call)
            return ToolResult(await self._acts[action](call, given))
        except EverturnError as error:
            raise ToolFailed(f"{error.message} {error.hint}".strip()) from error

    # --- approval ----------------------------------------------------------------------------------

    async def assess(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        given = msgspec.convert(arguments, Given)
        label = one_line(f"{given.action} {given.name or given.schedule_id} {given.when}".strip())
        if given.action == "list":
            return Judgement(label)
        try:
            _refuse_guest(call)
            return Judgement(label, concerns=(await self._concern(call, given),))
        except EverturnError as error:
            # What cannot be done is not asked about.
            return Judgement(label, denied=f"{error.message} {error.hint}".strip())

    async def _concern(self, call: ToolCall, given: Given) -> Concern:
        if given.action == "add":
            settings = await self._settings(call, given)
            more = await self._describe_run(call, settings, _limit_of("", given.budget_usd))
            words = f"it makes a schedule: {self._describe(settings)}{more}"
            return Concern(f"{words}{await self._from_run(call)}", asks_always=True)
        schedule = await self._store.schedules.get(call.owner, given.schedule_id)
        short = f"the schedule “{schedule.settings.name}” ({describe(schedule.settings.timing)})"
        if given.action == "pause":
            return Concern(f"it pauses {short}", _PAUSE_KEY, is_outside=True, covers="pause any schedule")
        if given.action == "delete":
            return Concern(f"it deletes {short} and its history", asks_always=True)
        if given.action == "change":
            settings = await self._apply(call, given, schedule)
            limit = _limit_of(schedule.id, given.budget_usd) or await self._limit(schedule)
            more = await self._describe_run(call, settings, limit)
            words = f"it changes {short} to: {self._describe(settings)}{more}"
        else:
            more = await self._describe_run(call, schedule.settings, await self._limit(schedule))
            words = f"it continues a schedule: {self._describe(schedule.settings)}{more}"
        return Concern(f"{words}{await self._from_run(call)}", asks_always=True)

    def _describe(self, settings: ScheduleSettings) -> str:
        """The rule, its next times and the whole text, as the user approves them."""
        preview = self._book.preview(settings.timing)
        zone = find_zone(settings.timing.timezone)
        times = [f"{datetime.fromtimestamp(at / 1000, zone):%a %-d %b %Y %H:%M}" for at in preview.times]
        zoned = preview.words if settings.timing.timezone in preview.words else f"{preview.words}, {zone.key}"
        text, cut = settings.text[:TEXT_CHARS_MAX], len(settings.text) - TEXT_CHARS_MAX
        more = f" … and {cut} more characters, which stay as they are" if cut > 0 else ""
        end = "" if text.endswith((".", "!", "?", "…")) and not more else "."
        rule = f"“{settings.name}”, {zoned}. Next: {', '.join(times)}."
        profile = f" It runs with the profile {settings.profile}." if settings.profile else ""
        return f"{rule}{profile} Each time the agent is sent: “{text}”{more}{end}"

    async def _describe_run(
        self, call: ToolCall, settings: ScheduleSettings, limit: BudgetLimit | None
    ) -> str:
        """The model, the budget and where the answers go, as the user approves them."""
        words = [f" It runs with the model {settings.model}."] if settings.model else []
        if limit is not None:
            words.append(f" Each run may cost {describe_amount(Unit.USD, limit.amount)}.")
        chat = await self._chat(call)
        if chat is not None and settings.report_to == chat.id:
            words.append(f" Its answers go to {chat.platform} ({chat.title or chat.kind}).")
        elif settings.report_to is not None:
            words.append(" Its answers go to the same chat as before.")
        return "".join(words)

    async def _limit(self, schedule: Schedule) -> BudgetLimit | None:
        key = make_key(BudgetScope.SCHEDULE, Unit.USD, schedule.id)
        found = await self._store.budgets.list(schedule.owner)
        return next((one.limit for one in found if one.limit.key == key), None)

    async def _from_run(self, call: ToolCall) -> str:
        schedule = await self._store.schedules.of_turn(call.owner, call.turn_id)
        return "" if schedule is None else f" A run of the schedule “{schedule.settings.name}” asks for this."

    # --- what it does ------------------------------------------------------------------------------

    async def _list(self, call: ToolCall, given: Given) -> str:
        page = await self._store.schedules.list(call.owner, limit=_LISTED_MAX)
        more = ["There are more."] if page.cursor else []
        return "\n".join([*map(_line, page.items), *more]) or "There are no schedules."

    async def _add(self, call: ToolCall, given: Given) -> str:
        made = await self._book.add(call.owner, await self._settings(call, given))
        await self._put_budget(made, given)
        return f"Made {self._confirm(made)}"

    async def _change(self, call: ToolCall, given: Given) -> str:
        schedule = await self._store.schedules.get(call.owner, given.schedule_id)
        settings = await self._apply(call, given, schedule)
        fields = ("name", "text", "timing", "runs_in", "is_trusted", "model", "report_to")
        changes = {field: getattr(settings, field) for field in fields}
        changed = await self._book.change(call.owner, given.schedule_id, **changes)
        await self._put_budget(changed, given)
        return f"Changed {self._confirm(changed)}"

    async def _put_budget(self, schedule: Schedule, given: Given) -> None:
        limit = _limit_of(schedule.id, given.budget_usd)
        if limit is not None:
            await self._store.budgets.put(schedule.owner, limit)

    async def _pause(self, call: ToolCall, given: Given) -> str:
        await self._book.change(call.owner, given.schedule_id, is_paused=True)
        return f"Paused {given.schedule_id}."

    async def _continue(self, call: ToolCall, given: Given) -> str:
        schedule = await self._book.change(call.owner, given.schedule_id, is_paused=False)
        return f"Continued {self._confirm(schedule)}"

    async def _delete(self, call: ToolCall, given: Given) -> str:
        await self._store.schedules.delete(call.owner, given.schedule_id)
        return f"Deleted {given.schedule_id} and its history. Its sessions stay."

    def _confirm(self, schedule: Schedule) -> str:
        return f"{_line(schedule)}. A running server runs it."

    # --- from the arguments ------------------------------------------------------------------------

    async def _settings(self, call: ToolCall, given: Given) -> ScheduleSettings:
        text = _check_text(given.text)
        return ScheduleSettings(
            name=given.name.strip() or name_of(text),
            text=text,
            timing=await self._read_timing(call, given.when, given.timezone),
            runs_in=RunsIn.NEW if given.new_sessions else RunsIn.ONE,
            model=await self._read_model(given.model),
            profile=call.profile,  # a run has no more tools than the session that asked for it
            report_to=await self._read_report(call, given.report_to or "here"),
            is_trusted=not call.is_tainted,
        )

    async def _apply(self, call: ToolCall, given: Given, schedule: Schedule) -> ScheduleSettings:
        settings = schedule.settings
        if given.text:
            text, is_trusted = _check_text(given.text), not call.is_tainted
            settings = msgspec.structs.replace(settings, text=text, is_trusted=is_trusted)
        if given.name:
            settings = msgspec.structs.replace(settings, name=given.name.strip())
        if given.new_sessions is not None:
            runs_in = RunsIn.NEW if given.new_sessions else RunsIn.ONE
            settings = msgspec.structs.replace(settings, runs_in=runs_in)
        if given.model:
            settings = msgspec.structs.replace(settings, model=await self._read_model(given.model))
        if given.report_to:
            report_to = await self._read_report(call, given.report_to)
            settings = msgspec.structs.replace(settings, report_to=report_to)
        zone = given.timezone or settings.timing.timezone
        if given.when:
            timing = await self._read_timing(call, given.when, zone)
        else:
            timing = Timing(settings.timing.rule, zone)
        return msgspec.structs.replace(settings, timing=timing)

    async def _read_timing(self, call: ToolCall, when: str, timezone: str) -> Timing:
        if not when.strip():
            raise Invalid("The call does not say when.", hint="Give `when`, such as: every weekday at 8.")
        # Counted from the message, not from now: an approval may come days later, and "tomorrow" must stay
        # the day that was shown.
        asked_at = (await self._store.turns.get(call.owner, call.turn_id)).created_at
        return self._book.read_when(when, timezone or None, now_ms=asked_at)

    async def _read_model(self, model: str) -> str | None:
        """Raises Invalid if no model has this name."""
        if model and self._models is not None:
            await self._models.get(model)
        return model or None

    async def _read_report(self, call: ToolCall, report_to: str) -> str | None:
        """The chat in which the user asks, and no other: the session can write to no other either."""
        chat = await self._chat(call)
        return None if chat is None or report_to == "page" else chat.id

    async def _chat(self, call: ToolCall) -> SessionChat | None:
        return (await self._store.sessions.get(call.owner, call.session_id)).chat


def _limit_of(schedule_id: str, usd: float | None) -> BudgetLimit | None:
    """``schedule_id`` empty: it does not exist yet."""
    if usd is None:
        return None
    return make_limit(make_key(BudgetScope.SCHEDULE, Unit.USD, schedule_id or "new"), usd, "UTC")


def _refuse_guest(call: ToolCall) -> None:
    if is_guest(call.owner):
        raise Invalid("Guests cannot have schedules.", hint="The owner of this agent can make them.")


def _check_text(text: str) -> str:
    if not text.strip() or len(text) > TEXT_CHARS_MAX:
        raise Invalid(f"A text has 1 to {TEXT_CHARS_MAX} characters.", hint="Say in it what to do each time.")
    return text.strip()


def _line(schedule: Schedule) -> str:
    settings, zone = schedule.settings, find_zone(schedule.settings.timing.timezone)
    if schedule.paused_at is not None:
        state = f"paused{f': {schedule.pause_reason}' if schedule.pause_reason else ''}"
    elif schedule.due_at is None:
        state = "over"
    else:
        state = f"next {datetime.fromtimestamp(schedule.due_at / 1000, zone):%a %-d %b %Y %H:%M}"
    # Text from outside must not enter a conversation as if the user had written it.
    about = (
        f"{settings.name}: {one_line(settings.text, 300)}" if settings.is_trusted else "(text from outside)"
    )
    return f"{schedule.id} · {describe(settings.timing)} · {state} · {about}"
