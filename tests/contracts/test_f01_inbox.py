"""F01: an update is a row of the inbox before it is acknowledged, once; later it is a turn or a refusal."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain.delivery import (
    ChatKind,
    ChatPlace,
    InboxState,
    Received,
    Refusal,
    RemoteFile,
    session_key,
)
from everturn.domain.errors import Gone, NotFound, TextEmpty
from everturn.domain.probe import Moment
from everturn.domain.store_values import Accepted, Submission
from everturn.store import Store
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, claim, new_session
from everturn.testing.waiting import within
from tests.conftest import OpenAnother
from tests.delivering import (
    ACCOUNT,
    accept,
    arrive,
    claim_parts,
    lease_of,
    place,
    receive,
    send_to,
    update,
)

pytestmark = pytest.mark.anyio
UNWANTED = Refusal("unsupported", "This kind of message is not supported.")


async def waiting(store: Store) -> list[Received]:
    return list(await store.delivery.inbox.list_waiting(ACCOUNT, limit=100))


async def test_f01_an_update_is_stored_with_its_chat_and_files(
    store: Store, open_another: OpenAnother
) -> None:
    files = (RemoteFile("ref-1", "cat.png", "image/png", 300),)
    at = place("77", kind=ChatKind.GROUP, thread="5")
    received = await receive(store, "u1", "look", at=at, files=files, chat_title="Family", sent_at=5)
    assert received.state is InboxState.RECEIVED
    assert received.chat.place == at
    assert (received.chat.owner, received.chat.title, received.chat.session_id) == (ME, "Family", None)
    other = await open_another()
    assert [found.update for found in await waiting(other)] == [
        update("u1", "look", at=at, files=files, chat_title="Family", sent_at=5)
    ]


async def test_f01_a_repeated_update_changes_nothing_before_and_after_it_became_a_turn(store: Store) -> None:
    first = await receive(store, "u1")
    again = await receive(store, "u1", "another text")
    assert (again.id, again.is_repeat, again.update) == (first.id, True, first.update)
    accepted = await accept(store, first)
    later = await receive(store, "u1")
    assert (later.id, later.is_repeat, later.state) == (first.id, True, InboxState.ACCEPTED)
    assert later.turn_id == accepted.turn.id
    assert await waiting(store) == []


async def test_f01_one_update_delivered_to_two_processes_at_once_is_one_row(
    store: Store, open_another: OpenAnother
) -> None:
    other = await open_another()
    heard: list[Received] = []

    async def deliver(through: Store) -> None:
        heard.append(await receive(through, "u1"))

    async with anyio.create_task_group() as group:
        for through in (store, other, store, other):
            group.start_soon(deliver, through)
    assert len({received.id for received in heard}) == 1
    assert sorted(received.is_repeat for received in heard) == [False, True, True, True]


async def test_f01_the_same_id_of_another_account_is_another_update(store: Store) -> None:
    first = await receive(store, "u1")
    second = await receive(store, "u1", at=ChatPlace("second", "telegram", ChatKind.DIRECT, "42"))
    assert not second.is_repeat
    assert second.chat.id != first.chat.id


async def test_f01_an_update_becomes_a_turn_of_a_new_session_with_the_key_of_its_chat(store: Store) -> None:
    received = await receive(store, "u1", "what is new?")
    settled, accepted = await store.delivery.inbox.accept(received.id, Submission(text="what is new?"))
    assert accepted is not None
    assert (settled.state, settled.turn_id, settled.update) == (InboxState.ACCEPTED, accepted.turn.id, None)
    session = await store.sessions.get(ME, accepted.turn.session_id)
    assert session.key == "agent:default:telegram:dm:42"
    assert session.profile == "default"
    assert (await store.delivery.chats.get(ME, received.chat.id)).session_id == session.id
    assert [turn.text for turn in await store.turns.queue(ME, session.id)] == ["what is new?"]


async def test_f01_accepting_again_gives_the_same_turn(store: Store, open_another: OpenAnother) -> None:
    other = await open_another()
    received = await receive(store, "u1")
    heard: list[Accepted] = []

    async def settle(through: Store) -> None:
        heard.append(await accept(through, received))

    async with anyio.create_task_group() as group:
        for through in (store, other, store, other):
            group.start_soon(settle, through)
    assert len({accepted.turn.id for accepted in heard}) == 1
    assert sorted(accepted.is_repeat for accepted in heard) == [False, True, True, True]
    assert len((await store.sessions.list(ME)).items) == 1


async def test_f01_turn_session_and_inbox_row_are_seen_together_or_not_at_all(
    store: Store, open_another: OpenAnother, probe: HoldingProbe
) -> None:
    other = await open_another()
    received = await receive(store, "u1")
    probe.hold(Moment.ACCEPT_WRITTEN)
    async with anyio.create_task_group() as group:
        group.start_soon(accept, store, received)
        await probe.reached(Moment.ACCEPT_WRITTEN)
        assert [found.id for found in await waiting(other)] == [received.id]
        assert (await other.sessions.list(ME)).items == ()
        probe.release(Moment.ACCEPT_WRITTEN)
    assert await waiting(other) == []
    assert len((await other.sessions.list(ME)).items) == 1


async def test_f01_a_message_that_cannot_be_a_turn_changes_nothing_and_can_be_refused(store: Store) -> None:
    received = await receive(store, "u1", "")
    with pytest.raises(TextEmpty):
        await store.delivery.inbox.accept(received.id, Submission(text=""))
    assert (await store.sessions.list(ME)).items == ()
    refused = await store.delivery.inbox.refuse(received.id, UNWANTED)
    assert (refused.state, refused.refusal, refused.update) == (InboxState.REFUSED, UNWANTED, None)
    assert await waiting(store) == []
    settled, accepted = await store.delivery.inbox.accept(received.id, Submission(text="late"))
    assert (settled.state, accepted) == (InboxState.REFUSED, None)


async def test_f01_an_accepted_row_cannot_be_refused(store: Store) -> None:
    received = await receive(store, "u1")
    accepted = await accept(store, received)
    kept = await store.delivery.inbox.refuse(received.id, UNWANTED)
    assert (kept.state, kept.turn_id) == (InboxState.ACCEPTED, accepted.turn.id)


async def test_f01_an_unknown_row_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.delivery.inbox.accept("inb_nothing", Submission(text="hello"))


async def test_f01_after_its_session_was_purged_a_chat_starts_a_new_one_and_repeats_stay_repeats(
    store: Store,
) -> None:
    first = await arrive(store, "u1")
    await store.sessions.delete(ME, first.turn.session_id)
    again = await receive(store, "u1")
    assert (again.is_repeat, again.state, again.turn_id) == (True, InboxState.ACCEPTED, None)
    second = await arrive(store, "u2", "and now?")
    assert second.turn.session_id != first.turn.session_id
    with pytest.raises(Gone):
        await store.sessions.get(ME, first.turn.session_id)


async def test_f01_a_deleted_session_that_waits_to_be_purged_gets_no_more_messages(store: Store) -> None:
    first = await arrive(store, "u1")
    await store.sessions.mark_deleted(ME, first.turn.session_id, due_at=1)
    second = await arrive(store, "u2")
    assert second.turn.session_id != first.turn.session_id


async def test_f01_a_chat_can_be_switched_to_another_session_and_to_a_new_one(store: Store) -> None:
    first = await arrive(store, "u1")
    (chat,) = await store.delivery.chats.list(ME)
    wanted = await new_session(store)
    await store.delivery.chats.switch(ME, chat.id, wanted.id)
    assert (await arrive(store, "u2")).turn.session_id == wanted.id
    await store.delivery.chats.switch(ME, chat.id, None)
    third = await arrive(store, "u3")
    assert third.turn.session_id not in (first.turn.session_id, wanted.id)
    for owner, session_id in (("eve", None), (ME, "ses_" + "0" * 26)):
        with pytest.raises(NotFound):
            await store.delivery.chats.switch(owner, chat.id, session_id)


async def test_f01_settled_rows_are_pruned_with_their_notices_and_waiting_ones_kept(store: Store) -> None:
    settled = await receive(store, "u1")
    await accept(store, settled)
    kept = await receive(store, "u2")
    for received in (settled, kept):
        assert await send_to(store, received.chat, f"inbox:{received.id}", "Queued.")
        lease = await lease_of(store)
        (part,) = await claim_parts(store, lease)
        await store.delivery.outbox.mark_sent(lease, part.id, "1")
    assert await store.delivery.inbox.prune(kept.received_at + 1) == 1
    assert [found.id for found in await waiting(store)] == [kept.id]
    assert not await send_to(store, kept.chat, f"inbox:{kept.id}", "Queued.")
    assert await send_to(store, settled.chat, f"inbox:{settled.id}", "Queued.")
    writes = store.counts().commits
    assert await store.delivery.inbox.prune(kept.received_at + 1) == 0
    assert store.counts().commits == writes


async def test_f01_a_change_of_a_session_is_noticed(store: Store) -> None:
    known = 0
    async with anyio.create_task_group() as group:
        group.start_soon(arrive, store, "u1")
        with within("the new session is noticed"):
            known = await store.wait_for_change(known)
    with within("the turn's claim is noticed"):
        await claim(store)
        assert await store.wait_for_change(known) > known


def test_f01_a_session_key_names_thread_and_chat_without_mixing_them_up() -> None:
    assert session_key("default", place("42", thread="7")) == "agent:default:telegram:dm:42:7"
    odd, plain = place("a:b"), place("a", thread="b")
    assert session_key("default", odd) == "agent:default:telegram:dm:a%3Ab"
    assert session_key("default", odd) != session_key("default", plain)
