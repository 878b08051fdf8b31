"""Pruning happens, and never deletes rows that are still needed."""

import anyio
import anyio.lowlevel
import pytest

from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.harness import OWNER, open_harness, quiet_settings

pytestmark = pytest.mark.anyio
HOUR_S = 3600.0


async def test_c10_the_engine_prunes_what_ended_before_the_grace_and_not_what_ended_within_it(
    store: Store, clock: FakeClock
) -> None:
    settings = quiet_settings(prune_s=60.0, prune_grace_s=HOUR_S)
    async with open_harness(store, "old", "new", clock=clock, settings=settings) as h:
        older, newer = await h.new_session(), await h.new_session()
        await h.settled((await h.send(older)).turn.id)
        await clock.jump(HOUR_S)
        await h.settled((await h.send(newer)).turn.id)
        await clock.jump(60)
        with anyio.fail_after(60):
            while (await store.journal.after(OWNER, older.id, 0))[0].kind != "snapshot":
                await anyio.lowlevel.checkpoint()
        assert (await store.journal.after(OWNER, newer.id, 0))[0].kind == "turn.accepted"
        assert len(await h.messages(older)) == 2
