"""Sweeping in one process while another is given the same bytes."""

import anyio
import pytest

from everturn.domain.probe import Moment
from everturn.store import Store
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import ME
from tests.blobs import content_of, packs_of
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio
DAY_S = 24 * 3600


@pytest.mark.parametrize("moment", [Moment.SWEEP_COMMITTED, Moment.BLOBS_MARKED])
async def test_a01_bytes_that_come_again_between_the_sweep_of_their_row_and_of_their_bytes_stay(
    store: Store, open_another: OpenAnother, clock: FakeClock, moment: Moment
) -> None:
    probe = HoldingProbe()
    sweeper = await open_another(probe=probe)
    old = await store.files.put(ME, "cat.txt", "text/plain", b"a cat")
    await clock.advance(3 * DAY_S)
    async with anyio.create_task_group() as group:
        probe.hold(moment)
        group.start_soon(sweeper.files.sweep)
        await probe.reached(moment)
        new = await store.files.put(ME, "again.txt", "text/plain", b"a cat")
        probe.release(moment)
    await clock.advance(DAY_S / 2)
    await sweeper.files.sweep()
    assert new.sha256 == old.sha256
    assert await content_of(store, ME, new.id) == b"a cat"


async def test_bytes_that_nothing_names_any_more_are_gone_and_leave_nothing(
    store: Store, clock: FakeClock
) -> None:
    await store.files.put(ME, "cat.txt", "text/plain", b"a cat")
    await clock.advance(3 * DAY_S)
    assert await store.files.sweep() == 1
    await clock.advance(DAY_S)
    assert await store.files.sweep() == 0
    assert await packs_of(store) == []
    if store.kind == "sqlite":
        assert list((store.data_dir / "blobs").iterdir()) == []
