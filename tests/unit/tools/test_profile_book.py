"""Profiles as records: read again by every worker, refused where config.toml has the name."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.app import read_turn_profiles
from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.store import Store
from everturn.store import open_store
from everturn.testing import ScriptedModel
from everturn.testing.harness import open_harness
from everturn.tools import Profile, Profiles, built_in
from everturn.tools.profile_book import KIND, OWNER, ProfileBook, check_names, make_profile
from tests.conftest import OpenAnother

WRITER = Profile(name="writer", prompt="You write.", tools=("read_file",), skills=("style",))
CONFIGURED = Profiles({**built_in().profiles, "mine": Profile(name="mine", prompt="From the file.")})


async def test_a_profile_is_read_by_every_worker_and_changed_once(
    store: Store, open_another: OpenAnother
) -> None:
    one, two = ProfileBook(CONFIGURED, store.records), ProfileBook(CONFIGURED, (await open_another()).records)
    assert (await one.add(WRITER)).revision == 1
    assert await two.get("writer") == WRITER
    assert (await two.refresh()).names == ["default", "guest", "mine", "pocket", "writer"]

    changed = make_profile({"name": "writer", "prompt": "You write well.", "network": True})
    assert (await two.change(changed, 1)).revision == 2
    with pytest.raises(WrongState, match="changed meanwhile"):
        await one.change(WRITER, 1)
    assert (await one.find_kept("writer")).profile == changed

    await one.remove("writer")
    with pytest.raises(Invalid, match="There is no profile 'writer'"):
        await two.get("writer")
    with pytest.raises(NotFound):
        await two.remove("writer")


async def test_of_two_changes_at_once_one_is_refused(store: Store, open_another: OpenAnother) -> None:
    books = [ProfileBook(CONFIGURED, one.records) for one in (store, await open_another())]
    await books[0].add(WRITER)
    refused: list[str] = []

    async def change(book: ProfileBook, prompt: str) -> None:
        try:
            await book.change(Profile(name="writer", prompt=prompt), 1)
        except WrongState:
            refused.append(prompt)

    async with anyio.create_task_group() as group:
        for number, book in enumerate(books):
            group.start_soon(change, book, str(number))
    (lost,) = refused
    kept = await books[0].find_kept("writer")
    assert (kept.revision, kept.profile.prompt) == (2, "1" if lost == "0" else "0")


async def test_what_config_has_can_only_be_read(store: Store) -> None:
    book = ProfileBook(CONFIGURED, store.records)
    for name in ("mine", "default"):
        other = Profile(name=name, prompt="Another.")
        for refused in (book.add(other), book.change(other, 1), book.remove(name)):
            with pytest.raises(WrongState, match=f"The profile {name} is built in or set up in config.toml"):
                await refused
    await book.add(WRITER)
    with pytest.raises(WrongState, match="There is a profile writer already"):
        await book.add(WRITER)
    later = ProfileBook(Profiles({**built_in().profiles, "writer": Profile(name="writer")}), store.records)
    assert await later.get("writer") == Profile(name="writer"), "config.toml wins"
    assert later.revision_of("writer") is None


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        (Profile(name="no spaces"), "cannot be a profile's name"),
        (Profile(name="a@2"), "cannot be a profile's name"),
        (Profile(name="open", host_network=True), "set in config.toml only"),
        (Profile(name="empty", prompt=" \n"), "The prompt has 2 characters"),
        (Profile(name="long", prompt="x" * 32_001), "The prompt has 32001 characters"),
        (Profile(name="many", skills=("s",) * 501), "too long"),
    ],
)
async def test_what_a_record_cannot_say_is_refused(store: Store, profile: Profile, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        await ProfileBook(CONFIGURED, store.records).add(profile)


async def test_a_record_that_is_not_understood_hides_its_earlier_revision(store: Store) -> None:
    book = ProfileBook(CONFIGURED, store.records)
    await book.add(WRITER)
    await store.records.put(OWNER, KIND, "writer@2", {"prompt": "p", "of_a_newer_release": True})
    with pytest.raises(Invalid, match="There is no profile"):
        await book.get("writer")
    with pytest.raises(WrongState, match="already"):
        await book.add(WRITER)
    await book.remove("writer")
    await book.add(WRITER)


async def test_a_backup_has_the_profiles(store: Store, store_kind: str, tmp_path: Path) -> None:
    if store_kind != "sqlite":
        pytest.skip("PostgreSQL has backups of its own")
    await ProfileBook(CONFIGURED, store.records).add(WRITER)
    copy = await store.upkeep.backup(tmp_path / "copy")
    async with open_store(data_dir=copy) as other:
        assert await ProfileBook(CONFIGURED, other.records).get("writer") == WRITER


def test_names_that_are_not_there_are_refused() -> None:
    check_names(WRITER, {"read_file"}, ())
    with pytest.raises(Invalid, match="There is no tool 'read_file'"):
        check_names(WRITER, {"terminal"}, ())
    with pytest.raises(Invalid, match="There is no MCP server 'gone'"):
        check_names(Profile(name="x", mcp=("gone",)), (), ("here",))


async def test_the_next_turn_has_what_was_changed(store: Store) -> None:
    book = ProfileBook(CONFIGURED, store.records)
    await book.add(WRITER)
    model = ScriptedModel("one", "two")
    async with open_harness(store, model=model, profiles=lambda: read_turn_profiles(book)) as harness:
        session = await harness.new_session(profile="writer")
        await harness.run(session)
        await book.change(Profile(name="writer", prompt="You write well."), 1)
        await harness.run(session)
    first, second = [request.system for request in model.requests]
    assert first.startswith("You write.")
    assert second.startswith("You write well.")
