"""Sessions in memory, folded with the server's own fold. For working on the page; keeps nothing."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import msgspec

from everturn.domain import events as ev
from everturn.domain.clock import SystemClock
from everturn.domain.fold import fold
from everturn.domain.ids import Ids, message_id
from everturn.domain.messages import Attachment, Call, Message, Outcome, Role, Summary, Text
from everturn.domain.sessions import Hit, Session
from everturn.domain.turns import Failure, Recovery, Turn, TurnKind, TurnState, Usage

ENDED = {TurnState.COMPLETED, TurnState.CANCELLED, TurnState.FAILED, TurnState.INTERRUPTED}
replace = msgspec.structs.replace


def now_ms() -> int:
    return int(time.time() * 1000)


class TurnHere:
    def __init__(self, row: Turn) -> None:
        self.row = row
        self.events: list[ev.Event] = []
        self.asked: Message | None = None
        self.first_position = 0
        self.summary: Message | None = None
        self.cancelled = asyncio.Event()
        self.answers: dict[str, asyncio.Future[str]] = {}
        self.asks: dict[str, Any] = {}

    def messages(self) -> list[Message]:
        if self.summary is not None:
            return [self.summary]
        folded = fold(self.row.id, self.events, is_ended=self.row.state in ENDED)
        start = [self.asked] if self.asked else []
        return start + (list(folded.messages) if self.row.state in ENDED else [])


class SessionHere:
    def __init__(self, house: House, row: Session) -> None:
        self.house = house
        self.row = row
        self.events: list[ev.Event] = []
        self.turns: dict[str, TurnHere] = {}
        self.path: list[str] = []
        self.undone: list[str] = []

    def emit(self, turn: TurnHere | None, payload: ev.Payload, at: int | None = None) -> None:
        at = at or now_ms()
        position = len(self.events) + 1
        event = ev.Event(
            self.row.id, position, turn.row.id if turn else None, ev.kind_of(payload), at, ev.encode(payload)
        )
        event = replace(event, number=len(turn.events) + 1 if turn else 0)
        self.events.append(event)
        if turn:
            turn.events.append(event)
        changes: dict[str, Any] = {"position": position, "updated_at": max(at, self.row.updated_at)}
        if turn:
            self._state(turn, payload, at, changes)
        self.row = replace(self.row, **changes)
        self.house.wake()

    def _state(self, turn: TurnHere, payload: Any, at: int, changes: dict[str, Any]) -> None:
        row = turn.row
        if isinstance(payload, ev.TurnStarted):
            row = replace(row, state=TurnState.RUNNING, started_at=at)
        elif isinstance(payload, ev.TurnWaiting):
            row = replace(row, state=TurnState.WAITING)
        elif isinstance(payload, ev.TurnResumed):
            row = replace(row, state=TurnState.RUNNING, attempts=payload.attempt, ended_at=None)
        elif isinstance(payload, ev.TurnCompleted):
            row = replace(row, state=TurnState.COMPLETED, ended_at=at)
        elif isinstance(payload, ev.TurnCancelled):
            row = replace(row, state=TurnState.CANCELLED, ended_at=at)
        elif isinstance(payload, ev.TurnFailed):
            row = replace(row, state=TurnState.FAILED, ended_at=at, failure=payload.failure)
        elif isinstance(payload, ev.TurnInterrupted):
            row = replace(
                row,
                state=TurnState.INTERRUPTED,
                ended_at=at,
                failure=payload.failure,
                recovery=Recovery(payload.recovery),
            )
        else:
            return
        if row.state in ENDED:
            folded = fold(row.id, turn.events, is_ended=True)
            row = replace(row, usage=folded.usage, timeline=folded.timeline)
            changes |= {
                "active_turn": None,
                "active_state": None,
                "last_state": row.state,
                "version": self.row.version + 1,
            }
        else:
            changes |= {"active_turn": row.id, "active_state": row.state}
        changes["asks"] = (
            sum(1 for ask in turn.asks.values() if ask is None) if row.state == TurnState.WAITING else 0
        )
        turn.row = row
        kind = "session.done" if row.state in ENDED or row.state == TurnState.WAITING else "session.busy"
        self.house.tell(kind, self.row.id)

    def begin(
        self,
        text: str,
        at: int | None = None,
        *,
        files: tuple[Attachment, ...] = (),
        kind: TurnKind = TurnKind.MESSAGE,
        parent: str | None = "",
    ) -> TurnHere:
        at = at or now_ms()
        ident = self.house.ids.turn()
        if parent == "":
            parent = self.path[-1] if self.path else None
        row = Turn(
            ident, self.row.id, "local", TurnState.QUEUED, 1, at, kind=kind, parent_id=parent, text=text
        )
        turn = TurnHere(row)
        turn.asked = (
            Message(message_id(ident, 0), ident, Role.USER, (Text(text), *files), at)
            if kind == "message"
            else None
        )
        self.turns[ident] = turn
        turn.first_position = len(self.events) + 1
        if not self.row.title and text:
            self.row = replace(self.row, title=" ".join(text.split()[:6]))
        self.row = replace(self.row, messages=self.row.messages + 1)
        return turn

    def accept(self, turn: TurnHere, at: int | None = None) -> None:
        self.path.append(turn.row.id)
        self.row = replace(self.row, head=turn.row.id)
        if turn.asked:
            self.emit(turn, ev.TurnAccepted(turn.asked), at)

    def start(self, turn: TurnHere, at: int | None = None) -> None:
        self.emit(turn, ev.TurnStarted(1, "wrk_fake"), at)

    def queued(self) -> list[Turn]:
        waiting = [t.row for t in self.turns.values() if t.row.state == TurnState.QUEUED]
        return [row for row in waiting if row.id not in self.path]

    def remove_queued(self, turn_id: str) -> None:
        turn = self.turns.pop(turn_id)
        self.emit(turn, ev.TurnCancelled(by="you"))
        self.row = replace(self.row, queued=len(self.queued()))

    def edit_queued(self, turn_id: str, text: str) -> None:
        turn = self.turns[turn_id]
        assert turn.asked
        turn.row = replace(turn.row, text=text)
        turn.asked = replace(turn.asked, parts=(Text(text),))


class House:
    def __init__(self) -> None:
        self.ids = Ids(SystemClock())
        self.sessions: dict[str, SessionHere] = {}
        self.news = asyncio.Condition()
        self.list_news: list[tuple[str, Session]] = []
        self.keys: dict[str, Any] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.hidden: set[str] = set()
        self.answerer: Any = None

    @property
    def list_position(self) -> int:
        return len(self.list_news)

    def wake(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return

        async def notify() -> None:
            async with self.news:
                self.news.notify_all()

        task = loop.create_task(notify())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def tell(self, kind: str, ident: str) -> None:
        def later() -> None:
            if ident in self.sessions:
                self.list_news.append((kind, self.sessions[ident].row))
            self.wake()

        try:
            asyncio.get_running_loop().call_soon(later)
        except RuntimeError:
            return

    def rows(self) -> list[Session]:
        rows = [here.row for here in self.sessions.values() if here.row.id not in self.hidden]
        return sorted(rows, key=lambda row: -row.updated_at)

    def add(self, title: str, at: int, **more: Any) -> SessionHere:
        ident = self.ids.session()
        here = SessionHere(self, Session(ident, "local", 1, 0, at, at, title=title, **more))
        self.sessions[ident] = here
        return here

    def create(self, key: str | None) -> Session:
        if key and key in self.keys:
            return self.keys[key]
        here = self.add("", now_ms())
        if key:
            self.keys[key] = here.row
        self.tell("session.created", here.row.id)
        return here.row

    def change(self, ident: str, body: dict[str, Any]) -> Session:
        here = self.sessions[ident]
        if "tags" in body:
            body["tags"] = tuple(body["tags"])
        here.row = replace(here.row, version=here.row.version + 1, **body)
        self.tell("session.changed", ident)
        return here.row

    def hide(self, ident: str) -> None:
        self.hidden.add(ident)

    def page(self, ident: str, before: str | None, limit: int) -> dict[str, Any]:
        here = self.sessions[ident]
        every: list[Message] = []
        for turn_id in here.path:
            every += here.turns[turn_id].messages()
        end = len(every)
        if before:
            end = next((index for index, message in enumerate(every) if message.id == before), len(every))
        start = max(0, end - limit)
        shown = every[start:end]
        wanted = dict.fromkeys(message.turn_id for message in shown)
        active = here.row.active_turn
        if active and not before:
            wanted[active] = None
        replay = here.turns[active].first_position - 1 if active else here.row.position
        page = {
            "messages": shown,
            "turns": [self.numbered(here, here.turns[turn].row) for turn in wanted if turn in here.turns],
            "version": here.row.version,
            "position": here.row.position,
            "replay_from": replay,
        }
        if start > 0:
            page["cursor"] = shown[0].id
        return page

    def numbered(self, here: SessionHere, row: Turn) -> Turn:
        brothers = [
            t.row.id
            for t in here.turns.values()
            if t.row.parent_id == row.parent_id and t.row.kind == row.kind
        ]
        if len(brothers) < 2:
            return row
        return replace(
            row, sibling=brothers.index(row.id) + 1, siblings=len(brothers), sibling_ids=tuple(brothers)
        )

    def turn(self, ident: str) -> TurnHere:
        for here in self.sessions.values():
            if ident in here.turns:
                found = here.turns[ident]
                found.row = self.numbered(here, found.row)
                return found
        raise KeyError(ident)

    def accept(self, ident: str, body: dict[str, Any], key: str) -> dict[str, Any]:
        if key in self.keys:
            return self.keys[key]
        here = self.sessions[ident]
        cursor = here.row.position
        active = here.row.active_turn
        how = body.get("when_busy", "queue")
        if active and how == "steer":
            turn = here.turns[active]
            message = Message(
                message_id(active, 90 + len(turn.events)),
                active,
                Role.USER,
                (Text(body["text"]),),
                now_ms(),
                is_steering=True,
            )
            here.emit(turn, ev.MessageAdded(message))
            self.keys[key] = {"turn": turn.row, "cursor": cursor, "is_steering": True}
            return self.keys[key]
        if active and how == "interrupt":
            self.cancel(here.turns[active])
        turn = here.begin(body.get("text", ""))
        if active and how == "queue":
            here.emit(turn, ev.TurnAccepted(turn.asked, place=len(here.queued())))
            here.row = replace(here.row, queued=len(here.queued()))
        else:
            here.accept(turn)
            self.run(here, turn)
        self.tell("session.changed", ident)
        self.keys[key] = {"turn": turn.row, "cursor": cursor}
        return self.keys[key]

    def run(self, here: SessionHere, turn: TurnHere) -> None:
        async def whole() -> None:
            await self.answerer(here, turn)
            waiting = here.queued()
            if waiting:
                follower = here.turns[waiting[0].id]
                follower.row = replace(follower.row, parent_id=here.path[-1])
                here.path.append(follower.row.id)
                here.row = replace(here.row, queued=len(waiting) - 1)
                self.run(here, follower)

        task = asyncio.get_running_loop().create_task(whole())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def cancel(self, turn: TurnHere) -> None:
        here = self.sessions[turn.row.session_id]
        if turn.row.state not in ENDED:
            turn.cancelled.set()
            for waiting in turn.answers.values():
                if not waiting.done():
                    waiting.cancel()
            here.emit(turn, ev.TurnCancelled(by="you"))

    def resume(self, turn: TurnHere) -> None:
        here = self.sessions[turn.row.session_id]
        here.emit(turn, ev.TurnResumed(2, "wrk_fake", "manual", 1))
        self.run(here, turn)

    def open_asks(self) -> list[dict[str, Any]]:
        found = []
        for here in self.sessions.values():
            for turn in here.turns.values():
                for event in turn.events:
                    payload = event.payload
                    if turn.asks.get(getattr(payload, "ask_id", ""), "x") is None:
                        topic = getattr(payload, "topic", "approval")
                        found.append(
                            {
                                "id": payload.ask_id,
                                "session_id": here.row.id,
                                "turn_id": turn.row.id,
                                "topic": topic,
                                "created_at": event.at,
                            }
                        )
        return found

    def answer(self, ask: str, value: str) -> None:
        for here in self.sessions.values():
            for turn in here.turns.values():
                if ask in turn.asks:
                    turn.asks[ask] = value
                    if ask in turn.answers and not turn.answers[ask].done():
                        turn.answers[ask].set_result(value)
                    else:
                        asyncio.get_running_loop().create_task(self._late(here, turn, ask, value))

    async def _late(self, here: SessionHere, turn: TurnHere, ask: str, value: str) -> None:
        payload = next(e.payload for e in turn.events if getattr(e.payload, "ask_id", None) == ask)
        if isinstance(payload, ev.ApprovalRequested):
            here.emit(turn, ev.ApprovalResolved(ask, payload.call_id, value, "you"))
        else:
            here.emit(turn, ev.QuestionAnswered(ask, value, "you", payload.topic, payload.call_id))
        here.emit(turn, ev.TurnResumed(2, "wrk_fake", "answered"))
        outcome = Outcome.DENIED if value == "deny" else Outcome.OK
        if payload.call_id:
            call = next(
                c
                for e in turn.events
                if isinstance(e.payload, ev.StepFinished)
                for c in e.payload.calls
                if c.id == payload.call_id
            )
            if value != "deny":
                here.emit(
                    turn, ev.ToolStarted(1, call.id, call.name, call.arguments, getattr(payload, "label", ""))
                )
                await asyncio.sleep(0.6)
            here.emit(
                turn,
                ev.ToolFinished(
                    call.id, call.name, outcome, "done" if outcome == "ok" else "Denied by the user."
                ),
            )
        await self.answerer(here, turn)

    def move(self, ident: str, name: str, body: dict[str, Any]) -> Any:
        here = self.sessions[ident]
        if name == "restore":
            self.hidden.discard(ident)
            return here.row
        if name in ("undo", "clear"):
            if not here.path:
                return None
            count = 1 if name == "undo" else len(here.path)
            here.undone = here.path[-count:]
            here.path = here.path[:-count]
            here.row = replace(
                here.row,
                version=here.row.version + 1,
                redo_to=here.undone[-1],
                head=here.path[-1] if here.path else None,
            )
        elif name == "redo":
            here.path += here.undone
            here.undone = []
            here.row = replace(here.row, version=here.row.version + 1, redo_to=None)
        elif name == "select":
            index = next(
                i
                for i, t in enumerate(here.path)
                if here.turns[t].row.parent_id == here.turns[body["turn_id"]].row.parent_id
            )
            here.path = [*here.path[:index], body["turn_id"]]
            here.row = replace(here.row, version=here.row.version + 1)
        elif name == "branch":
            copy = self.add(here.row.title, now_ms())
            copy.turns, copy.path, copy.events = dict(here.turns), list(here.path), []
            return copy.row
        else:
            return self._again(here, name, body)
        here.emit(None, ev.SessionChanged(here.row.version, name, here.row.head))
        self.tell("session.changed", ident)
        return here.row

    def _again(self, here: SessionHere, name: str, body: dict[str, Any]) -> Any:
        cursor = here.row.position
        if name == "compact":
            turn = here.begin("", kind=TurnKind.COMPACTION)
            here.path.append(turn.row.id)
            part = Summary("We looked at the backups.", here.path[0], len(here.events), 148_000, 6_000)
            turn.summary = Message(message_id(turn.row.id, 1), turn.row.id, Role.SUMMARY, (part,), now_ms())
            here.start(turn)
            here.emit(turn, ev.TurnCompleted())
        else:
            old = here.turns[body.get("turn_id") or here.path[-1]]
            here.path = here.path[: here.path.index(old.row.id)]
            turn = here.begin(body.get("text") or old.row.text, parent=old.row.parent_id)
            here.accept(turn)
            self.run(here, turn)
        return {"turn": turn.row, "cursor": cursor}

    def search(self, query: str) -> list[Hit]:
        words = [word.lower() for word in query.split()]
        hits = []
        for here in self.sessions.values():
            for turn_id in here.path:
                for message in here.turns[turn_id].messages():
                    text = message.text
                    if words and all(word in text.lower() for word in words):
                        marks = sorted(
                            (m.start(), m.end())
                            for word in words
                            for m in [re.search(re.escape(word), text, re.I)]
                            if m
                        )
                        hits.append(
                            Hit(
                                here.row.id,
                                message.id,
                                turn_id,
                                message.role,
                                here.row.title,
                                text[:300],
                                message.created_at,
                                tuple(marks),
                            )
                        )
        return hits[:20]


__all__ = ["Call", "Failure", "House", "SessionHere", "TurnHere", "Usage"]
