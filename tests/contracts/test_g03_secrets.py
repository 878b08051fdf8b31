"""G03: secrets have one door. On PostgreSQL they are encrypted with a key that is not in the store; a wrong key
never overwrites; a rotation accepts the old key and the new one until every server has the new one.

Two servers are two stores with data folders of their own on one database.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import asyncpg
import pytest

from everturn.domain.errors import (
    Invalid,
    OutcomeUnknown,
    SecretKeyWrong,
    SecretUnreadable,
    StoreAway,
    StoreRefused,
    WrongState,
)
from everturn.domain.secrets import Secret, Secrets, SecretsPlace
from everturn.store import KeyRing, SecretsFile, SecretsTable, open_secrets, open_store, read_key_ring
from everturn.store.secrets.key_ring import Sealed, new_key
from everturn.testing.postgres_proxy import PostgresProxy
from tests.waiting import until

pytestmark = pytest.mark.anyio
OLD, NEW, OTHER = bytes(32), bytes(range(32)), bytes(range(1, 33))
TEXT = "sk-planted-0123456789"


class Open(Protocol):
    async def __call__(self, machine: str, *keys: bytes, follows: bool = False) -> Secrets: ...


@pytest.fixture
async def open_on(anyio_backend: str, store_url: str, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the secrets as a server on this machine would, with these keys."""
    async with AsyncExitStack() as stack:

        async def open_one(machine: str, *keys: bytes, follows: bool = False) -> Secrets:
            folder = tmp_path / machine
            url = store_url if store_url.startswith("postgresql") else None
            store = await stack.enter_async_context(open_store(url, data_dir=folder))
            ring = KeyRing(keys) if keys else None
            return await stack.enter_async_context(open_secrets(store, folder, ring, follows=follows))

        yield open_one


only_postgres = pytest.mark.parametrize("store_kind", ["postgresql"], indirect=True)


async def rows(url: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch("SELECT name, key_id, nonce, sealed FROM secrets ORDER BY name"))
    finally:
        await connection.close()


async def run_sql(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


# --- both stores ---------------------------------------------------------------------------------------


async def test_g03_a_secret_is_stored_found_changed_and_deleted(open_on: Open) -> None:
    secrets = await open_on("a", OLD)
    assert secrets.names() == ()
    await secrets.change({"keys/openai": TEXT, "servers/own": "http://127.0.0.1:1/v1"})
    again = await open_on("a", OLD)
    assert again.get("keys/openai") == Secret(TEXT)
    assert again.get("keys/own") is None
    assert again.names() == ("keys/openai", "servers/own")
    assert again.find("servers") == {"own": Secret("http://127.0.0.1:1/v1")}
    await again.change({"keys/openai": "other", "servers/own": None, "keys/nothing": None})
    await secrets.refresh()
    assert secrets.get("keys/openai") == Secret("other")
    assert secrets.names() == ("keys/openai",)
    assert secrets.state.notice == ""


async def test_g03_no_secret_is_written_in_the_clear_beside_its_own_file(
    open_on: Open, tmp_path: Path, store_kind: str, store_url: str
) -> None:
    secrets = await open_on("a", OLD)
    await secrets.change({"keys/openai": TEXT})
    found = [path.name for path in (tmp_path / "a").rglob("*") if path.is_file() and TEXT in _read(path)]
    assert found == (["secrets.toml"] if store_kind == "sqlite" else [])
    if store_kind == "postgresql":
        assert all(TEXT.encode() not in bytes(row["sealed"]) for row in await rows(store_url))
    assert TEXT not in f"{secrets.find('keys')} {secrets.get('keys/openai')!r}"


def _read(path: Path) -> str:
    return path.read_bytes().decode("latin-1")


# --- PostgreSQL: one key, several servers --------------------------------------------------------------


@only_postgres
async def test_g03_what_one_server_stores_every_server_with_the_key_reads(open_on: Open) -> None:
    first, second = await open_on("a", OLD), await open_on("b", OLD)
    await first.change({"keys/openai": TEXT})
    await second.refresh()
    assert second.get("keys/openai") == Secret(TEXT)
    assert second.state.place is SecretsPlace.STORE
    await second.change({"keys/openai": None})
    await first.refresh()
    assert first.get("keys/openai") is None


@only_postgres
async def test_g03_without_a_key_secrets_stay_on_their_machine_and_it_says_so(
    open_on: Open, tmp_path: Path, store_url: str
) -> None:
    alone = await open_on("a")
    await alone.change({"keys/openai": TEXT})
    assert alone.state.place is SecretsPlace.FILE
    assert "stay on this machine" in alone.state.notice
    assert (tmp_path / "a" / "secrets.toml").exists()
    assert await rows(store_url) == []
    assert (await open_on("b", OLD)).names() == ()


@only_postgres
async def test_g03_a_server_without_the_key_says_that_it_cannot_use_what_the_store_holds(
    open_on: Open,
) -> None:
    await (await open_on("a", OLD)).change({"keys/openai": TEXT})
    without = await open_on("b")
    assert without.get("keys/openai") is None
    assert "without EVERTURN_SECRET_KEY" in without.state.notice


@only_postgres
async def test_g03_a_wrong_key_reads_nothing_changes_nothing_and_says_which_key_is_needed(
    open_on: Open, store_url: str
) -> None:
    await (await open_on("a", OLD)).change({"keys/openai": TEXT})
    before = await rows(store_url)
    wrong = await open_on("b", OTHER)
    needed, given = KeyRing((OLD,)).first, KeyRing((OTHER,)).first
    assert needed in wrong.state.notice
    assert given in wrong.state.notice
    assert wrong.names() == ("keys/openai",)
    assert wrong.find("keys") == {}
    with pytest.raises(SecretUnreadable, match=needed):
        wrong.get("keys/openai")
    for change in ({"keys/openai": "mine"}, {"keys/new": "mine"}, {"keys/openai": None}):
        with pytest.raises(SecretKeyWrong, match=needed):
            await wrong.change(change)
    assert isinstance(wrong, SecretsTable)
    with pytest.raises(SecretKeyWrong):
        await wrong.rotate()
    assert await rows(store_url) == before


@only_postgres
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE secrets SET sealed = substr(sealed, 2) WHERE name = 'keys/openai'",
        "UPDATE secrets SET sealed = '' WHERE name = 'keys/openai'",
        "UPDATE secrets SET nonce = '' WHERE name = 'keys/openai'",
        "UPDATE secrets SET sealed = set_byte(sealed, 3, get_byte(sealed, 3) # 1) WHERE name = 'keys/openai'",
        "UPDATE secrets a SET sealed = b.sealed, nonce = b.nonce FROM secrets b "
        "WHERE a.name = 'keys/openai' AND b.name = 'keys/xai'",
    ],
    ids=["shorter", "empty", "no nonce", "one bit", "another's"],
)
async def test_g03_a_damaged_secret_is_named_and_the_others_still_serve(
    open_on: Open, store_url: str, damage: str
) -> None:
    secrets = await open_on("a", OLD)
    await secrets.change({"keys/openai": TEXT, "keys/xai": "xai-0123456789"})
    await run_sql(store_url, damage)
    await secrets.refresh()
    with pytest.raises(SecretUnreadable, match="keys/openai is damaged"):
        secrets.get("keys/openai")
    assert "keys/openai" in secrets.state.notice
    assert secrets.find("keys") == {"xai": Secret("xai-0123456789")}
    await secrets.change({"keys/openai": "mended"})
    assert secrets.get("keys/openai") == Secret("mended")
    assert secrets.state.notice == ""


@only_postgres
async def test_g03_a_running_server_notices_a_change_by_itself(open_on: Open) -> None:
    first, second = await open_on("a", OLD), await open_on("b", OLD, follows=True)
    await first.change({"keys/openai": TEXT})
    await until("the other server knows the key", lambda: second.get("keys/openai") == Secret(TEXT))


@only_postgres
async def test_g03_while_the_database_is_away_what_is_at_hand_is_used_and_nothing_is_stored(
    store_url: str, proxy: PostgresProxy, tmp_path: Path
) -> None:
    async with (
        open_store(proxy.address(store_url), data_dir=tmp_path) as store,
        open_secrets(store, tmp_path, KeyRing((OLD,)), follows=False) as secrets,
    ):
        await secrets.change({"keys/openai": TEXT})
        proxy.go_away()
        await secrets.refresh()
        assert secrets.get("keys/openai") == Secret(TEXT)
        with pytest.raises(StoreAway):
            await secrets.change({"keys/openai": "other"})
        assert secrets.get("keys/openai") == Secret(TEXT)
        proxy.come_back()


@only_postgres
@pytest.mark.parametrize("is_stored", [True, False])
async def test_g03_after_a_commit_with_an_unknown_outcome_the_secret_is_what_the_store_has(
    store_url: str, proxy: PostgresProxy, tmp_path: Path, is_stored: bool
) -> None:
    async with (
        open_store(proxy.address(store_url), data_dir=tmp_path) as store,
        open_secrets(store, tmp_path, KeyRing((OLD,)), follows=False) as secrets,
    ):
        await secrets.change({"keys/openai": "before"})
        proxy.lose_commit(is_stored=is_stored)
        try:
            await secrets.change({"keys/openai": TEXT})
        except (StoreAway, OutcomeUnknown):
            expected = {Secret("before"), Secret(TEXT)}
        else:
            expected = {Secret(TEXT)}
        await secrets.refresh()
        assert secrets.get("keys/openai") in expected
        [row] = await rows(store_url)
        assert KeyRing((OLD,)).open(Sealed(**dict(row))) == secrets.get("keys/openai")


# --- importing -----------------------------------------------------------------------------------------


@only_postgres
async def test_g03_the_file_is_imported_once_when_there_is_a_key(open_on: Open, tmp_path: Path) -> None:
    await SecretsFile(tmp_path / "a").change({"keys/openai": TEXT, "servers/own": "http://x/v1"})
    await SecretsFile(tmp_path / "b").change({"keys/openai": "of b", "keys/GITHUB_TOKEN": "ghp"})
    first = await open_on("a", OLD)
    assert first.names() == ("keys/openai", "servers/own")
    assert not (tmp_path / "a" / "secrets.toml").exists()
    second = await open_on("b", OLD)
    assert second.get("keys/openai") == Secret(TEXT), "what the store has stays"
    assert second.get("keys/GITHUB_TOKEN") == Secret("ghp")
    kept = tmp_path / "b" / "secrets.toml.imported"
    assert "of b" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600
    await second.change({"keys/openai": None})
    assert "keys/openai" not in (await open_on("a", OLD)).names(), "it is not imported again"


@only_postgres
async def test_g03_an_import_that_was_cut_off_is_repeated(open_on: Open, tmp_path: Path) -> None:
    await SecretsFile(tmp_path / "a").change({"keys/openai": TEXT})
    text = (tmp_path / "a" / "secrets.toml").read_text()
    await open_on("a", OLD)
    # As after a death between the commit and the renaming, and with an older import beside it.
    (tmp_path / "a" / "secrets.toml").write_text(text)
    again = await open_on("a", OLD)
    assert again.get("keys/openai") == Secret(TEXT)
    assert sorted(path.name for path in (tmp_path / "a").glob("secrets.toml*")) == [
        "secrets.toml.imported",
        "secrets.toml.imported-2",
    ]


@only_postgres
async def test_g03_a_wrong_key_imports_nothing_and_leaves_the_file(open_on: Open, tmp_path: Path) -> None:
    await (await open_on("a", OLD)).change({"keys/openai": TEXT})
    await SecretsFile(tmp_path / "b").change({"keys/xai": "xai"})
    await open_on("b", OTHER)
    assert (tmp_path / "b" / "secrets.toml").exists()
    assert (await open_on("a", OLD)).names() == ("keys/openai",)


@only_postgres
async def test_g03_a_file_that_cannot_be_read_is_neither_imported_nor_renamed(
    open_on: Open, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "secrets.toml").write_text("[keys\n")
    with pytest.raises(StoreRefused, match=r"secrets\.toml"):
        await open_on("a", OLD)
    assert (tmp_path / "a" / "secrets.toml").exists()


# --- rotating ------------------------------------------------------------------------------------------


@only_postgres
async def test_g03_a_rotation_waits_until_every_running_server_has_the_new_key(
    open_on: Open, store_url: str
) -> None:
    await (await open_on("a", OLD)).change({"keys/openai": TEXT, "keys/xai": "xai"})
    before = await rows(store_url)
    slow = await open_on("b", OLD, follows=True)
    rotating = await open_on("c", NEW, OLD)
    assert isinstance(rotating, SecretsTable)
    with pytest.raises(WrongState, match="1 running server lacks the new key"):
        await rotating.rotate()
    assert await rows(store_url) == before
    # Meanwhile a server that has both keys writes what the slow one can read.
    await rotating.change({"keys/new": "kept"})
    await slow.refresh()
    assert slow.get("keys/new") == Secret("kept")
    await run_sql(store_url, "DELETE FROM secret_holders")  # the slow one stops
    done = await rotating.rotate()
    assert set(done.names) == {"keys/openai", "keys/xai", "keys/new"}
    assert {row["key_id"] for row in await rows(store_url)} == {KeyRing((NEW,)).first}
    with_new = await open_on("d", NEW)
    assert with_new.get("keys/openai") == Secret(TEXT)


@only_postgres
async def test_g03_servers_with_both_keys_read_and_write_through_a_rotation(open_on: Open) -> None:
    first = await open_on("a", NEW, OLD, follows=True)
    earlier = await open_on("b", OLD)
    await earlier.change({"keys/openai": TEXT})
    rotating = await open_on("c", NEW, OLD)
    assert isinstance(rotating, SecretsTable)
    await rotating.rotate()
    await first.refresh()
    assert first.get("keys/openai") == Secret(TEXT)
    await first.change({"keys/xai": "xai"})
    assert (await open_on("d", NEW)).find("keys") == {"openai": Secret(TEXT), "xai": Secret("xai")}
    assert (await rotating.rotate()).names == ("keys/openai", "keys/xai"), "once more changes nothing"
    with pytest.raises(SecretKeyWrong):
        await earlier.change({"keys/openai": "with the old key alone"})


@only_postgres
async def test_g03_a_damaged_secret_does_not_stop_a_rotation_and_is_named(
    open_on: Open, store_url: str
) -> None:
    rotating = await open_on("a", NEW, OLD)
    assert isinstance(rotating, SecretsTable)
    await (await open_on("b", OLD)).change({"keys/openai": TEXT, "keys/xai": "xai"})
    await run_sql(store_url, "UPDATE secrets SET sealed = '' WHERE name = 'keys/xai'")
    done = await rotating.rotate()
    assert (done.names, done.left) == (("keys/openai",), ("keys/xai",))


DYING = """
import asyncio, os, sys
from everturn.store import KeyRing, SecretsTable, open_store
url, folder, dies_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
seals = 0
def random_bytes(count):
    global seals
    seals += 1
    if seals == dies_at:
        os._exit(137)  # in the transaction, before this secret is encrypted anew
    return os.urandom(count)
async def main():
    async with open_store(url, data_dir=folder) as store:
        await SecretsTable(store.database, KeyRing((bytes(range(32)), bytes(32)), random_bytes)).rotate()
        os._exit(137)  # committed, and no one was told
asyncio.run(main())
"""


@only_postgres
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4])
async def test_g03_a_rotation_killed_at_any_moment_leaves_every_secret_readable_and_can_be_repeated(
    open_on: Open, store_url: str, tmp_path: Path, dies_at: int
) -> None:
    secrets = {f"keys/p{number}": f"key-{number}-0123456789" for number in range(3)}
    await (await open_on("a", OLD)).change(dict(secrets))
    done = subprocess.run(
        [sys.executable, "-c", DYING, store_url, str(tmp_path / "dying"), str(dies_at)],
        env=dict(os.environ),
        timeout=90,
        check=False,
    )
    assert done.returncode == 137
    is_rotated = dies_at > 3
    survivor = await open_on("b", NEW if is_rotated else OLD)
    assert {name: survivor.get(name) for name in secrets} == {n: Secret(t) for n, t in secrets.items()}
    again = await open_on("c", NEW, OLD)
    assert isinstance(again, SecretsTable)
    assert set((await again.rotate()).names) == set(secrets)
    assert {name: again.get(name) for name in secrets} == {n: Secret(t) for n, t in secrets.items()}


@only_postgres
async def test_g03_who_has_lost_the_key_can_start_again(open_on: Open) -> None:
    await (await open_on("a", OLD)).change({"keys/openai": TEXT})
    anew = await open_on("b", OTHER)
    assert isinstance(anew, SecretsTable)
    assert await anew.reset() == ("keys/openai",)
    await anew.change({"keys/openai": "again"})
    assert anew.get("keys/openai") == Secret("again")
    assert anew.state.notice == ""


# --- the key -------------------------------------------------------------------------------------------


def test_g03_the_key_comes_from_the_environment_else_from_the_file(tmp_path: Path) -> None:
    key, other = new_key(), new_key()
    file = tmp_path / "key"
    file.write_text(f"{other}\n{key}\n")
    given = read_key_ring({"EVERTURN_SECRET_KEY": key}, file)
    assert given is not None
    assert len(given.ids) == 1
    from_file = read_key_ring({}, file)
    assert from_file is not None
    assert from_file.ids[1] == given.first
    both = read_key_ring({"EVERTURN_SECRET_KEY": f"{other}, {key.rstrip('=')}"}, None)
    assert both is not None
    assert both.ids == from_file.ids
    assert read_key_ring({}, None) is None
    assert read_key_ring({"EVERTURN_SECRET_KEY": " "}, None) is None


@pytest.mark.parametrize("text", ["password", "c2hvcnQ=", "é" * 44, "A" * 44 + "A"])
def test_g03_what_is_no_key_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_key_ring({"EVERTURN_SECRET_KEY": text}, None)
    assert text not in f"{caught.value} {caught.value.hint}"
    (tmp_path / "empty").touch()
    for file in ("empty", "missing"):
        with pytest.raises(Invalid, match=file):
            read_key_ring({}, tmp_path / file)
