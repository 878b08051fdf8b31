"""After a crash: acknowledged work is there, once; unfinished work gets a stated fate."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict

from everturn.domain import events as ev
from everturn.domain.errors import Gone
from everturn.domain.events import Event
from everturn.domain.fold import fold
from everturn.domain.messages import Call, Message, Result
from everturn.domain.sessions import SessionFilter
from everturn.domain.store_values import Submission
from everturn.domain.turns import ENDED, Turn
from everturn.lab.crash.notes import Note
from everturn.store import Store
from everturn.store.scripts.queries.turns import STEERING_OF_TURN, TURN
from everturn.store.scripts.script import Script, Tx
from everturn.testing.acting import ME, answer

SURVIVOR = "wrk_survivor"


class After:
    """The store as the next process finds it, beside what the world had heard before."""

    def __init__(self, store: Store, notes: list[Note]) -> None:
        self.store = store
        self.notes: dict[str, list[Note]] = defaultdict(list)
        for note in notes:
            self.notes[note["what"]].append(note)
        self.deleted = {note["session"] for note in self.notes["deleted"]}
        self._given_up = _files_given_up(notes)

    async def check(self) -> None:
        """Everything at once: what was promised is kept, and the store is sound."""
        await self._find_deleted()
        await self.check_acknowledged()
        await self.finish_everything()
        await self.check_acknowledged()
        await self.check_sound()

    async def _find_deleted(self) -> None:
        """A deletion that was begun and not reported may have happened. Then all of it has, for good."""
        for note in self.notes["deleting"]:
            if await self._is_gone(note["session"]):
                self.deleted.add(note["session"])

    async def _is_gone(self, session_id: str) -> bool:
        try:
            await self.store.sessions.get(ME, session_id)
        except Gone:
            return True
        return False

    def _of(self, what: str) -> list[Note]:
        return [note for note in self.notes[what] if note.get("session") not in self.deleted]

    # --- what was acknowledged -----------------------------------------------------------------------------

    async def check_acknowledged(self) -> None:
        for note in self._of("session"):
            assert (await self.store.sessions.get(ME, note["session"])).id == note["session"]
        for session_id in self.deleted:
            assert await self._is_gone(session_id), f"{session_id} was deleted and came back"
        await self._check_turns()
        await self._check_texts()
        await self._check_seen()
        await self._check_rest()

    async def _check_turns(self) -> None:
        for note in self._of("accepted"):
            turn = await self.store.turns.get(ME, note["turn"])
            assert (turn.session_id, turn.text) == (note["session"], note["text"])
        for state in ("completed", "cancelled"):
            for note in self._of(state):
                assert (await self.store.turns.get(ME, note["turn"])).state == state
        for note in [*self._of("completed"), *self._of("interrupted")]:
            _, _, messages = await self.store.transcript.export(ME, note["session"])
            said = "".join(message.text for message in messages if message.turn_id == note["turn"])
            turn = await self.store.turns.get(ME, note["turn"])
            assert note["text"] in said or turn.state not in ENDED, "what was said stays said"

    async def _check_texts(self) -> None:
        """Every accepted text is there, and once: as a message, or waiting to become one."""
        for note in [*self._of("accepted"), *self._of("steered")]:
            _, turns, messages = await self.store.transcript.export(ME, note["session"])
            texts = Counter(message.text for message in messages)
            waiting = await self._waiting_steering(note["session"], turns)
            assert texts[note["text"]] + waiting[note["text"]] == 1, note
        for note in self._of("accepted"):
            if note["key"] is None:
                continue
            submission = Submission(text=note["text"], attachments=tuple(note["files"]), key=note["key"])
            again = await self.store.turns.accept(ME, note["session"], submission)
            assert (again.turn.id, again.is_repeat) == (note["turn"], True)

    async def _waiting_steering(self, session_id: str, turns: list[Turn]) -> Counter[str]:
        """Steering that an unfinished turn has journaled or not yet taken."""
        found: Counter[str] = Counter()
        for turn in turns:
            if turn.state in ENDED:
                continue
            for event in await self.store.journal.of_turn(ME, turn.id):
                payload = event.payload
                if isinstance(payload, ev.MessageAdded):
                    found[payload.message.text] += 1
            found.update(await steering_texts(self.store, turn.id))
        return found

    async def _check_seen(self) -> None:
        by_session: dict[str, list[Note]] = defaultdict(list)
        for note in self._of("seen"):
            by_session[note["session"]].append(note)
        for session_id, seen in by_session.items():
            found = {event.position: event for event in await all_events(self.store, session_id)}
            first = min(found, default=0)
            is_pruned = first in found and found[first].kind == "snapshot"
            for note in seen:
                if is_pruned and note["position"] <= first:
                    continue
                event = found[note["position"]]
                assert hashlib.sha256(event.data).hexdigest() == note["sha"], "a shown event never changes"

    async def _check_rest(self) -> None:
        for note in self._of("journaled"):
            events = await self.store.journal.of_turn(ME, note["turn"])
            numbers = {event.number for event in events if event.epoch == note["epoch"]}
            turn = await self.store.turns.get(ME, note["turn"])
            assert note["number"] in numbers or turn.state in ENDED, "journaled, or pruned after its end"
        for note in self._of("answered"):
            assert (await self.store.asks.get(ME, note["ask"])).answer == note["answer"]
        for note in self._of("asked"):
            assert (await self.store.asks.get(ME, note["ask"])).turn_id == note["turn"]
        swept = {note["file"] for note in self.notes["swept"]}
        for note in self.notes["file"]:
            if note["file"] not in swept | self._given_up:
                content = await self._content_of(note["file"])
                assert hashlib.sha256(content).hexdigest() == note["sha"]
        for note in [*self._of("moved"), *self._of("named")]:
            session = await self.store.sessions.get(ME, note["session"])
            assert session.version >= note["version"]
            if session.version == note["version"]:
                assert session.head == note.get("head", session.head)
                assert session.title == note.get("title", session.title)
        for note in self._of("checkpoint"):
            made = await self.store.checkpoints.of_turn(ME, note["turn"])
            assert note["id"] in [checkpoint.id for checkpoint in made]
            for sha256 in note["blobs"]:
                data = b"".join([piece async for piece in self.store.blobs.read(sha256)])
                assert hashlib.sha256(data).hexdigest() == sha256
        for note in self._of("branched"):
            await self.store.sessions.get(ME, note["copy"])

    async def _content_of(self, file_id: str) -> bytes:
        file = await self.store.files.get(ME, file_id)
        return b"".join([piece async for piece in self.store.files.read(file)])

    # --- fates ---------------------------------------------------------------------------------------------

    async def finish_everything(self) -> None:
        """The survivor takes dead workers' turns over, answers what is open and ends what is left."""
        await self.store.workers.register(SURVIVOR)
        await self.store.workers.take_over(SURVIVOR)
        for session_id in await all_sessions(self.store):
            session = await self.store.sessions.get(ME, session_id)
            if session.active_turn is not None:
                turn = await self.store.turns.get(ME, session.active_turn)
                assert turn.is_ready or (turn.state == "waiting" and session.asks), "no session is stuck"
        for question in await self.store.asks.open(ME):
            await self.store.asks.answer(ME, question.id, "go on", by="survivor")
        while claims := await self.store.turns.claim(SURVIVOR, limit=50):
            for held in claims:
                taken = await self.store.turns.take_steering(held.turn.id, held.epoch, held.number + 1)
                number = held.number + len(taken)
                payloads: list[ev.Payload] = answer("the survivor ends this", step=99)
                await self.store.journal.append(held.turn.id, held.epoch, number + 1, payloads)
                await _complete(self.store, held.turn.id, held.epoch, number + len(payloads))

    async def check_sound(self) -> None:
        assert await self.store.upkeep.check() == []
        for session_id in await all_sessions(self.store):
            session, turns, _ = await self.store.transcript.export(ME, session_id)
            assert (session.active_turn, session.queued, session.asks) == (None, 0, 0)
            assert all(turn.state in ENDED for turn in turns)
            assert_valid(await self.store.transcript.context(ME, session_id))
            positions = [event.position for event in await all_events(self.store, session_id)]
            assert positions == sorted(set(positions))
            assert not positions or positions[-1] == session.position


def _files_given_up(notes: list[Note]) -> set[str]:
    """Files that no message names, because their life ended first. The next life sweeps them."""
    used = {file for note in notes if note["what"] == "accepted" for file in note["files"]}
    loose: set[str] = set()
    found: set[str] = set()
    for note in notes:
        if note["what"] == "file" and note["file"] not in used:
            loose.add(note["file"])
        if note["what"] == "session":  # a life begins with one
            found |= loose
    return found


async def _complete(store: Store, turn_id: str, epoch: int, number: int) -> None:
    folded = fold(turn_id, await store.journal.of_turn(ME, turn_id), is_ended=True)
    await store.turns.complete(turn_id, epoch, number, folded)


async def all_sessions(store: Store) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.sessions.list(ME, SessionFilter(archived=None), limit=200, cursor=cursor)
        found += [session.id for session in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


async def all_events(store: Store, session_id: str) -> list[Event]:
    found: list[Event] = []
    while batch := await store.journal.after(ME, session_id, found[-1].position if found else 0):
        found += batch
    return found


async def steering_texts(store: Store, turn_id: str) -> list[str]:
    """What waits for the turn to take it in."""
    return await store.database.read(_list_steering, turn_id)


def _list_steering(tx: Tx, turn_id: str) -> Script[list[str]]:
    (turn,) = yield from TURN.all(turn_id)
    return [found.text for found in (yield from STEERING_OF_TURN.all(turn.turn_no))]


def assert_valid(messages: list[Message]) -> None:
    """Every call has its result right after it, whatever moment the crash chose (C11)."""
    wished: list[str] = []
    for message in messages:
        results = [part.call_id for part in message.parts if isinstance(part, Result)]
        assert results == wished, "results follow their calls"
        wished = [part.id for part in message.parts if isinstance(part, Call)]
    assert wished == []
