"""Makes a session of a conversation.

Ids follow from those of the other system: importing an export again finds what is there and adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from everturn.domain.errors import Remedy
from everturn.domain.fold import Fold
from everturn.domain.ids import derive_id, message_id
from everturn.domain.messages import AnyPart, Attachment, Call, Message, Outcome, Result, Role
from everturn.domain.sessions import Session
from everturn.domain.store_values import ImportedSession
from everturn.domain.turns import Failure, Recovery, Turn, TurnState
from everturn.importers.turns import ForeignTurn, turn_with, turns_of
from everturn.importers.values import Conversation, CutOff, ForeignMessage

_CUT_OFF: Final = Failure(
    "imported_cut_off",
    "The other system stopped while it answered this message.",
    "Retry it to have it answered here, or write a new message.",
    Remedy.RETRY,
)
_UNANSWERED: Final = Failure(
    "imported_unanswered",
    "This message had no answer when it was exported.",
    "Retry it to have it answered here, or write a new message.",
    Remedy.RETRY,
)
_NO_RESULT: Final = "The export holds no result of this call."

StoredFiles = dict[tuple[str, int], Attachment]  # by message and place


def session_id_of(conversation: Conversation) -> str:
    return derive_id("ses", conversation.created_at, _name(conversation))


def session_of(owner: str, conversation: Conversation, files: StoredFiles) -> ImportedSession:
    """``files``: the attachments that were stored; those that could not be are left out."""
    built = _Builder(owner, conversation, files)
    foreign = turns_of(conversation.messages, conversation.current)
    ids = {turn.key: built.turn_id(turn) for turn in foreign}
    turns, messages = [], []
    for turn in foreign:
        made, said = built.turn(turn, ids)
        turns.append(made)
        messages += said
    ends_with = turn_with(foreign, conversation.current) or (foreign[-1] if foreign else None)
    session = Session(
        id=session_id_of(conversation),
        owner=owner,
        version=1 + len(turns),
        position=0,
        created_at=conversation.created_at,
        updated_at=conversation.updated_at,
        title=conversation.title,
        is_title_given=bool(conversation.title),
        head=None if ends_with is None else ids[ends_with.key],
        pinned=conversation.is_pinned,
        archived=conversation.is_archived,
        tags=conversation.tags,
        messages=len(messages),
        preview=next((one.text for one in reversed(messages) if one.text), ""),
    )
    return ImportedSession(session, turns, messages, is_once=True)


def count_dropped(conversation: Conversation) -> int:
    """How many messages are in no turn: other versions in the middle of an answer."""
    kept = 0
    users = set()
    for turn in turns_of(conversation.messages, conversation.current):
        kept += len(turn.answers)
        if turn.user is not None:
            users.add(turn.user.id)
    return len({message.id for message in conversation.messages}) - kept - len(users)


def _name(conversation: Conversation) -> str:
    return f"{conversation.source}\n{conversation.id}"


class _Builder:
    def __init__(self, owner: str, conversation: Conversation, files: StoredFiles) -> None:
        self._owner = owner
        self._conversation = conversation
        self._files = files

    def turn_id(self, turn: ForeignTurn) -> str:
        """Of a turn, under the time of its first message."""
        first = turn.user or turn.answers[0]
        return derive_id("trn", first.at, f"{_name(self._conversation)}\n{turn.key}")

    def turn(self, turn: ForeignTurn, ids: dict[str, str]) -> tuple[Turn, list[Message]]:
        turn_id = ids[turn.key]
        cut = self._conversation.cut_off
        is_cut = cut is not None and turn.user is not None and cut.message_id == turn.user.id
        if cut is not None and is_cut:
            said = [*self._messages(turn_id, [turn.user]), *_recover(turn_id, cut)]
        else:
            said = self._messages(turn_id, [turn.user, *turn.answers])
        ended_at = max([one.created_at for one in said], default=self._conversation.created_at)
        failure = _CUT_OFF if is_cut else None if turn.answers else _UNANSWERED
        made = Turn(
            id=turn_id,
            session_id=session_id_of(self._conversation),
            owner=self._owner,
            state=TurnState.COMPLETED if failure is None else TurnState.INTERRUPTED,
            epoch=1,
            created_at=said[0].created_at if said else self._conversation.created_at,
            parent_id=None if turn.parent is None else ids[turn.parent],
            started_at=said[0].created_at if said else None,
            ended_at=ended_at,
            attempts=1,
            failure=failure,
            recovery=Recovery.NONE if failure is None else Recovery.FINAL,
        )
        return made, said

    def _messages(self, turn_id: str, foreign: Sequence[ForeignMessage | None]) -> list[Message]:
        """The user's message has the number 0, which stays free in a turn without one."""
        messages = []
        for number, one in enumerate(foreign):
            if one is not None:
                messages.append(self._message(turn_id, number, one))
        return _with_results(turn_id, messages)

    def _message(self, turn_id: str, number: int, foreign: ForeignMessage) -> Message:
        stored = (self._files.get((foreign.id, place)) for place in range(len(foreign.files)))
        parts: tuple[AnyPart, ...] = (*foreign.parts, *(file for file in stored if file is not None))
        return Message(
            id=message_id(turn_id, number),
            turn_id=turn_id,
            role=foreign.role,
            parts=parts,
            created_at=foreign.at,
            ordinal=number,
            model=foreign.model,
        )


def _recover(turn_id: str, cut: CutOff) -> tuple[Message, ...]:
    """What the other system's journal holds, by the fold that recovers turns of our own."""
    fold = Fold(turn_id)
    for payload, at in cut.events:
        fold.take(payload, at)
    return fold.result(is_ended=True, is_recovered=True).messages


def _with_results(turn_id: str, messages: list[Message]) -> list[Message]:
    """The messages, in which each call has a result right after it: a model accepts no other history."""
    given = {part.call_id: part for message in messages for part in message.parts if isinstance(part, Result)}
    complete: list[Message] = []
    for message in messages:
        if message.role is Role.TOOL:
            continue  # its results follow their calls
        complete.append(message)
        results = tuple(
            given.get(part.id) or Result(part.id, part.name, _NO_RESULT, Outcome.UNKNOWN, is_untrusted=True)
            for part in message.parts
            if isinstance(part, Call)
        )
        if results:
            complete.append(
                msgspec.structs.replace(message, role=Role.TOOL, parts=results, model="", ordinal=0)
            )
    start = 0 if complete and complete[0].role is Role.USER else 1
    return [
        msgspec.structs.replace(message, id=message_id(turn_id, number), ordinal=number)
        for number, message in enumerate(complete, start=start)
    ]
