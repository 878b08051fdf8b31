"""One session's whole life, on both stores: a map of what the nouns do together."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Gone
from everturn.domain.fold import fold
from everturn.domain.sessions import SessionFilter, SessionPatch
from everturn.domain.store_values import Claim, Request, RetriedTurn, Submission
from everturn.domain.turns import FinishReason, Turn, TurnState
from everturn.store import Store

pytestmark = pytest.mark.anyio

OWNER = "local"
WORKER = "wrk_1"


async def _say(store: Store, claim: Claim, *words: str) -> int:
    """Journal one step that says these words; return the number of its last event."""
    number = claim.number + 1
    payloads = [ev.StepStarted(1, "m"), *(ev.TextDelta(1, word) for word in words)]
    await store.journal.append(claim.turn.id, claim.epoch, number, payloads)
    # Sent again as formed: it is recognised by its numbers.
    await store.journal.append(claim.turn.id, claim.epoch, number, payloads)
    number += len(payloads)
    await store.journal.append(claim.turn.id, claim.epoch, number, [ev.StepFinished(1, FinishReason.STOP)])
    return number


async def _complete(store: Store, claim: Claim, number: int) -> Turn:
    folded = fold(claim.turn.id, await store.journal.of_turn(OWNER, claim.turn.id))
    completed = await store.turns.complete(claim.turn.id, claim.epoch, number, folded, provider="local")
    return completed.turn


async def test_a_session_lives_from_its_first_message_to_its_deletion(store: Store, tmp_path: Path) -> None:
    session = await store.sessions.create(OWNER)
    first = await store.turns.accept(OWNER, session.id, Submission(text="Hello there", key="k1"))
    again = await store.turns.accept(OWNER, session.id, Submission(text="Hello there", key="k1"))
    assert again.is_repeat
    assert again.turn.id == first.turn.id

    await store.workers.register(WORKER)
    [claim] = await store.turns.claim(WORKER)
    assert claim.turn.id == first.turn.id
    done = await _complete(store, claim, await _say(store, claim, "Hi ", "yöu"))
    assert done.state is TurnState.COMPLETED

    page = await store.transcript.messages(OWNER, session.id)
    assert [message.text for message in page.items] == ["Hello there", "Hi yöu"]
    assert await store.search.index() == 2
    assert [hit.message_id for hit in await store.search.find(OWNER, "hell")] == [page.items[0].id]
    assert [hit.message_id for hit in await store.search.find(OWNER, "you")] == [page.items[1].id]
    assert await store.search.find("another owner", "hell") == []

    undone = await store.transcript.undo(OWNER, session.id, Request(key="u1"))
    assert undone.head is None
    redone = await store.transcript.redo(OWNER, session.id, Request(key="r1"))
    assert redone.head == first.turn.id

    await store.transcript.retry(OWNER, session.id, RetriedTurn(), Request(key="again"))
    [second] = await store.turns.claim(WORKER)
    assert second.turn.parent_id is None
    await _say(store, second, "Hm")
    assert (await store.turns.cancel(OWNER, second.turn.id)).state is TurnState.CANCELLED
    shown_page = await store.transcript.page(OWNER, session.id)
    [shown] = shown_page.turns
    assert (shown.id, shown_page.session.head) == (second.turn.id, second.turn.id)
    assert (shown.sibling, shown.siblings) == (2, 2)

    branch = await store.transcript.branch(OWNER, session.id, None, Request(key="b"))
    assert [m.text for m in await store.transcript.context(OWNER, branch.id)] == ["Hello there", "Hm"]
    renamed = await store.sessions.change(OWNER, branch.id, SessionPatch(title="Élan", tags=("a", "b")))
    assert [s.id for s in (await store.sessions.list(OWNER, SessionFilter(query="an", tag="b"))).items] == [
        renamed.id
    ]

    events = await store.journal.after(OWNER, session.id, 0)
    assert [event.position for event in events] == list(range(1, len(events) + 1))
    assert await store.upkeep.check() == []

    backup = await store.upkeep.backup(tmp_path / "backup")
    assert any(backup.iterdir())
    await store.sessions.delete(OWNER, session.id)
    with pytest.raises(Gone):
        await store.sessions.get(OWNER, session.id)
    assert await store.upkeep.check() == []
    assert [s.id for s in (await store.sessions.list(OWNER)).items] == [branch.id]


async def test_what_cannot_be_stored_as_it_is_keeps_its_length(store: Store) -> None:
    """A tool may print the character zero, which PostgreSQL's text cannot hold."""
    session = await store.sessions.create(OWNER)
    await store.turns.accept(OWNER, session.id, Submission(text="go"))
    await store.workers.register(WORKER)
    [claim] = await store.turns.claim(WORKER)
    await _complete(store, claim, await _say(store, claim, "a\0b", "c"))
    page = await store.transcript.messages(OWNER, session.id)
    assert page.items[-1].text in ("a\0bc", "a\ufffdbc")
