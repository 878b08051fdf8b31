from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from everturn.domain.errors import Invalid
from everturn.domain.sessions import NewSession
from everturn.domain.tool import ToolQuestion, ToolResult, Verdict
from everturn.tools import TOOL_NAMES, Profile, tool
from tests.unit.tools.kit import OWNER, SESSION, Kit, open_kit, profiles_of

pytestmark = pytest.mark.anyio


async def test_the_default_profile_has_every_tool_sorted_and_the_same_bytes_each_time(kit: Kit) -> None:
    first = [tool.spec.schema for tool in await kit.toolbox.tools(OWNER, SESSION, None)]
    again = [tool.spec.schema for tool in await kit.toolbox.tools(OWNER, "ses_02", "default")]
    assert [schema.name for schema in first] == sorted(TOOL_NAMES - {"web_search"})  # nobody searches here
    assert msgspec.json.encode(first) == msgspec.json.encode(again)
    assert all(schema.description and schema.parameters["type"] == "object" for schema in first)
    assert b"$ref" not in msgspec.json.encode(first)


async def test_a_profile_names_its_tools_and_pocket_and_guest_have_none(tmp_path: Path) -> None:
    profiles = profiles_of(Profile(name="reader", tools=("read_file", "list_files")))
    async with open_kit(tmp_path / "home", profiles=profiles) as kit:
        tools = await kit.toolbox.tools(OWNER, SESSION, "reader")
        assert [tool.spec.name for tool in tools] == ["list_files", "read_file"]
        assert await kit.toolbox.tools(OWNER, SESSION, "pocket") == []
        assert await kit.toolbox.tools(OWNER, SESSION, "guest") == []


async def test_only_what_changes_nothing_twice_says_it_is_safe_to_repeat(kit: Kit) -> None:
    tools = await kit.toolbox.tools(OWNER, SESSION, None)
    unsafe = {tool.spec.name for tool in tools if not tool.spec.is_safe_to_repeat}
    assert unsafe == {"terminal", "python", "apply_patch"}


async def test_each_session_has_a_workspace_of_its_own(kit: Kit, tmp_path: Path) -> None:
    assert kit.workspace == tmp_path / "home" / "workspaces" / SESSION
    assert kit.workspace.stat().st_mode & 0o777 == 0o700
    for bad in ("../x", "a/b", "", ".", ".."):
        with pytest.raises(Invalid):
            await kit.toolbox.workspace(OWNER, bad, None)


async def test_a_forgotten_session_leaves_no_files_and_no_permissions(kit: Kit, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    (kit.workspace / "link").symlink_to(outside)
    (kit.workspace / "file.txt").write_text("x")
    other = await kit.toolbox.workspace(OWNER, "ses_02", None)
    await kit.remember("trust", "terminal", command="git push")
    for _ in range(2):
        await kit.toolbox.forget(OWNER, SESSION)
    assert not kit.workspace.exists()
    assert other.exists()
    assert (outside / "kept.txt").exists()
    assert not await kit.toolbox.policy.is_trusted(OWNER, SESSION)


async def test_a_project_names_a_folder_that_neither_holds_nor_lies_in_the_data(
    kit: Kit, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    assert await kit.toolbox.workspace(OWNER, SESSION, str(project)) == project
    (tmp_path / "link").symlink_to(tmp_path / "home")
    for bad in (str(tmp_path), "/", str(tmp_path / "home"), str(tmp_path / "link"), "relative", "/no/such"):
        with pytest.raises(Invalid):
            await kit.toolbox.workspace(OWNER, SESSION, bad)


async def test_a_tool_of_an_embedding_program_is_short_to_write_and_asks_first(tmp_path: Path) -> None:
    @tool(is_safe_to_repeat=True)
    async def weather(city: Annotated[str, "Where"], days: int = 1) -> str:
        """Tell the weather."""
        return f"{city}: sun for {days} days"

    async with open_kit(tmp_path / "home", extra=(weather,)) as kit:
        tools = {each.spec.name: each for each in await kit.toolbox.tools(OWNER, SESSION, None)}
        schema = tools["weather"].spec.schema
        assert schema.description == "Tell the weather."
        assert schema.parameters == {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where"},
                "days": {"type": "integer", "default": 1},
            },
            "required": ["city"],
            "additionalProperties": False,
        }
        assert (await kit.run("weather", city="Ghent", days="2")).text == "Ghent: sun for 2 days"
        ruling = await kit.rule("weather", city="Ghent")
        assert (ruling.verdict, ruling.label) == (Verdict.ASK, "weather Ghent")
        await kit.remember("always", "weather", city="Ghent")
        assert (await kit.rule("weather", city="Oslo")).verdict is Verdict.ALLOW


async def test_the_list_of_steps_is_shown_and_drawn(kit: Kit) -> None:
    steps = [{"text": "look", "state": "done"}, {"text": "fix", "state": "doing"}, {"text": "test"}]
    result = await kit.run("todo", steps=steps)
    assert result.text == "[x] look\n[~] fix\n[ ] test"
    assert result.display["items"][2] == {"text": "test", "state": "open"}
    assert (await kit.rule("todo", steps=steps)).label == "1 of 3 steps done"


async def test_a_question_goes_to_the_user(kit: Kit) -> None:
    tools = {each.spec.name: each for each in await kit.toolbox.tools(OWNER, SESSION, None)}
    call = kit.call("ask_user", {"question": " Which pool? ", "choices": ["tank", "vault"]})
    assert await tools["ask_user"].run(call, kit.emit) == ToolQuestion("Which pool?", ("tank", "vault"))
    empty = await tools["ask_user"].run(kit.call("ask_user", {"question": " "}), kit.emit)
    assert isinstance(empty, ToolResult)


async def test_past_sessions_are_searched_for_this_owner_only(kit: Kit) -> None:
    from everturn.domain.store_values import Submission

    for owner, words in ((OWNER, "the zigbee mesh is slow"), ("boris", "zigbee secrets of boris")):
        session = await kit.store.sessions.create(owner, NewSession(title=f"Talk of {owner}"))
        await kit.store.turns.accept(owner, session.id, Submission(text=words))
    await kit.store.search.index()
    result = await kit.run("search_sessions", query="zigbee")
    assert "the zigbee mesh is slow" in result.text
    assert "boris" not in result.text
    assert (await kit.run("search_sessions", query="nothingatall")).text == "[nothing found]"


async def test_a_fault_in_the_judging_asks_and_its_traceback_is_in_the_log(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def rule(*args: object, **more: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(kit.toolbox.policy, "rule", rule)
    assert (await kit.rule("terminal", command="ls")).verdict is Verdict.ASK
    [record] = [record for record in caplog.records if "could not be judged" in record.getMessage()]
    assert record.exc_info
    assert record.exc_info[0] is ZeroDivisionError
