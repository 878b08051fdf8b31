"""Own tools: functions in files and of packages, loaded when they change, bounded, and never in the way."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.config import read_config
from everturn.domain.errors import Invalid
from everturn.domain.messages import Outcome
from everturn.domain.tool import ToolQuestion, Verdict
from everturn.tools.own.own_names import find_own_names
from tests.unit.tools.kit import Kit, open_kit
from tests.waiting import until

pytestmark = pytest.mark.anyio

STOCK = '''
from typing import Annotated

import everturn


@everturn.tool(is_safe_to_repeat=True, asks=False, timeout_s=10)
def stock(article: Annotated[str, "the article's name"], least: int = 0) -> dict[str, int]:
    """Say how many of an article are in stock."""
    return {article: max(12, least)}


@everturn.tool
async def order(article: str) -> str:
    """Order an article."""
    return f"ordered {article}"
'''


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "tools"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
async def shop(anyio_backend: str, tools: Path) -> AsyncIterator[Kit]:
    (tools / "shop.py").write_text(STOCK)
    async with open_kit(tools.parent, has_sandbox=False) as kit:
        yield kit


async def names(kit: Kit) -> set[str]:
    return {tool.spec.name for tool in await kit.toolbox.known_tools("olga", None)}


def troubles(kit: Kit) -> dict[str, str]:
    return {one.source: one.problem for one in kit.toolbox.own.troubles}


async def test_a_typed_function_is_a_tool(shop: Kit) -> None:
    found = {tool.spec.name: tool.spec for tool in await shop.toolbox.known_tools("olga", None)}
    schema = found["stock"].schema
    assert schema.description == "Say how many of an article are in stock."
    assert schema.parameters["required"] == ["article"]
    assert schema.parameters["properties"]["article"] == {
        "type": "string",
        "description": "the article's name",
    }
    assert (found["stock"].is_safe_to_repeat, found["order"].is_safe_to_repeat) == (True, False)
    assert (await shop.run("stock", article="nails")).text == '{\n  "nails": 12\n}'
    assert (await shop.run("order", article="nails")).text == "ordered nails"
    wrong = await shop.run("stock", article=7, colour="red")
    assert wrong.outcome is Outcome.ERROR
    assert "Nothing was done" in wrong.text


async def test_an_own_tool_asks_unless_it_says_otherwise(shop: Kit) -> None:
    assert (await shop.rule("stock", article="nails")).verdict is Verdict.ALLOW
    ruling = await shop.rule("order", article="nails")
    assert ruling.verdict is Verdict.ASK
    assert ruling.label == "order nails"
    assert ruling.question == (
        "It runs your own tool order (tools/shop.py). If allowed for this session or always, the agent may "
        "then call order with any arguments."
    )
    await shop.remember("session", "order", article="nails")
    assert (await shop.rule("order", article="screws")).verdict is Verdict.ALLOW


async def test_a_changed_file_is_loaded_again_and_a_deleted_one_is_gone(shop: Kit, tools: Path) -> None:
    (tools / "shop.py").write_text(STOCK.replace("max(12, least)", "1"))
    assert (await shop.run("stock", article="nails")).text == '{\n  "nails": 1\n}'
    (tools / "shop.py").unlink()
    assert not {"stock", "order"} & await names(shop)
    (tools / "more.py").write_text(STOCK)
    assert {"stock", "order"} <= await names(shop)


async def test_a_mistake_in_one_file_is_stated_and_leaves_the_others(
    shop: Kit, tools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tools / "broken.py").write_text("import everturn\n\n@everturn.tool\ndef x(:\n")
    (tools / "failing.py").write_text("import everturn\n\n1 / 0\n")
    (tools / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    (tools / "untyped.py").write_text('import everturn\n@everturn.tool\ndef y(a):\n    "Y."\n')
    (tools / "silent.py").write_text("import everturn\n@everturn.tool\ndef z(a: int):\n    pass\n")
    (tools / "twice.py").write_text(STOCK)
    (tools / "taken.py").write_text('import everturn\n@everturn.tool\ndef terminal():\n    "T."\n')
    (tools / "options.py").write_text(
        'import everturn\n@everturn.tool(timeout_s=0)\ndef w() -> str:\n    "W."\n'
    )
    (tools / "empty.py").write_text("")
    (tools / "_helper.py").write_text("1 / 0\n")
    assert {"stock", "order", "terminal"} <= await names(shop)
    assert troubles(shop) == {
        "tools/broken.py": "Line 4: invalid syntax.",
        "tools/failing.py": "Line 3: ZeroDivisionError: division by zero.",
        "tools/leaving.py": "Line 2: SystemExit: 3.",
        "tools/untyped.py": "Line 2: TypeError: y: the parameter a has no type.",
        "tools/silent.py": "z has no docstring. The model needs one to know what the tool is for.",
        "tools/twice.py": "order is a tool of tools/shop.py too. Rename one of them.",
        "tools/taken.py": "terminal is the name of another tool. Rename it.",
        "tools/options.py": "w: timeout_s must be between 0 and 3600 seconds.",
        "tools/empty.py": "It has no tools: put @everturn.tool above a function.",
    }
    logged = [record.getMessage() for record in caplog.records if "broken.py" in record.getMessage()]
    assert logged == ["own tools: tools/broken.py: Line 4: invalid syntax."]
    (tools / "failing.py").write_text(STOCK.replace("stock", "stock2").replace("order", "order2"))
    assert {"stock2", "order2"} <= await names(shop)
    assert "tools/failing.py" not in troubles(shop)
    assert len([record for record in caplog.records if "broken.py" in record.getMessage()]) == 1


async def test_a_file_that_anybody_can_change_is_not_run(shop: Kit, tools: Path) -> None:
    (tools / "open.py").write_text(STOCK.replace("stock", "stock2").replace("order", "order2"))
    (tools / "open.py").chmod(0o666)
    assert "stock2" not in await names(shop)
    assert "Every user of this machine can change it" in troubles(shop)["tools/open.py"]


SLOW = '''
import threading
import time

import everturn

begun = threading.Event()
may_end = threading.Event()
ended = []


@everturn.tool(timeout_s=0.05)
def stubborn() -> str:
    """Never mind the time."""
    may_end.wait()
    ended.append(1)
    return "late"


@everturn.tool(timeout_s=0.05, is_safe_to_repeat=True)
async def patient() -> str:
    """Wait."""
    import asyncio

    try:
        await asyncio.sleep(600)
    finally:
        ended.append(2)
    return "late"


@everturn.tool
def leaving() -> str:
    """Leave."""
    raise SystemExit(3)


@everturn.tool
def refusing() -> str:
    """Refuse."""
    raise everturn.ToolFailed("There is no such article.")


@everturn.tool
def asking() -> everturn.ToolQuestion:
    """Ask."""
    return everturn.ToolQuestion("Which one?", ("a", "b"))


@everturn.tool
def strange() -> object:
    """Return what is not JSON."""
    return threading.Lock()


@everturn.tool
def keyed(call: everturn.ToolCall, word: str) -> str:
    """Say the key."""
    return f"{call.key} {word} {threading.current_thread().daemon}"


@everturn.tool
def long() -> str:
    """Say a lot."""
    return "x" * 5_000_000
'''


async def test_time_output_and_failures_of_an_own_tool_are_bounded(tools: Path) -> None:
    (tools / "slow.py").write_text(SLOW)
    async with open_kit(tools.parent, has_sandbox=False) as kit:
        module = sys.modules["everturn_own_tools_slow"]
        late = await kit.run("stubborn")
        assert late.outcome is Outcome.UNKNOWN
        assert "took longer than 0.05 seconds. It cannot be stopped and may still finish" in late.text
        module.may_end.set()
        cancelled = await kit.run("patient")
        assert (cancelled.outcome, cancelled.text) == (
            Outcome.ERROR,
            "patient took longer than 0.05 seconds and was cancelled.",
        )
        await until("both functions have ended", lambda: sorted(module.ended) == [1, 2])
        refused = await kit.run("refusing")
        assert (refused.outcome, refused.text) == (Outcome.ERROR, "There is no such article.")
        assert "neither text nor JSON" in (await kit.run("strange")).text
        assert (await kit.run("keyed", word="w")).text == "key-1 w True"
        assert len((await kit.run("long")).text) < 4_000_100
        found = {tool.spec.name: tool for tool in await kit.toolbox.known_tools("olga", None)}
        assert "call" not in found["keyed"].spec.schema.parameters["properties"]
        answer = await found["asking"].run(kit.call("asking", {}), kit.emit)
        assert answer == ToolQuestion("Which one?", ("a", "b"))
        with pytest.raises(Exception, match="it raised SystemExit: 3"):
            await kit.run("leaving")
        assert threading.current_thread() is threading.main_thread()


async def test_a_file_that_does_not_finish_loading_is_stated(
    shop: Kit, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everturn.tools.own.own_tools.LOAD_S_MAX", 0.05)
    (tools / "hanging.py").write_text("import threading\nthreading.Event().wait(5)\n")
    assert "stock" in await names(shop)
    assert "longer than 0.05 seconds to load" in troubles(shop)["tools/hanging.py"]


async def test_an_installed_package_registers_tools(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "acme_tools-1.0.dist-info").mkdir(parents=True)
    (site / "acme_tools.py").write_text(STOCK)
    (site / "acme_tools-1.0.dist-info" / "METADATA").write_text("Name: acme-tools\nVersion: 1.0\n")
    (site / "acme_tools-1.0.dist-info" / "entry_points.txt").write_text(
        "[everturn.tools]\nstock = acme_tools:stock\nbuy = acme_tools:order\ngone = acme_tools:gone\n"
    )
    monkeypatch.syspath_prepend(str(site))
    (tools.parent / "config.toml").write_text(
        '[profiles.shop]\ntools = ["stock"]\n[profiles.other]\ntools = ["read_file"]\n'
    )
    profiles = read_config(tools.parent, {}).profiles
    async with open_kit(tools.parent, has_sandbox=False, profiles=profiles) as kit:
        assert [tool.spec.name for tool in await kit.toolbox.known_tools("olga", "shop")] == ["stock"]
        assert "stock" not in [tool.spec.name for tool in await kit.toolbox.known_tools("olga", "other")]
        assert kit.toolbox.own.tools["stock"].source == "acme-tools: stock"
        told = troubles(kit)
        assert told["acme-tools: buy"] == "The entry point buy must have its tool's name: order."
        assert "AttributeError" in told["acme-tools: gone"]


async def test_a_profile_may_name_own_tools_and_nothing_else(tools: Path) -> None:
    (tools / "shop.py").write_text(STOCK + "\ndef broken(:\n")
    config = tools.parent / "config.toml"
    config.write_text('[profiles.shop]\ntools = ["stock", "read_file"]\n')
    profile = read_config(tools.parent, {}).profiles.get("shop")
    assert profile.may_change_files
    config.write_text('[profiles.shop]\ntools = ["stack"]\n')
    with pytest.raises(Invalid, match="there is no tool 'stack'"):
        read_config(tools.parent, {})
    assert {"stock", "order"} <= find_own_names(tools)


async def test_links_that_lead_nowhere_and_folders_are_stated(shop: Kit, tools: Path) -> None:
    os.symlink("/nonexistent.py", tools / "link.py")
    (tools / "folder.py").mkdir()
    assert "stock" in await names(shop)
    assert "cannot be read" in troubles(shop)["tools/link.py"]
    assert "cannot be read" in troubles(shop)["tools/folder.py"]
