"""The transcript: moving the head, copying paths, and what the model is given."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from everturn.domain import events as ev
from everturn.domain.errors import (
    BadImport,
    Busy,
    Invalid,
    InvalidId,
    KeyReused,
    NotFound,
    NothingToDo,
    Stale,
    TextEmpty,
    TextTooLong,
    WrongState,
)
from everturn.domain.messages import Message, Role, Summary, Text
from everturn.domain.store_values import ImportedSession, Request, RetriedTurn, Submission
from everturn.domain.turns import TurnKind
from everturn.store import Store
from everturn.store.scripts.script import Script, Tx, q
from everturn.testing.acting import (
    CRASHED,
    ME,
    answer,
    answered,
    append,
    claim,
    complete,
    interrupted,
    new_session,
    say,
    start,
    transcript,
    words,
)

pytestmark = pytest.mark.anyio
NO_KEY = Request()


async def test_undo_and_redo_walk_the_same_path(store: Store) -> None:
    session = await new_session(store)
    for text in ("a", "b", "c"):
        await answered(store, session.id, text, text.upper())
    await store.transcript.undo(ME, session.id, NO_KEY)
    await store.transcript.undo(ME, session.id, NO_KEY)
    assert await words(store, session.id) == ["a", "A"]
    await store.transcript.redo(ME, session.id, NO_KEY)
    assert await words(store, session.id) == ["a", "A", "b", "B"]
    await store.transcript.redo(ME, session.id, NO_KEY)
    assert await words(store, session.id) == ["a", "A", "b", "B", "c", "C"]
    with pytest.raises(NothingToDo):
        await store.transcript.redo(ME, session.id, NO_KEY)


async def test_a_clear_after_an_undo_can_be_taken_back_with_everything(store: Store) -> None:
    session = await new_session(store)
    for text in ("a", "b"):
        await answered(store, session.id, text, text.upper())
    await store.transcript.undo(ME, session.id, NO_KEY)
    await store.transcript.clear(ME, session.id, NO_KEY)
    assert await words(store, session.id) == []
    await store.transcript.redo(ME, session.id, NO_KEY)
    await _redo_all(store, session.id)
    assert await words(store, session.id) == ["a", "A", "b", "B"]


async def _redo_all(store: Store, session_id: str) -> None:
    while (await store.sessions.get(ME, session_id)).redo_to is not None:
        await store.transcript.redo(ME, session_id, NO_KEY)


async def test_an_undo_takes_a_resumption_back_that_has_not_begun(store: Store) -> None:
    """Resume, then undo before any worker looked: the turn must not run outside the transcript."""
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    held = await interrupted(store, session.id, "b", "half")
    await store.turns.resume(ME, held.turn.id)
    await store.transcript.undo(ME, session.id, NO_KEY)
    assert await store.turns.claim("wrk_two") == []
    await store.transcript.redo(ME, session.id, NO_KEY)
    assert await words(store, session.id) == ["a", "A", "b", "half"]
    await store.turns.resume(ME, held.turn.id)
    assert (await claim(store, "wrk_two")).turn.id == held.turn.id


async def test_a_cancel_takes_a_resumption_back_that_has_not_begun(store: Store) -> None:
    session = await new_session(store)
    held = await interrupted(store, session.id, "b", "half")
    await store.turns.resume(ME, held.turn.id)
    turn = await store.turns.cancel(ME, held.turn.id)
    assert not turn.is_ready
    assert await store.turns.claim("wrk_two") == []
    assert await words(store, session.id) == ["b", "half"]


async def test_a_resumed_turn_continues_from_its_journal(store: Store) -> None:
    session = await new_session(store)
    held = await interrupted(store, session.id, "b", "half ")
    await store.turns.resume(ME, held.turn.id)
    resumed = await claim(store, "wrk_two")
    assert resumed.reason == "manual"
    payloads: list[ev.Payload] = [ev.StepAbandoned(1, "crash", continues=True), *answer("an answer")]
    await complete(store, resumed, await append(store, resumed, payloads))
    assert await words(store, session.id) == ["b", "half an answer"]
    assert (await store.sessions.get(ME, session.id)).messages == 2


async def test_a_branch_starts_its_context_from_the_summary_it_copied(store: Store) -> None:
    session = await new_session(store)
    for text in ("a", "b"):
        await answered(store, session.id, text, text.upper())
    await _compact(store, session.id, "about a and b")
    await answered(store, session.id, "c", "C")
    expected = [message.text for message in await store.transcript.context(ME, session.id)]
    assert expected == ["about a and b", "c", "C"]
    copy = await store.transcript.branch(ME, session.id, None, NO_KEY)
    assert [m.text for m in await store.transcript.context(ME, copy.id)] == expected
    await store.sessions.delete(ME, session.id)
    assert [m.text for m in await store.transcript.context(ME, copy.id)] == expected
    assert await words(store, copy.id) == ["a", "A", "b", "B", "about a and b", "c", "C"]


async def test_a_session_that_is_imported_beside_its_original_keeps_its_summary(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    await _compact(store, session.id, "about a")
    await answered(store, session.id, "b", "B")
    copy = await store.transcript.import_session(
        ME, ImportedSession(*await store.transcript.export(ME, session.id))
    )
    assert copy.id != session.id
    assert [m.text for m in await store.transcript.context(ME, copy.id)] == ["about a", "b", "B"]


async def _compact(store: Store, session_id: str, text: str) -> None:
    await store.turns.accept(ME, session_id, Submission(kind=TurnKind.COMPACTION))
    held = await claim(store)
    last = (await transcript(store, session_id))[-1]
    summary = Message("", held.turn.id, Role.SUMMARY, (Summary(text, covers=last.id),), 0)
    await complete(store, held, await append(store, held, [ev.MessageAdded(summary)]))


async def test_a_branch_is_untouched_by_what_happens_to_the_original(store: Store) -> None:
    session = await new_session(store)
    held = await answered(store, session.id, "a", "A")
    await answered(store, session.id, "b", "B")
    copy = await store.transcript.branch(ME, session.id, held.turn.id, Request(key="once"))
    assert await store.transcript.branch(ME, session.id, held.turn.id, Request(key="once")) == copy
    await store.sessions.delete(ME, session.id)
    assert await words(store, copy.id) == ["a", "A"]
    await answered(store, copy.id, "c", "C")
    assert await words(store, copy.id) == ["a", "A", "c", "C"]


async def test_the_head_is_not_moved_under_a_running_turn(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    await start(store, session.id, "b")
    for move in (store.transcript.undo, store.transcript.redo, store.transcript.clear):
        with pytest.raises(Busy):
            await move(ME, session.id, NO_KEY)
    with pytest.raises(Busy):
        await store.transcript.retry(ME, session.id, RetriedTurn(), NO_KEY)


async def test_a_repeated_move_gives_the_first_answer(store: Store) -> None:
    session = await new_session(store)
    for text in ("a", "b"):
        await answered(store, session.id, text, text.upper())
    first = await store.transcript.undo(ME, session.id, Request(key="k"))
    assert await store.transcript.undo(ME, session.id, Request(key="k")) == first
    assert await words(store, session.id) == ["a", "A"]
    with pytest.raises(KeyReused):
        await store.transcript.redo(ME, session.id, Request(key="k"))


async def test_a_move_based_on_an_old_version_is_refused_with_the_current_one(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    now = (await store.sessions.get(ME, session.id)).version
    with pytest.raises(Stale) as refused:
        await store.transcript.undo(ME, session.id, Request(version=now - 1))
    assert refused.value.current == now
    assert await words(store, session.id) == ["a", "A"]


async def test_an_edited_message_is_checked_like_a_new_one(store: Store) -> None:
    session = await new_session(store)
    held = await answered(store, session.id, "a", "A")
    for text, error in (
        ("", TextEmpty),
        ("x" * 1_000_001, TextTooLong),
        ("\0", Invalid),
        ("\ud800", Invalid),
    ):
        with pytest.raises(error):
            await store.transcript.retry(ME, session.id, RetriedTurn(held.turn.id, text=text), NO_KEY)
    assert await store.turns.queue(ME, session.id) == []


async def test_a_retry_becomes_a_sibling_with_the_same_attachments(store: Store) -> None:
    session = await new_session(store)
    file = await store.files.put(ME, "a.txt", "text/plain", b"a")
    await say(store, session.id, "look", attachments=(file.id,))
    held = await claim(store)
    await complete(store, held, await append(store, held, answer("seen")))
    await store.transcript.retry(ME, session.id, RetriedTurn(text="look again"), NO_KEY)
    again = await claim(store)
    await complete(store, again, await append(store, again, answer("seen again")))
    messages = await transcript(store, session.id)
    assert [type(part).__name__ for part in messages[0].parts] == ["Text", "Attachment"]
    assert await words(store, session.id) == ["look again", "seen again"]
    turn = await store.turns.get(ME, again.turn.id)
    assert (turn.sibling, turn.siblings) == (2, 2)
    await store.transcript.select(ME, session.id, held.turn.id, NO_KEY)
    assert await words(store, session.id) == ["look", "seen"]


async def test_a_queued_compaction_has_no_text_to_edit(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    accepted = await store.turns.accept(ME, session.id, Submission(kind=TurnKind.COMPACTION))
    with pytest.raises(WrongState):
        await store.turns.edit_queued(ME, accepted.turn.id, "words")


async def test_pages_of_messages_follow_each_other_without_gap_or_repeat(store: Store) -> None:
    session = await new_session(store)
    for number in range(5):
        await answered(store, session.id, f"q{number}", f"a{number}")
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.transcript.messages(ME, session.id, before=cursor, limit=3)
        found = [message.text for message in page.items] + found
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [f"{kind}{number}" for number in range(5) for kind in "qa"]


@pytest.mark.parametrize("cursor", ["nonsense", "msg_0123-1", "{turn}-²", "{turn}-" + "9" * 30, "{turn}"])
async def test_an_invalid_cursor_is_refused(store: Store, cursor: str) -> None:
    session = await new_session(store)
    held = await answered(store, session.id, "a", "A")
    before = cursor.replace("{turn}", "msg_" + held.turn.id[4:])
    with pytest.raises(InvalidId):
        await store.transcript.messages(ME, session.id, before=before)


async def test_a_message_of_another_session_is_no_cursor_here(store: Store) -> None:
    one, two = await new_session(store), await new_session(store)
    await answered(store, one.id, "a", "A")
    with pytest.raises(Invalid):
        await store.transcript.messages(ME, two.id, before=(await transcript(store, one.id))[0].id)


async def test_nothing_is_given_to_another_owner(store: Store) -> None:
    session = await new_session(store)
    held = await interrupted(store, session.id, "mine", "half")
    for call in (
        store.sessions.get("eve", session.id),
        store.sessions.delete("eve", session.id),
        store.turns.get("eve", held.turn.id),
        store.turns.cancel("eve", held.turn.id),
        store.turns.resume("eve", held.turn.id),
        store.transcript.messages("eve", session.id),
        store.transcript.context("eve", session.id),
        store.transcript.export("eve", session.id),
        store.transcript.undo("eve", session.id, NO_KEY),
        store.transcript.branch("eve", session.id, None, NO_KEY),
        store.journal.after("eve", session.id, 0),
        store.journal.of_turn("eve", held.turn.id),
        store.journal.recover("eve", session.id),
        store.turns.accept("eve", session.id, Submission(text="hi")),
    ):
        with pytest.raises(NotFound):
            await call
    assert await words(store, session.id) == ["mine", "half"]


async def test_a_failed_turn_that_never_began_stands_in_the_transcript_with_its_reason(store: Store) -> None:
    session = await new_session(store)
    accepted = await say(store, session.id, "hello")
    turn = await store.turns.fail(accepted.turn.id, None, CRASHED)
    assert (turn.state, turn.failure) == ("failed", CRASHED)
    assert [m.parts for m in await transcript(store, session.id)] == [(Text("hello"),)]
    assert await store.turns.fail(accepted.turn.id, None, CRASHED) == turn
    assert (await store.sessions.get(ME, session.id)).active_turn is None


async def test_a_turn_that_was_overtaken_in_the_queue_stays_in_the_model_s_context(store: Store) -> None:
    """A message that interrupts runs before an older queued one: the younger turn is the older's parent."""
    session = await new_session(store)
    await start(store, session.id, "a")
    await say(store, session.id, "b")
    await say(store, session.id, "c", when_busy="interrupt")
    held = await claim(store)
    assert held.turn.text == "c"
    covered = (await transcript(store, session.id))[-1].id
    summary = Message("", held.turn.id, Role.SUMMARY, (Summary("about a and c", covers=covered),), 0)
    await complete(store, held, await append(store, held, [ev.MessageAdded(summary)]))
    overtaken = await claim(store)
    await complete(store, overtaken, await append(store, overtaken, answer("B")))
    assert [m.text for m in await store.transcript.context(ME, session.id)] == ["about a and c", "b", "B"]
    copy = await store.transcript.import_session(
        ME, ImportedSession(*await store.transcript.export(ME, session.id))
    )
    assert await words(store, copy.id) == ["a", "c", "about a and c", "b", "B"]


async def test_a_turn_that_was_overtaken_is_undone_alone(store: Store) -> None:
    session = await new_session(store)
    await start(store, session.id, "a")
    await say(store, session.id, "b")
    await say(store, session.id, "c", when_busy="interrupt")
    for _ in range(2):
        held = await claim(store)
        await complete(store, held, await append(store, held, answer(held.turn.text.upper())), provider="p")
    assert await store.database.read(_off_path, session.id) == {"a": 0, "b": 0, "c": 0}
    await store.transcript.undo(ME, session.id, NO_KEY)
    assert await store.database.read(_off_path, session.id) == {"a": 0, "b": 1, "c": 0}
    await store.transcript.clear(ME, session.id, NO_KEY)
    assert await store.database.read(_off_path, session.id) == {"a": 2, "b": 1, "c": 2}
    await store.transcript.redo(ME, session.id, NO_KEY)
    assert await store.database.read(_off_path, session.id) == {"a": 0, "b": 0, "c": 0}


def _off_path(tx: Tx, session_id: str) -> Script[dict[str, int]]:
    """How turns are marked, by their text: 1 is not shown and not owed to memory, 2 is cleared and still owed."""
    row = (yield q("session_row", session_id, ME))[0]
    found = {}
    for turn in (yield q("turns_of_session", row[0])):
        text = (yield q("turn_text", turn[0]))[0][0]
        found[text] = (yield q("turn_parent", turn[0]))[0][1]
    return found


async def test_an_import_that_names_no_parent_or_goes_in_a_circle_is_refused(store: Store) -> None:
    session = await new_session(store)
    for text in ("a", "b"):
        await answered(store, session.id, text, text.upper())
    exported, (one, two), messages = await store.transcript.export(ME, session.id)
    circle = [replace(one, parent_id=two.id), two]
    with pytest.raises(BadImport):
        await store.transcript.import_session(ME, ImportedSession(exported, circle, messages))
    with pytest.raises(BadImport):
        await store.transcript.import_session(ME, ImportedSession(exported, [two], messages))
    assert len((await store.sessions.list(ME)).items) == 1
    copy = await store.transcript.import_session(ME, ImportedSession(exported, [two, one], messages))
    assert await words(store, copy.id) == ["a", "A", "b", "B"]


async def test_the_newest_page_has_the_accepted_turns_that_no_worker_has_claimed(store: Store) -> None:
    session = await new_session(store)
    one = await store.turns.accept(ME, session.id, Submission(text="one", key="k1"))
    two = await store.turns.accept(ME, session.id, Submission(text="two", key="k2"))
    page = await store.transcript.page(ME, session.id)
    assert page.messages.items == ()
    assert [(turn.id, turn.text) for turn in page.queued] == [(one.turn.id, "one"), (two.turn.id, "two")]

    claimed = await claim(store)
    assert claimed.turn.id == one.turn.id
    page = await store.transcript.page(ME, session.id)
    assert [turn.id for turn in page.queued] == [two.turn.id]
    assert one.turn.id in [turn.id for turn in page.turns]
    older = await store.transcript.page(ME, session.id, before=page.messages.items[0].id)
    assert older.queued == ()
