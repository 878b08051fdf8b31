"""Schedules: what runs on its own, when it is due, and what became of each time."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain import errors as e
from everturn.domain.delivery import Chat
from everturn.domain.json_types import JsonObject
from everturn.domain.schedules import (
    Occurrence,
    Rule,
    RunsIn,
    Schedule,
    Schedules,
    ScheduleSettings,
    Timing,
    WhenMissed,
    WhenOverlapping,
)
from everturn.domain.sessions import SessionChat
from everturn.domain.store import Store
from everturn.engine import Engine
from everturn.schedules import Preview, ReadSentence, ScheduleBook, describe
from everturn.web.access.audit import Audit
from everturn.web.access.errors import ScopeMissing
from everturn.web.access.identity import Scope
from everturn.web.api.sessions import SessionId, check_place
from everturn.web.http.routing import AnyCall, AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.preferences import PreferencesOf

_LAST = 8  # of the list: how many of the latest occurrences it shows of each schedule
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Zone = Annotated[str, Meta(min_length=1, max_length=100)]
_Word = Annotated[str, Meta(min_length=1, max_length=200)]
_ChatId = Annotated[str, Meta(pattern=r"^cht_[0-9a-hjkmnp-tv-z]{26}$")]
_ScheduleId = Annotated[str, Meta(pattern=r"^sch_[0-9a-hjkmnp-tv-z]{26}$")]


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule as clients see it. ``words``: its rule in plain language. ``due_at`` null: no further time.
    ``waiting``: its run waits for the end of the one before. ``last``: the latest times, newest first."""

    id: str
    version: int
    name: str
    text: str
    rule: Rule
    timezone: str
    words: str
    when_missed: WhenMissed
    when_overlapping: WhenOverlapping
    runs_in: RunsIn
    session_id: str | None
    model: str | None
    profile: str | None
    report_to: str | None
    trusted: bool
    paused: bool
    pause_reason: str
    due_at: int | None
    waiting: bool
    created_at: int
    last: tuple[Occurrence, ...]


class ScheduleList(msgspec.Struct, frozen=True):
    """``timezone``: of schedules that name none. ``chats``: those that can get the answers."""

    items: tuple[ScheduleView, ...]
    timezone: str
    chats: tuple[SessionChat, ...]
    cursor: str | None = None


class Occurrences(msgspec.Struct, frozen=True):
    items: tuple[Occurrence, ...]


class AddSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``timezone`` left out: that of the server's settings. ``session_id``: the session of the runs."""

    name: _Name
    text: str
    rule: Rule
    timezone: _Zone | None = None
    when_missed: WhenMissed = WhenMissed.LAST
    when_overlapping: WhenOverlapping = WhenOverlapping.SKIP
    runs_in: RunsIn = RunsIn.ONE
    session_id: SessionId | None = None
    model: _Word | None = None
    profile: _Word | None = None
    report_to: _ChatId | None = None


class ChangeSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change; what is left out stays. ``version``: refuse the change if it is another one by now."""

    name: _Name | UnsetType = UNSET
    text: str | UnsetType = UNSET
    rule: Rule | UnsetType = UNSET
    timezone: _Zone | UnsetType = UNSET
    when_missed: WhenMissed | UnsetType = UNSET
    when_overlapping: WhenOverlapping | UnsetType = UNSET
    runs_in: RunsIn | UnsetType = UNSET
    session_id: SessionId | UnsetType | None = UNSET
    model: _Word | UnsetType | None = UNSET
    profile: _Word | UnsetType | None = UNSET
    report_to: _ChatId | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET
    version: int | UnsetType = UNSET


class PreviewRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rule: Rule
    timezone: _Zone | None = None


class SchedulesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 100
    cursor: _ScheduleId | None = None


class SentenceToRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``timezone``: of a sentence that names none; left out: that of the server's settings."""

    sentence: Annotated[str, Meta(min_length=1, max_length=20_000)]
    timezone: _Zone | None = None


class OccurrencesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: only what was due before this time."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class SchedulesApi:
    def __init__(
        self, engine: Engine, store: Store, book: ScheduleBook, preferences: PreferencesOf, audit: Audit
    ) -> None:
        self._preferences = preferences
        self._audit = audit
        self._engine = engine
        self._schedules: Schedules = store.schedules
        self._chats = store.delivery.chats
        self._book = book

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._of_all(), *self._of_words(), *self._of_one()]

    def _of_all(self) -> list[AnyEndpoint]:
        tag = "schedules"
        return [
            Endpoint(
                method="GET",
                path="/api/schedules",
                run=self.schedules,
                summary="The schedules, oldest first, each with what became of its last times.",
                tag=tag,
                query=SchedulesQuery,
                answer=ScheduleList,
            ),
            Endpoint(
                method="POST",
                path="/api/schedules",
                run=self.add,
                summary="Make a schedule.",
                tag=tag,
                scope=Scope.CHAT,
                body=AddSchedule,
                answer=ScheduleView,
                status=201,
                errors=(e.Invalid, e.NotFound, e.Gone, e.TextEmpty, e.TextTooLong, e.Limit, ScopeMissing),
            ),
            Endpoint(
                method="POST",
                path="/api/schedules/preview",
                run=self.preview,
                summary="A rule in words and its next five times. Nothing is stored.",
                tag=tag,
                body=PreviewRule,
                answer=Preview,
                errors=(e.Invalid,),
            ),
        ]

    def _of_words(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/api/schedules/read",
                run=self.read,
                summary="One plain English sentence as a rule and a task, or as a question with choices. "
                "Nothing is stored.",
                tag="schedules",
                body=SentenceToRead,
                answer=ReadSentence,
                errors=(e.Invalid,),
            ),
        ]

    def _of_one(self) -> list[AnyEndpoint]:
        tag = "schedules"
        return [
            Endpoint(
                method="GET",
                path="/api/schedules/{schedule}",
                run=self.get,
                summary="A schedule.",
                tag=tag,
                answer=ScheduleView,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="PATCH",
                path="/api/schedules/{schedule}",
                run=self.change,
                summary="Change, pause or continue a schedule.",
                tag=tag,
                scope=Scope.CHAT,
                body=ChangeSchedule,
                answer=ScheduleView,
                errors=(e.Invalid, e.NotFound, e.Gone, e.TextEmpty, e.TextTooLong, e.Stale, ScopeMissing),
            ),
            Endpoint(
                method="DELETE",
                path="/api/schedules/{schedule}",
                run=self.delete,
                summary="Delete a schedule and its history. Its sessions stay.",
                tag=tag,
                scope=Scope.CHAT,
                status=204,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="POST",
                path="/api/schedules/{schedule}/run",
                run=self.run,
                summary="Run a schedule once now, besides its times.",
                tag=tag,
                scope=Scope.CHAT,
                answer=Occurrence,
                status=202,
                errors=(e.NotFound, e.Gone, e.WrongState),
            ),
            Endpoint(
                method="GET",
                path="/api/schedules/{schedule}/occurrences",
                run=self.occurrences,
                summary="What became of its times, newest first.",
                tag=tag,
                query=OccurrencesQuery,
                answer=Occurrences,
                errors=(e.NotFound,),
            ),
        ]

    async def schedules(self, call: ApiCall[SchedulesQuery, Nothing]) -> ScheduleList:
        query = call.query
        page = await self._schedules.list(call.owner, limit=query.limit, after=query.cursor or "")
        items = [await self._view(schedule) for schedule in page.items]
        chats = tuple(map(_chat_view, await self._chats.list(call.owner)))
        return ScheduleList(tuple(items), self._book.timezone, chats, page.cursor)

    async def add(self, call: ApiCall[Nothing, AddSchedule]) -> ScheduleView:
        body = call.body
        check_place(call, is_named=body.profile is not None)
        has_session = body.session_id is not None and body.runs_in is RunsIn.ONE
        settings = ScheduleSettings(
            name=body.name,
            text=body.text,
            timing=self._make_timing(body.rule, body.timezone),
            when_missed=body.when_missed,
            when_overlapping=body.when_overlapping,
            runs_in=body.runs_in,
            model=body.model,
            profile=body.profile if has_session else await self._choose_profile(call, body.profile),
            report_to=body.report_to,
        )
        made = await self._book.add(call.owner, settings, body.session_id)
        await self._audit.note("schedule.made", call.caller, _name_for_log(made))
        return await self._view(made)

    async def preview(self, call: ApiCall[Nothing, PreviewRule]) -> Preview:
        return self._book.preview(self._make_timing(call.body.rule, call.body.timezone))

    async def read(self, call: ApiCall[Nothing, SentenceToRead]) -> ReadSentence:
        return self._book.read(call.body.sentence, call.body.timezone)

    async def get(self, call: ApiCall[Nothing, Nothing]) -> ScheduleView:
        return await self._view(await self._schedules.get(call.owner, call.path["schedule"]))

    async def change(self, call: ApiCall[Nothing, ChangeSchedule]) -> ScheduleView:
        schedule = await self._schedules.get(call.owner, call.path["schedule"])
        changes: JsonObject = {
            field: value
            for field in call.body.__struct_fields__
            if (value := getattr(call.body, field)) is not UNSET
        }
        changes |= await self._change_profile(call, schedule, changes)
        if "paused" in changes:
            changes["is_paused"] = changes.pop("paused")
        timing = schedule.settings.timing
        rule, zone = changes.pop("rule", timing.rule), changes.pop("timezone", timing.timezone)
        changes["timing"] = Timing(rule, zone)
        if "text" in changes:
            changes["is_trusted"] = True  # its owner has written it anew
        changed = await self._book.change(call.owner, schedule.id, **changes)
        given = [name for name in call.body.__struct_fields__ if getattr(call.body, name) is not UNSET]
        what = ", ".join(name for name in given if name != "version")
        await self._audit.note("schedule.changed", call.caller, f"{_name_for_log(changed)}: {what}")
        return await self._view(changed)

    async def _change_profile(self, call: AnyCall, schedule: Schedule, changes: JsonObject) -> JsonObject:
        """The profile to change as well, if other changes need another one. A token that may only chat
        cannot choose a profile, nor write the text of a schedule that has one. Raises ScopeMissing."""
        settings = schedule.settings
        is_named = "profile" in changes or ("text" in changes and settings.profile is not None)
        check_place(call, is_named=is_named)
        runs_in = changes.get("runs_in", settings.runs_in)
        session = changes.get("session_id", schedule.session_id)
        is_moved = not changes.keys().isdisjoint(("text", "session_id", "runs_in"))
        if is_named or settings.profile or not is_moved or (runs_in is RunsIn.ONE and session is not None):
            return {}
        return {"profile": await self._choose_profile(call, None)}

    async def _choose_profile(self, call: AnyCall, profile: str | None) -> str | None:
        """The profile to use. A token that may only chat always gets the preferred one: it could otherwise
        leave it by naming none."""
        if call.caller.may(Scope.ADMIN):
            return profile
        return (await self._preferences.get(call.owner)).profile

    async def delete(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._schedules.delete(call.owner, call.path["schedule"])
        await self._audit.note("schedule.deleted", call.caller, call.path["schedule"])

    async def run(self, call: ApiCall[Nothing, Nothing]) -> Occurrence:
        occurrence = await self._engine.run_schedule(call.owner, call.path["schedule"])
        await self._audit.note("schedule.run", call.caller, call.path["schedule"])
        return occurrence

    async def occurrences(self, call: ApiCall[OccurrencesQuery, Nothing]) -> Occurrences:
        query, schedule_id = call.query, call.path["schedule"]
        found = await self._schedules.occurrences(
            call.owner, schedule_id, limit=query.limit, before=query.before
        )
        return Occurrences(tuple(found))

    def _make_timing(self, rule: Rule, timezone: str | None) -> Timing:
        return Timing(rule, timezone or self._book.timezone)

    async def _view(self, schedule: Schedule) -> ScheduleView:
        settings = schedule.settings
        last = await self._schedules.occurrences(schedule.owner, schedule.id, limit=_LAST)
        return ScheduleView(
            id=schedule.id,
            version=schedule.version,
            name=settings.name,
            text=settings.text,
            rule=settings.timing.rule,
            timezone=settings.timing.timezone,
            words=describe(settings.timing),
            when_missed=settings.when_missed,
            when_overlapping=settings.when_overlapping,
            runs_in=settings.runs_in,
            session_id=schedule.session_id,
            model=settings.model,
            profile=settings.profile,
            report_to=settings.report_to,
            trusted=settings.is_trusted,
            paused=schedule.paused_at is not None,
            pause_reason=schedule.pause_reason,
            due_at=schedule.due_at,
            waiting=schedule.is_waiting,
            created_at=schedule.created_at,
            last=tuple(last),
        )


def _name_for_log(schedule: Schedule) -> str:
    return f"{schedule.id} {schedule.settings.name}"


def _chat_view(chat: Chat) -> SessionChat:
    place = chat.place
    return SessionChat(chat.id, place.account, place.platform, place.kind, chat.title)
