"""The agent's tool for schedules: what it makes, what it asks, and what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.delivery import ChatKind, ChatPlace, Update
from everturn.domain.messages import Outcome
from everturn.domain.schedules import CronRule, RunsIn, Schedule
from everturn.domain.sessions import NewSession
from everturn.domain.store_values import Submission
from everturn.domain.tool import Ruling, ToolResult, Verdict
from everturn.schedules import ScheduleBook, SchedulesTool
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME
from everturn.tools import EverturnToolbox, Sandbox, ToolServices
from tests.scheduling import at, settle
from tests.unit.tools.kit import Kit, profiles_of

pytestmark = pytest.mark.anyio
ZONE = "Europe/Vienna"
ADD = {"action": "add", "text": "Summarise my inbox.", "when": "every weekday at 8"}


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


class Agent:
    """A session of the owner, whose agent calls the tool in one turn."""

    def __init__(self, kit: Kit, session_id: str, turn_id: str) -> None:
        self.kit = kit
        self.where = {"owner": ME, "session_id": session_id, "turn_id": turn_id}

    async def rule(self, arguments: dict[str, Any], **changes: Any) -> Ruling:
        return await self.kit.rule("schedules", self.where | changes, **arguments)

    async def run(self, arguments: dict[str, Any], **changes: Any) -> ToolResult:
        return await self.kit.run("schedules", self.where | changes, **arguments)

    async def budgets(self) -> list[tuple[str, int]]:
        found = await self.kit.store.budgets.list(ME)
        return [(one.limit.key.subject, one.limit.amount) for one in found]

    async def made(self) -> list[Schedule]:
        return list((await self.kit.store.schedules.list(ME)).items)


@pytest.fixture
async def agent(store: Store, clock: FakeClock, data_dir: Path) -> AsyncIterator[Agent]:
    tool = SchedulesTool(store, ScheduleBook(store.schedules, clock, ZONE))
    services = ToolServices(store.records, store.search, clock)
    sandbox = Sandbox(data_dir, is_wanted=False)
    async with EverturnToolbox(data_dir, services, profiles_of(), sandbox=sandbox, extra=[tool]) as toolbox:
        session = await store.sessions.create(ME, NewSession())
        turn = (await store.turns.accept(ME, session.id, Submission(text="Remind me."))).turn
        yield Agent(Kit(data_dir, toolbox, store, data_dir), session.id, turn.id)


async def test_the_question_shows_rule_zone_five_times_and_the_whole_text(
    agent: Agent, clock: FakeClock
) -> None:
    clock.set_wall((at(16, 9) - clock.now_ms()) / 1000)
    long = "Summarise my inbox. " + "Look at every folder. " * 100
    ruling = await agent.rule(ADD | {"text": long})
    assert (ruling.verdict, ruling.options) == (Verdict.ASK, ("once", "deny"))
    assert "Weekdays at 08:00, Europe/Vienna" in ruling.question
    assert ruling.question.count("2026 08:00") == 5
    assert long.strip() in ruling.question
    assert (await agent.rule(ADD)).question.endswith("the agent is sent: “Summarise my inbox.”")
    assert await agent.made() == []


async def test_neither_trust_nor_an_earlier_answer_covers_another_schedule(agent: Agent) -> None:
    for decision in ("session", "always", "trust"):
        await agent.kit.remember(decision, "schedules", agent.where, **ADD)
    for arguments in (ADD, ADD | {"text": "Something else."}):
        assert (await agent.rule(arguments)).verdict is Verdict.ASK
        assert (await agent.rule(arguments, is_tainted=True)).verdict is Verdict.ASK


async def test_a_schedule_is_made_listed_changed_paused_continued_and_deleted(agent: Agent) -> None:
    said = await agent.run(ADD, profile="online")
    [made] = await agent.made()
    assert made.id in said.text
    assert made.settings.name == "Summarise my inbox"
    assert made.settings.timing.rule == CronRule("0 8 * * 1-5")
    assert made.settings.profile == "online"
    assert made.settings.is_trusted
    assert (await agent.rule({"action": "list"})).verdict is Verdict.ALLOW
    assert "Weekdays at 08:00" in (await agent.run({"action": "list"})).text

    change = {"action": "change", "schedule_id": made.id, "when": "every day at 9", "new_sessions": True}
    ruling = await agent.rule(change)
    assert "“Summarise my inbox” (Weekdays at 08:00, Europe/Vienna) to" in ruling.question
    assert "Every day at 09:00" in ruling.question
    assert "Summarise my inbox." in ruling.question
    await agent.run(change)
    [changed] = await agent.made()
    assert (changed.settings.timing.rule, changed.settings.runs_in) == (CronRule("0 9 * * *"), RunsIn.NEW)

    one = {"schedule_id": made.id}
    pause = await agent.rule({"action": "pause"} | one)
    assert (pause.verdict, "session" in pause.options) == (Verdict.ASK, True)
    await agent.run({"action": "pause"} | one)
    assert "paused" in (await agent.run({"action": "list"})).text
    assert "Next: " in (await agent.rule({"action": "continue"} | one)).question
    assert "next " in (await agent.run({"action": "continue"} | one)).text
    assert (await agent.rule({"action": "delete"} | one)).options == ("once", "deny")
    await agent.run({"action": "delete"} | one)
    assert await agent.made() == []


async def test_model_budget_and_report_are_in_the_question_and_kept_by_a_change(agent: Agent) -> None:
    asked = ADD | {"model": "openai:gpt-x", "budget_usd": 0.5}
    question = (await agent.rule(asked)).question
    assert "It runs with the model openai:gpt-x. Each run may cost 0.50 USD." in question
    await agent.run(asked)
    [made] = await agent.made()
    assert (made.settings.model, made.settings.report_to) == ("openai:gpt-x", None)
    assert await agent.budgets() == [(made.id, 500_000)]
    change = {"action": "change", "schedule_id": made.id, "budget_usd": 2.0}
    question = (await agent.rule(change)).question
    assert "the model openai:gpt-x. Each run may cost 2.00 USD." in question
    await agent.run(change)
    assert await agent.budgets() == [(made.id, 2_000_000)]
    question = (await agent.rule({"action": "change", "schedule_id": made.id, "timezone": "UTC"})).question
    assert "Each run may cost 2.00 USD." in question, "it is shown whole, also what does not change"


async def test_answers_go_to_the_chat_in_which_the_user_asks_or_to_none(agent: Agent) -> None:
    store, place = agent.kit.store, ChatPlace("main", "telegram", ChatKind.DIRECT, "42")
    update = Update("u1", place, "ada", "Remind me.", chat_title="Ada")
    chat = (await store.delivery.inbox.receive(ME, update, profile="default")).chat
    await store.delivery.chats.switch(ME, chat.id, agent.where["session_id"])
    for given, goes in (({}, chat.id), ({"report_to": "here"}, chat.id), ({"report_to": "page"}, None)):
        ruling = await agent.rule(ADD | given)
        assert ("Its answers go to telegram (Ada)." in ruling.question) is (goes is not None)
        await agent.run(ADD | given)
        assert (await agent.made())[-1].settings.report_to == goes
    moved = {"action": "change", "schedule_id": (await agent.made())[0].id, "report_to": "page"}
    assert "Its answers" not in (await agent.rule(moved)).question
    await agent.run(moved)
    assert (await agent.made())[0].settings.report_to is None


async def test_what_outside_text_asked_for_runs_with_its_rights_only(agent: Agent) -> None:
    await agent.run(ADD, is_tainted=True)
    [made] = await agent.made()
    assert not made.settings.is_trusted
    assert "Summarise" not in (await agent.run({"action": "list"})).text


async def test_a_question_of_a_run_says_that_a_schedule_asks(agent: Agent, clock: FakeClock) -> None:
    await agent.run(ADD | {"when": "every hour"})
    await clock.advance(3700)
    [settlement] = await settle(agent.kit.store, clock)
    [ran] = settlement.occurrences
    ruling = await agent.rule(ADD, session_id=ran.session_id, turn_id=ran.turn_id)
    assert "A run of the schedule “Summarise my inbox” asks for this." in ruling.question


async def test_tomorrow_is_counted_from_the_message_also_if_the_approval_comes_late(
    agent: Agent, clock: FakeClock
) -> None:
    asked = ADD | {"when": "tomorrow at 23:00"}
    shown = (await agent.rule(asked)).question
    await clock.advance(20 * 3600)
    assert (await agent.rule(asked)).question == shown
    await clock.advance(48 * 3600)
    late = await agent.run(asked)
    assert (late.outcome, "has passed" in late.text) == (Outcome.ERROR, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"when": "every week"}, "On which day"),
        ({"when": ""}, "does not say when"),
        ({"when": "0 0 30 2 *"}, "never fires"),
        ({"when": "every day at 8", "timezone": "Europe/Atlantis"}, "no time zone"),
        ({"text": " "}, "1 to 4000 characters"),
        ({"text": "x" * 4001}, "1 to 4000 characters"),
        ({"action": "change", "schedule_id": "sch_0"}, "not an id"),
        ({"action": "delete", "schedule_id": ""}, "not an id"),
    ],
)
async def test_what_cannot_be_done_is_denied_in_words_and_not_asked(
    agent: Agent, arguments: dict[str, Any], why: str
) -> None:
    ruling = await agent.rule(ADD | arguments)
    assert ruling.verdict is Verdict.DENY
    assert why in ruling.reason
    done = await agent.run(ADD | arguments)
    assert (done.outcome, why in done.text) == (Outcome.ERROR, True)
    assert await agent.made() == []


async def test_a_guest_cannot_make_schedules(agent: Agent) -> None:
    guest = {"owner": "guest:bot:7"}
    assert (await agent.rule(ADD, **guest)).verdict is Verdict.DENY
    assert (await agent.run(ADD, **guest)).outcome is Outcome.ERROR
    assert (await agent.run({"action": "list"}, **guest)).outcome is Outcome.ERROR
