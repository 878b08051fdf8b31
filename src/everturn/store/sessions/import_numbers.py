"""The numbers of a document that is imported: refused where the store could not count on with them.

A version of 2^63 - 1 becomes a floating number with its next change, and different versions are then equal: a
stale write would succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everturn.domain.errors import BadImport
from everturn.domain.events import Event
from everturn.domain.messages import Attachment, Message, Result, SavedFiles, Summary
from everturn.domain.sessions import Session
from everturn.domain.turns import Turn

NUMBER_MAX = 10**15  # of versions, times and sizes: exact in every program that reads them, and room to grow
COUNT_MAX = 10**9 - 1  # of epochs, attempts and ordinals

_Numbers = Iterable[tuple[str, int | float | None, int]]


def refuse_numbers(session: Session, turns: Sequence[Turn], messages: Sequence[Message]) -> None:
    """Raises BadImport, naming the first number that cannot be."""
    _refuse("the session", _of_session(session))
    for turn in turns:
        _refuse(f"turn {turn.id[:60]}", _of_turn(turn))
    for message in messages:
        _refuse(f"message {message.id[:60]}", _of_message(message))


def refuse_event_numbers(events: Sequence[Event]) -> None:
    for event in events:
        numbers = (("epoch", event.epoch, COUNT_MAX), ("number", event.number, 1 << 30))
        _refuse(f"an event of kind {event.kind}", (*numbers, ("at", event.at, NUMBER_MAX)))


def _refuse(where: str, numbers: _Numbers) -> None:
    for name, value, most in numbers:
        if value is not None and not 0 <= value <= most:
            given = value if isinstance(value, int) else f"{value:.20g}"  # as a float, 2^63 - 1 would be 2^63
            raise BadImport(
                f"The {name} of {where} is {given}; it can be 0 to {most}. Nothing was imported.",
                hint="Export the session again with the server it comes from.",
            )


def _of_session(session: Session) -> _Numbers:
    yield "version", session.version, NUMBER_MAX
    yield "created_at", session.created_at, NUMBER_MAX
    yield "updated_at", session.updated_at, NUMBER_MAX


def _of_turn(turn: Turn) -> _Numbers:
    yield "epoch", turn.epoch, COUNT_MAX
    yield "attempts", turn.attempts, COUNT_MAX
    for name in ("created_at", "started_at", "ended_at", "recovered_at"):
        yield name, getattr(turn, name), NUMBER_MAX
    for usage in (turn.usage, *(bar.usage for bar in turn.timeline if bar.usage is not None)):
        for name in usage.__struct_fields__:
            yield name, getattr(usage, name), NUMBER_MAX
    for bar in turn.timeline:
        for name in ("start_at", "end_at", "first_token_at", "thought_until"):
            yield f"{name} of the timeline", getattr(bar, name), NUMBER_MAX
        yield "step of the timeline", bar.step, COUNT_MAX


def _of_message(message: Message) -> _Numbers:
    yield "ordinal", message.ordinal, COUNT_MAX
    yield "created_at", message.created_at, NUMBER_MAX
    for part in message.parts:
        if isinstance(part, Attachment):
            yield "size", part.size, NUMBER_MAX
        elif isinstance(part, Result):
            yield "duration_ms", part.duration_ms, NUMBER_MAX
        elif isinstance(part, SavedFiles):
            yield "total", part.total, NUMBER_MAX
            for change in part.changes:
                yield "size", change.size, NUMBER_MAX
        elif isinstance(part, Summary):
            for name in ("messages", "tokens_before", "tokens_after"):
                yield name, getattr(part, name), NUMBER_MAX
