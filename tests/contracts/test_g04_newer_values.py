"""G04: what a newer version stores beside events is shown and kept; what only it can do is left to it."""

from __future__ import annotations

import msgspec
import pytest

from everturn.domain import events as ev
from everturn.domain.asks import AskTopic
from everturn.domain.checkpoints import Changes, NewCheckpoint
from everturn.domain.fold import fold
from everturn.domain.messages import Message, NewerPart, Part, Role, Source, Text, untrusted_source
from everturn.domain.store_values import Request
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.turns import TurnState
from everturn.engine.context import show
from everturn.store import Store
from everturn.store.sessions import documents
from everturn.testing import FakeClock
from everturn.testing.acting import (
    ME,
    answer,
    answered,
    append,
    ask,
    complete,
    new_session,
    say,
    start,
    transcript,
    wish,
)
from everturn.testing.models import ScriptedModel
from tests.conftest import RunSql
from tests.contracts.test_a03_idle import count_writes, writes_so_far
from tests.contracts.test_g04_events import FAR, NEWER

pytestmark = pytest.mark.anyio


class Drawing(Part, frozen=True, tag="drawing"):
    """A part of the next version."""

    strokes: tuple[int, ...]


# A known part with a value of the next version. Its words are stored where those of all results are.
ODD_RESULT = NewerPart(type="result", call_id="call_1", name="look", text="later", outcome="postponed")


async def drawn(store: Store) -> Message:
    """The answer of a completed turn with parts that only the next version knows."""
    return await message_with(store, Text("Before."), Drawing((1, 2)), ODD_RESULT, Text("After."))


async def message_with(store: Store, *parts: Part | NewerPart) -> Message:
    """The answer of a completed turn, with these parts."""
    held = await start(store, (await new_session(store)).id, "draw")
    said = Message(f"{held.turn.id}-1", held.turn.id, Role.ASSISTANT, parts, 0, ordinal=1)  # type: ignore[arg-type]
    number = await append(store, held, answer("drawn"))
    folded = fold(held.turn.id, await store.journal.of_turn(ME, held.turn.id), is_ended=True)
    folded = msgspec.structs.replace(folded, messages=(said,))
    await store.turns.complete(held.turn.id, held.epoch, number, folded)
    return said


async def test_g04_a_message_with_newer_parts_is_shown_and_exported_as_it_is(store: Store) -> None:
    said = await drawn(store)
    session_id = (await store.turns.get(ME, said.turn_id)).session_id
    shown = (await transcript(store, session_id))[-1]
    assert msgspec.json.encode(shown.parts) == msgspec.json.encode(said.parts)
    assert shown.text == "Before.\nAfter."
    document = msgspec.json.encode(await documents.export_document(store, ME, session_id))
    exported = msgspec.json.decode(document)["messages"][-1]
    assert exported["parts"] == msgspec.json.decode(msgspec.json.encode(said.parts))
    copy = await store.transcript.branch(ME, session_id, None, Request())
    assert (await transcript(store, copy.id))[-1].parts == shown.parts


class NewerSource(Source, frozen=True):
    language: str = ""


class NewerText(Text, frozen=True, tag="text"):
    """A known part with a field of the next version, whose name no field of ours could have."""

    mood: str = msgspec.field(default="", name="class")


async def test_g04_newer_fields_of_known_parts_are_kept_and_the_parts_used(store: Store) -> None:
    text = NewerText("Good day.", source=NewerSource("telegram", "Bo", language="en"), mood="calm")
    said = await message_with(store, Text("Before."), text)
    session_id = (await store.turns.get(ME, said.turn_id)).session_id
    written = msgspec.json.decode(msgspec.json.encode(said.parts))
    assert (written[1]["class"], written[1]["source"]["language"]) == ("calm", "en")
    shown = (await transcript(store, session_id))[-1]
    assert msgspec.json.decode(msgspec.json.encode(shown.parts)) == written
    assert shown.text == "Before.\nGood day."
    assert untrusted_source(shown) is not None
    document = msgspec.json.encode(await documents.export_document(store, ME, session_id))
    assert msgspec.json.decode(document)["messages"][-1]["parts"] == written
    copy = await store.transcript.branch(ME, session_id, None, Request())
    assert (await transcript(store, copy.id))[-1].parts == shown.parts
    (*_, given) = await store.transcript.context(ME, session_id)
    assert given.text == shown.text


async def test_g04_newer_parts_are_not_given_to_the_model(store: Store, clock: FakeClock) -> None:
    said = await drawn(store)
    session_id = (await store.turns.get(ME, said.turn_id)).session_id
    history = await store.transcript.context(ME, session_id, upto=said.turn_id)
    model = ScriptedModel(clock=clock)
    given = show(history, model=model.name, abilities=model.abilities, files={}, before=None)
    assert [part for message in given.messages for part in message.parts if isinstance(part, NewerPart)] == []
    assert history[-1].brings_outside_text, "what is in it is unknown"


async def test_g04_a_queued_turn_of_a_newer_kind_is_not_claimed_and_holds_up_no_other(
    store: Store, run_sql: RunSql
) -> None:
    sent = await say(store, (await new_session(store)).id, "dream of this")
    await run_sql(f"UPDATE turns SET kind = 'dream' WHERE id = '{sent.turn.id}'")
    await say(store, (await new_session(store)).id, "behind it")
    (claimed,) = await store.turns.claim("wrk_older", limit=5)
    assert claimed.turn.id != sent.turn.id
    turn = await store.turns.get(ME, sent.turn.id)
    assert (turn.state, turn.kind) == (TurnState.QUEUED, "dream")


async def test_g04_turns_for_a_newer_version_cost_no_writes(store: Store, store_url: str) -> None:
    if store.kind == "postgresql":
        await count_writes(store_url)
    running = await start(store, (await new_session(store)).id, "goes on elsewhere")
    await append(store, running, [NEWER])
    await store.turns.hand_over(running.turn.id, running.epoch)
    ended = await start(store, (await new_session(store)).id, "kept")
    await complete(store, ended, await append(store, ended, [NEWER, *answer("done")]))
    for _ in range(5):
        assert await store.turns.claim("wrk_older", limit=5) == []
        assert await store.upkeep.prune(older_than_ms=-FAR) == 0
        before = await writes_so_far(store, store_url)
    assert await writes_so_far(store, store_url) == before
    await answered(store, (await new_session(store)).id, "plain", "prune me", worker="wrk_older")
    assert await store.upkeep.prune(older_than_ms=-FAR, limit=1) == 1, "what is left to others takes no place"


async def test_g04_a_newer_event_of_the_session_is_not_pruned_with_a_turn_around_it(
    store: Store, run_sql: RunSql
) -> None:
    held = await start(store, (await new_session(store)).id, "hi")
    number = await append(store, held, [NEWER, *answer("hello")])
    await complete(store, held, number)
    await run_sql("UPDATE events SET turn_no = NULL WHERE position = 3")
    assert await store.upkeep.prune(older_than_ms=-FAR) == 0
    kinds = [event.kind for event in await store.journal.after(ME, held.session.id, 0)]
    assert kinds[2] == "hologram.shown"


async def test_g04_answering_keeps_what_a_newer_version_wrote_about_the_question(
    store: Store, run_sql: RunSql
) -> None:
    held = await start(store, (await new_session(store)).id, "hi")
    number = await append(store, held, wish(is_started=False))
    approval = ask(
        "ask_1", held.turn.id, held.session.id, AskTopic.APPROVAL, call_id="call_1", arguments="{}"
    )
    await store.turns.wait(held.turn.id, held.epoch, number + 1, [approval], [])
    await run_sql('UPDATE asks SET body = \'{"text":"Shall I?","mood":"calm"}\' WHERE id = \'ask_1\'')
    await store.asks.answer(ME, "ask_1", "once", by="me", arguments='{"a": 1}')
    assert (await store.asks.get(ME, "ask_1")).edited == '{"a": 1}'
    assert '"mood":"calm"' in str(await run_sql("SELECT body FROM asks WHERE id = 'ask_1'"))


async def test_g04_a_checkpoint_with_a_newer_cause_is_read(store: Store, run_sql: RunSql) -> None:
    held = await start(store, (await new_session(store)).id, "hi")
    new = NewCheckpoint(
        turn_id=held.turn.id, epoch=held.epoch, before=EMPTY_TREE, tree=EMPTY_TREE, changes=Changes()
    )
    made = await store.checkpoints.put(new)
    await run_sql(f"UPDATE checkpoints SET cause = 'moved' WHERE id = '{made.id}'")
    assert (await store.checkpoints.get(ME, held.session.id, made.id)).cause == "moved"


async def test_g04_a_branch_takes_newer_events_along(store: Store) -> None:
    held = await start(store, (await new_session(store)).id, "hi")
    await complete(store, held, await append(store, held, [NEWER, *answer("hello")]))
    copy = await store.transcript.branch(ME, held.session.id, None, Request())
    (event,) = await store.journal.of_newer_kinds(ME, copy.id)
    assert (event.data, event.turn_id) == (ev.encode(NEWER), copy.head)
    assert await store.upkeep.check() == []
