"""F01: the commands of a chat for jobs, schedules and budgets; run again after a crash they change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from everturn.delivery.answers import Answers
from everturn.delivery.commands import ChatCommand, Commands
from everturn.domain.audit import AuditLog
from everturn.domain.budgets import BudgetScope, Unit
from everturn.domain.delivery import ChatKind, ChatPlace, Received, SenderRole, Update
from everturn.domain.schedules import CronRule, RunsIn
from everturn.schedules import ScheduleBook, ScheduleCommand
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import new_job
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.platform import FakePlatform
from tests.auditing import KeptAudit
from tests.serving import context_of

pytestmark = pytest.mark.anyio


class Chatting:
    """Runs commands as the owner; each line is a row of the inbox."""

    def __init__(self, store: Store, commands: Commands) -> None:
        self._store = store
        self._commands = commands
        self._said = 0

    async def receive(self, text: str, kind: ChatKind = ChatKind.DIRECT) -> Received:
        self._said += 1
        place = ChatPlace("fake", "fake", kind, "42" if kind is ChatKind.DIRECT else "43")
        return await self._store.delivery.inbox.receive(
            OWNER, Update(f"u{self._said}", place, "ada", text), profile="default"
        )

    async def run(self, received: Received, *, role: SenderRole = SenderRole.OWNER) -> str:
        assert received.update is not None
        command = self._commands.read(received.update.text)
        assert isinstance(command, ChatCommand)
        return (await self._commands.run(received, command, role)).text

    async def __call__(self, text: str, *, role: SenderRole = SenderRole.OWNER) -> str:
        return await self.run(await self.receive(text), role=role)


@asynccontextmanager
async def chatting(store: Store, clock: FakeClock, **more: Any) -> AsyncIterator[tuple[Chatting, Any]]:
    audit = more.get("audit", AuditLog())
    async with open_harness(store, clock=clock) as harness:
        context = context_of(harness, FakePlatform())
        schedule = ScheduleCommand(
            store, ScheduleBook(store.schedules, clock, "Europe/Vienna"), harness.engine, audit
        )
        services = msgspec.structs.replace(
            context.services, schedule=schedule, timezone="Europe/Vienna", **more
        )
        context = msgspec.structs.replace(context, services=services)
        yield Chatting(store, Commands(context, Answers(context))), harness


async def test_f_commands_list_and_stop_jobs(store: Store, clock: FakeClock) -> None:
    async with chatting(store, clock) as (chat, harness):
        assert await chat("/jobs") == "There are no jobs."
        assert await chat("/jobs stop") == "Nothing runs."
        session = await harness.new_session()
        one, two = [
            await store.jobs.add(
                OWNER, session.id, new_job(number, command=f"make `{number}`"), running_max=9
            )
            for number in (1, 2)
        ]
        listed = await chat("/jobs")
        assert f"`{one.id[-4:]}` running, 0 s: `make '1'`" in listed
        assert "Say which one" in await chat("/jobs stop")
        assert "Say which one" in await chat("/jobs stop zzzzz")
        assert await chat(f"/jobs stop {two.id[-4:].upper()}") == "It is being stopped."
        assert (await store.jobs.get(OWNER, two.id)).stop_asked_at is not None
        assert (await store.jobs.get(OWNER, one.id)).stop_asked_at is None
        assert f"`{two.id[-4:]}` stopping" in await chat("/jobs")


async def test_f_a_sentence_becomes_a_schedule_only_after_a_yes_and_once(
    store: Store, clock: FakeClock
) -> None:
    async with chatting(store, clock) as (chat, _):
        assert await chat("/schedule yes") == "Nothing waits for a yes. Write the sentence again."
        vague = await chat("/schedule every morning read my mail")
        assert "`/schedule " in vague, "it asks which time, and offers sentences"
        shown = await chat("/schedule every weekday at 8 summarise my inbox")
        assert "Europe/Vienna" in shown
        assert len([line for line in shown.splitlines() if line.endswith(" 08:00")]) == 5
        assert "Summarise my inbox" in shown
        assert (await store.schedules.list(OWNER)).items == ()
        yes = await chat.receive("/schedule yes")
        first = await chat.run(yes)
        assert await chat.run(yes) == first, "the process died before its row was settled"
        assert await chat("/schedule yes") == "Nothing waits for a yes. Write the sentence again."
        (made,) = (await store.schedules.list(OWNER)).items
        settings = made.settings
        assert settings.timing.rule == CronRule("0 8 * * 1-5")
        assert (settings.text, settings.report_to, settings.profile) == (
            "Summarise my inbox",
            yes.chat.id,
            "default",
        )
        assert settings.runs_in is RunsIn.ONE
        # A crash between the schedule and the note that it was made.
        await chat("/schedule tomorrow at 9 water the plants")
        late = await chat.receive("/schedule yes")
        answers = [await chat.run(late)]
        (kept,) = (await store.records.list(OWNER, "schedule_draft")).items()
        assert isinstance(kept[1], dict)
        await store.records.put(OWNER, "schedule_draft", kept[0], {**kept[1], "taken_by": ""})
        answers.append(await chat.run(late))
        assert answers[0] == answers[1]
        assert len((await store.schedules.list(OWNER)).items) == 2


async def test_f_commands_list_pause_continue_and_run_schedules(store: Store, clock: FakeClock) -> None:
    async with chatting(store, clock) as (chat, _):
        assert (await chat("/schedule")).startswith("There are no schedules.")
        await chat("/schedule every day at 7:30 look at the weather")
        await chat("/schedule yes")
        (made,) = (await store.schedules.list(OWNER)).items
        code = made.id[-4:]
        assert f"`{code}` Look at the weather: " in await chat("/schedule")
        assert "Say which one" in await chat("/schedule pause nope")
        assert "Paused: Look at the weather." in await chat(f"/schedule pause {code}")
        assert "paused" in await chat("/schedule")
        assert "next" in await chat(f"/schedule continue {code}")
        run = await chat.receive(f"/schedule run {code}")
        for _ in range(2):
            assert await chat.run(run) == "Started: Look at the weather. Its answer comes here."
        assert len(await store.schedules.occurrences(OWNER, made.id)) == 1


async def test_f_commands_show_and_raise_budgets(store: Store, clock: FakeClock) -> None:
    async with chatting(store, clock) as (chat, harness):
        assert (await chat("/budget")).startswith("There are no budgets.")
        assert await chat("/budget day 5") == "day: 0.00 USD of 5.00 USD"
        assert await chat("/budget raise day 7.50") == "day: 0.00 USD of 7.50 USD"
        assert await chat("/budget month 200000 tokens") == "month: 0 tokens of 200,000 tokens"
        assert "no session" in await chat("/budget session 1")
        for wrong in ("day", "week 5", "day x", "day inf", "day 1 2 3", "day 5 euro", "day -1"):
            assert (await chat(f"/budget {wrong}")).startswith("That cannot be read."), wrong
        session = await harness.new_session()
        one = await chat.receive("/budget session 1")
        of_session = msgspec.structs.replace(
            one, chat=msgspec.structs.replace(one.chat, session_id=session.id)
        )
        assert (await chat.run(of_session)).startswith("session: 0.00 USD of 1.00 USD")
        assert "day: " in await chat("/budget")
        found = {(one.limit.key.scope, one.limit.key.unit): one for one in await store.budgets.list(OWNER)}
        assert found[BudgetScope.DAY, Unit.USD].limit.timezone == "Europe/Vienna"


async def test_f_only_the_owner_sees_and_changes_work_that_goes_on_by_itself(
    store: Store, clock: FakeClock
) -> None:
    async with chatting(store, clock) as (chat, _):
        for line in ("/jobs", "/schedule", "/budget day 100", "/schedule every day at 8 obey me"):
            for role in (SenderRole.MEMBER, SenderRole.GUEST):
                assert await chat(line, role=role) == "Only the owner can do this."
        assert await store.budgets.list(OWNER) == []
        assert await store.records.list(OWNER, "schedule_draft") == {}
        said = await chat("/help")
        assert all(f"`/{name}" in said for name in ("jobs", "schedule", "budget"))


async def test_f_what_a_chat_command_changes_is_in_the_audit_log_also_after_a_crash(
    store: Store, clock: FakeClock
) -> None:
    audit = KeptAudit()
    async with chatting(store, clock, audit=audit) as (chat, harness):
        session = await harness.new_session()
        job = await store.jobs.add(OWNER, session.id, new_job(1), running_max=9)
        for line in ("/jobs", "/budget", "/schedule", "/status", "/memory"):
            await chat(line)
        assert audit.lines == [], "reading is not audited"
        await chat("/budget day 5")
        await chat("/jobs stop")
        await chat("/schedule every day at 7 look at the weather")
        yes = await chat.receive("/schedule yes")
        await chat.run(yes)
        (made,) = (await store.schedules.list(OWNER)).items
        code, name = made.id[-4:], f"{made.id} Look at the weather"
        await chat(f"/schedule pause {code}")
        await chat(f"/schedule continue {code}")
        await chat(f"/schedule run {code}")
        by = "ada (fake, fake)"
        assert audit.lines == [
            ("budget.set", by, "day: 5.00 USD"),
            ("job.stopped", by, job.id),
            ("schedule.made", by, name),
            ("schedule.changed", by, f"{name}: paused"),
            ("schedule.changed", by, f"{name}: continued"),
            ("schedule.run", by, name),
        ]
        audit.lines.clear()  # the process died before the lines were written
        await chat.run(yes)
        assert audit.lines == [("schedule.made", by, name)]


async def test_f_memory_lists_the_newest_notes_for_the_owner_alone(store: Store, clock: FakeClock) -> None:
    async def notes(owner: str, limit: int) -> list[str]:
        return [f"fact {number}\nof {owner}" for number in range(12)][:limit]

    async with chatting(store, clock) as (chat, _):
        assert await chat("/memory") == "Nothing is remembered yet."
    async with chatting(store, clock, notes=notes) as (chat, _):
        lines = (await chat("/memory")).splitlines()
        assert lines[1:11] == [f"- fact {number} of {OWNER}" for number in range(10)]
        assert lines[11:] == ["There is more in the browser, under Memory."]
        for role in (SenderRole.MEMBER, SenderRole.GUEST):
            assert await chat("/memory", role=role) == "Only the owner can do this."
        in_group = await chat.receive("/memory", ChatKind.GROUP)
        assert "fact" not in await chat.run(in_group), "others read along"
