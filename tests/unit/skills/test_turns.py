"""Skills in turns, with the real tools and the real sandbox, and over HTTP."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.asks import InstructionsAnswer
from everturn.domain.ids import Ids
from everturn.domain.messages import Outcome, Result, UsedSkill
from everturn.domain.probe import Probe
from everturn.domain.runtime import Runtime
from everturn.domain.turns import TurnState
from everturn.skills import BuiltSkills, SkillScope, build_skills
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.harness import OWNER, Harness, open_harness
from everturn.testing.models import CallTool
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in
from tests.unit.skills.kit import content_of, skill_text, write_skill, zip_of

pytestmark = pytest.mark.anyio
SCRIPT = b"#!/bin/sh\necho it was checked\n"


@asynccontextmanager
async def opened(
    store: Store, home: Path, clock: FakeClock, owner: str = OWNER
) -> AsyncIterator[tuple[BuiltSkills, EverturnToolbox]]:
    home.mkdir(exist_ok=True)
    skills = build_skills(store, home, Runtime(clock, Ids(clock), Probe()), owner=owner)
    services = ToolServices(store.records, store.search, clock, skill_folders=skills.turns)
    async with EverturnToolbox(home, services, built_in(), extra=[skills.tool]) as toolbox:
        yield skills, toolbox


@asynccontextmanager
async def harness(
    store: Store, home: Path, clock: FakeClock, *script: Any
) -> AsyncIterator[tuple[Harness, BuiltSkills]]:
    async with (
        opened(store, home, clock) as (skills, toolbox),
        open_harness(store, *script, clock=clock, toolbox=toolbox, skills=skills.turns) as h,  # type: ignore[arg-type]  # the real one
    ):
        yield h, skills


async def trusted(skills: BuiltSkills, name: str, body: str = "1. Look first.", **files: bytes) -> str:
    content = content_of(name, {path.replace("_", "."): data for path, data in files.items()}, body)
    await skills.book.add(OWNER, [content], SkillScope.USER, "page")
    await skills.book.trust(OWNER, f"user.{name}", content.digest)
    return content.digest


async def results(h: Harness, session: Any) -> list[Result]:
    parts = [part for message in await h.messages(session) for part in message.parts]
    return [part for part in parts if isinstance(part, Result)]


async def test_without_skills_the_model_is_told_of_none(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    async with harness(store, data_dir, clock, "one", "two") as (h, skills):
        session = await h.new_session()
        await h.run(session)
        assert "skill" not in [tool.name for tool in h.model.requests[0].tools]
        assert "Skills:" not in h.model.requests[0].system
        # The first skill changes the prefix, another text of it does not.
        await trusted(skills, "restic-care", "old")
        await h.run(session)
        assert "- restic-care: Care for backups." in h.model.requests[1].system


async def test_the_prefix_is_byte_identical_until_a_name_or_a_description_changes(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    async with harness(store, data_dir, clock, "one", "two", "three") as (h, skills):
        await trusted(skills, "photos")
        await trusted(skills, "restic-care", "old")
        session = await h.new_session()
        await h.run(session)
        await trusted(skills, "restic-care", "new")
        await h.run(session)
        first, second = h.model.requests
        assert (first.system, first.tools) == (second.system, second.tools)
        await skills.book.switch(OWNER, "user.photos", is_on=False)
        await h.run(session)
        assert "photos" not in h.model.requests[2].system


async def test_the_tool_reads_a_skill_and_its_script_runs_in_the_sandbox(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    async with harness(
        store,
        data_dir,
        clock,
        CallTool("skill", {"name": "restic-care"}),
        CallTool("skill", {"name": "restic-care", "path": "check.sh"}),
        CallTool("skill", {"name": "restic-care", "path": "../../../etc/passwd"}),
        "read",
    ) as (h, skills):
        digest = await trusted(skills, "restic-care", check_sh=SCRIPT)
        session = await h.new_session()
        turn = await h.run(session)
        whole, script, outside = await results(h, session)
        assert "1. Look first." in whole.text
        assert whole.display["digest"] == digest
        assert not whole.is_untrusted
        assert script.text == SCRIPT.decode()
        assert "has no file" in outside.text
        used = (await skills.book.get(OWNER, "user.restic-care")).used
        assert used is not None
        assert (used.turn_id, used.digest) == (turn.id, digest)
        (folder,) = (data_dir / "unpacked-skills").iterdir()
        h.model.add(CallTool("terminal", {"command": f"{folder}/check.sh; ls {data_dir}"}), "ran")
        await h.run(session)
        ran = (await results(h, session))[-1]
        assert "it was checked" in ran.text
        assert "everturn.db" not in ran.text  # of the data folder, only the skill is there


async def test_a_mistyped_name_does_not_count_as_text_from_outside(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    script = (CallTool("skill", {"name": "restic-car"}), "No such skill.")
    async with harness(store, data_dir, clock, *script) as (h, skills):
        await trusted(skills, "restic-care")
        session = await h.new_session()
        await h.run(session)
        (result,) = await results(h, session)
    assert result.text == "There is no skill 'restic-car'. The skills are: restic-care."
    assert (result.outcome, result.is_untrusted) == (Outcome.ERROR, False)


async def test_a_skill_named_with_a_slash_is_in_the_turn_with_its_version(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    async with harness(store, data_dir, clock, "one", "two", "three") as (h, skills):
        digest = await trusted(skills, "restic-care", "1. List the locks.")
        session = await h.new_session()
        await h.run(session, "/restic-care check the locks")
        (used,) = [part for m in await h.messages(session) for part in m.parts if isinstance(part, UsedSkill)]
        assert (used.name, used.digest) == ("restic-care", digest)
        given = "\n".join(message.text for message in h.model.requests[0].messages)
        assert given.index("1. List the locks.") < given.index("/restic-care check the locks")
        # Later turns give the model the same, whatever the skill says by then.
        await trusted(skills, "restic-care", "2. Something else.")
        await h.run(session, "/nothing of the kind")
        given = "\n".join(message.text for message in h.model.requests[1].messages)
        assert "1. List the locks." in given
        assert "Something else" not in given


async def test_a_projects_skills_are_asked_about_before_its_first_turn(
    store: Store, data_dir: Path, tmp_path: Path, clock: FakeClock
) -> None:
    project = tmp_path / "project"
    write_skill(project / ".agents/skills", "deploy", {"run.sh": SCRIPT})
    async with harness(store, data_dir, clock, "one", "two") as (h, _):
        session = await h.new_session(project=str(project))
        waiting = await h.run(session, "hello")
        assert waiting.state is TurnState.WAITING
        assert "it was checked" in (await h.ask(session)).text
        await h.answer(session, InstructionsAnswer.USE)
        assert "- deploy: Care for backups." in h.model.requests[0].system
        assert (await h.run(session, "again")).state is TurnState.COMPLETED


# --- over HTTP -------------------------------------------------------------------------------------------


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    async with (
        opened(store, home, clock, "local") as (skills, toolbox),
        run_web(
            store,
            home,
            clock=clock,
            toolbox=toolbox,
            skills=skills.turns,
            extras={"toolbox": toolbox, "skills": skills},
        ) as server,
    ):
        yield server


async def test_a_skill_is_made_edited_compared_trusted_and_removed(server: Running) -> None:
    files = [
        {"path": "SKILL.md", "text": skill_text("photos", body="old")},
        {"path": "logo.bin", "base64": base64.b64encode(b"\0\xff").decode()},
    ]
    made = await server.http.post("/api/skills", json={"files": files, "trust": True})
    assert made.status_code == 201, made.text
    skill = made.json()
    assert (skill["id"], skill["state"], skill["files"]) == ("user.photos", "trusted", 2)
    again = await server.http.post("/api/skills", json={"files": files})
    assert again.status_code == 409
    files = [
        {"path": "SKILL.md", "text": skill_text("photos", body="new")},
        {"path": "logo.bin", "sha256": skill["contents"][1]["sha256"]},
    ]
    edited = await server.http.put("/api/skills/user.photos", json={"files": files, "base": skill["digest"]})
    assert edited.status_code == 200, edited.text
    shown = edited.json()
    assert shown["state"] == "changed"
    (change,) = shown["changes"]
    assert (change["path"], change["added"], change["removed"]) == ("SKILL.md", 1, 1)
    stale = await server.http.put("/api/skills/user.photos", json={"files": files, "base": skill["digest"]})
    assert stale.status_code == 409
    wrong = await server.http.post("/api/skills/user.photos/trust", json={"digest": "0" * 64})
    assert wrong.status_code == 409
    done = await server.http.post("/api/skills/user.photos/trust", json={"digest": shown["digest"]})
    assert done.json()["state"] == "trusted"
    assert [one["digest"] for one in done.json()["earlier"]] == [skill["digest"]]
    off = await server.http.patch("/api/skills/user.photos", json={"is_on": False})
    assert off.json()["is_on"] is False
    raw = await server.http.get("/api/skills/user.photos/file", params={"path": "logo.bin"})
    assert raw.content == b"\0\xff"
    assert (await server.http.delete("/api/skills/user.photos")).status_code == 204
    assert (await server.http.get("/api/skills/user.photos")).status_code == 404


async def test_a_zip_file_is_imported_and_a_bad_one_refused_with_a_reason(server: Running) -> None:
    raw = {"content-type": "application/octet-stream"}
    good = zip_of({"photos/SKILL.md": skill_text("photos"), "rot/SKILL.md": skill_text("rot")})
    answer = await server.http.post("/api/skills/import", content=good, headers=raw)
    assert answer.status_code == 201, answer.text
    assert [one["state"] for one in answer.json()["items"]] == ["new", "new"]
    for bad, said in (
        (zip_of({"a/SKILL.md": skill_text("a"), "a/../../x": "x"}), "path cannot be used"),
        (zip_of({"a/SKILL.md": skill_text("a"), "a/x": b"0" * 50_000_000}), "larger than"),
        (b"nothing", "not a ZIP file"),
    ):
        refused = await server.http.post("/api/skills/import", content=bad, headers=raw)
        assert refused.status_code == 422
        assert said in refused.json()["detail"]
    assert len((await server.http.get("/api/skills")).json()["items"]) == 2


async def test_prompts_are_kept_and_a_line_is_expanded(server: Running) -> None:
    body = {"text": "Sum up {{team}} for {{reader=me}}.", "description": "The week"}
    assert (await server.http.put("/api/prompts/weekly", json=body)).status_code == 200
    assert (await server.http.put("/api/prompts/stop", json=body)).status_code == 422
    (listed,) = (await server.http.get("/api/slash")).json()["items"]
    assert (listed["name"], listed["kind"]) == ("weekly", "prompt")
    expanded = (await server.http.post("/api/slash", json={"line": "/weekly infra"})).json()
    assert expanded == {"text": "Sum up infra for me.", "is_prompt": True}
    filled = await server.http.post(
        "/api/slash", json={"name": "weekly", "values": {"team": "a", "reader": "b"}}
    )
    assert filled.json()["text"] == "Sum up a for b."
    missing = await server.http.post("/api/slash", json={"line": "/weekly"})
    assert (missing.status_code, missing.json()["code"]) == (422, "values_missing")
    same = (await server.http.post("/api/slash", json={"line": "/etc/hosts is a file"})).json()
    assert same == {"text": "/etc/hosts is a file", "is_prompt": False}
    assert (await server.http.delete("/api/prompts/weekly")).status_code == 204
    assert (await server.http.get("/api/prompts")).json()["items"] == []
