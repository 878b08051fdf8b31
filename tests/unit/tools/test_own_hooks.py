"""Hooks before a call: they refuse and never allow, and one that cannot answer refuses as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.domain.messages import Outcome
from everturn.domain.tool import Verdict
from everturn.tools.mcp.tool_search import as_called
from tests.unit.tools.kit import Kit, open_kit

pytestmark = pytest.mark.anyio

STOCK = '''
import time
import everturn

@everturn.tool(asks=False)
def stock(article: str) -> str:
    """Say how many there are."""
    return f"12 {article}"

@everturn.tool
def order(article: str) -> str:
    """Order one."""
    return f"ordered {article}"
'''
GUARD = """
@everturn.before_call{options}
def guard(call):
    {body}
"""


def guarded(body: str, options: str = "") -> str:
    return STOCK + GUARD.format(body=body, options=options)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "tools"
    folder.mkdir(parents=True)
    return folder / "shop.py"


@pytest.fixture
async def shop(anyio_backend: str, file: Path) -> AsyncIterator[Kit]:
    file.write_text(STOCK)
    async with open_kit(file.parents[1], has_sandbox=False) as kit:
        yield kit


async def test_a_hook_refuses_with_its_reason_as_soon_as_its_file_has_it(shop: Kit, file: Path) -> None:
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.ALLOW
    file.write_text(guarded('return "No nails\\n today." if call.arguments["article"] == "nails" else None'))
    refused = await shop.rule("stock", article="nails")
    assert refused.verdict is Verdict.DENY
    assert refused.reason == "No nails today. (Refused by the hook tools/shop.py: guard.)"
    assert (await shop.rule("stock", article="screws")).verdict is Verdict.ALLOW
    file.write_text(STOCK)
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.ALLOW


async def test_a_hook_allows_nothing_that_the_policy_asks_about(shop: Kit, file: Path) -> None:
    file.write_text(guarded("return None"))
    assert (await shop.rule("order", article="nails")).verdict is Verdict.ASK
    file.write_text(guarded('return "Never."'))
    assert (await shop.rule("order", article="nails")).verdict is Verdict.DENY
    await shop.remember("always", "order", article="nails")
    assert (await shop.rule("order", article="nails")).verdict is Verdict.DENY


async def test_a_hook_cannot_change_what_runs(shop: Kit, file: Path) -> None:
    file.write_text(guarded('call.arguments["article"] = "gold"'))
    call = shop.call("stock", {"article": "nails"})
    found = {tool.spec.name: tool for tool in await shop.toolbox.tools(call.owner, call.session_id, None)}
    assert (await shop.toolbox.rule(call, found["stock"].spec)).verdict is Verdict.ALLOW
    assert call.arguments == {"article": "nails"}


@pytest.mark.parametrize(
    ("body", "options", "says"),
    [
        ("raise ValueError('lost it')", "", "ValueError: lost it"),
        ("raise everturn.ToolFailed('Not on Fridays.')", "", "Not on Fridays."),
        ("return True", "", "must return a reason or None, not bool"),
        ("return ''", "", "No reason was given."),
        ("time.sleep(60)", "(timeout_s=0.05)", "longer than 0.05 s"),
        ("raise SystemExit", "", "SystemExit"),
    ],
)
async def test_a_hook_that_fails_refuses(shop: Kit, file: Path, body: str, options: str, says: str) -> None:
    file.write_text(guarded(body, options))
    ruling = await shop.rule("stock", article="nails")
    assert ruling.verdict is Verdict.DENY
    assert says in ruling.reason
    assert "tools/shop.py: guard" in ruling.reason


async def test_a_file_that_may_hold_a_guard_and_cannot_be_loaded_refuses_every_call(
    shop: Kit, file: Path
) -> None:
    guard = file.with_name("guard.py")
    guard.write_text("import everturn\n@everturn.before_call\ndef guard(:\n")
    ruling = await shop.rule("stock", article="nails")
    assert ruling.verdict is Verdict.DENY
    assert "tools/guard.py may hold a hook" in ruling.reason
    assert (
        "every tool call is refused"
        in {one.source: one.problem for one in shop.toolbox.own.troubles}["tools/guard.py"]
    )
    # It was a guard when it was last loaded: taking the word away by a mistake opens nothing.
    guard.write_text("import everturn\n@everturn.before_call\ndef guard(call):\n    return None\n")
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.ALLOW
    guard.write_text("import everturn\n1 / 0\n")
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.DENY
    guard.unlink()
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.ALLOW
    # A broken file without a guard leaves the rest alone, as for own tools.
    file.with_name("broken.py").write_text("1 / 0\n")
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.ALLOW


async def test_a_hook_is_asked_about_its_tools_only_and_by_their_real_names(shop: Kit, file: Path) -> None:
    file.write_text(guarded('return f"no {call.name}"', '(tools=["order", "git__push"])'))
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.ALLOW
    assert (await shop.rule("order", article="nails")).verdict is Verdict.DENY
    packed = shop.call("call_tool", {"name": "git__push", "arguments": {"force": True}})
    found = as_called(packed)
    assert (found.name, found.arguments) == ("git__push", {"force": True})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@everturn.before_call\ndef g():\n    pass\n", "g must take one parameter: the everturn.ToolCall."),
        (
            "@everturn.after_turn\ndef g(a, b):\n    pass\n",
            "g must take one parameter: the everturn.TurnSummary.",
        ),
        ("@everturn.before_call(timeout_s=0)\ndef g(a):\n    pass\n", "between 0 and 60 seconds"),
        ("@everturn.after_turn(timeout_s=601)\ndef g(a):\n    pass\n", "between 0 and 600 seconds"),
        ('@everturn.before_call(tools="terminal")\ndef g(a):\n    pass\n', "tools must be a list"),
    ],
)
async def test_a_wrong_hook_is_stated(shop: Kit, file: Path, text: str, says: str) -> None:
    file.write_text(f"import everturn\n{text}")
    await shop.toolbox.known_tools("olga", None)
    [trouble] = shop.toolbox.own.troubles
    assert says in trouble.problem


async def test_a_coroutine_can_be_a_hook(shop: Kit, file: Path) -> None:
    file.write_text(guarded('return "no"').replace("def guard", "async def guard"))
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.DENY
    assert (await shop.run("stock", article="nails")).outcome is Outcome.OK  # the guard is the policy's
