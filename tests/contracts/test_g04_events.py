"""G04: kinds and fields of a newer version are carried through; only that version runs, folds and prunes them."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest
from rich.console import Console

from everturn.cli.client import WireEvent
from everturn.cli.screen import Screen
from everturn.domain import events as ev
from everturn.domain.errors import BadImport
from everturn.domain.fold import fold
from everturn.domain.store_values import Claim
from everturn.domain.turns import FinishReason, TurnState
from everturn.store import Store
from everturn.store.sessions import documents
from everturn.testing.acting import ME, answered, append, complete, new_session, say, start, words
from everturn.testing.web_server import run_web

pytestmark = pytest.mark.anyio
PATIENCE_S = 60
FAR = 1 << 50


class HologramShown(ev.Payload, frozen=True, tag="hologram.shown"):
    """A kind of the next version."""

    paths: tuple[str, ...]
    share: float = 0.1


class ColouredText(ev.Payload, frozen=True, tag="text.delta"):
    """A known kind with a field of the next version."""

    step: int
    text: str
    colour: str


class OddOutcome(ev.Payload, frozen=True, tag="tool.finished"):
    """A known kind with a value of the next version."""

    call_id: str = "call_1"
    name: str = "look"
    outcome: str = "postponed"
    text: str = ""


NEWER = HologramShown(("a.txt", "ü.txt"))
COLOURED = ColouredText(1, "Hello ", "red")
WRITTEN: list[ev.Payload] = [
    ev.StepStarted(1, "scripted:one"),
    COLOURED,
    NEWER,
    OddOutcome(),
    ev.TextDelta(1, "you"),
]


async def newer_turn(store: Store, text: str = "hi") -> tuple[Claim, int]:
    """A running turn of a newer worker, and the number of its last event."""
    held = await start(store, (await new_session(store)).id, text)
    return held, await append(store, held, WRITTEN)


def described(name: str, begin: bytes) -> tuple[str, str]:
    return name, "text/plain"


async def test_g04_newer_kinds_and_fields_are_read_and_followed_byte_for_byte(store: Store) -> None:
    held, _ = await newer_turn(store)
    events = await store.journal.after(ME, held.session.id, 0)
    written = [ev.encode(payload) for payload in WRITTEN]
    assert [event.data for event in events][-len(WRITTEN) :] == written
    assert [event.data for event in await store.journal.of_turn(ME, held.turn.id)][-len(WRITTEN) :] == written
    assert [event.kind for event in events][-3:] == ["hologram.shown", "tool.finished", "text.delta"]
    followed: list[ev.Event] = []
    with anyio.fail_after(PATIENCE_S):
        async for batch in store.journal.follow(ME, held.session.id, 0):
            if not followed:
                await append(store, held, [NEWER], held.number + len(WRITTEN))
            followed += batch
            if len(followed) > len(events):
                break
    assert [event.data for event in followed] == [*(event.data for event in events), ev.encode(NEWER)]
    assert isinstance(followed[-1].payload, ev.Unknown)


async def test_g04_the_fold_passes_over_what_it_does_not_know(store: Store) -> None:
    held, _ = await newer_turn(store)
    folded = fold(held.turn.id, await store.journal.of_turn(ME, held.turn.id))
    assert [message.text for message in folded.messages] == ["Hello you"]


@pytest.mark.parametrize("newer", [NEWER, OddOutcome()], ids=["kind", "value"])
async def test_g04_a_turn_with_newer_events_is_not_claimed_and_holds_up_no_other(
    store: Store, newer: ev.Payload
) -> None:
    held = await start(store, (await new_session(store)).id, "hi")
    await append(store, held, [newer])
    await store.turns.hand_over(held.turn.id, held.epoch)
    other = await new_session(store)
    await say(store, other.id, "behind it")
    (claimed,) = await store.turns.claim("wrk_older", limit=1)
    assert claimed.session.id == other.id
    assert await store.turns.claim("wrk_older", limit=5) == []
    turn = await store.turns.get(ME, held.turn.id)
    assert (turn.state, turn.is_ready) == (TurnState.RUNNING, True), "a newer worker can take it"


async def test_g04_a_cancelled_turn_is_shown_and_left_for_a_newer_version_to_fold(store: Store) -> None:
    held, _ = await newer_turn(store)
    await store.turns.cancel(ME, held.turn.id, by="me")
    assert await words(store, held.session.id) == ["hi", "Hello you"]
    assert not await store.journal.recover(ME, held.session.id)
    _, is_pending = await store.journal.read_pending(ME, held.session.id)
    assert is_pending
    assert await store.upkeep.prune(older_than_ms=-FAR) == 0
    assert ev.encode(NEWER) in [event.data for event in await store.journal.of_turn(ME, held.turn.id)]


async def test_g04_the_journal_of_a_turn_with_newer_kinds_is_not_pruned(store: Store) -> None:
    held, number = await newer_turn(store)
    await complete(store, held, number)
    other = await answered(store, (await new_session(store)).id, "plain", "prune me")
    assert await store.upkeep.prune(older_than_ms=-FAR) == 1
    assert await store.journal.of_turn(ME, other.turn.id) == []
    assert ev.encode(NEWER) in [event.data for event in await store.journal.of_turn(ME, held.turn.id)]


async def test_g04_newer_events_are_exported_and_imported_byte_for_byte(store: Store) -> None:
    held, number = await newer_turn(store)
    await complete(store, held, number)
    document = await documents.export_document(store, ME, held.session.id)
    wire = msgspec.json.encode(document)
    assert ev.encode(NEWER) in wire
    # Reformatted on the way, as people do.
    for text in (wire, msgspec.json.format(wire)):
        again = msgspec.json.decode(text, type=documents.Document)
        imported = await documents.import_document(store, ME, again, described)
        (event,) = await store.journal.of_newer_kinds(ME, imported.id)
        assert event.data == ev.encode(NEWER)
        assert event.turn_id == imported.head
        copy = await documents.export_document(store, ME, imported.id)
        assert copy.events == tuple(
            msgspec.structs.replace(one, turn_id=imported.head) for one in document.events
        )
    assert await store.upkeep.check() == []


@pytest.mark.parametrize(
    "data",
    [
        b'{"kind":"x\\n\\nevent: turn.failed"}',
        b'{"at":1,"kind":"hologram.shown"}',
        b"[]",
        b'{"kind":7}',
        b'{"kind":"hologram.shown","kind":"text.delta","step":1,"text":"browsers read this"}',
        b'{"kind":"hologram.shown","size":1e999}',
    ],
)
async def test_g04_an_imported_event_that_does_not_begin_with_its_one_kind_is_refused(
    store: Store, data: bytes
) -> None:
    held = await answered(store, (await new_session(store)).id, "a", "A")
    document = await documents.export_document(store, ME, held.session.id)
    forged = msgspec.structs.replace(document, events=(documents.ExportedEvent(msgspec.Raw(data), 1),))
    with pytest.raises(BadImport):
        await documents.import_document(store, ME, forged, described)


async def test_g04_an_imported_event_of_a_known_kind_is_left_out(store: Store) -> None:
    held = await answered(store, (await new_session(store)).id, "a", "A")
    document = await documents.export_document(store, ME, held.session.id)
    end = msgspec.Raw(ev.encode(ev.SessionChanged(1, "deleted")))
    forged = msgspec.structs.replace(document, events=(documents.ExportedEvent(end, 1),))
    imported = await documents.import_document(store, ME, forged, described)
    assert await store.journal.after(ME, imported.id, 0) == []


async def test_g04_the_server_sends_newer_events_and_the_terminal_passes_over_them(
    store: Store, tmp_path: Path
) -> None:
    held, number = await newer_turn(store)
    await append(store, held, [ev.StepFinished(1, FinishReason.STOP)], number)
    await complete(store, held, number + 1)
    async with run_web(store, tmp_path) as server:
        frames = await server.read_until(f"/api/sessions/{held.session.id}/events?after=0", "turn.completed")
    sent = next(frame for frame in frames if frame.event == "hologram.shown")
    assert ev.encode(NEWER).decode() in sent.data
    with (tmp_path / "screen").open("w+") as file:
        screen = Screen(Console(file=file, width=80))
        ends = [screen.show(msgspec.json.decode(frame.data, type=WireEvent).event) for frame in frames]
        screen.close()
        file.seek(0)
        assert "Hello you" in file.read()
    assert ends == [*([False] * (len(frames) - 1)), True]
