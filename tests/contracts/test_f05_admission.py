"""F05: nobody is served without being allowed, by a list or by a pairing code; a guest is an owner of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import ChatKind, ChatPlace, SenderRole, Update
from everturn.domain.errors import NotFound
from everturn.domain.gateway import Gateway, Person
from everturn.gateway.pairing import LIFE_MS, Pairing
from everturn.store import Store
from everturn.testing import FakeClock, Say
from everturn.testing.harness import OWNER
from everturn.testing.platform import FakePlatform
from tests.gateways import ACCOUNT, Platforms, talking
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> SystemClock:
    """The store's and the loops'. They poll at short intervals, and the tests wait for facts."""
    return SystemClock()


async def connected(platforms: Platforms, account: str = ACCOUNT) -> FakePlatform:
    await until("the account is opened", lambda: account in platforms.made)
    return platforms.made[account]


async def answered(platform: FakePlatform, count: int, chat: str = "42") -> list[str]:
    await until(f"{count} messages arrive in {chat}", lambda: len(platform.texts(chat)) >= count)
    return platform.texts(chat)


def in_group(update_id: str, sender: str, *, is_addressed: bool = True) -> Update:
    place = ChatPlace(ACCOUNT, "fake", ChatKind.GROUP, "7")
    return Update(update_id, place, sender, "hello all", is_addressed=is_addressed)


async def test_f05_only_listed_senders_are_served(store: Store, data_dir: Path) -> None:
    platforms = Platforms()
    script = (Say("hello ada"), Say("hello ben"))
    async with talking(store, data_dir, platforms, *script, allow=["ada"], members=["ben"]) as (_, gateway):
        platform = await connected(platforms)
        platform.say("u1", "let me in", "66", sender="eve")
        platform.say("u2", "hello", sender="ada")
        assert await answered(platform, 1) == ["hello ada"]
        platform.say("u3", "hello", "43", sender="ben")
        assert await answered(platform, 1, "43") == ["hello ben"]
        assert (await gateway.account(ACCOUNT)).health.strangers == 1
    assert platform.texts("66") == []
    assert [chat.place.chat for chat in await store.delivery.chats.list(OWNER)] == ["42", "43"]


async def test_f05_a_pairing_code_lets_its_sender_in_once_and_is_not_stored(
    store: Store, data_dir: Path
) -> None:
    platforms = Platforms()
    async with talking(store, data_dir, platforms, *[Say("hello")] * 4) as (_, gateway):
        platform = await connected(platforms)
        code = await gateway.pair(ACCOUNT, SenderRole.OWNER)
        platform.say("u1", f" {code.code.lower()} ", sender="ada")
        await until("ada is paired", lambda: _people(gateway))
        platform.say("u2", code.code, "43", sender="eve")
        platform.say("u3", "hello", sender="ada")
        await until("all is delivered", lambda: platform.unacknowledged == 0)
        (person,) = await _people(gateway)
        assert (person.id, person.role) == ("ada", SenderRole.OWNER)
        assert (await gateway.account(ACCOUNT)).health.strangers == 1
    (chat,) = await store.delivery.chats.list(OWNER)
    assert chat.place.chat == "42"
    assert not (await store.sessions.list("guest:main:eve")).items


async def _people(gateway: Gateway) -> tuple[Person, ...]:
    return (await gateway.account(ACCOUNT)).people


async def test_f05_a_person_who_was_removed_is_a_stranger_at_once(store: Store, data_dir: Path) -> None:
    platforms = Platforms()
    async with talking(store, data_dir, platforms, *[Say("hello")] * 2) as (_, gateway):
        platform = await connected(platforms)
        code = await gateway.pair(ACCOUNT, SenderRole.MEMBER)
        platform.say("u1", f"/start {code.code}", sender="ada")
        await until("ada is paired", lambda: _people(gateway))
        await gateway.remove_person(ACCOUNT, "ada")
        platform.say("u2", "still here?", sender="ada")
        await until("it is delivered", lambda: platform.unacknowledged == 0)
        assert (await gateway.account(ACCOUNT)).health.strangers == 1
        with pytest.raises(NotFound):
            await gateway.remove_person(ACCOUNT, "ada")


async def test_f05_in_a_group_only_messages_to_the_agent_are_rows(store: Store, data_dir: Path) -> None:
    platforms = Platforms()
    async with talking(store, data_dir, platforms, Say("yes?"), allow=["ada"]) as (_, gateway):
        platform = await connected(platforms)
        platform.deliver_later(in_group("u1", "ada", is_addressed=False))
        platform.deliver_later(in_group("u2", "ada"))
        assert await answered(platform, 1, "7") == ["yes?"]
        account = await gateway.account(ACCOUNT)
        assert (account.figures.received, account.health.strangers) == (1, 0)


async def test_f05_a_guest_has_sessions_of_their_own_in_private_chats_only(
    store: Store, data_dir: Path
) -> None:
    platforms = Platforms()
    async with talking(store, data_dir, platforms, Say("hello guest"), allow=["ada"], guests=True) as (
        _,
        gateway,
    ):
        platform = await connected(platforms)
        platform.deliver_later(in_group("u1", "eve"))
        platform.say("u2", "hello", "66", sender="eve")
        assert await answered(platform, 1, "66") == ["hello guest"]
        assert (await gateway.account(ACCOUNT)).health.strangers == 1
    (session,) = (await store.sessions.list("guest:main:eve")).items
    assert session.profile == "guest"
    assert (await store.sessions.list(OWNER)).items == ()


async def test_f05_a_code_is_used_once_by_the_faster_of_two_servers(store: Store) -> None:
    clock = FakeClock()
    here, there = Pairing(store.records, OWNER, clock), Pairing(store.records, OWNER, clock)
    code = (await here.make(ACCOUNT, SenderRole.OWNER)).code
    roles = [await each.use(ACCOUNT, "ada", code) for each in (there, here)]
    assert roles == [SenderRole.OWNER, None]


async def test_f05_a_code_expires_and_a_new_one_replaces_it(store: Store) -> None:
    clock = FakeClock()
    pairing = Pairing(store.records, OWNER, clock)
    first = await pairing.make(ACCOUNT, SenderRole.OWNER)
    second = await pairing.make(ACCOUNT, SenderRole.OWNER)
    assert await pairing.use(ACCOUNT, "ada", first.code) is None
    await clock.advance(LIFE_MS / 1000)
    assert await pairing.use(ACCOUNT, "ada", second.code) is None


async def test_f05_a_code_of_one_account_opens_no_other(store: Store) -> None:
    pairing = Pairing(store.records, OWNER, FakeClock())
    code = (await pairing.make(ACCOUNT, SenderRole.OWNER)).code
    await pairing.make("other", SenderRole.OWNER)
    assert await pairing.use("other", "ada", code) is None
    assert await pairing.use(ACCOUNT, "ada", code) is SenderRole.OWNER
