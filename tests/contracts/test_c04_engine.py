"""C04, engine side: while the database is away a turn's words go to the spool and nothing new is started."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from everturn.domain.errors import Invalid
from everturn.domain.probe import Moment, Probe
from everturn.domain.store_values import Submission
from everturn.domain.turns import TurnState
from everturn.engine.lease import Lease
from everturn.store import Store, StoreSettings, open_store
from everturn.store.postgres.flusher import Flusher
from everturn.testing import CallTool, FakeClock, FakeTool, HoldingProbe, Say, within
from everturn.testing.acting import all_words
from everturn.testing.harness import OWNER, crashing_harness, open_harness, quiet_settings
from everturn.testing.models import Answer, ScriptStep, Wait
from everturn.testing.postgres_proxy import PostgresProxy
from tests.conftest import OpenAnother
from tests.waiting import task_waits_in

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


@pytest.fixture
def store_kind() -> str:
    return "postgresql"


async def spooled(store: Store, word: bytes) -> None:
    """Wait until the store's spool holds this word."""
    with anyio.fail_after(PATIENCE_S):
        while not any(word in path.read_bytes() for path in (store.data_dir / "spool").glob("*.spool")):
            await anyio.lowlevel.checkpoint()


async def test_c04_a_turn_streams_into_the_spool_and_starts_no_tool_until_it_is_delivered(
    store: Store, spooling: Store, proxy: PostgresProxy, probe: HoldingProbe, clock: FakeClock
) -> None:
    pay = FakeTool("pay", "paid")
    script: tuple[Answer, ...] = ([Say("one two three four", size=4), CallTool("pay")], "All done.")
    async with open_harness(spooling, *script, tools=[pay], clock=clock, probe=probe) as harness:
        session = await harness.new_session()
        probe.hold(Moment.DELTA_OFFERED)
        accepted = await harness.send(session)
        await probe.reached(Moment.DELTA_OFFERED)
        proxy.go_away()
        probe.hold(Moment.SPOOL_SYNCED)
        probe.release(Moment.DELTA_OFFERED)
        await probe.reached(Moment.SPOOL_SYNCED)
        position = (await store.sessions.get(OWNER, session.id)).position
        probe.release(Moment.SPOOL_SYNCED)
        await spooled(spooling, b"step.finished")
        await task_waits_in(Flusher.wait_delivered)
        assert pay.calls == []
        assert len(harness.model.requests) == 1
        assert (await store.sessions.get(OWNER, session.id)).position == position

        proxy.come_back()
        turn = await harness.settled(accepted.turn.id)
        assert turn.state is TurnState.COMPLETED
        assert len(pay.calls) == 1
        assert len(harness.model.requests) == 2
        said = [message.text for message in (await store.transcript.messages(OWNER, session.id)).items]
        assert said[1] == "one two three four"
        assert said[-1] == "All done."
        assert not any(event.is_late for event in await store.journal.of_turn(OWNER, turn.id))


async def test_a12_what_a_worker_that_is_cut_off_has_streamed_stays_when_the_turn_is_cancelled_elsewhere(
    store: Store, spooling: Store, proxy: PostgresProxy, probe: HoldingProbe, clock: FakeClock
) -> None:
    async with open_harness(
        spooling, [Say("one two three four", size=4)], clock=clock, probe=probe
    ) as harness:
        session = await harness.new_session()
        probe.hold(Moment.DELTA_OFFERED)
        accepted = await harness.send(session)
        await probe.reached(Moment.DELTA_OFFERED)
        proxy.go_away()
        probe.release(Moment.DELTA_OFFERED)
        await spooled(spooling, b"step.finished")
        await store.turns.cancel(OWNER, accepted.turn.id)
        proxy.come_back()
        with within("what was spooled is in the transcript"):
            while not await store.journal.recover(OWNER, session.id):
                await anyio.lowlevel.checkpoint()
    said = [message.text for message in (await store.transcript.messages(OWNER, session.id)).items]
    assert said == ["hello", "one two three four"]
    assert (await store.turns.get(OWNER, accepted.turn.id)).state is TurnState.CANCELLED
    assert len(harness.model.requests) == 1


@pytest.mark.parametrize("lease_s", [15.0])
async def test_c04_a_worker_that_cannot_renew_its_lease_starts_no_model_call(
    store: Store, spooling: Store, proxy: PostgresProxy, probe: HoldingProbe, clock: FakeClock
) -> None:
    """The step is journaled, then the database goes; the lease runs out before the call."""
    settings = quiet_settings(lease_margin_s=2.0, heartbeat_s=4.0)
    async with open_harness(spooling, "Hi.", clock=clock, probe=probe, settings=settings) as harness:
        session = await harness.new_session()
        probe.hold(Moment.CLAIM_COMMITTED)
        accepted = await harness.send(session)
        await probe.reached(Moment.CLAIM_COMMITTED)
        probe.hold(Moment.BATCH_COMMITTED)  # of the step's start, which is the turn's first write
        probe.release(Moment.CLAIM_COMMITTED)
        await probe.reached(Moment.BATCH_COMMITTED)
        proxy.go_away()
        await clock.advance(60)
        probe.release(Moment.BATCH_COMMITTED)
        await task_waits_in(Lease.wait_held)
        assert harness.model.requests == []
        assert not harness.engine.status()["has_lease"]

        proxy.come_back()
        with anyio.fail_after(PATIENCE_S):
            while not harness.model.requests:
                await clock.advance(1)
                await anyio.lowlevel.checkpoint()
        turn = await harness.settled(accepted.turn.id)
        assert turn.state is TurnState.COMPLETED


async def test_c04_a_worker_that_dies_with_a_spool_is_resumed_with_what_it_had_said(
    store: Store,
    proxy: PostgresProxy,
    postgres_url: str,
    tmp_path: Path,
    probe: HoldingProbe,
    clock: FakeClock,
) -> None:
    folder, address = tmp_path / "elsewhere", proxy.address(postgres_url)
    script: list[ScriptStep] = [Say("one two "), Wait(anyio.Event())]
    async with (
        open_store(address, data_dir=folder, clock=clock, probe=probe) as first,
        crashing_harness(first, script, clock=clock, probe=probe) as harness,
    ):
        session = await harness.new_session()
        probe.hold(Moment.DELTA_OFFERED)
        accepted = await harness.send(session)
        await probe.reached(Moment.DELTA_OFFERED)
        proxy.go_away()
        probe.hold(Moment.SPOOL_SYNCED)
        probe.release(Moment.DELTA_OFFERED)
        await probe.reached(Moment.SPOOL_SYNCED)
        probe.release(Moment.SPOOL_SYNCED)
    proxy.come_back()
    assert len(list((folder / "spool").glob("*.spool"))) == 1
    async with (
        open_store(address, data_dir=folder, clock=clock) as second,
        open_harness(second, "Another answer.", clock=clock) as harness,
    ):
        turn = await harness.settled(accepted.turn.id)
        assert turn.state is TurnState.COMPLETED
        assert list((folder / "spool").glob("*.spool")) == []
    events = await store.journal.of_turn(OWNER, turn.id)
    assert next(event.epoch for event in events if event.kind == "text.delta") == 1
    [_, reply] = (await store.transcript.messages(OWNER, session.id)).items
    assert reply.text.endswith("Another answer.")
    assert all_words(reply).startswith("one two ")


async def test_c04_a_turn_whose_claim_was_never_confirmed_still_runs(
    open_another: OpenAnother, spooling: Store, proxy: PostgresProxy, probe: HoldingProbe, clock: FakeClock
) -> None:
    """The claim is stored, its answer lost, and the database too far away to be asked what became of it."""
    other = await open_another(probe=Probe())
    settings = quiet_settings(poll_s=1.0, index_s=1e9, expire_s=1e9, take_over_s=1e9)
    async with open_harness(spooling, "Here I am.", clock=clock, settings=settings) as harness:
        session = await other.sessions.create(OWNER)
        accepted = await other.turns.accept(OWNER, session.id, Submission(text="hello"))
        probe.hold(Moment.BATCH_WRITTEN)
        await clock.advance(1)
        await probe.reached(Moment.BATCH_WRITTEN)
        lost = proxy.lose_commit(is_stored=True)
        probe.release(Moment.BATCH_WRITTEN)
        with anyio.fail_after(PATIENCE_S):
            await lost.wait()
        proxy.go_away()
        with anyio.fail_after(PATIENCE_S):
            while "not known" not in harness.engine.status()["trouble"]:
                await anyio.lowlevel.checkpoint()
        proxy.come_back()
        with anyio.fail_after(PATIENCE_S):
            while (await other.turns.get(OWNER, accepted.turn.id)).state is not TurnState.COMPLETED:
                await clock.advance(1)
        said = [message.text for message in (await other.transcript.messages(OWNER, session.id)).items]
        assert said == ["hello", "Here I am."]


async def test_c04_the_lease_of_the_store_is_the_lease_of_its_worker(
    open_another: OpenAnother, clock: FakeClock, probe: HoldingProbe
) -> None:
    """One setting decides: a worker never trusts a lease that has expired in the database."""
    store = await open_another(settings=StoreSettings(lease_s=60.0))
    settings = quiet_settings(lease_margin_s=2.0, heartbeat_s=4.0)
    async with open_harness(store, clock=clock, settings=settings) as h:
        assert h.engine.status()["has_lease"]
        clock.stand_still(57.9)
        assert h.engine.status()["has_lease"]
        clock.stand_still(0.2)
        assert not h.engine.status()["has_lease"], "it does nothing in the last two seconds of the sixty"


@pytest.mark.parametrize("lease_s", [6.0, 0.5])
async def test_c04_a_lease_that_would_run_out_between_two_renewals_is_refused(store: Store) -> None:
    with pytest.raises(Invalid, match="too short"):
        async with open_harness(store, settings=quiet_settings(lease_margin_s=2.0, heartbeat_s=4.0)):
            raise AssertionError("it must not start")
