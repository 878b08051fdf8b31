import pytest

from everturn.domain.model import Finish, ModelRequest, ReasoningChunk, TextChunk
from everturn.domain.model_errors import ModelRefused, ModelUnknown, RateLimited, StreamCut
from everturn.testing import CallTool, Cut, ModelFails, Say, ScriptedModel, ScriptedModels, Think

pytestmark = pytest.mark.anyio
REQUEST = ModelRequest(system="", messages=())


async def play(model):
    async with model.stream(REQUEST) as chunks:
        return [chunk async for chunk in chunks]


async def test_text_reasoning_and_calls_end_with_a_finish():
    model = ScriptedModel([Think("hm", opaque="sig"), Say("abcd", 2), CallTool("look", {"a": 1})])
    chunks = await play(model)
    assert chunks[:3] == [ReasoningChunk("hm"), TextChunk("ab"), TextChunk("cd")]
    finish = chunks[3]
    assert isinstance(finish, Finish)
    assert finish.reason == "calls"
    assert finish.calls[0].arguments == '{"a": 1}'
    assert finish.reasoning[0].opaque == "sig"
    assert model.requests == [REQUEST]
    assert model.open_streams == 0


async def test_trouble_before_and_inside_the_stream():
    model = ScriptedModel(
        RateLimited("slow"), [Say("a"), ModelFails(RateLimited("later"))], [Say("b"), Cut()]
    )
    with pytest.raises(RateLimited, match="slow"):
        await play(model)
    with pytest.raises(RateLimited, match="later"):
        await play(model)
    with pytest.raises(StreamCut):
        await play(model)
    with pytest.raises(ModelRefused, match="over after 3 calls"):
        await play(model)


async def test_models_are_found_by_name():
    one, two = ScriptedModel(name="a:1"), ScriptedModel(name="a:2")
    models = ScriptedModels(one, two)
    assert await models.get(None) is one
    assert await models.get("a:2") is two
    with pytest.raises(ModelUnknown):
        await models.get("a:3")
