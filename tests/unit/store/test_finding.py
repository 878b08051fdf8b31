"""Finding sessions and messages by tag, project, role and time; sessions that nobody used go."""

from __future__ import annotations

import pytest

from everturn.domain.errors import Gone
from everturn.domain.sessions import Label, MessageFilter, NewSession, SessionFilter, SessionPatch
from everturn.domain.store_values import Request, SearchOrder
from everturn.store import Store
from everturn.store.sessions import sessions as listed
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answered, new_session, say

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000


async def ids(store: Store, **wanted: object) -> list[str]:
    page = await store.sessions.list(ME, SessionFilter(**wanted))  # type: ignore[arg-type]
    return [session.id for session in page.items]


async def tagged(store: Store, title: str, *tags: str) -> str:
    session = await new_session(store, title)
    await store.sessions.change(ME, session.id, SessionPatch(tags=tags))
    return session.id


@pytest.mark.parametrize("look_max", [1, listed.LOOK_MAX])
async def test_a_tag_finds_sessions_that_have_exactly_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, look_max: int
) -> None:
    monkeypatch.setattr(listed, "LOOK_MAX", look_max)  # 1: by the index of titles
    garden = await tagged(store, "Beds", "garden", "home")
    gardening = await tagged(store, "garden tools", "gardening")
    short = await tagged(store, "Taxes", "hr")
    assert await ids(store, tag="garden") == [garden]
    assert await ids(store, tag="gardening") == [gardening]
    assert await ids(store, tag="hr") == [short], "too short for the index"
    assert await ids(store, query="garden") == [gardening, garden], "a query looks in titles and tags"
    assert await ids(store, query="tools", tag="garden") == []
    assert await ids(store, tag="nothing") == []


async def test_a_project_finds_its_sessions(store: Store) -> None:
    there = await store.sessions.create(ME, NewSession(title="Sites", project="/srv/site"))
    tag = await store.sessions.change(ME, there.id, SessionPatch(tags=("web",)))
    await store.sessions.create(ME, NewSession(title="Sites too", project="/srv/site2"))
    assert await ids(store, project="/srv/site") == [there.id]
    assert await ids(store, project="/srv/site", query="sit", tag="web") == [tag.id]
    assert await ids(store, project="/srv") == []


async def test_a_list_can_be_bounded_in_time(store: Store, clock: FakeClock) -> None:
    made = []
    for number in range(3):
        made.append(await new_session(store, f"number {number}"))
        await clock.advance(60)
    first, second, third = made
    assert await ids(store, since=second.updated_at) == [third.id, second.id]
    assert await ids(store, until=second.updated_at) == [first.id]
    assert await ids(store, since=second.updated_at, until=third.updated_at) == [second.id]
    page = await store.sessions.list(ME, SessionFilter(since=second.updated_at), limit=1)
    rest = await store.sessions.list(ME, SessionFilter(since=second.updated_at), limit=1, cursor=page.cursor)
    last = await store.sessions.list(ME, SessionFilter(since=second.updated_at), limit=1, cursor=rest.cursor)
    assert [page.items[0].id, rest.items[0].id] == [third.id, second.id]
    assert (last.items, last.cursor) == ((), None), "what is older ends the list"


async def test_labels_count_listed_sessions(store: Store) -> None:
    await tagged(store, "a", "garden", "home")
    gone = await tagged(store, "b", "garden")
    await store.sessions.create(ME, NewSession(title="c", project="/srv/site"))
    await store.sessions.create("another owner", NewSession(title="d", project="/srv/other"))
    labels = await store.sessions.labels(ME)
    assert labels.tags == (Label("garden", 2), Label("home", 1))
    assert labels.projects == (Label("/srv/site", 1),)
    await store.sessions.mark_deleted(ME, gone, due_at=1)
    assert (await store.sessions.labels(ME)).tags == (Label("garden", 1), Label("home", 1))


@pytest.mark.parametrize("order", list(SearchOrder))
async def test_search_narrows_by_role_time_and_tag(
    store: Store, clock: FakeClock, order: SearchOrder
) -> None:
    one = await tagged(store, "one", "birds")
    two = await tagged(store, "two")
    await answered(store, one, "an owl", "The owl sleeps.")
    between = clock.now_ms() + 1
    await clock.advance(60)
    await answered(store, two, "another owl", "It does not sleep.")
    while await store.search.index():
        pass

    async def found(**within: object) -> set[tuple[str, str]]:
        narrow = MessageFilter(**within)  # type: ignore[arg-type]
        hits = await store.search.find(ME, "owl", order=order, within=narrow)
        return {("one" if hit.session_id == one else "two", hit.role) for hit in hits}

    assert await found() == {("one", "user"), ("one", "assistant"), ("two", "user")}
    assert await found(role="assistant") == {("one", "assistant")}
    assert await found(until=between) == {("one", "user"), ("one", "assistant")}
    assert await found(since=between) == {("two", "user")}
    assert await found(since=between, until=between) == set()
    assert await found(until=0) == set()
    assert await found(tag="birds", role="user") == {("one", "user")}
    assert await found(tag="bird") == set()
    assert await found(session_id=two, tag="birds") == set()


async def test_a_session_that_was_never_used_goes_and_others_stay(store: Store, clock: FakeClock) -> None:
    empty = await new_session(store)
    titled = await new_session(store, "Plans")
    asked = await new_session(store)
    await say(store, asked.id, "hello")
    undone = await new_session(store)
    await answered(store, undone.id, "hello", "Hello.")
    await store.transcript.clear(ME, undone.id, Request())
    labelled = await tagged(store, "", "later")
    keyed = await store.sessions.create(ME, NewSession(key="desk"))
    await clock.advance(3600)
    young = await new_session(store)

    before = young.created_at
    assert await store.sessions.discard_empty(before=before, limit=2) == 2, "in pieces"
    while await store.sessions.discard_empty(before=before, limit=2):
        pass
    kept = {titled.id, asked.id, undone.id, labelled, keyed.id, young.id}
    assert set(await ids(store)) == kept
    with pytest.raises(Gone):
        await store.sessions.get(ME, empty.id)
    assert [gone.session_id for gone in await store.sessions.deletions()] == [empty.id], (
        "it is due to be purged"
    )

    await store.sessions.change(ME, titled.id, SessionPatch(title=""))
    assert await store.sessions.discard_empty(before=before) == 0, "each was looked at once"
    assert await store.sessions.discard_empty(before=before + DAY_MS) == 1
    assert set(await ids(store)) == kept - {young.id}
    assert await store.upkeep.check() == []
