"""Sessions with a past, put into the store before the server starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids, message_id
from everturn.domain.messages import Call, Message, Result, Role, Text
from everturn.domain.sessions import NewSession, Session, SessionPatch
from everturn.domain.store_values import ImportedSession
from everturn.domain.turns import Turn, TurnState
from everturn.store import open_store

START_MS = 1_700_000_000_000


async def long_session(data_dir: Path, count: int, title: str = "A long session") -> str:
    """A session of so many turns, four messages each: question, call, result, answer."""
    ids = Ids(SystemClock())
    turns, messages = [], []
    session = Session(ids.session(), "local", 1, 0, START_MS, START_MS + count, title=title)
    parent = None
    for number in range(count):
        turn_id, at = ids.turn(), START_MS + number * 1000
        turns.append(
            Turn(
                turn_id,
                session.id,
                "local",
                TurnState.COMPLETED,
                1,
                at,
                parent_id=parent,
                started_at=at,
                ended_at=at + 900,
            )
        )
        messages += _messages(turn_id, number, at)
        parent = turn_id
    session = msgspec.structs.replace(session, head=parent)
    async with open_store(None, data_dir=data_dir) as store:
        return (await store.transcript.import_session("local", ImportedSession(session, turns, messages))).id


def _messages(turn_id: str, number: int, at: int) -> list[Message]:
    call = Call(f"call_{number}", "terminal", '{"command": "ls"}')
    said = f"Part **{number}** is done.\n\n- read\n- checked against `notes-{number}.txt`\n\nThe next one follows."
    parts: list[tuple[Role, tuple[Any, ...]]] = [
        (Role.USER, (Text(f"Question {number}: what about part {number}?"),)),
        (Role.ASSISTANT, (call,)),
        (Role.TOOL, (Result(call.id, "terminal", "a\nb\nc"),)),
        (Role.ASSISTANT, (Text(said),)),
    ]
    return [
        Message(message_id(turn_id, ordinal), turn_id, role, content, at + ordinal, ordinal)
        for ordinal, (role, content) in enumerate(parts)
    ]


async def many_sessions(data_dir: Path, count: int, pinned: tuple[int, ...] = ()) -> list[str]:
    """So many empty sessions, newest first; those at the given places are pinned."""
    async with open_store(None, data_dir=data_dir) as store:
        made = [
            (await store.sessions.create("local", NewSession(title=f"Session {number}"))).id
            for number in range(count)
        ]
        made.reverse()
        for place in pinned:
            await store.sessions.change("local", made[place], SessionPatch(pinned=True))
    return made
