import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Fenced, StoreAway
from everturn.domain.turns import WriterPosition
from everturn.engine.turn_writer import TurnWriter, WriterClosed, WriterLimits
from everturn.testing import FakeClock

pytestmark = pytest.mark.anyio


class SlowJournal:
    """Takes batches; each waits for its turn when ``is_slow``."""

    def __init__(self):
        self.batches = []
        self.is_slow = False
        self.started = anyio.Event()
        self.go = anyio.Event()
        self.errors = []

    async def wait_delivered(self, turn_id, epoch):
        """Nothing is ever spooled here."""

    async def append(self, turn_id, epoch, first_number, payloads):
        self.batches.append((first_number, list(payloads)))
        self.started.set()
        if self.is_slow:
            await self.go.wait()
        if self.errors:
            error = self.errors.pop(0)
            if error is not None:
                raise error
        return 0


@pytest.fixture
def journal():
    return SlowJournal()


def writer_of(journal, clock=None, bound=1 << 20):
    failed = []
    writer = TurnWriter(
        journal,
        WriterPosition("trn_1", epoch=3, number=1),
        clock=clock or FakeClock(),
        limits=WriterLimits(outstanding_bytes_max=bound, retry_s=0.2),
        on_failure=lambda: failed.append(True),
        on_durable=lambda: None,
    )
    return writer, failed


class Running:
    def __init__(self, writer):
        self.writer = writer

    async def __aenter__(self):
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        self.group.start_soon(self.writer.run)
        return self.group

    async def __aexit__(self, *exc):
        self.group.cancel_scope.cancel()
        return await self.group.__aexit__(*exc)


async def test_append_is_durable_on_return_and_numbers_continue(journal):
    writer, _ = writer_of(journal)
    async with Running(writer):
        await writer.append(ev.StepStarted(1, "m"))
        await writer.append(ev.StepFinished(1, "stop"), ev.Progress("x"))
    assert journal.batches[0] == (2, [ev.StepStarted(1, "m")])
    assert journal.batches[1] == (3, [ev.StepFinished(1, "stop"), ev.Progress("x")])
    assert writer.number == 4


async def test_deltas_that_wait_together_become_one_event_before_they_get_a_number(journal):
    writer, _ = writer_of(journal)
    journal.is_slow = True
    async with Running(writer):
        await writer.offer_text(1, "a")
        await journal.started.wait()
        for text in "bcd":
            await writer.offer_text(1, text)
        await writer.offer_reasoning(1, "hm")
        await writer.offer_reasoning(1, "m")
        await writer.offer_text(1, "e")
        await writer.offer_text(2, "f")
        journal.is_slow = False
        journal.go.set()
        await writer.quiet()
    assert journal.batches == [
        (2, [ev.TextDelta(1, "a")]),
        (
            3,
            [
                ev.TextDelta(1, "bcd"),
                ev.ReasoningDelta(1, "hmm"),
                ev.TextDelta(1, "e"),
                ev.TextDelta(2, "f"),
            ],
        ),
    ]


async def test_an_event_between_deltas_keeps_its_place(journal):
    writer, _ = writer_of(journal)
    journal.is_slow = True
    async with Running(writer):
        await writer.offer_text(1, "a")
        await journal.started.wait()
        await writer.offer_text(1, "b")
        await writer.offer(ev.Progress("p"))
        await writer.offer_text(1, "c")
        journal.go.set()
        await writer.quiet()
    assert journal.batches[1][1] == [ev.TextDelta(1, "b"), ev.Progress("p"), ev.TextDelta(1, "c")]


async def test_a_batch_with_an_unknown_outcome_is_sent_again_as_formed(journal):
    clock = FakeClock()
    writer, failed = writer_of(journal, clock)
    journal.errors = [StoreAway("away"), None]
    async with Running(writer):
        await writer.offer_text(1, "a")
        await clock.someone_sleeps(0.2)
        await writer.offer_text(1, "b")  # must not slip into the batch that is sent again
        await clock.advance(0.2)
        await writer.quiet()
    assert journal.batches == [
        (2, [ev.TextDelta(1, "a")]),
        (2, [ev.TextDelta(1, "a")]),
        (3, [ev.TextDelta(1, "b")]),
    ]
    assert failed == []


async def test_a_fenced_writer_says_so_to_everybody(journal):
    writer, failed = writer_of(journal)
    journal.errors = [Fenced("trn_1", 3, "running", 4)]
    async with Running(writer):
        await writer.offer_text(1, "a")
        with pytest.raises(Fenced):
            await writer.quiet()
        with pytest.raises(Fenced):
            await writer.offer_text(1, "b")
        with pytest.raises(Fenced):
            await writer.append(ev.Progress("x"))
    assert failed == [True]
    assert len(journal.batches) == 1


async def test_offering_waits_only_when_too_much_waits_already(journal):
    writer, _ = writer_of(journal, bound=1000)
    journal.is_slow = True
    async with Running(writer) as group:
        await writer.offer_text(1, "a")
        await journal.started.wait()
        await writer.offer_text(1, "x" * 500)
        offered = anyio.Event()

        async def one_more():
            await writer.offer_text(1, "y" * 600)
            offered.set()

        group.start_soon(one_more)
        await anyio.wait_all_tasks_blocked()
        assert not offered.is_set()
        journal.go.set()
        await offered.wait()
        await writer.quiet()
    assert "".join(p.text for _, batch in journal.batches for p in batch) == "a" + "x" * 500 + "y" * 600


async def test_an_ended_writer_refuses_instead_of_hanging(journal):
    writer, _ = writer_of(journal)
    async with Running(writer):
        await writer.append(ev.Progress("x"))
    with pytest.raises(WriterClosed):
        await writer.append(ev.Progress("y"))
