"""A01: the message is durable before the caller gets "accepted", once per idempotency key."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain.errors import (
    Gone,
    Invalid,
    InvalidId,
    KeyReused,
    NotFound,
    TextEmpty,
    TextTooLong,
)
from everturn.domain.probe import Moment
from everturn.domain.sessions import NewSession
from everturn.domain.store_values import Accepted, Request, Submission
from everturn.store import Store, StoreSettings
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, answered, new_session, say
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio


async def test_a01_nothing_is_acknowledged_and_nothing_seen_before_the_commit(
    store: Store, open_another: OpenAnother, probe: HoldingProbe
) -> None:
    other = await open_another()
    session = await new_session(store)
    heard: list[Accepted] = []

    async def submit() -> None:
        heard.append(await say(store, session.id, "hello"))

    probe.hold(Moment.ACCEPT_WRITTEN)
    async with anyio.create_task_group() as group:
        group.start_soon(submit)
        await probe.reached(Moment.ACCEPT_WRITTEN)
        assert heard == []
        assert (await other.sessions.get(ME, session.id)).queued == 0
        probe.release(Moment.ACCEPT_WRITTEN)
    assert [turn.text for turn in await other.turns.queue(ME, session.id)] == ["hello"]


async def test_a01_one_key_sent_twice_at_once_by_two_processes_is_one_turn(
    store: Store, open_another: OpenAnother
) -> None:
    other = await open_another()
    session = await new_session(store)
    heard: list[Accepted] = []

    async def submit(through: Store) -> None:
        heard.append(await say(through, session.id, "hello", key="one"))

    async with anyio.create_task_group() as group:
        for through in (store, other, store, other):
            group.start_soon(submit, through)
    assert len({accepted.turn.id for accepted in heard}) == 1
    assert sorted(accepted.is_repeat for accepted in heard) == [False, True, True, True]
    assert len({accepted.cursor for accepted in heard}) == 1
    assert (await store.sessions.get(ME, session.id)).queued == 1


async def test_a01_a_key_lives_as_long_as_its_session(store: Store) -> None:
    session, second = await new_session(store), await new_session(store)
    first = await say(store, session.id, "hello", key="one")
    await store.turns.cancel(ME, first.turn.id)
    await answered(store, session.id, "something", "else")
    assert (await say(store, session.id, "hello", key="one")).turn.id == first.turn.id
    with pytest.raises(KeyReused):
        await say(store, session.id, "another body", key="one")
    with pytest.raises(KeyReused):
        await say(store, session.id, "hello", key="one", model="another:model")
    assert (await say(store, second.id, "another body", key="one")).turn.id != first.turn.id
    await store.sessions.delete(ME, session.id)
    with pytest.raises(Gone):
        await say(store, session.id, "hello", key="one")


async def test_a01_a_message_with_an_unknown_attachment_is_refused_whole(store: Store) -> None:
    session = await new_session(store)
    file = await store.files.put("another owner", "a.txt", "text/plain", b"a")
    for file_id in ("fil_nothing", file.id):
        with pytest.raises(NotFound):
            await say(store, session.id, "look", attachments=(file_id,), key="k")
    assert await store.turns.queue(ME, session.id) == []
    assert (await store.sessions.get(ME, session.id)).position == 0


@pytest.mark.parametrize(
    ("submission", "error"),
    [
        (Submission(text=""), TextEmpty),
        (Submission(text=" \n\t"), TextEmpty),
        (Submission(text="x" * 101), TextTooLong),
        (Submission(text="ä" * 51), TextTooLong),
        (Submission(text="a\0b"), Invalid),
        (Submission(text="a\ud800b"), Invalid),
        (Submission(text="a", when_busy="panic"), Invalid),  # type: ignore[arg-type]
        (Submission(text="a", key=""), Invalid),
        (Submission(text="a", key="k" * 201), Invalid),
        (Submission(text="a", attachments=("fil_x",) * 33), Invalid),
    ],
)
async def test_a01_bad_input_is_refused_with_a_code_and_stores_nothing(
    open_another: OpenAnother, submission: Submission, error: type[Exception]
) -> None:
    store = await open_another(settings=StoreSettings(text_bytes_max=100))
    session = await new_session(store)
    with pytest.raises(error) as refused:
        await store.turns.accept(ME, session.id, submission)
    assert refused.value.code  # type: ignore[attr-defined]  # every error here has one
    assert refused.value.hint  # type: ignore[attr-defined]  # every error here has one
    assert (await store.sessions.get(ME, session.id)).position == 0


async def test_a01_an_unknown_session_is_not_an_invalid_id(store: Store) -> None:
    session = await new_session(store)
    with pytest.raises(NotFound):
        await say(store, session.id[:-1] + ("0" if session.id[-1] != "0" else "1"), "hello")
    for bad in ("", "ses_", "trn" + session.id[3:], session.id.upper(), session.id + "0", "ses_" + "u" * 26):
        with pytest.raises(InvalidId):
            await say(store, bad, "hello")


async def test_a01_a_repeated_creation_is_the_same_session_after_the_preference_has_changed(
    store: Store,
) -> None:
    request = Request(key="k")
    first = await store.sessions.create(
        ME, NewSession(title="One", preferred_profile="careful"), request=request
    )
    again = await store.sessions.create(
        ME, NewSession(title="One", preferred_profile="bold"), request=request
    )
    assert (again.id, again.profile) == (first.id, "careful")
    with pytest.raises(KeyReused):
        await store.sessions.create(ME, NewSession(title="One", profile="bold"), request=request)
