"""A full, read-only or failing disk: writes are refused with a reason, nothing acknowledged is lost, nothing is invented."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import apsw
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import DiskFull, DiskReadOnly, EverturnError, StoreBroken
from everturn.domain.store_values import Submission
from everturn.domain.turns import FinishReason
from everturn.store import Store, open_store
from everturn.testing.acting import ME, answer, append, complete, new_session, positions, say, start, words
from everturn.testing.faulty_disk import FaultyDisk, FaultyVfs, Platter
from tests.blobs import content_of
from tests.small_disk import small_disk

pytestmark = pytest.mark.anyio

PATIENCE_S = 180
_FRAME_BYTES = 4096 + 24
_FRAMES_OF_FIRST_PAGE = 4062  # of the log, in the first page of its index; the next page takes 32 KiB
_ROOM_FOR_A_FEW_FRAMES = 7 * 4096


@asynccontextmanager
async def opened(platter: Platter, vfs: FaultyVfs) -> AsyncIterator[Store]:
    async with open_store(data_dir=platter.root, disk=FaultyDisk(platter, vfs.name)) as store:
        yield store


# --- while it is opened ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"), [("write", errno.EIO), ("write", errno.ENOSPC), ("sync", errno.EIO)]
)
async def test_a_disk_that_fails_while_a_store_is_made_gives_an_error_of_ours(
    platter: Platter, vfs: FaultyVfs, kind: str, code: int
) -> None:
    """The first operation fails and all after it, then from the second on, until the store is made unharmed."""
    for after in range(400):
        platter.fail(kind, code, after=after)
        try:
            async with opened(platter, vfs):
                pass
        except (EverturnError, BaseExceptionGroup, OSError):
            pass  # SQLite's own errors are none of these
        else:
            break
        finally:
            platter.heal()
            for left in platter.root.glob("everturn.db*"):
                left.unlink()
    assert after > 2, "some of them failed"


# --- full ------------------------------------------------------------------------------------------------


async def test_a_full_disk_refuses_everything_and_takes_it_again_when_there_is_room(
    platter: Platter, vfs: FaultyVfs
) -> None:
    async with opened(platter, vfs) as store:
        session = await new_session(store, "before")
        held = await start(store, session.id, "hello")
        number = await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "one ")])
        platter.fail("write", errno.ENOSPC)
        with pytest.raises(DiskFull) as refused:
            await append(store, held, [ev.TextDelta(1, "two ")], number)
        assert "Nothing" in refused.value.message
        assert refused.value.hint
        with pytest.raises(DiskFull):
            await say(store, session.id, "one more", key="k")
        with pytest.raises(DiskFull):
            await complete(store, held, number)
        with pytest.raises(DiskFull):
            await store.files.put(ME, "a.txt", "text/plain", b"a")
        assert (await store.sessions.get(ME, session.id)).position == 4, "reading goes on, and shows no more"
        platter.heal()
        number = await append(store, held, [ev.TextDelta(1, "two ")], number)
        number = await append(store, held, [ev.StepFinished(1, FinishReason.STOP)], number)
        await complete(store, held, number)
        assert not (await say(store, session.id, "one more", key="k")).is_repeat
    async with opened(platter, vfs) as store:
        assert await words(store, session.id) == ["hello", "one two "]
        assert await positions(store, session.id) == list(range(1, 9))
        assert await store.upkeep.check() == []


async def test_a_disk_that_fills_up_at_any_write_of_an_act_leaves_all_or_nothing_of_it(
    platter: Platter, vfs: FaultyVfs
) -> None:
    """The first write fails, then the second, the third, until the act goes through unharmed."""
    async with opened(platter, vfs) as store:
        session = await new_session(store)
        for after in range(200):
            platter.fail("write", errno.ENOSPC, after=after)
            text = f"message {after}"
            try:
                await say(store, session.id, text)
                is_accepted = True
            except DiskFull:
                is_accepted = False
            platter.heal()
            queued = [turn.text for turn in await store.turns.queue(ME, session.id)]
            assert (text in queued) == is_accepted
            if is_accepted:
                break
        assert is_accepted
        assert after > 3, "it took several writes"
        assert await store.upkeep.check() == []


async def test_a_full_disk_fails_a_whole_batch_and_publishes_none_of_it(
    platter: Platter, vfs: FaultyVfs
) -> None:
    async with opened(platter, vfs) as store:
        session = await new_session(store)
        held = await start(store, session.id, "hello")
        seen: list[int] = []
        refused: list[str] = []

        async def read() -> None:
            async for events in store.journal.follow(ME, session.id, 0):
                seen.extend(event.position for event in events)

        async def write(number: int) -> None:
            try:
                await store.journal.append(held.turn.id, held.epoch, 2, [ev.TextDelta(1, str(number))])
            except EverturnError as error:
                refused.append(error.code)

        async with anyio.create_task_group() as reading:
            reading.start_soon(read)
            platter.fail("write", errno.ENOSPC)
            async with anyio.create_task_group() as writing:
                for number in range(5):
                    writing.start_soon(write, number)
            platter.heal()
            await store.sessions.get(ME, session.id)
            reading.cancel_scope.cancel()
        assert refused == ["disk_full"] * 5
        assert seen in ([], [1, 2])
        assert await positions(store, session.id) == [1, 2]


async def test_no_message_names_an_attachment_that_did_not_fit(platter: Platter, vfs: FaultyVfs) -> None:
    async with opened(platter, vfs) as store:
        platter.fail("write", errno.ENOSPC, suffix="", after=0, times=1)
        with pytest.raises(DiskFull):
            await store.files.put(ME, "a.txt", "text/plain", b"a" * 100)
        file = await store.files.put(ME, "a.txt", "text/plain", b"a" * 100)
        session = await new_session(store)
        await store.turns.accept(ME, session.id, Submission(attachments=(file.id,)))
        assert await store.upkeep.check() == []


# --- which trouble mends by itself ---------------------------------------------------------------------------

_MENDS = {
    "the log is full": ("write", errno.ENOSPC, None),
    "a quota is used up": ("write", errno.EDQUOT, None),
    "the index of the log cannot grow": ("write", errno.ENOSPC, apsw.SQLITE_IOERR_SHMSIZE),
    "the index of the log cannot be mapped": ("write", errno.ENOMEM, apsw.SQLITE_IOERR_SHMMAP),
}
_STAYS = {
    "a sync fails": ("sync", errno.EIO, None),
    "a sync finds no room": ("sync", errno.ENOSPC, None),
    "the folder's sync fails": ("write", errno.EIO, apsw.SQLITE_IOERR_DIR_FSYNC),
    "a write fails": ("write", errno.EIO, None),
    "a code that is not known": ("write", errno.EIO, apsw.SQLITE_IOERR_VNODE),
}


@pytest.mark.parametrize("case", _MENDS)
async def test_a_disk_without_room_is_taken_for_one_and_mends_by_itself(
    platter: Platter, vfs: FaultyVfs, case: str
) -> None:
    kind, code, result = _MENDS[case]
    async with opened(platter, vfs) as store:
        session = await new_session(store)
        platter.fail(kind, code, suffix="-wal", result=result)
        with pytest.raises(DiskFull):
            await say(store, session.id, "refused")
        with anyio.fail_after(PATIENCE_S):
            trouble = await store.health_changed(None)
            assert trouble is not None
            assert trouble.code == "disk_full"
            platter.heal()
            assert await store.health_changed(trouble) is None, "no write was needed to find out"
        await say(store, session.id, "taken")
        assert [turn.text for turn in await store.turns.queue(ME, session.id)] == ["taken"]
        assert await store.upkeep.check() == []


@pytest.mark.parametrize("case", _STAYS)
async def test_trouble_after_which_the_disk_is_unknown_lasts_until_the_store_is_reopened(
    platter: Platter, vfs: FaultyVfs, case: str
) -> None:
    kind, code, result = _STAYS[case]
    async with opened(platter, vfs) as store:
        session = await new_session(store)
        platter.fail(kind, code, suffix="-wal", times=1, result=result)
        with pytest.raises(StoreBroken, match="IOERR"):
            await say(store, session.id, "unknown")
        platter.heal()
        with pytest.raises(StoreBroken):
            await say(store, session.id, "refused")
    async with opened(platter, vfs) as store:
        await say(store, session.id, "taken")


async def _fill_first_page_of_index(store: Store, log: Path) -> None:
    """Write until two more commits need the second page."""
    await store.records.put(ME, "settings", "a", 0)
    number = 0
    while (frames := (log.stat().st_size - 32) // _FRAME_BYTES) < _FRAMES_OF_FIRST_PAGE - 3:
        is_near = frames > _FRAMES_OF_FIRST_PAGE - 100
        name, size = ("a", 1) if is_near else (f"{number % 20}", 40_000)
        await store.records.put(ME, "settings", name, "x" * size)
        number += 1


async def test_on_a_real_disk_an_index_of_the_log_that_cannot_grow_mends_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite calls this an I/O error: the log took the commit, and its index had no room for one more page."""
    # A checkpoint would start the log over.
    monkeypatch.setattr("everturn.store.sqlite.database.CHECKPOINT_EVERY_S", 3_600.0)
    with small_disk(tmp_path / "disk", megabytes=26) as disk:
        async with open_store(data_dir=disk.root / "data") as store:
            await _fill_first_page_of_index(store, disk.root / "data" / "everturn.db-wal")
            disk.fill(but=_ROOM_FOR_A_FEW_FRAMES)
            with anyio.fail_after(PATIENCE_S):
                with pytest.raises(DiskFull, match="-shm"):
                    for number in range(100):
                        await store.records.put(ME, "settings", "a", number)
                trouble = store.trouble
                disk.free()
                assert await store.health_changed(trouble) is None
            await store.records.put(ME, "settings", "a", "after")
        async with open_store(data_dir=disk.root / "data") as store:
            assert await store.records.get(ME, "settings", "a") == "after"
            assert await store.upkeep.check() == []


# --- a sync that fails -----------------------------------------------------------------------------------


async def test_after_a_failed_sync_the_outcome_is_unknown_and_nothing_more_is_written(
    platter: Platter, vfs: FaultyVfs
) -> None:
    async with opened(platter, vfs) as store:
        session = await new_session(store)
        held = await start(store, session.id, "hello")
        number = await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "shown ")])
        platter.fail("sync", errno.EIO, suffix="-wal", times=1)
        with pytest.raises(StoreBroken) as refused:
            await append(store, held, [ev.TextDelta(1, "unknown ")], number)
        assert "unknown" in refused.value.message
        writes = sum(1 for operation in platter.log if operation.kind == "write")
        with pytest.raises(StoreBroken):
            await append(store, held, [ev.TextDelta(1, "never ")], number)
        with pytest.raises(StoreBroken):
            await say(store, session.id, "never")
        assert writes == sum(1 for operation in platter.log if operation.kind == "write")
        assert await positions(store, session.id) == [1, 2, 3, 4], "nothing of it was shown"
    async with opened(platter, vfs) as store:
        kinds = [event.kind for event in await store.journal.of_turn(ME, held.turn.id)]
        texts = [e.payload.text for e in await store.journal.of_turn(ME, held.turn.id) if "delta" in e.kind]
        assert kinds[:3] == ["turn.accepted", "turn.started", "step.started"]
        assert texts in (["shown "], ["shown ", "unknown "]), "what was refused may be there, or not"
        await store.workers.register("wrk_two")


async def test_what_a_failed_sync_lost_is_not_acknowledged_after_a_power_cut_either(
    platter: Platter, vfs: FaultyVfs, tmp_path: Path
) -> None:
    async with opened(platter, vfs) as store:
        session = await new_session(store)
        held = await start(store, session.id, "hello")
        number = await append(store, held, answer("safe"))
        platter.fail("sync", errno.EIO, suffix="-wal")
        with pytest.raises(StoreBroken):
            await complete(store, held, number)
        platter.cut(tmp_path / "found")
        platter.heal()
    async with open_store(data_dir=tmp_path / "found") as store:
        assert (await store.turns.get(ME, held.turn.id)).state == "running"
        assert await positions(store, session.id) == [1, 2, 3, 4, 5]


async def test_a_failed_sync_of_an_attachment_names_no_file(platter: Platter, vfs: FaultyVfs) -> None:
    async with opened(platter, vfs) as store:
        first = await store.files.put(ME, "first.txt", "text/plain", b"first")
        platter.fail("sync", errno.EIO, after=1, times=1)  # after the commit that announces the pack
        with pytest.raises(StoreBroken):
            await store.files.put(ME, "a.txt", "text/plain", b"a")
        assert len(list((platter.root / "blobs").iterdir())) == 1
        second = await store.files.put(ME, "a.txt", "text/plain", b"a")
        assert [await content_of(store, ME, file.id) for file in (first, second)] == [b"first", b"a"]
        assert await store.upkeep.check() == []


async def test_a_checkpoint_that_fails_loses_nothing_and_blocks_no_write(
    platter: Platter, vfs: FaultyVfs
) -> None:
    async with opened(platter, vfs) as store:
        session = await new_session(store)
        held = await start(store, session.id, "hello")
        number = await append(store, held, [ev.StepStarted(1, "m")])
        checkpointer = apsw.Connection(str(platter.root / "everturn.db"), vfs=vfs.name)
        checkpointer.execute("PRAGMA schema_version").fetchall()  # it learns that there is a log
        for code in (errno.ENOSPC, errno.EIO):
            platter.fail("write", code, suffix=".db")
            platter.fail("sync", code, suffix=".db")
            with pytest.raises((apsw.FullError, apsw.IOError)):
                checkpointer.wal_checkpoint()
            number = await append(store, held, [ev.TextDelta(1, "on and on ")], number)
            platter.heal()
        checkpointer.close()
        await store.turns.cancel(ME, held.turn.id)
    async with opened(platter, vfs) as store:
        assert await words(store, session.id) == ["hello", "on and on on and on "]
        assert await store.upkeep.check() == []


# --- read-only -------------------------------------------------------------------------------------------


async def test_a_disk_that_is_read_only_from_the_start_is_refused(platter: Platter, vfs: FaultyVfs) -> None:
    platter.is_read_only = True
    with pytest.raises(DiskReadOnly) as refused:
        async with opened(platter, vfs):
            pass
    assert refused.value.hint


async def test_a_store_that_becomes_read_only_while_closed_can_be_opened_again_afterwards(
    platter: Platter, vfs: FaultyVfs
) -> None:
    async with opened(platter, vfs) as store:
        session = await new_session(store, "kept")
    platter.is_read_only = True
    with pytest.raises(DiskReadOnly):
        async with opened(platter, vfs) as store:
            await new_session(store, "refused")
    platter.heal()
    async with opened(platter, vfs) as store:
        assert [s.id for s in (await store.sessions.list(ME)).items] == [session.id]


async def test_a_disk_that_turns_read_only_refuses_writes_and_keeps_reading(
    platter: Platter, vfs: FaultyVfs
) -> None:
    async with opened(platter, vfs) as store:
        session = await new_session(store, "kept")
        platter.is_read_only = True
        with pytest.raises((DiskReadOnly, StoreBroken)):
            await say(store, session.id, "hello")
        with pytest.raises((DiskReadOnly, StoreBroken)):
            await store.files.put(ME, "a.txt", "text/plain", b"a")
        assert (await store.sessions.get(ME, session.id)).title == "kept"
        platter.heal()
    async with opened(platter, vfs) as store:
        assert await store.turns.queue(ME, session.id) == []
        await say(store, session.id, "hello")
