"""Credentials: what is revoked stays revoked, and ours is found among other programs' cookies."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.domain.ids import Ids
from everturn.store import Store
from everturn.testing.clock import FakeClock
from everturn.web.access.accounts import Accounts, cookie_from
from everturn.web.access.identity import SYSTEM, Scope
from everturn.web.access.passwords import Passwords
from everturn.web.access.throttle import Throttle
from everturn.web.access.visitor import Visitor

VISITOR = Visitor("127.0.0.1", "http", "127.0.0.1:8420", is_forwarded=False)


class Revoking:
    """The store's records, in which a credential is revoked as soon as it has been read."""

    def __init__(self, store: Store) -> None:
        self._records = store.records

    async def get(self, owner: str, kind: str, name: str) -> Any:
        found = await self._records.get(owner, kind, name)
        if kind in ("token", "signin"):
            assert await self._records.delete(owner, kind, name)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)


def accounts_over(records: Any, clock: FakeClock) -> Accounts:
    return Accounts(records, clock, Ids(clock), Passwords(memory_kib=64, rounds=1), Throttle(clock))


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["token", "signin"])
async def test_a_credential_that_is_revoked_while_it_is_used_does_not_come_back(
    store: Store, clock: FakeClock, kind: str
) -> None:
    before = accounts_over(store.records, clock)
    await before.set_password("correct horse")
    cookie, _ = await before.sign_in("correct horse", VISITOR, agent="", old=None)
    _, text = await before.create_token("local", "phone", (Scope.CHAT,))
    await clock.jump(3600)  # so that its last use is to be noted
    headers = {"authorization": f"Bearer {text}"} if kind == "token" else {"cookie": f"everturn={cookie}"}
    caller = await accounts_over(Revoking(store), clock).caller(headers, VISITOR)
    assert caller is not None
    assert await store.records.list(SYSTEM, kind) == {}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("everturn=sin_1.a", "sin_1.a"),
        ('theme={"dark": true}; everturn=sin_1.a', "sin_1.a"),
        ("a=b c; we[ird]=1; plain;everturn=sin_1.a ;x=y", "sin_1.a"),
        ("xeverturn=1; everturnx=2; __Host-everturn=3", None),
        ("everturn=", None),
        ("", None),
    ],
)
def test_our_cookie_is_found_whatever_other_programs_of_this_host_have_set(
    given: str, found: str | None
) -> None:
    assert cookie_from({"cookie": given}, VISITOR) == found


@pytest.mark.anyio
async def test_a_record_is_replaced_only_where_there_is_one(store: Store) -> None:
    assert not await store.records.replace("ada", "kind", "name", 1)
    assert await store.records.get("ada", "kind", "name") is None
    await store.records.put("ada", "kind", "name", 1)
    assert await store.records.replace("ada", "kind", "name", 2)
    assert await store.records.get("ada", "kind", "name") == 2
