"""What tools draw reaches a model that can see, also after a crash, and never without bounds."""

from __future__ import annotations

import pytest

from everturn.domain.messages import Outcome, Result, Role
from everturn.domain.model import Abilities, ModelRequest
from everturn.domain.pictures import SEEN_BYTES_MAX, SEEN_MAX, pictures_of
from everturn.domain.probe import Moment
from everturn.domain.tool import ToolCall, ToolFile, ToolImage, ToolResult
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.testing import CallTool, FakeTool, HoldingProbe, ScriptedModel
from everturn.testing.harness import crashing_harness, open_harness

pytestmark = pytest.mark.anyio
SEES = Abilities(images=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def drawing(*images: bytes, media: str = "image/png") -> FakeTool:
    async def draw(call: ToolCall, emit: object) -> ToolResult:
        return ToolResult("drawn", images=tuple(ToolImage(media, data) for data in images))

    return FakeTool("draw", draw, is_safe_to_repeat=True)


def given(request: ModelRequest) -> list[bytes]:
    """The pictures of the results, in their order; each result names what the request brings along."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, Result)]
    return [request.files[picture.id] for result in results for picture in pictures_of(result)]


async def test_a_model_that_sees_is_given_what_was_drawn(store: Store) -> None:
    model = ScriptedModel([CallTool("draw", {})], "Done.", "Still.", abilities=SEES)
    async with open_harness(store, model=model, tools=[drawing(b"one", b"two")]) as harness:
        session = await harness.new_session()
        await harness.run(session, "draw")
        assert given(model.requests[1]) == [b"one", b"two"]
        await harness.run(session, "and now?")
        assert given(model.requests[2]) == [b"one", b"two"]


async def test_a_model_that_does_not_see_is_given_the_text(store: Store) -> None:
    model = ScriptedModel([CallTool("draw", {})], "Done.")
    async with open_harness(store, model=model, tools=[drawing(b"one")]) as harness:
        await harness.run(await harness.new_session(), "draw")
        assert (given(model.requests[1]), model.requests[1].files) == ([], {})


async def test_the_newest_are_given_up_to_a_bound_and_large_or_strange_ones_are_not(store: Store) -> None:
    large = drawing(bytes(SEEN_BYTES_MAX + 1), b"small")
    many = drawing(*(b"%d" % number for number in range(SEEN_MAX + 2)))
    strange = drawing(b"<svg/>", media="image/svg+xml")
    for tool in (large, many, strange):
        model = ScriptedModel([CallTool("draw", {})], "Done.", abilities=SEES)
        async with open_harness(store, model=model, tools=[tool]) as harness:
            await harness.run(await harness.new_session(), "draw")
        expected = {large: [b"small"], strange: []}
        found = given(model.requests[1])
        assert found == expected.get(tool, [b"%d" % number for number in range(2, SEEN_MAX + 2)])


async def test_files_are_kept_beside_pictures_and_a_model_is_given_the_pictures_alone(store: Store) -> None:
    async def export(call: ToolCall, emit: object) -> ToolResult:
        table = ToolFile("table.csv", "text/csv", b"a,b")
        return ToolResult("drawn", images=(ToolImage("image/png", b"one"),), files=(table,))

    tool = FakeTool("draw", export, is_safe_to_repeat=True)
    model = ScriptedModel([CallTool("draw", {})], "Done.", abilities=SEES)
    async with open_harness(store, model=model, tools=[tool]) as harness:
        session = await harness.new_session()
        await harness.run(session, "draw")
        said = [part for message in await harness.messages(session) for part in message.parts]
        [result] = [part for part in said if isinstance(part, Result)]
        assert isinstance(result.display, dict)
        [file] = result.display["files"]
        assert (file["name"], file["media"], file["size"]) == ("table.csv", "text/csv", 3)
    assert given(model.requests[1]) == [b"one"]


async def test_a_call_of_a_tool_that_is_only_found_says_how_it_is_called(store: Store) -> None:
    model = ScriptedModel([CallTool("shelf__put", {})], "Done.")
    async with open_harness(store, model=model, tools=[FakeTool("call_tool")]) as harness:
        await harness.run(await harness.new_session(), "put")
    [result] = model.requests[1].messages[-1].parts
    assert isinstance(result, Result)
    assert "Others are called through call_tool" in result.text


@pytest.mark.parametrize("moment", [Moment.TOOL_STARTED, Moment.TOOL_RAN, Moment.TOOL_FINISHED])
async def test_c11_after_a_crash_each_call_has_one_result_with_its_picture(
    store: Store, moment: Moment
) -> None:
    probe = HoldingProbe()
    probe.hold(moment)
    first = ScriptedModel([CallTool("draw", {})], "Done.", abilities=SEES)
    options = {"tools": [drawing(b"one")], "probe": probe}
    async with crashing_harness(store, model=first, **options) as harness:
        turn = (await harness.send(await harness.new_session(), "draw")).turn
        await probe.reached(moment)
    second = ScriptedModel("Done.", abilities=SEES)
    async with open_harness(store, model=second, tools=[drawing(b"one")]) as harness:
        assert (await harness.settled(turn.id)).state is TurnState.COMPLETED
    [request] = second.requests
    assert [message.role for message in request.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    [result] = request.messages[2].parts
    assert isinstance(result, Result)
    assert result.outcome is Outcome.OK
    assert given(request) == [b"one"]
