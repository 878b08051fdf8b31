"""Sweeping in one process while another is given the same bytes."""

from pathlib import Path

import anyio
import pytest

from everturn.domain.probe import Moment
from everturn.store import Store, open_store
from everturn.store.files.disk import INCOMING
from everturn.testing import FakeClock, HoldingProbe
from tests.acting import ME, new_session, say
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio


async def test_a01_bytes_that_come_again_between_the_sweep_of_their_row_and_of_their_file_stay(
    store: Store, open_another: OpenAnother, clock: FakeClock
) -> None:
    probe = HoldingProbe()
    sweeper = await open_another(probe=probe)
    old = await store.files.put(ME, "cat.txt", "text/plain", b"a cat")
    await clock.advance(3 * 24 * 3600)
    async with anyio.create_task_group() as group:
        probe.hold(Moment.BATCH_COMMITTED)
        group.start_soon(sweeper.files.sweep)
        await probe.reached(Moment.BATCH_COMMITTED)
        new = await store.files.put(ME, "again.txt", "text/plain", b"a cat")
        probe.release(Moment.BATCH_COMMITTED)
    assert new.sha256 == old.sha256
    assert (await store.files.path(ME, new.id)).read_bytes() == b"a cat"


async def test_unreferenced_bytes_are_deleted_without_a_trace(store: Store, clock: FakeClock) -> None:
    file = await store.files.put(ME, "cat.txt", "text/plain", b"a cat")
    path = await store.files.path(ME, file.id)
    await clock.advance(3 * 24 * 3600)
    assert await store.files.sweep() == 1
    assert list(path.parent.iterdir()) == []


async def test_what_a_killed_upload_or_sweep_left_goes_unless_a_row_names_it(data_dir: Path) -> None:
    """Another process named the bytes while the sweep that was killed had put them aside."""
    async with open_store(data_dir=data_dir) as store:
        named = await store.files.put(ME, "cat.txt", "text/plain", b"a cat")
        await say(store, (await new_session(store)).id, "look", attachments=(named.id,))
        path = await store.files.path(ME, named.id)
        files = data_dir / "files"
        path.rename(files / f"{INCOMING}{named.sha256}-fil_1")
        (files / f"{INCOMING}{'0' * 64}-fil_2").write_bytes(b"unreferenced")
        (files / f"{INCOMING}123-abc").write_bytes(b"half of an upl")
        await store.files.sweep()
        assert len(list(files.glob(f"{INCOMING}*"))) == 3, "they may be on their way"
        await store.files.sweep(grace_ms=-60_000)
        assert list(files.glob(f"{INCOMING}*")) == []
    assert path.read_bytes() == b"a cat"
