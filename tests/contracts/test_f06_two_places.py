"""F06: a session that is open in the browser and in a chat shows the same conversation in both."""

from __future__ import annotations

import pytest

from everturn.domain.delivery import AskedElsewhere
from everturn.domain.store_values import Request, RetriedTurn, Submission, WhenBusy
from everturn.domain.turns import TurnKind
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answer, append, claim, complete, new_session, say
from tests.delivering import accept, arrive, due, receive, record, reply

pytestmark = pytest.mark.anyio
FROM_THE_PAGE = AskedElsewhere("and from the page?")


async def test_f06_a_turn_from_the_page_owes_its_reply_to_the_chat_with_the_words_asked(store: Store) -> None:
    first = await arrive(store, "u1", "hello")
    await reply(store, first, "hello yourself")
    await reply(store, await say(store, first.turn.session_id, FROM_THE_PAGE.text), "also here")
    from_chat, from_page = await due(store)
    assert (from_chat.answer, from_chat.asked) == ("hello yourself", None)
    assert (from_page.answer, from_page.asked) == ("also here", FROM_THE_PAGE)
    assert await record(store, from_page, "also here")
    assert not await record(store, from_page, "also here")


async def test_f06_only_the_current_session_of_a_chat_owes_it_replies(store: Store) -> None:
    received = await receive(store, "u1")
    first = await accept(store, received)
    await reply(store, first, "hello yourself")
    other = await new_session(store)
    await store.delivery.chats.switch(ME, received.chat.id, other.id)
    await reply(store, await say(store, first.turn.session_id, "not for the chat"), "left")
    await reply(store, await say(store, other.id, "for the chat"), "right")
    assert [owed.answer for owed in await due(store)] == ["hello yourself", "right"]


async def test_f06_a_retry_on_the_page_owes_its_reply_and_a_compaction_owes_none(store: Store) -> None:
    first = await arrive(store, "u1", "hello")
    await reply(store, first, "hello yourself")
    session_id = first.turn.session_id
    again = await store.transcript.retry(ME, session_id, RetriedTurn(first.turn.id), request=Request())
    await reply(store, again, "hello once more")
    await store.turns.accept(ME, session_id, Submission(kind=TurnKind.COMPACTION))
    held = await claim(store, session_id=session_id)
    await complete(store, held, await append(store, held, answer("a summary")))
    assert [owed.answer for owed in await due(store)] == ["hello yourself", "hello once more"]


async def test_f06_a_page_turn_that_the_chat_steered_has_one_reply_with_the_words_asked(
    store: Store, clock: FakeClock
) -> None:
    first = await arrive(store, "u1", "hello")
    await reply(store, first, "hello yourself")
    await clock.advance(1)
    await say(store, first.turn.session_id, FROM_THE_PAGE.text)
    held = await claim(store)
    await clock.advance(1)
    steering = await accept(store, await receive(store, "u2", "quickly"), when_busy=WhenBusy.STEER)
    assert steering.is_steering
    number = await append(store, held, answer("done"))
    await store.turns.cancel(ME, held.turn.id, by="user")
    assert number
    replies = await due(store)
    assert [(owed.turn_id, owed.asked) for owed in replies[1:]] == [(held.turn.id, FROM_THE_PAGE)]


async def test_f06_steering_that_the_turn_did_not_take_is_a_turn_that_owes_its_own_reply(
    store: Store, clock: FakeClock
) -> None:
    await arrive(store, "u1", "hello")
    held = await claim(store)
    await clock.advance(1)
    await accept(store, await receive(store, "u2", "quickly"), when_busy=WhenBusy.STEER)
    await clock.advance(1)
    await store.turns.cancel(ME, held.turn.id, by="user")
    own = await claim(store)
    assert own.turn.id != held.turn.id
    await complete(store, own, await append(store, own, answer("quick")))
    assert [(owed.answer, owed.asked) for owed in await due(store)] == [("", None), ("quick", None)]


async def test_f06_two_chats_of_one_session_get_each_others_answers(store: Store) -> None:
    received = await receive(store, "u1", "hello", chat="1")
    first = await accept(store, received)
    other = (await receive(store, "u2", "which?", chat="2")).chat
    await store.delivery.chats.switch(ME, other.id, first.turn.session_id)
    await reply(store, first, "hello yourself")
    second = await accept(store, (await store.delivery.inbox.list_waiting("main", limit=1))[0])
    assert second.turn.session_id == first.turn.session_id
    await reply(store, second, "this one")
    asked = {(owed.chat.place.chat, owed.answer): owed.asked for owed in await due(store)}
    assert asked == {
        ("1", "hello yourself"): None,
        ("2", "this one"): None,
        ("1", "this one"): AskedElsewhere("which?", "telegram"),
    }
