"""E09: what a delegate reaches behind its tools: MCP servers, skills, knowledge. Nothing here stands in for the
toolbox or for the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.messages import UsedSkill
from everturn.domain.probe import Probe
from everturn.domain.runtime import Runtime
from everturn.domain.turns import TurnState
from everturn.engine import Delegates, DelegateSettings
from everturn.skills import BuiltSkills, SkillScope, build_skills
from everturn.store import Store
from everturn.testing import CallTool, FakeClock, ScriptedModel, ScriptedModels
from everturn.testing.harness import OWNER, Harness, open_harness
from everturn.tools import EverturnToolbox, McpServer, Profile, Profiles, Sandbox, ToolServices, built_in
from everturn.tools.knowledge.book import Knowledge
from everturn.tools.mcp.tool_search import CALL, FIND, TOOLS_MAX
from everturn.tools.profile_book import ProfileBook
from tests.delegating import CHILD, Delegating, hand_over, task
from tests.mcp_service import McpService, serve_mcp
from tests.unit.skills.kit import content_of

pytest.importorskip("mcp")
pytestmark = pytest.mark.anyio

HELPER = "helper"  # allows what the default profile does, until something names it


@pytest.fixture
def shelves() -> Iterator[McpService]:
    """With more tools than are listed."""
    with serve_mcp() as service:
        for number in range(TOOLS_MAX):
            service.server.add_tool(_taker(service, number), name=f"take{number}", description="Take a book.")
        yield service


def _taker(service: McpService, number: int) -> Any:
    def take() -> str:
        service.effects.append(f"took {number}")
        return "taken"

    return take


class Reaching(Delegating):
    def __init__(self, h: Harness, models: Sequence[ScriptedModel], skills: BuiltSkills) -> None:
        super().__init__(h, models[0], models[1])
        self.skills = skills

    @property
    def toolbox(self) -> EverturnToolbox:
        assert isinstance(self.h.toolbox, EverturnToolbox)
        return self.h.toolbox

    async def use(self, server: McpServer, *, in_profile: str) -> None:
        """Add the server as the page does, trust all that it says, and let every call of it run."""
        await self.toolbox.mcp.book.add(server)
        for told in (await self.toolbox.trust_server(OWNER, server.name, "")).texts:
            await self.toolbox.trust_server(OWNER, server.name, told.digest)
        for tool in (await self.toolbox.mcp.state(OWNER, server)).modes:
            await self.toolbox.mcp.set_mode(OWNER, server.name, tool.name, tool.digest, "allow")
        await self.toolbox.mcp.book.change(replace(server, profiles=(in_profile,)))

    async def refusal(self) -> str:
        """The answer to the one call of ``delegate``."""
        session = await self.h.new_session()
        turn_id = (await self.h.send(session)).turn.id
        assert (await self.ended(turn_id)).state is TurnState.COMPLETED
        assert await self.delegates(turn_id) == []
        (result,) = await self.results(session)
        return result.text

    async def count_unknown(self, delegate_id: str) -> int:
        """How many of a delegate's calls named a tool that it does not have."""
        results = await self.results(await self.store.sessions.get(OWNER, delegate_id))
        return sum("There is no tool" in result.text for result in results)


async def _skills_of(book: ProfileBook, name: str | None) -> tuple[str, ...] | None:
    return (await book.get(name)).skills


@asynccontextmanager
async def reaching(
    store: Store,
    home: Path,
    clock: FakeClock,
    parent: Sequence[Any],
    child: Sequence[Any] = (),
    profiles: Sequence[Profile] = (Profile(name=HELPER),),
) -> AsyncIterator[Reaching]:
    """``parent``, ``child``: what the models of the two play."""
    known = Profiles({**built_in().profiles, **{one.name: one for one in profiles}})
    models = [ScriptedModel(*parent, clock=clock), ScriptedModel(*child, name=CHILD, clock=clock)]
    delegates = Delegates(store, clock, DelegateSettings())
    runtime = Runtime(clock, Ids(clock), Probe())
    book = ProfileBook(known, store.records)
    skills = build_skills(store, home, runtime, owner=OWNER, names_of=lambda name: _skills_of(book, name))
    services = ToolServices(
        store.records,
        store.search,
        SystemClock(),
        delegates=delegates,
        files=store.files,
        blobs=store.blobs,
        machine=store.machine,
    )
    sandbox = Sandbox(home, is_wanted=False)
    async with (
        EverturnToolbox(home, services, known, sandbox=sandbox, extra=[skills.tool]) as toolbox,
        open_harness(
            store,
            models=ScriptedModels(*models),
            toolbox=toolbox,  # type: ignore[arg-type]  # a real one
            delegates=delegates,
            skills=skills.turns,
            clock=clock,
        ) as h,
    ):
        yield Reaching(h, models, skills)


async def test_e09_a_server_that_names_the_delegates_profile_is_more_than_the_parent_has(
    store: Store, clock: FakeClock, tmp_path: Path, shelves: McpService
) -> None:
    """Neither listed nor behind the tool that calls others."""
    script = [hand_over(task("take all", profile=HELPER)), "end"]
    child = [[CallTool(CALL, {"name": "shelf__take1", "arguments": {}})], "done"]
    async with reaching(store, tmp_path, clock, script, child) as d:
        await d.use(McpServer("shelf", url=shelves.url), in_profile=HELPER)
        refused = await d.refusal()
        assert "allows more than this session: it has the MCP server shelf" in refused
        assert shelves.effects == []


WANTED = [
    CallTool("shelf__take1", {}),
    CallTool("shelf__take9", {}),
    CallTool(CALL, {"name": "shelf__take9", "arguments": {}}),
    CallTool(FIND, {"query": "take a book"}),
]


async def test_e09_a_delegate_calls_only_those_of_many_tools_that_it_was_given(
    store: Store, clock: FakeClock, tmp_path: Path, shelves: McpService
) -> None:
    given = [f"shelf__take{number}" for number in range(3)]
    script = [hand_over(task("take some", tools=given)), "end"]
    async with reaching(store, tmp_path, clock, script, [WANTED, "done"]) as d:
        await d.use(McpServer("shelf", url=shelves.url), in_profile="default")
        session = await d.h.new_session()
        assert {CALL, FIND} <= {tool.spec.name for tool in await d.toolbox.tools(OWNER, session.id, None)}
        turn_id = (await d.h.send(session)).turn.id
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        (delegate,) = await d.delegates(turn_id)
        assert shelves.effects == ["took 1"]
        assert await d.count_unknown(delegate.id) == 3


async def test_e09_a_delegate_that_was_given_what_calls_others_calls_those_of_its_parent(
    store: Store, clock: FakeClock, tmp_path: Path, shelves: McpService
) -> None:
    script = [hand_over(task("take some", tools=[CALL, FIND])), "end"]
    async with reaching(store, tmp_path, clock, script, [WANTED, "done"]) as d:
        await d.use(McpServer("shelf", url=shelves.url), in_profile="default")
        turn_id = (await d.h.send(await d.h.new_session())).turn.id
        await d.ended(turn_id)
        assert shelves.effects == ["took 9"]


async def test_e09_a_server_added_later_to_a_delegates_profile_adds_nothing_to_the_delegate(
    store: Store, clock: FakeClock, tmp_path: Path, shelves: McpService
) -> None:
    script = [hand_over(task("look", profile=HELPER)), "end"]
    async with reaching(store, tmp_path, clock, script, ["done", WANTED, "done"]) as d:
        turn_id = (await d.h.send(await d.h.new_session())).turn.id
        await d.ended(turn_id)
        (delegate,) = await d.delegates(turn_id)
        await d.use(McpServer("shelf", url=shelves.url), in_profile=HELPER)
        await d.h.run(await store.sessions.get(OWNER, delegate.id), "and now take some")
        assert shelves.effects == []
        assert await d.count_unknown(delegate.id) == 4


async def test_e09_another_profile_brings_no_skill_and_no_knowledge_that_the_parent_lacks(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    own, other = Profile(skills=("plain",)), Profile(name=HELPER)
    script = [hand_over(task("look", profile=HELPER)), "end"] * 2
    async with reaching(store, tmp_path, clock, script, profiles=[own, other]) as d:
        assert "it has other skills" in await d.refusal()
    async with reaching(store, tmp_path, clock, script) as d:
        assert d.toolbox.knowledge is not None
        given = Knowledge("", OWNER, "Contracts", 0, profiles=(HELPER,))
        await d.toolbox.knowledge.book.add(Ids(clock), given)
        assert "it searches Contracts" in await d.refusal()


async def test_e09_a_delegate_that_may_not_read_skills_gets_none_by_a_slash(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    script = [hand_over(task("/restic-care now", tools=["todo"]), task("/restic-care now")), "end"]
    async with reaching(store, tmp_path, clock, script, ["done", "done"]) as d:
        content = content_of("restic-care")
        (skill,) = await d.skills.book.add(OWNER, [content], SkillScope.USER, "page")
        await d.skills.book.trust(OWNER, skill.id, content.digest)
        turn_id = (await d.h.send(await d.h.new_session())).turn.id
        await d.ended(turn_id)
        told = []
        for delegate in await d.delegates(turn_id):
            messages = await d.h.messages(await store.sessions.get(OWNER, delegate.id))
            told.append(any(isinstance(part, UsedSkill) for one in messages for part in one.parts))
        assert told == [False, True]


AWAY = "elsewhere:large"  # of another provider than the parent's model


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ({"model": AWAY}, f"the model {AWAY}"),
        ({"model": None, "profile": "away"}, f"the model {AWAY}"),
        ({"model": None, "profile": HELPER}, "the default model"),
    ],
    ids=["a model", "the model of a profile", "the default model in place of a profile's"],
)
async def test_e09_nothing_goes_to_another_provider_before_a_person_allows_it(
    store: Store, clock: FakeClock, tmp_path: Path, wanted: dict[str, Any], shown: str
) -> None:
    script = [hand_over(task("all that was said here", **wanted)), "end"]
    profiles = [Profile(name=HELPER), Profile(name="away", model=AWAY)]
    profiles.append(Profile(name="own", model="scripted:model"))
    async with reaching(store, tmp_path, clock, script, profiles=profiles) as d:
        session = await d.h.new_session(profile="own" if wanted.get("profile") == HELPER else None)
        turn = await d.h.run(session)
        assert turn.state is TurnState.WAITING
        ask = await d.h.ask(session)
        assert f"It sends a task and files to {shown}" in ask.text
        assert await d.delegates(turn.id) == []
        assert (await d.h.answer(session, "deny")).state is TurnState.COMPLETED
        assert await d.delegates(turn.id) == []
