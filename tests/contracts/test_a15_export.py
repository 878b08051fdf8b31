"""A15: an export is one whole document, written atomically; importing it gives back an equal session."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from everturn.domain.errors import BadImport, FileUnreadable, Stale
from everturn.domain.sessions import SessionPatch
from everturn.domain.store_values import ImportedSession, Request
from everturn.domain.turns import Usage
from everturn.store import Store, open_store
from everturn.store.files.disk import Disk, write_atomically
from everturn.store.sessions.documents import export_document
from everturn.store.sessions.import_numbers import NUMBER_MAX
from everturn.testing.acting import (
    ME,
    answer,
    answered,
    append,
    complete,
    finished,
    interrupted,
    new_session,
    say,
    wish,
)
from everturn.testing.faulty_disk import FaultyDisk, Platter
from tests.blobs import lose_bytes, place_of

pytestmark = pytest.mark.anyio


async def rich_session(store: Store) -> str:
    session = await new_session(store, "rich")
    file = await store.files.put(ME, "a.txt", "text/plain", b"a")
    await say(store, session.id, "look", attachments=(file.id,))
    held = (await store.turns.claim("wrk_one"))[0]
    number = await append(store, held, [*wish(), finished(), *answer("I see", step=2)])
    await complete(store, held, number)
    await interrupted(store, session.id, "tell me", "Once upon")
    await store.transcript.undo(ME, session.id, Request())
    await answered(store, session.id, "something else", "Yes")
    patch = SessionPatch(pinned=True, tags=("x", "y"), model="some:model")
    await store.sessions.change(ME, session.id, patch)
    return session.id


async def test_a15_a_session_whose_attachment_is_gone_can_still_be_exported(
    store: Store, tmp_path: Path
) -> None:
    """The disk has lost it, or it was not imported."""
    session_id = await rich_session(store)
    document = await export_document(store, ME, session_id)
    (file,) = document.files
    await lose_bytes(store, ME, file.id)
    assert await export_document(store, ME, session_id) == replace(document, files=())
    async with open_store(data_dir=tmp_path / "elsewhere") as empty:
        await empty.transcript.import_session(
            ME, ImportedSession(document.session, document.turns, document.messages)
        )
        again = await export_document(empty, ME, session_id)
        assert (again.messages, again.files) == (document.messages, ())


async def test_a15_an_attachment_that_cannot_be_read_now_fails_the_export(tmp_path: Path) -> None:
    """A copy that looks complete but lacks a file would be noticed too late."""
    async with open_store(data_dir=tmp_path / "data") as store:
        session_id = await rich_session(store)
        (file,) = (await export_document(store, ME, session_id)).files
        name, _ = await place_of(store, (await store.files.get(ME, file.id)).sha256)
        path = store.data_dir / name
        path.unlink()
        path.mkdir()  # for the superuser too, what cannot be read
        with pytest.raises(FileUnreadable, match="cannot be read: Is a directory"):
            await export_document(store, ME, session_id)


async def test_a15_an_import_into_an_empty_store_is_equal(store: Store, tmp_path: Path) -> None:
    session_id = await rich_session(store)
    exported = await store.transcript.export(ME, session_id)
    async with open_store(data_dir=tmp_path / "elsewhere") as empty:
        await empty.transcript.import_session(ME, ImportedSession(*exported))
        session, turns, messages = await empty.transcript.export(ME, session_id)
        assert await empty.upkeep.check() == []
        context = await empty.transcript.context(ME, session_id)
    original = await store.transcript.context(ME, session_id)
    assert context == [replace(message, is_imported=True) for message in original]
    assert messages == exported[2]
    assert [replace(turn, first_position=0) for turn in turns] == [
        replace(turn, first_position=0) for turn in exported[1]
    ]
    for name in ("id", "title", "version", "head", "pinned", "tags", "messages", "preview", "updated_at"):
        assert getattr(session, name) == getattr(exported[0], name), name


async def test_a15_an_import_beside_its_original_gets_new_names(store: Store) -> None:
    session_id = await rich_session(store)
    exported = await store.transcript.export(ME, session_id)
    copy = await store.transcript.import_session(ME, ImportedSession(*exported))
    assert copy.id != session_id
    _, turns, messages = await store.transcript.export(ME, copy.id)
    assert not {turn.id for turn in turns} & {turn.id for turn in exported[1]}
    assert [message.parts for message in messages] == [message.parts for message in exported[2]]
    assert await store.upkeep.check() == []
    await store.sessions.delete(ME, session_id)
    assert (await store.transcript.import_session(ME, ImportedSession(*exported))).id != session_id, (
        "deleted stays deleted"
    )


async def test_a15_a_broken_document_is_refused_whole(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    exported, (turn,), messages = await store.transcript.export(ME, session.id)
    broken = [
        ([replace(turn, state="running", ended_at=None)], messages),
        ([turn], [replace(messages[0], turn_id="trn_" + "0" * 26)]),
        ([turn, turn], messages),
        ([turn], [*messages, messages[0]]),
        ([replace(turn, id="trn_short")], messages),
    ]
    for turns, said in broken:
        with pytest.raises(BadImport):
            await store.transcript.import_session(ME, ImportedSession(exported, turns, said))
    assert len((await store.sessions.list(ME)).items) == 1
    assert await store.upkeep.check() == []


def test_a15_a_reader_sees_the_old_file_or_the_new_one_whatever_two_writers_do(tmp_path: Path) -> None:
    target = tmp_path / "export.json"
    versions = [bytes([65 + n]) * 200_000 for n in range(2)]
    write_atomically(Disk(), target, versions[0])

    def write(data: bytes) -> None:
        for _ in range(20):
            write_atomically(Disk(), target, data)

    writers = [threading.Thread(target=write, args=(data,)) for data in versions]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert target.read_bytes() in versions
    assert [path.name for path in tmp_path.iterdir()] == ["export.json"]


def test_a15_a_power_cut_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    platter = Platter(folder)
    disk = FaultyDisk(platter)
    for content in (b"old " * 5000, b"new " * 5000):
        write_atomically(disk, folder / "export.json", content)
        platter.mark(content[:3].decode())
    found = set()
    for upto in range(len(platter.log) + 1):
        for how in ("lost", "torn", "mixed", "kept"):
            place = tmp_path / f"{upto}-{how}"
            platter.cut(place, upto, how=how, seed=upto)
            exported = place / "export.json"
            content = exported.read_bytes() if exported.exists() else b""
            assert content in (b"", b"old " * 5000, b"new " * 5000), "whole, or not there"
            heard = platter.marks(upto)
            assert not heard or content[:3].decode() in (heard[-1], "new"), "what was heard is there"
            found.add(content[:3])
    assert found == {b"", b"old", b"new"}


@pytest.mark.parametrize("number", [-1, 2**31, 2**53, 2**63 - 1, 2**63])
async def test_a15_a_document_with_numbers_that_cannot_be_is_refused_whole(store: Store, number: int) -> None:
    session, turns, messages = await store.transcript.export(ME, await rich_session(store))
    last, said = turns[-1], messages[-1]
    bar = replace(last.timeline[0], start_at=number)
    broken = [
        (session, [*turns[:-1], replace(last, epoch=number)], messages),
        (session, [*turns[:-1], replace(last, attempts=number)], messages),
        (session, turns, [*messages[:-1], replace(said, ordinal=number)]),
    ]
    if number != 2**31:  # which is a possible time, and a possible version
        broken += [
            (replace(session, version=number), turns, messages),
            (replace(session, updated_at=number), turns, messages),
            (session, [*turns[:-1], replace(last, ended_at=number)], messages),
            (session, [*turns[:-1], replace(last, timeline=(bar,))], messages),
            (session, [*turns[:-1], replace(last, usage=Usage(input_tokens=number))], messages),
            (session, turns, [*messages[:-1], replace(said, created_at=number)]),
        ]
    before = await store.sessions.list(ME)
    for document in broken:
        with pytest.raises(BadImport):
            await store.transcript.import_session(ME, ImportedSession(*document))
    assert await store.sessions.list(ME) == before


async def test_a15_a_refused_number_is_named_exactly(store: Store) -> None:
    session, turns, messages = await store.transcript.export(ME, await rich_session(store))
    with pytest.raises(BadImport, match=r"is 9223372036854775807; it can be 0 to 1000000000000000\."):
        await store.transcript.import_session(
            ME, ImportedSession(replace(session, version=2**63 - 1), turns, messages)
        )


async def test_a15_a_stale_write_is_refused_also_at_the_highest_version_that_is_taken(store: Store) -> None:
    session, turns, messages = await store.transcript.export(ME, await rich_session(store))
    given = replace(session, version=NUMBER_MAX)
    copy = await store.transcript.import_session(ME, ImportedSession(given, turns, messages))
    renamed = await store.sessions.change(ME, copy.id, SessionPatch(title="one"), version=copy.version)
    assert renamed.version == copy.version + 1
    with pytest.raises(Stale):
        await store.sessions.change(ME, copy.id, SessionPatch(title="two"), version=copy.version)
