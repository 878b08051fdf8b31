"""Random deliveries, repeats, crashes and sends with unknown outcome, against a plain model (F01-F03)."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everturn.domain.delivery import AccountLease, OutgoingPart, WhenUnknown
from everturn.domain.turns import Turn
from everturn.store import Store, StoreSettings, open_store
from everturn.store.turns.workers import release
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answer, append, claim, complete
from everturn.testing.postgres_server import PostgresServer
from tests.delivering import ACCOUNT, accept, claim_parts, due, receive, record

CHATS = ("1", "2")
step = st.one_of(
    st.tuples(st.just("deliver"), st.integers(0, 5)),  # which message: 0-5, again and again
    st.tuples(st.sampled_from(["settle", "run", "record"]), st.just(0)),
    st.tuples(st.sampled_from(["sent", "lost before", "lost after", "busy", "crash"]), st.just(0)),
)


class Run:
    """What happened outside: messages that were acknowledged, and what people in each chat have read."""

    def __init__(self, store: Store, clock: FakeClock, policy: WhenUnknown) -> None:
        self._store = store
        self._clock = clock
        self._policy = policy
        self._workers = 0
        self._lease: AccountLease | None = None
        self._claimed: list[OutgoingPart] = []
        self.delivered: dict[str, list[str]] = defaultdict(list)  # texts by chat, in order
        self.read: dict[str, list[tuple[str, bool]]] = defaultdict(list)  # text, and whether it is marked
        self.unknown: set[str] = set()  # texts that were once in doubt

    async def lease(self) -> AccountLease:
        if self._lease is None:
            self._workers += 1
            worker = f"wrk_{self._workers}"
            await self._store.workers.register(worker)
            self._lease = await self._store.delivery.leases.take(ACCOUNT, worker)
            assert self._lease is not None
        return self._lease

    async def step(self, what: str, value: int) -> None:
        if what == "deliver":
            await self._deliver(value)
        elif what == "settle":
            for received in await self._store.delivery.inbox.list_waiting(ACCOUNT, limit=1):
                await accept(self._store, received)
        elif what == "run":
            await self._run_turn()
        elif what == "record":
            for owed in await due(self._store):
                await record(self._store, owed, owed.answer)
        else:
            await self._send(what)

    async def _deliver(self, number: int) -> None:
        chat, text = CHATS[number % 2], f"message {number}"
        received = await receive(self._store, f"u{number}", text, chat=chat)
        assert received.is_repeat == (text in self.delivered[chat])
        if not received.is_repeat:
            self.delivered[chat].append(text)

    async def _run_turn(self) -> None:
        for session in (await self._store.sessions.list(ME)).items:
            if session.queued:
                held = await claim(self._store, session_id=session.id)
                text = (await self._store.turns.get(ME, held.turn.id)).text
                await complete(self._store, held, await append(self._store, held, answer(f"to {text}")))
                return

    async def _send(self, what: str) -> None:
        lease, outbox = await self.lease(), self._store.delivery.outbox
        await outbox.settle_unknown(lease, self._policy)
        parts = await claim_parts(self._store, lease)
        for part in parts:
            if what not in ("lost before", "busy"):
                self.read[part.chat.place.chat].append((part.body.text, part.is_repeat))
            if what == "sent":
                await outbox.mark_sent(lease, part.id, "1")
            elif what == "busy":
                retry_at = self._clock.now_ms()
                await outbox.put_back(lease, part.id, "busy", retry_at=retry_at)
            elif what in ("lost before", "lost after"):
                self.unknown.add(part.body.text)
                await outbox.mark_unknown(lease, part.id, "no answer")
            else:
                self.unknown.add(part.body.text)
        if what == "crash":
            await outbox_dies(self._store, lease)
            self._lease = None
        await self._clock.advance(600)  # pauses between attempts are over

    async def finish(self) -> None:
        """Let everything come to its end without another failure."""
        for number in range(6):
            await self._deliver(number)
        for _ in range(6):
            await self.step("settle", 0)
        for _ in range(6):
            await self.step("run", 0)
        await self.step("record", 0)
        for _ in range(30):
            await self._send("sent")


async def outbox_dies(store: Store, lease: AccountLease) -> None:
    """What the next worker finds after this one was killed."""
    await store.database.write(release, lease.worker, "crash", True)


histories = given(
    steps=st.lists(step, max_size=25), policy=st.sampled_from([WhenUnknown.REPEAT, WhenUnknown.HOLD])
)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@histories
def test_every_message_is_one_turn_and_every_answer_arrives_once_or_is_marked(
    steps: list[tuple[str, int]], policy: WhenUnknown
) -> None:
    anyio.run(check, steps, policy, "")


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@histories
def test_every_message_is_one_turn_and_every_answer_arrives_once_or_is_marked_on_postgresql(
    postgres: PostgresServer, steps: list[tuple[str, int]], policy: WhenUnknown
) -> None:
    with postgres.database() as address:
        anyio.run(check, steps, policy, address)


async def check(steps: list[tuple[str, int]], policy: WhenUnknown, address: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        clock, home = FakeClock(), Path(name)
        # Long: a jump of the fake clock must not end the lease of a worker that lives.
        limits = StoreSettings(lease_s=30 * 24 * 3600.0)
        address = address or f"sqlite://{home / 'e.db'}"
        async with open_store(address, data_dir=home, clock=clock, settings=limits) as store:
            run = Run(store, clock, policy)
            for what, value in steps:
                await run.step(what, value)
            await run.finish()
            asked = [turn.text for turn in await all_turns(store)]
            held = {part.id for part in await store.delivery.outbox.list_undecided(ME)}
    assert sorted(asked) == sorted(f"message {number}" for number in range(6))
    for chat in CHATS:
        wanted = [f"to {text}" for text in run.delivered[chat]]
        seen = run.read[chat]
        unmarked = [text for text, is_repeat in seen if not is_repeat]
        assert len(unmarked) == len(set(unmarked)), "nothing is sent twice without a mark"
        first = list(dict.fromkeys(text for text, _ in seen))
        assert [text for text in wanted if text in first] == first, "in order"
        missing = set(wanted) - set(first)
        assert missing <= run.unknown, "only what was in doubt may be missing"
        assert bool(missing) <= bool(held), "and then a person is asked"


async def all_turns(store: Store) -> list[Turn]:
    found = []
    for session in (await store.sessions.list(ME)).items:
        page = await store.transcript.page(ME, session.id, limit=100)
        found += [await store.turns.get(ME, turn.id) for turn in page.turns]
    return found
