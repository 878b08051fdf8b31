"""A06: the list is exact, search may lag, both can be rebuilt, and a broken index fails no write."""

from __future__ import annotations

import apsw
import asyncpg
import pytest

from everturn.domain.errors import Invalid
from everturn.domain.sessions import MessageFilter, NewSession, SessionFilter, SessionPatch
from everturn.domain.store_values import Request, RetriedTurn, SearchOrder
from everturn.store import Store
from everturn.store.sessions import search
from everturn.testing.acting import (
    CRASHED,
    ME,
    answer,
    answered,
    append,
    ask,
    claim,
    complete,
    new_session,
    say,
    start,
    wish,
    words,
)

pytestmark = pytest.mark.anyio


async def by_hand(url: str, *statements: str) -> None:
    """Change the database past the store, as damage would."""
    if url.startswith("sqlite://"):
        database = apsw.Connection(url.removeprefix("sqlite://"))
        for statement in statements:
            database.execute(statement)
        database.close()
        return
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def test_a06_the_list_is_exact_after_every_write(store: Store) -> None:
    session = await new_session(store)

    async def listed() -> tuple[object, ...]:
        assert await store.upkeep.check() == []
        (row,) = (await store.sessions.list(ME)).items
        assert row == await store.sessions.get(ME, session.id)
        return row.active_state, row.queued, row.asks, row.last_state, row.messages, row.preview

    assert await listed() == (None, 0, 0, None, 0, "")
    await say(store, session.id, "one")
    assert await listed() == (None, 1, 0, None, 1, "one")
    held = (await store.turns.claim("wrk_one"))[0]
    assert await listed() == ("running", 0, 0, None, 1, "one")
    number = await append(store, held, wish(is_started=False))
    await store.turns.wait(held.turn.id, held.epoch, number + 1, [ask("ask_1", held.turn.id, session.id)], [])
    assert await listed() == ("waiting", 0, 1, None, 1, "one")
    await store.asks.answer(ME, "ask_1", "yes", by="me")
    assert await listed() == ("waiting", 0, 0, None, 1, "one")
    await store.turns.cancel(ME, held.turn.id)
    assert await listed() == (None, 0, 0, "cancelled", 3, "Let me see.")
    await answered(store, session.id, "two", "a longer\nanswer")
    assert await listed() == (None, 0, 0, "completed", 5, "a longer answer")
    await store.transcript.undo(ME, session.id, Request())
    assert (await listed())[3:5] == ("cancelled", 5)


async def test_a06_a_session_without_a_title_keeps_its_first_words(store: Store) -> None:
    session = await new_session(store)

    async def first_words() -> str:
        (row,) = (await store.sessions.list(ME)).items
        assert row == await store.sessions.get(ME, session.id)
        return row.first_words

    assert await first_words() == ""
    await say(store, session.id, "\n what   is\tthis?\nA second line.")
    assert await first_words() == "what is this?", "from the moment it is accepted"
    first = await claim(store, session_id=session.id)
    await complete(store, first, await append(store, first, answer("An elephant.")))
    await answered(store, session.id, "and that?", "A tree.")
    await say(store, session.id, "waiting")
    assert await first_words() == "what is this?"
    held = await claim(store, session_id=session.id)
    await complete(store, held, await append(store, held, answer("Yes.")))
    await store.transcript.retry(ME, session.id, RetriedTurn(first.turn.id, text="who is this?"), Request())
    held = await claim(store, session_id=session.id)
    await complete(store, held, await append(store, held, answer("A man.")))
    assert await first_words() == "who is this?", "the first message was edited"
    await store.transcript.select(ME, session.id, first.turn.id, Request())
    assert await first_words() == "what is this?"
    await store.transcript.clear(ME, session.id, Request())
    await answered(store, session.id, "x" * 1000, "Once more.")
    assert await first_words() == "x" * 160
    branch = await store.transcript.branch(ME, session.id, None, Request())
    assert branch.first_words == "x" * 160
    named = await store.sessions.set_title(ME, session.id, "Animals")
    assert named.first_words == "", "it is called by its title"
    assert await store.upkeep.check() == []


async def test_a06_search_finds_what_was_indexed_and_forgets_what_was_deleted(store: Store) -> None:
    one, two = await new_session(store, "first"), await new_session(store, "second")
    await answered(store, one.id, "a green elephant", "Elephants are gray.")
    await answered(store, two.id, "a green apple", "Apples can be green.")
    assert await store.search.find(ME, "green") == []
    while await store.search.index():
        pass
    assert [hit.title for hit in await store.search.find(ME, "green elephant")] == ["first"]
    assert {hit.session_id for hit in await store.search.find(ME, "green")} == {one.id, two.id}
    assert await store.search.find("another owner", "green") == []
    for order in SearchOrder:
        hits = await store.search.find(ME, "green", within=MessageFilter(session_id=one.id), order=order)
        assert [hit.session_id for hit in hits] == [one.id]
        hit = hits[0]
        assert [hit.excerpt[start:end].lower() for start, end in hit.marks] == ["green"]
    await store.sessions.delete(ME, one.id)
    assert await store.search.find(ME, "elephant") == []


@pytest.mark.parametrize("query", ["green", ""])
async def test_a06_search_refuses_an_unknown_order(store: Store, query: str) -> None:
    with pytest.raises(Invalid, match="order is 'oldest'") as refused:
        await store.search.find(ME, query, order="oldest")  # type: ignore[arg-type]
    assert refused.value.hint == "Use newest or relevance."
    assert await store.upkeep.check() == []


@pytest.mark.parametrize("order", SearchOrder)
async def test_a06_what_is_private_is_found_by_its_owner_and_not_by_other_sessions(
    store: Store, order: SearchOrder
) -> None:
    open_one, reader = await new_session(store, "open"), await new_session(store, "reader")
    secret = await store.sessions.create(ME, NewSession(title="secret", private=True))
    for _ in range(3):  # newer than what may be found, and more of it than is asked for
        await answered(store, open_one.id, "an owl", "An owl.")
    for _ in range(6):
        await answered(store, secret.id, "owl", "owl")
    while await store.search.index():
        pass

    async def found(by: str | None) -> set[str]:
        hits = await store.search.find(ME, "owl", limit=5, order=order, reader=by)
        assert len(hits) == 5
        return {hit.title for hit in hits}

    assert await found(reader.id) == {"open"}
    assert "secret" in await found(secret.id)
    assert "secret" in await found(None)
    assert (
        await store.search.find(
            ME, "owl", within=MessageFilter(session_id=secret.id), order=order, reader=reader.id
        )
        == []
    )


async def test_a06_the_best_hits_of_a_session_are_found_among_many_of_others(store: Store) -> None:
    wanted, crowd = await new_session(store, "wanted"), await new_session(store, "crowd")
    await answered(store, wanted.id, "the word owl is in a longer sentence here", "I see.")
    for _ in range(30):
        await answered(store, crowd.id, "owl owl owl", "owl")
    while await store.search.index():
        pass
    hits = await store.search.find(
        ME, "owl", within=MessageFilter(session_id=wanted.id), order=SearchOrder.RELEVANCE, limit=2
    )
    assert [hit.session_id for hit in hits] == [wanted.id]


async def test_a06_hits_come_newest_first_or_best_first_as_asked(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "owl owl owl", "I see.")
    await answered(store, session.id, "one owl among many other birds that are listed here", "I see.")
    while await store.search.index():
        pass

    async def first(order: SearchOrder) -> str:
        return (await store.search.find(ME, "owl", order=order))[0].excerpt

    assert (await first(SearchOrder.RELEVANCE)).startswith("owl owl owl")
    assert (await first(SearchOrder.NEWEST)).startswith("one owl")


async def test_a06_an_edited_message_is_found_by_its_new_words_only(store: Store) -> None:
    session = await new_session(store)
    accepted = await say(store, session.id, "before the change")
    while await store.search.index():
        pass
    await store.turns.edit_queued(ME, accepted.turn.id, "after it")
    while await store.search.index():
        pass
    assert await store.search.find(ME, "before") == []
    assert [hit.excerpt for hit in await store.search.find(ME, "after")] == ["after it"]
    assert await store.upkeep.check() == []


async def test_a06_a_broken_index_makes_no_write_fail_and_is_rebuilt(store: Store, store_url: str) -> None:
    session, doomed = await new_session(store), await new_session(store)
    await answered(store, session.id, "a green elephant", "Gray, rather.")
    await answered(store, doomed.id, "a green apple", "Indeed.")
    await store.search.index()
    if store.kind == "sqlite":
        await by_hand(store_url, "UPDATE message_index_data SET block = x'ffffffff' WHERE id > 10")
    else:
        await by_hand(store_url, "DROP INDEX message_words_index", "DELETE FROM message_words")
    findings = await store.upkeep.check()
    assert {(finding.what, finding.is_repairable) for finding in findings} == {("search index broken", True)}
    await store.sessions.delete(ME, doomed.id)
    await answered(store, session.id, "and a blue one", "Never seen.")
    held = await start(store, session.id, "one more")
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    await store.upkeep.repair()
    assert await store.upkeep.check() == []
    assert {hit.excerpt for hit in await store.search.find(ME, "green")} == {"a green elephant"}
    assert {hit.excerpt for hit in await store.search.find(ME, "blue")} == {"and a blue one"}


@pytest.mark.parametrize("order", SearchOrder)
async def test_a06_what_is_recent_and_what_is_not_are_found_alike_and_leave_alike(
    store: Store, monkeypatch: pytest.MonkeyPatch, order: SearchOrder
) -> None:
    monkeypatch.setattr(search, "RECENT_MAX", 6)
    monkeypatch.setattr(search, "RANKED_MIN", 2)
    session, doomed = await new_session(store), await new_session(store)
    told: list[str] = []

    async def found(query: str, limit: int = 50) -> list[str]:
        hits = await store.search.find(ME, query, limit=limit, order=order)
        return sorted(hit.excerpt for hit in hits)

    for number in range(8):
        where = doomed if number in (1, 6) else session
        await answered(store, where.id, f"needle {number}", "Hay.")
        told.append(f"needle {number}")
        await store.search.index(limit=3)
        while await store.search.index():
            pass
        assert await found("needle") == await found("ne") == sorted(told)
    assert await found("needle", limit=2) == ["needle 6", "needle 7"]
    await store.sessions.delete(ME, doomed.id)
    assert await found("needle") == ["needle 0", "needle 2", "needle 3", "needle 4", "needle 5", "needle 7"]
    queued = await say(store, session.id, "needle 8")
    await store.search.index()
    await store.turns.edit_queued(ME, queued.turn.id, "pin 8")
    await store.search.index()
    assert await found("pin") == ["pin 8"]
    assert "needle 8" not in await found("needle")
    assert await store.upkeep.check() == []
    await store.search.rebuild()
    assert len(await found("needle")) == 6
    assert await store.upkeep.check() == []


@pytest.mark.parametrize("table", ["message_index", "recent_index"])
@pytest.mark.parametrize("damage", ["block = x'00'", "block = x'ffffffff' WHERE id > 10", "id = id + 99"])
async def test_a06_indexing_into_a_broken_index_stops_nothing_and_it_is_rebuilt(
    store: Store, store_url: str, damage: str, table: str
) -> None:
    if store.kind != "sqlite":
        pytest.skip("PostgreSQL keeps its index itself")
    session = await new_session(store)
    await answered(store, session.id, "a green elephant", "Gray, rather.")
    await store.search.index()
    await by_hand(store_url, f"UPDATE {table}_data SET {damage}")
    await answered(store, session.id, "a blue one", "Never seen.")
    await store.search.index()
    await store.upkeep.repair()
    assert len(await store.search.find(ME, "green")) == 1
    assert len(await store.search.find(ME, "blue")) == 1


@pytest.mark.parametrize("damage", ["block = x'00'", "block = x'ffffffff' WHERE id > 10", "id = id + 99"])
async def test_a06_a_broken_title_index_makes_no_write_fail_and_is_rebuilt(
    store: Store, store_url: str, damage: str
) -> None:
    if store.kind != "sqlite":
        pytest.skip("PostgreSQL keeps its index itself")
    session, doomed = await new_session(store, "a green elephant"), await new_session(store, "a green apple")
    await by_hand(store_url, f"UPDATE title_index_data SET {damage}")
    await store.sessions.change(ME, session.id, SessionPatch(title="a blue elephant"))
    await store.sessions.delete(ME, doomed.id)
    await new_session(store, "a red fox")
    await store.upkeep.repair()
    assert await store.upkeep.check() == []
    for query, titles in (("elephant", ["a blue elephant"]), ("red fox", ["a red fox"]), ("green", [])):
        assert [
            found.title for found in (await store.sessions.list(ME, SessionFilter(query=query))).items
        ] == titles


async def test_a06_titles_that_are_not_searched_are_found_and_repaired(store: Store, store_url: str) -> None:
    session = await new_session(store, "a green elephant")
    await by_hand(store_url, "DELETE FROM titles")
    (finding,) = [found for found in await store.upkeep.check() if found.what == "title not searched"]
    assert (session.id in finding.detail, finding.is_repairable) == (True, True)
    await store.upkeep.repair()
    assert await store.upkeep.check() == []
    assert [found.id for found in (await store.sessions.list(ME, SessionFilter(query="green"))).items] == [
        session.id
    ]


async def test_a06_a_damaged_list_is_rebuilt_from_the_truth(store: Store, store_url: str) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    await say(store, session.id, "b")
    before = await store.sessions.get(ME, session.id)
    await by_hand(
        store_url,
        "UPDATE sessions SET queued = 7, messages = 99, active_state = 'running', last_state = NULL",
        "UPDATE tails SET position = 1, archived = 1",
    )
    assert {finding.what for finding in await store.upkeep.check()} == {"list differs", "position behind"}
    repaired = await store.upkeep.repair()
    assert all(finding.is_repaired for finding in repaired)
    assert await store.sessions.get(ME, session.id) == before
    assert await store.upkeep.check() == []
    assert await words(store, session.id) == ["a", "A"]


@pytest.mark.parametrize("cursor", ["9999999999999999999.1", "1.9999999999999999999", "1", "a.b", "-1.1"])
async def test_a06_a_cursor_that_no_list_gave_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(Invalid):
        await store.sessions.list(ME, cursor=cursor)
