"""Skills in the store: nothing is used before it is trusted, and what is trusted stays in use until a person decides."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.ids import Ids
from everturn.domain.probe import Moment
from everturn.domain.runtime import Runtime
from everturn.skills import BuiltSkills, SkillScope, build_skills, read_folder
from everturn.store import Store
from everturn.testing import FakeClock, HoldingProbe
from tests.conftest import OpenAnother
from tests.unit.skills.kit import OWNER, content_of, write_skill

pytestmark = pytest.mark.anyio
USER = SkillScope.USER


def built(store: Store, home: Path, clock: FakeClock, probe: HoldingProbe | None = None) -> BuiltSkills:
    return build_skills(store, home, Runtime(clock, Ids(clock), probe or HoldingProbe()), owner=OWNER)


@pytest.fixture
def skills(store: Store, data_dir: Path, clock: FakeClock) -> BuiltSkills:
    return built(store, data_dir, clock)


async def offered(skills: BuiltSkills, workspace: Path | None = None, owner: str = OWNER) -> list[str]:
    return [one.name for one in await skills.turns.list_offered(owner, None, workspace)]


async def text_of(skills: BuiltSkills, name: str) -> str:
    found = {one.name: one for one in await skills.turns.list_offered(OWNER, None, None)}
    return (await skills.turns.read(OWNER, found[name], "trn_1")).text


async def test_a_new_skill_is_used_only_after_it_was_trusted(skills: BuiltSkills) -> None:
    (skill,) = await skills.book.add(OWNER, [content_of("restic-care")], USER, "import")
    assert await offered(skills) == []
    assert skill.found is not None
    await skills.book.trust(OWNER, skill.id, skill.found.digest)
    assert await offered(skills) == ["restic-care"]
    assert "Look first" in await text_of(skills, "restic-care")


async def test_a_change_leaves_the_trusted_content_in_use_until_a_person_decides(skills: BuiltSkills) -> None:
    first, second = content_of("restic-care", body="old"), content_of("restic-care", body="new")
    (skill,) = await skills.book.add(OWNER, [first], USER, "page")
    await skills.book.trust(OWNER, skill.id, first.digest)
    (skill,) = await skills.book.add(OWNER, [second], USER, "page")
    assert skill.is_changed
    assert "old" in await text_of(skills, "restic-care")
    with pytest.raises(WrongState):
        await skills.book.trust(OWNER, skill.id, "0" * 64)
    kept = await skills.book.decline(OWNER, skill.id, second.digest)
    assert not kept.is_changed
    assert "old" in await text_of(skills, "restic-care")
    trusted = await skills.book.trust(OWNER, skill.id, second.digest)
    assert "new" in await text_of(skills, "restic-care")
    assert [one.digest for one in trusted.earlier] == [first.digest]
    await skills.book.trust(OWNER, skill.id, first.digest)
    assert "old" in await text_of(skills, "restic-care")


async def test_a_skill_that_is_off_or_not_of_the_profile_is_not_offered(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    names = {"some": ("photos",), "none": ()}

    async def names_of(profile: str | None) -> tuple[str, ...] | None:
        return names.get(profile or "")

    skills = build_skills(
        store,
        data_dir,
        Runtime(clock, Ids(clock), HoldingProbe()),
        owner=OWNER,
        names_of=names_of,
    )
    for name in ("photos", "restic-care"):
        (skill,) = await skills.book.add(OWNER, [content := content_of(name)], USER, "page")
        await skills.book.trust(OWNER, skill.id, content.digest)
    assert await offered(skills) == ["photos", "restic-care"]
    assert [one.name for one in await skills.turns.list_offered(OWNER, "some", None)] == ["photos"]
    assert await skills.turns.list_offered(OWNER, "none", None) == []
    await skills.book.switch(OWNER, "user.photos", is_on=False)
    assert await offered(skills) == ["restic-care"]
    await skills.book.switch(OWNER, "user.photos", is_on=True)
    assert await offered(skills) == ["photos", "restic-care"]


async def test_shared_skills_are_for_everybody_and_own_ones_hide_them(skills: BuiltSkills) -> None:
    shared, own = content_of("photos", body="shared"), content_of("photos", body="own")
    await skills.book.add(OWNER, [shared], SkillScope.SHARED, "page")
    await skills.book.trust(OWNER, "shared.photos", shared.digest)
    assert await offered(skills, owner="guest:bot:1") == ["photos"]
    await skills.book.add(OWNER, [own], USER, "page")
    await skills.book.trust(OWNER, "user.photos", own.digest)
    assert "own" in await text_of(skills, "photos")
    assert [one.id for one in await skills.book.list("guest:bot:1")] == ["shared.photos"]


async def test_another_worker_with_an_empty_folder_serves_the_skill_with_its_files(
    skills: BuiltSkills, open_another: OpenAnother, store_kind: str, tmp_path: Path, clock: FakeClock
) -> None:
    content = content_of("restic-care", {"scripts/check.sh": b"#!/bin/sh\necho checked\n"})
    await skills.book.add(OWNER, [content], USER, "page")
    await skills.book.trust(OWNER, "user.restic-care", content.digest)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store = await open_another(**({"data_dir": elsewhere} if store_kind == "postgresql" else {}))
    other = built(store, elsewhere, clock)
    (skill,) = await other.turns.list_offered(OWNER, None, None)
    read = await other.turns.read(OWNER, skill, "trn_1")
    (folder,) = elsewhere.glob("unpacked-skills/*")
    script = folder / "scripts" / "check.sh"
    assert str(folder) in read.text
    assert script.read_bytes().startswith(b"#!/bin/sh")
    assert os.access(script, os.X_OK)


async def test_collecting_blobs_keeps_what_skills_name(
    skills: BuiltSkills, store: Store, clock: FakeClock
) -> None:
    first, second = content_of("photos", {"a.txt": b"first"}), content_of("photos", {"a.txt": b"second"})
    for content in (first, second):
        await skills.book.add(OWNER, [content], USER, "page")
        await skills.book.trust(OWNER, "user.photos", content.digest)
    for _ in range(3):
        await clock.advance(3 * 24 * 3600)
        await store.blobs.collect()
    skill = await skills.book.trust(OWNER, "user.photos", first.digest)
    assert skill.trusted is not None
    assert (await skills.book.load(skill.trusted))["a.txt"].content == b"first"


async def test_the_folder_of_the_data_folder_is_taken_in_when_it_changes(
    skills: BuiltSkills, data_dir: Path
) -> None:
    folder = write_skill(data_dir / "skills", "photos", body="one")
    (data_dir / "skills" / "broken links!").mkdir()
    (data_dir / "skills" / "broken links!" / "SKILL.md").write_text("---\nname: broken\n---\n")
    photos, broken = sorted(await skills.book.list(OWNER), key=lambda one: one.id, reverse=True)
    assert (photos.id, photos.trusted) == ("user.photos", None)
    assert "no description" in broken.problem
    assert photos.found is not None
    await skills.book.trust(OWNER, photos.id, photos.found.digest)
    # Edited on the page: the folder, which has not changed, does not take that back.
    await skills.book.add(OWNER, [content_of("photos", body="page")], USER, "page")
    skill = await skills.book.get(OWNER, photos.id)
    await skills.book.list(OWNER)
    assert await skills.book.get(OWNER, photos.id) == skill
    (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text().replace("one", "two, longer"))
    (found,) = [one for one in await skills.book.list(OWNER) if one.id == photos.id]
    assert found.is_changed
    assert found.found is not None
    assert found.found.digest == read_folder(folder).digest
    await skills.book.remove(OWNER, photos.id)
    assert "user.photos" not in [one.id for one in await skills.book.list(OWNER)]


async def test_links_in_a_folder_are_refused(data_dir: Path) -> None:
    folder = write_skill(data_dir, "photos")
    (folder / "key").symlink_to("/etc/passwd")
    with pytest.raises(Invalid, match="link"):
        read_folder(folder)


async def test_a_projects_skills_are_asked_about_and_a_change_again_with_its_difference(
    skills: BuiltSkills, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    write_skill(project / ".agents/skills", "deploy", {"run.sh": b"echo old\n"})
    write_skill(project / ".claude/skills", "rotate")
    (asked,) = await skills.turns.list_untrusted(OWNER, project)
    assert "echo old" in asked.text
    assert "deploy, rotate" in asked.question
    assert await offered(skills, project) == []
    await skills.turns.decide_untrusted(OWNER, project, asked.digest, use=True)
    assert await offered(skills, project) == ["deploy", "rotate"]
    await skills.book.add(OWNER, [content_of("photos")], SkillScope.SHARED, "page")
    listed = [skill.scope for skill in await skills.book.list(OWNER)]
    assert listed == [SkillScope.PROJECT, SkillScope.PROJECT, SkillScope.SHARED], "the nearest first"
    assert await offered(skills) == []
    assert await skills.turns.list_untrusted(OWNER, project) == []
    write_skill(project / ".agents/skills", "deploy", {"run.sh": b"echo newer\n"})
    (asked,) = await skills.turns.list_untrusted(OWNER, project)
    assert "+echo newer" in asked.text
    assert "-echo old" in asked.text
    before = {one.name: one.digest for one in await skills.turns.list_offered(OWNER, None, project)}
    await skills.turns.decide_untrusted(OWNER, project, asked.digest, use=False)
    assert {one.name: one.digest for one in await skills.turns.list_offered(OWNER, None, project)} == before
    assert await skills.turns.list_untrusted(OWNER, project) == []
    # Decided about another text meanwhile: nothing happens.
    write_skill(project / ".agents/skills", "deploy", {"run.sh": b"echo newest of all\n"})
    await skills.turns.decide_untrusted(OWNER, project, asked.digest, use=True)
    assert {one.name: one.digest for one in await skills.turns.list_offered(OWNER, None, project)} == before


async def test_two_workers_that_change_different_facts_lose_neither(
    store: Store, data_dir: Path, clock: FakeClock, probe: HoldingProbe
) -> None:
    first, second = content_of("photos", body="one"), content_of("photos", body="two")
    one, other = built(store, data_dir, clock), built(store, data_dir, clock, probe)
    await one.book.add(OWNER, [first], USER, "page")
    probe.hold(Moment.SKILL_STORED)
    async with anyio.create_task_group() as group:
        group.start_soon(other.book.add, OWNER, [second], USER, "import")
        await probe.reached(Moment.SKILL_STORED)
        await one.book.trust(OWNER, "user.photos", first.digest)
        probe.release(Moment.SKILL_STORED)
    skill = await one.book.get(OWNER, "user.photos")
    assert skill.trusted is not None
    assert skill.found is not None
    assert (skill.trusted.digest, skill.found.digest) == (first.digest, second.digest)


async def test_an_unknown_skill_is_said(skills: BuiltSkills) -> None:
    with pytest.raises(NotFound):
        await skills.book.get(OWNER, "user.nothing")
