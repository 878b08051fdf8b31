"""A14: a compaction takes the turn slot, names what it covers, and never changes the session's identity."""

from __future__ import annotations

import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Gone, NotFound
from everturn.domain.messages import Message, Role, Summary
from everturn.domain.store_values import Claim, Request, Submission
from everturn.domain.turns import TurnKind
from everturn.store import Store
from everturn.testing.acting import (
    CRASHED,
    ME,
    answered,
    append,
    claim,
    complete,
    new_session,
    say,
    transcript,
    words,
)

pytestmark = pytest.mark.anyio


async def begin_compaction(store: Store, session_id: str) -> Claim:
    await store.turns.accept(ME, session_id, Submission(kind=TurnKind.COMPACTION))
    return await claim(store)


def summary(held: Claim, text: str, covers: str) -> ev.MessageAdded:
    return ev.MessageAdded(Message("", held.turn.id, Role.SUMMARY, (Summary(text, covers=covers),), 0))


async def test_a14_messages_that_come_meanwhile_queue_even_as_steering(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    held = await begin_compaction(store, session.id)
    for how in ("queue", "steer"):
        accepted = await say(store, session.id, how, when_busy=how)
        assert not accepted.is_steering
    assert await store.turns.claim("wrk_two") == []
    last = (await transcript(store, session.id))[-1].id
    await complete(store, held, await append(store, held, [summary(held, "about a", last)]))
    assert (await claim(store, "wrk_two")).turn.text == "queue"
    assert (await store.sessions.get(ME, session.id)).id == session.id


async def test_a14_the_model_gets_the_summary_and_what_follows_the_last_message_it_covers(
    store: Store,
) -> None:
    session = await new_session(store)
    for text in ("a", "b", "c"):
        await answered(store, session.id, text, text.upper())
    held = await begin_compaction(store, session.id)
    covered = (await transcript(store, session.id))[2].id  # the message "b"; its answer is kept verbatim
    await complete(store, held, await append(store, held, [summary(held, "about a and b", covered)]))
    await answered(store, session.id, "d", "D")
    given = [message.text for message in await store.transcript.context(ME, session.id)]
    assert sorted(given) == sorted(["B", "c", "C", "about a and b", "d", "D"])
    assert given[-2:] == ["d", "D"]
    assert await words(store, session.id) == ["a", "A", "b", "B", "c", "C", "about a and b", "d", "D"]


async def test_a14_only_the_newest_summary_counts(store: Store) -> None:
    session = await new_session(store)
    for text in ("a", "b"):
        await answered(store, session.id, text, text.upper())
        held = await begin_compaction(store, session.id)
        last = (await transcript(store, session.id))[-1].id
        await complete(store, held, await append(store, held, [summary(held, f"up to {text}", last)]))
    assert [m.text for m in await store.transcript.context(ME, session.id)] == ["up to b"]
    await store.transcript.undo(ME, session.id, Request())
    assert [m.text for m in await store.transcript.context(ME, session.id)] == ["up to a", "b", "B"]


async def test_a14_an_older_summary_among_the_messages_that_are_kept_is_left_out(store: Store) -> None:
    """The newest summary covers less than the older one, which then lies behind the last covered message."""
    session = await new_session(store)
    for text, covered in (("a", 1), ("b", 1)):
        await answered(store, session.id, text, text.upper())
        held = await begin_compaction(store, session.id)
        last = (await transcript(store, session.id))[covered].id  # the answer "A", both times
        await complete(store, held, await append(store, held, [summary(held, f"after {text}", last)]))
    given = [message.text for message in await store.transcript.context(ME, session.id)]
    assert sorted(given) == ["B", "after b", "b"]


async def test_a14_a_session_deleted_meanwhile_stays_deleted(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    held = await begin_compaction(store, session.id)
    await store.sessions.delete(ME, session.id)
    with pytest.raises(NotFound):
        await append(store, held, [summary(held, "about a", "")])
    with pytest.raises(NotFound):
        await store.turns.fail(held.turn.id, held.epoch, CRASHED)
    with pytest.raises(Gone):
        await store.sessions.get(ME, session.id)
