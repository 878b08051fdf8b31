"""A worker whose database is away is killed with events in its spool: they arrive with the next start."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from everturn.domain import events as ev
from everturn.domain.probe import Moment
from everturn.store import open_store
from everturn.testing import KillingProbe
from everturn.testing.acting import ME, append, new_session, start
from everturn.testing.forks import open_command
from everturn.testing.postgres_proxy import PostgresProxy

pytestmark = pytest.mark.anyio


async def live(url: str, folder: str, moment: str) -> None:
    """In the child: append while the database is reachable, and continue when it is not."""
    async with open_store(url, data_dir=folder, probe=KillingProbe(Moment(moment))) as store:
        await store.workers.register("wrk_dies")
        session = await new_session(store)
        held = await start(store, session.id, "hello", "wrk_dies")
        number = await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "one ")])
        print(session.id, held.turn.id, flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # until the parent has taken the database away
        await append(store, held, [ev.TextDelta(1, "two ")], number)
        print("spooled", flush=True)
        await store.journal.wait_delivered(held.turn.id, held.epoch)
        os._exit(1)


@pytest.mark.parametrize("moment", [Moment.SPOOL_SYNCED, Moment.SPOOL_DELIVERED])
async def test_spooled_events_of_a_killed_worker_arrive_once(
    moment: Moment, proxy: PostgresProxy, postgres_url: str, tmp_path: Path
) -> None:
    arguments = [proxy.address(postgres_url), str(tmp_path / "data"), moment]
    with anyio.fail_after(180):
        async with open_command(
            *arguments, environ=os.environ, module="tests.crash.test_spool_kill"
        ) as child:
            said = BufferedByteReceiveStream(child.stdout)
            session_id, turn_id = (await said.receive_until(b"\n", 200)).decode().split()
            proxy.go_away()
            await child.stdin.send(b"gone\n")
            if moment is Moment.SPOOL_DELIVERED:
                assert await said.receive_until(b"\n", 200) == b"spooled"
                proxy.come_back()
            assert await child.wait() == 137
    proxy.come_back()
    for _ in range(2):  # and the second start adds nothing
        async with open_store(postgres_url, data_dir=tmp_path / "data") as store:
            await store.workers.register("wrk_next")
            await store.workers.take_over("wrk_next")
            events = await store.journal.of_turn(ME, turn_id)
            texts = [event.payload.text for event in events if event.kind == "text.delta"]
            assert texts == ["one ", "two "]
            session = await store.sessions.get(ME, session_id)
            assert session.position == len(events)
            await store.workers.unregister("wrk_next")


if __name__ == "__main__":
    asyncio.run(live(*sys.argv[1:]))
