from pathlib import Path

import pytest

from everturn.domain.asks import Decision
from everturn.domain.tool import ToolCall, Verdict
from everturn.testing import CountingTool, FakeTool, FakeToolbox, count_effects

pytestmark = pytest.mark.anyio


def call(name="pay", ident="c1"):
    return ToolCall(
        id=ident,
        name=name,
        arguments={},
        owner="o",
        session_id="s",
        turn_id="t",
        workspace=Path("/nonexistent"),
        key=f"t:{ident}",
    )


async def emit(text):
    raise AssertionError("nothing is shown")


async def test_effects_are_counted_by_key(tmp_path):
    effects = tmp_path / "effects"
    tool = CountingTool("pay", effects)
    await tool.run(call(), emit)
    await tool.run(call(), emit)
    await tool.run(call(ident="c2"), emit)
    assert count_effects(effects) == {"t:c1": 2, "t:c2": 1}


async def test_a_tool_that_takes_a_key_has_its_effect_once(tmp_path):
    effects = tmp_path / "effects"
    tool = CountingTool("pay", effects, takes_key=True)
    await tool.run(call(), emit)
    assert (await tool.run(call(), emit)).text == "already done"
    assert count_effects(effects) == {"t:c1": 1}


async def test_the_toolbox_rules_and_remembers():
    pay, look = FakeTool("pay"), FakeTool("look", "seen")
    box = FakeToolbox(pay, look, rules={"pay": Verdict.ASK})
    assert [tool.spec.name for tool in await box.tools("o", "s", None)] == ["look", "pay"]
    assert (await box.rule(call(), pay.spec)).verdict is Verdict.ASK
    assert (await box.rule(call("look"), look.spec)).verdict is Verdict.ALLOW
    await box.remember(call(), Decision.SESSION)
    assert (await box.rule(call(), pay.spec)).verdict is Verdict.ALLOW
