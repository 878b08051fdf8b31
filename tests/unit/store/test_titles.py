"""The list searched by titles and tags: by any part, on both stores the same, whatever the number of sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn.domain.sessions import NewSession, SessionFilter, SessionPatch
from everturn.domain.store_values import ImportedSession, Request
from everturn.store import Store
from everturn.store.sessions import sessions
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answered, new_session

pytestmark = pytest.mark.anyio


async def found(store: Store, query: str, **more: Any) -> list[str]:
    page = await store.sessions.list(ME, SessionFilter(query=query, **more))
    return [session.title for session in page.items]


@pytest.fixture(params=["newest", "index"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the newest sessions looked through first, and with the index alone."""
    if request.param == "index":
        monkeypatch.setattr(sessions, "LOOK_MAX", 0)
    return str(request.param)


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("rome", ["A trip to Rome"]),
        ("ROME", ["A trip to Rome"]),
        ("ome", ["A trip to Rome"]),
        ("trip  to", ["A trip to Rome"]),
        ("to trip", []),
        ("elan", ["Élan vital"]),
        ("ÉLAN", ["Élan vital"]),
        ("strasse", []),
        ("旅行計画", ["東京旅行計画"]),
        ('say "hi"', ['Say "hi" AND OR NOT * ^ :']),
        ("and or not *", ['Say "hi" AND OR NOT * ^ :']),
        ("100%", ["100% _sure_"]),
        ("%", ["100% _sure_"]),
        ("x" * 200, []),
        ("\0", None),
    ],
)
async def test_any_part_of_a_title_is_found(
    store: Store, by: str, query: str, titles: list[str] | None
) -> None:
    every = ["A trip to Rome", "Élan vital", "東京旅行計画", 'Say "hi" AND OR NOT * ^ :', "100% _sure_"]
    for title in every:
        await new_session(store, title)
    await store.sessions.create("another owner", NewSession(title="A trip to Rome"))
    if len(query) < 3 and by == "index":
        return  # one or two letters are looked for among the newest
    assert await found(store, query) == (every[::-1] if titles is None else titles)


async def test_one_or_two_letters_are_found_among_the_newest(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LOOK_MAX", 1)
    monkeypatch.setattr(sessions, "SHORT_LOOK_MAX", 2)
    for title in ("旅行 one", "旅行 two", "three"):
        await new_session(store, title)
    assert await found(store, "旅行") == ["旅行 two"]


async def test_the_search_follows_every_change_of_title_and_tags(store: Store, by: str) -> None:
    session = await new_session(store, "first name")
    await store.sessions.change(ME, session.id, SessionPatch(title="second name"))
    assert (await found(store, "first"), await found(store, "second")) == ([], ["second name"])
    await store.sessions.change(ME, session.id, SessionPatch(tags=("holiday",)))
    assert await found(store, "holi") == await found(store, "second") == ["second name"]
    await store.sessions.change(ME, session.id, SessionPatch(title="", tags=()))
    assert await found(store, "holi") == await found(store, "second") == []
    await store.sessions.set_title(ME, session.id, "made up")
    assert await found(store, "made") == ["made up"]
    await answered(store, session.id, "a", "A")
    branch = await store.transcript.branch(ME, session.id, None, Request(key="b"))
    assert await found(store, "made") == ["made up (2)", "made up"]
    await store.sessions.delete(ME, branch.id)
    imported = await store.transcript.import_session(
        ME, ImportedSession(*await store.transcript.export(ME, session.id))
    )
    assert len(await found(store, "made")) == 2
    for each in (imported, session):
        await store.sessions.delete(ME, each.id)
    assert await found(store, "made") == []
    assert await store.upkeep.check() == []


async def test_a_branch_is_told_from_its_origin_and_from_other_branches(store: Store) -> None:
    session = await new_session(store, "Plan")
    await answered(store, session.id, "a", "A")
    second = await store.transcript.branch(ME, session.id, None, Request(key="1"))
    third = await store.transcript.branch(ME, session.id, None, Request(key="2"))
    fourth = await store.transcript.branch(ME, second.id, None, Request(key="3"))
    assert [second.title, third.title, fourth.title] == ["Plan (2)", "Plan (3)", "Plan (4)"]
    await store.sessions.delete(ME, third.id)
    again = await store.transcript.branch(ME, session.id, None, Request(key="4"))
    assert again.title == "Plan (3)"
    repeated = await store.transcript.branch(ME, session.id, None, Request(key="1"))
    assert repeated.title == "Plan (2)"


@pytest.mark.parametrize(
    ("title", "copied"),
    [("", ""), ("In 2024 (2024)", "In 2024 (2024) (2)"), ("x" * 200, "x" * 194 + " (2)")],
)
async def test_what_a_branch_is_called(store: Store, title: str, copied: str) -> None:
    session = await new_session(store, title)
    await answered(store, session.id, "a", "A")
    assert (await store.transcript.branch(ME, session.id, None, Request(key="1"))).title == copied


async def test_pages_narrowed_and_sorted_are_the_same_by_index_and_by_looking(
    store: Store, clock: FakeClock, by: str
) -> None:
    for number in range(12):
        session = await new_session(store, f"needle {number}")
        await new_session(store, f"hay {number}")
        patch = SessionPatch(
            archived=number % 3 == 0, pinned=number % 2 == 0, tags=("t",) * (number % 4 == 0)
        )
        await store.sessions.change(ME, session.id, patch)
        await clock.advance(1)
    shown = [number for number in range(11, -1, -1) if number % 3]

    def titles(is_in: Callable[[int], bool] = lambda number: True) -> list[str]:
        return [f"needle {number}" for number in shown if is_in(number)]

    assert await found(store, "needle") == titles()
    assert await found(store, "needle", pinned=True) == titles(lambda number: number % 2 == 0)
    assert await found(store, "needle", tag="t") == titles(lambda number: number % 4 == 0)
    assert await found(store, "needle", archived=True) == ["needle 9", "needle 6", "needle 3", "needle 0"]
    assert await found(store, "needle", archived=None) == [f"needle {number}" for number in range(11, -1, -1)]
    pages, cursor = [], None
    while True:
        page = await store.sessions.list(ME, SessionFilter(query="needle"), limit=3, cursor=cursor)
        pages.append([session.title for session in page.items])
        cursor = page.cursor
        if cursor is None:
            break
    assert pages == [titles()[:3], titles()[3:6], titles()[6:]]
