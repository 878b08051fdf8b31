"""A short life through the store alone: it passes every moment that the store has.

Each act is noted when it was acknowledged. The texts are all different, so that "exactly once" can be
counted by text.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec

from everturn.domain import events as ev
from everturn.domain.messages import Outcome
from everturn.domain.probe import Moment
from everturn.domain.sessions import NewSession, SessionPatch
from everturn.domain.store_values import Claim, Request, RetriedTurn, Submission, WhenBusy
from everturn.lab.crash.notes import Notes
from everturn.store import Store
from everturn.testing.acting import CRASHED, ME, answer, append, ask, claim, complete, wish
from everturn.testing.checkpoints import new_checkpoint, put_tree

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]

PASSES = frozenset(
    {
        Moment.ACCEPT_WRITTEN,
        Moment.ACCEPT_COMMITTED,
        Moment.BATCH_WRITTEN,
        Moment.BATCH_COMMITTED,
        Moment.ANSWER_COMMITTED,
        Moment.END_WRITTEN,
        Moment.END_COMMITTED,
        Moment.MOVE_WRITTEN,
        Moment.FILE_SYNCED,
        Moment.BLOB_WRITTEN,
        Moment.BLOBS_MARKED,
        Moment.PACK_DELETED,
        Moment.CHECKPOINT_WRITTEN,
        Moment.CHECKPOINT_COMMITTED,
        Moment.HANDED_OVER,
        Moment.TAKEN_OVER,
        Moment.INDEXED,
        Moment.PRUNED,
        Moment.SWEEP_COMMITTED,
        Moment.SWEPT,
    }
)


class Life:
    def __init__(self, store: Store, note: Notes, open_store: OpenStore) -> None:
        self.store = store
        self.note = note
        self._open_store = open_store
        self._key = 0

    async def live(self) -> None:
        await self.store.workers.register("wrk_one")
        first = await self.session("first")
        async with self.read_along(first):
            await self.answer_with_a_question(first)
            await self.steer_and_cancel(first)
            await self.move_about(first)
            await self.tidy(first)
        await self.take_over()
        await self.interrupt_and_resume()
        await self.delete()
        await self.leave_things_open()

    async def session(self, title: str) -> str:
        session = await self.store.sessions.create(ME, NewSession(title=title))
        self.note("session", session=session.id, title=title)
        return session.id

    async def say(
        self,
        session_id: str,
        text: str,
        *,
        attachments: tuple[str, ...] = (),
        when_busy: WhenBusy = WhenBusy.QUEUE,
    ) -> str:
        self._key += 1
        key = f"key-{self._key}"
        submission = Submission(text=text, key=key, attachments=attachments, when_busy=when_busy)
        accepted = await self.store.turns.accept(ME, session_id, submission)
        what = "steered" if accepted.is_steering else "accepted"
        files = list(submission.attachments)
        self.note(what, session=session_id, turn=accepted.turn.id, text=text, key=key, files=files)
        return accepted.turn.id

    async def work(self, held: Claim, payloads: list[ev.Payload], after: int | None = None) -> int:
        number = await append(self.store, held, payloads, after)
        self.note("journaled", session=held.session.id, turn=held.turn.id, epoch=held.epoch, number=number)
        return number

    async def finish(self, held: Claim, number: int) -> None:
        await complete(self.store, held, number)
        text = (await self.store.transcript.messages(ME, held.session.id, limit=1)).items[0].text
        self.note("completed", session=held.session.id, turn=held.turn.id, text=text)

    async def reply(self, session_id: str, text: str, worker: str = "wrk_one") -> Claim:
        held = await claim(self.store, worker, session_id)
        for piece in text.split():
            number = await self.work(held, [ev.TextDelta(1, piece + " ")], held.number)
            held = _after(held, number)
        await self.finish(held, await self.work(held, answer(text, step=2)))
        return held

    @asynccontextmanager
    async def read_along(self, session_id: str) -> AsyncIterator[None]:
        """Follow the session and record every event that was shown."""
        task = asyncio.create_task(self._read(session_id))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _read(self, session_id: str) -> None:
        async for events in self.store.journal.follow(ME, session_id, 0):
            for event in events:
                digest = hashlib.sha256(event.data).hexdigest()
                self.note("seen", session=session_id, position=event.position, kind=event.kind, sha=digest)

    # --- the acts --------------------------------------------------------------------------------------

    async def answer_with_a_question(self, session_id: str) -> None:
        content = b"attached bytes " * 400
        file = await self.store.files.put(ME, "a.txt", "text/plain", content)
        self.note("file", file=file.id, sha=hashlib.sha256(content).hexdigest())
        await self.say(session_id, "please look at this", attachments=(file.id,))
        held = await claim(self.store)
        number = await self.work(held, wish(is_started=False))
        question = ask(self.store.database.ids.ask(), held.turn.id, session_id)
        await self.store.turns.wait(held.turn.id, held.epoch, number + 1, [question], [])
        self.note("asked", session=session_id, turn=held.turn.id, ask=question.id)
        await self.store.asks.answer(ME, question.id, "yes, do", by="me")
        self.note("answered", session=session_id, ask=question.id, answer="yes, do")
        again = await claim(self.store)
        number = await self.work(again, [ev.ToolStarted(1, "call_1", "look", "{}")])
        await self.checkpoint(again)
        number = await self.work(again, [ev.ToolFinished("call_1", "look", Outcome.OK, "seen")], number)
        await self.finish(again, await self.work(again, answer("I have looked", step=2), number))

    async def checkpoint(self, held: Claim) -> None:
        """The tool of this turn has written a file."""
        tree, hashes = await put_tree(self.store, {b"made.txt": b"made by a tool"})
        made = await self.store.checkpoints.put(new_checkpoint(held, tree))
        self.note("checkpoint", session=held.session.id, turn=held.turn.id, id=made.id, blobs=hashes)

    async def steer_and_cancel(self, session_id: str) -> None:
        await self.say(session_id, "count to a million")
        held = await claim(self.store)
        number = await self.work(held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "one two three ")])
        await self.say(session_id, "faster please", when_busy=WhenBusy.STEER)
        await self.store.turns.take_steering(held.turn.id, held.epoch, number + 1)
        await self.say(session_id, "even faster please", when_busy=WhenBusy.STEER)
        await self.store.turns.cancel(ME, held.turn.id)
        self.note("cancelled", session=session_id, turn=held.turn.id)
        await self.reply(session_id, "this is as fast as it goes")

    async def move_about(self, session_id: str) -> None:
        for name in ("undo", "redo", "undo"):
            move = getattr(self.store.transcript, name)
            session = await move(ME, session_id, Request(key=f"move-{self._key}-{name}"))
            self._key += 1
            self.note("moved", session=session_id, version=session.version, head=session.head)
        text = "once more"
        retried = await self.store.transcript.retry(
            ME, session_id, RetriedTurn(text=text), Request(key="retry")
        )
        self.note("accepted", session=session_id, turn=retried.turn.id, text=text, key=None, files=[])
        await self.reply(session_id, "and once more it is")
        copy = await self.store.transcript.branch(ME, session_id, None, Request(key="branch"))
        self.note("branched", session=session_id, copy=copy.id, key="branch")
        named = await self.store.sessions.change(ME, session_id, SessionPatch(title="a given name"))
        self.note("named", session=session_id, title="a given name", version=named.version)

    async def tidy(self, session_id: str) -> None:
        await self.store.search.index()
        await self.store.upkeep.prune(older_than_ms=-60_000)
        unused = await self.store.files.put(ME, "unused.txt", "text/plain", b"unreferenced")
        await self.store.files.sweep(grace_ms=-60_000, wait_ms=-60_000)
        self.note("swept", file=unused.id)

    async def take_over(self) -> None:
        """Another worker dies with a turn, and this one releases it."""
        session_id = await self.session("of the ghost")
        await self.say(session_id, "are you there?")
        async with self._open_store() as ghost:
            await ghost.workers.register("wrk_ghost")
            held = await claim(ghost, "wrk_ghost", session_id)
            await append(ghost, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "boo ")])
        await self.store.workers.take_over("wrk_one")
        held = await claim(self.store, "wrk_one", session_id)
        await self.store.turns.hand_over(held.turn.id, held.epoch)
        again = await claim(self.store, "wrk_one", session_id)
        number = await self.work(again, [ev.StepAbandoned(1, "crash"), *answer("I am")])
        await self.finish(again, number)

    async def interrupt_and_resume(self) -> None:
        session_id = await self.session("interrupted")
        await self.say(session_id, "tell me a story")
        held = await claim(self.store)
        await self.work(held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "Once upon a time")])
        await self.store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
        self.note("interrupted", session=session_id, turn=held.turn.id, text="Once upon a time")
        await self.store.turns.resume(ME, held.turn.id)
        resumed = await claim(self.store)
        number = await self.work(resumed, [ev.StepAbandoned(1, "crash", continues=True)])
        await self.finish(resumed, await self.work(resumed, answer(" there was an end."), number))

    async def delete(self) -> None:
        session_id = await self.session("to be deleted")
        await self.say(session_id, "forget me")
        held = await claim(self.store)
        await self.work(held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "never")])
        await self.store.search.index()
        self.note("deleting", session=session_id)
        await self.store.sessions.delete(ME, session_id)
        self.note("deleted", session=session_id)

    async def leave_things_open(self) -> None:
        session_id = await self.session("left running")
        await self.say(session_id, "still under way")
        held = await claim(self.store)
        await self.work(held, wish())
        await self.say(session_id, "waiting in line")
        session_id = await self.session("left waiting")
        await self.say(session_id, "ask me something")
        held = await claim(self.store)
        number = await self.work(held, wish(is_started=False))
        question = ask(self.store.database.ids.ask(), held.turn.id, session_id)
        await self.store.turns.wait(held.turn.id, held.epoch, number + 1, [question], [])
        self.note("asked", session=session_id, turn=held.turn.id, ask=question.id)


def _after(held: Claim, number: int) -> Claim:
    return msgspec.structs.replace(held, number=number)
