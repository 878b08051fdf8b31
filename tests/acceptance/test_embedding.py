"""The embedded API, used as docs/embedding.md says: a program with its own tools and its own memory handle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio
import pytest

import everturn
from everturn.testing.memory import RecordingProvider
from everturn.testing.wires import WireAnswer, WireServer, openai_answer, openai_call, openai_delta, sse

pytestmark = pytest.mark.anyio
MODEL = "openai:test-model"


@pytest.fixture
def home(data_dir: Path, wires: WireServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_BASE_URL", wires.url + "/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-000000000000")
    return data_dir


async def look_up_order(number: Annotated[int, "the order's number"]) -> str:
    """Look up an order and say when it was sent."""
    return f"Order {number} was sent yesterday."


@everturn.tool(reads_only=True)
async def stock(article: str) -> str:
    """Say how many of an article are in stock."""
    return f"12 of {article}"


def say(*texts: str) -> WireAnswer:
    return WireAnswer(openai_answer(texts))


def call(name: str, arguments: str) -> WireAnswer:
    wish = openai_call(0, arguments, "call_1", name)
    return WireAnswer(sse(wish, openai_delta("tool_calls"), b"[DONE]"))


async def answer_first_ask(agent: everturn.Agent, session_id: str, answer: str) -> str:
    """Answer the first ask of the session as soon as there is one; return its tool."""
    async for _ in agent.follow(session_id):
        for ask in await agent.asks(session_id):
            await agent.answer(ask.id, answer)
            return ask.name
    raise AssertionError("the stream ended")


async def test_a_program_gives_the_agent_its_own_function_as_a_tool(home: Path, wires: WireServer) -> None:
    wires.play(call("look_up_order", '{"number": 17}'), say("It was sent yesterday."), say("Orders"))
    async with everturn.open(home, model=MODEL, tools=[look_up_order, stock]) as agent:
        session = await agent.create_session(title="Orders")
        kinds: list[str] = []
        asked: list[str] = []

        async def approve() -> None:
            asked.append(await answer_first_ask(agent, session.id, "once"))

        async with anyio.create_task_group() as group:
            group.start_soon(approve, name="approve")
            async for event in agent.ask(session.id, "Where is order 17?", key="first"):
                kinds.append(event.kind)
            group.cancel_scope.cancel()
        messages = (await agent.messages(session.id)).items
    assert asked == ["look_up_order"]
    assert kinds[0] == "turn.accepted"
    assert kinds[-1] == "turn.completed"
    assert messages[-1].text == "It was sent yesterday."
    offered = [each["function"]["name"] for each in wires.requests[0].json["tools"]]
    assert {"look_up_order", "stock"} <= set(offered)
    [result] = [m["content"] for m in wires.requests[1].json["messages"] if m["role"] == "tool"]
    assert "Order 17 was sent yesterday." in result


async def test_the_same_key_starts_one_turn(home: Path, wires: WireServer) -> None:
    wires.play(say("Hello."), say("Title"))
    async with everturn.open(home, model=MODEL) as agent:
        session = await agent.create_session(title="Hi")
        first = await agent.submit(session.id, "Hi", key="once")
        second = await agent.submit(session.id, "Hi", key="once")
    assert second.turn.id == first.turn.id
    assert second.is_repeat


async def test_a_program_sees_what_a_session_owes_to_memory(home: Path, wires: WireServer) -> None:
    wires.play(say("Noted."), say("Title"))
    own = RecordingProvider("own")
    async with everturn.open(home, model=MODEL) as agent:
        session = await agent.create_session(title="Tea")
        assert not await agent.memory.has_uncommitted_work(session.id)
        async for _ in agent.ask(session.id, "I like tea."):
            pass
        assert await agent.memory.has_uncommitted_work(session.id)
        assert agent.memory.register(session.id, own)
        assert await agent.memory.mark_completed(session.id, handle=own)
        assert agent.memory.unregister(session.id, own)
        assert not agent.memory.unregister(session.id, own)
        assert await agent.memory.has_uncommitted_work(session.id), "releasing a handle forgets no debt"


async def test_a_missing_session_is_a_no_op_for_memory(home: Path) -> None:
    own = RecordingProvider("own")
    async with everturn.open(home, model=MODEL) as agent:
        assert agent.memory.register("", own) == ""
        assert not agent.memory.unregister("", own)
        assert not await agent.memory.mark_completed("")
        assert not await agent.memory.has_uncommitted_work("")


def plain(number: int) -> str:
    """No coroutine function."""
    return str(number)


async def terminal(command: str) -> str:
    """Has the name of a built-in tool."""
    return command


@pytest.mark.parametrize("tools", [[plain], [terminal], [stock, stock], ["stock"]])
async def test_a_tool_that_cannot_be_used_is_refused_at_once(home: Path, tools: list[everturn.Tool]) -> None:
    with pytest.raises(everturn.EverturnError):
        async with everturn.open(home, model=MODEL, tools=tools):
            pass


def test_every_public_name_exists() -> None:
    for name in everturn.__all__:
        assert getattr(everturn, name) is not None
    with pytest.raises(AttributeError):
        everturn.nothing  # noqa: B018
