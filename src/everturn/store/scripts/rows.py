"""From rows to values and back. The order of columns is that of the macros in ``sql/queries.sql``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from everturn.domain.errors import JournalCorrupt
from everturn.domain.events import Event
from everturn.domain.ids import message_id
from everturn.domain.messages import AnyPart, Message, Result, Role, Summary, Text
from everturn.domain.sessions import Session
from everturn.domain.store import Ask
from everturn.domain.turns import Bar, Failure, Recovery, Turn, TurnKind, TurnState, Usage
from everturn.store.scripts.script import Row, Stored

_json = msgspec.json.Encoder()
_usage = msgspec.json.Decoder(Usage)
_failure = msgspec.json.Decoder(Failure)
_bars: msgspec.json.Decoder[list[list[Any] | Bar]] = msgspec.json.Decoder(list[list[Any] | Bar])
_tags: msgspec.json.Decoder[tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...])
_parts: msgspec.json.Decoder[tuple[tuple[int, ...], tuple[AnyPart, ...]]] = msgspec.json.Decoder(
    tuple[tuple[int, ...], tuple[AnyPart, ...]]
)

_IS_STEERING = 1
_IS_RECOVERED = 2
_IS_IMPORTED = 4


def to_json(value: Any) -> str:
    return _json.encode(value).decode()


def timeline_json(bars: Iterable[Bar]) -> str:
    """A timeline in few bytes: every turn has one, and names would be most of it."""
    return to_json([_trimmed(bar) for bar in bars])


def _trimmed(bar: Bar) -> list[Any]:
    """The bar's fields in their order, without the defaults at the end."""
    values: list[Any] = list(msgspec.structs.astuple(bar))
    for default in reversed(Bar.__struct_defaults__):
        if values[-1] != default:
            break
        values.pop()
    return values


def timeline_of(text: str | None) -> tuple[Bar, ...]:
    """The bars of a stored timeline, also of one that was stored with names."""
    if not text:
        return ()
    return tuple(bar if isinstance(bar, Bar) else _bar_of(bar) for bar in _bars.decode(text))


def _bar_of(values: list[Any]) -> Bar:
    return msgspec.convert(dict(zip(Bar.__struct_fields__, values, strict=False)), Bar)


class SessionRow(msgspec.Struct, frozen=True):
    """A session with the numbers that only the store uses."""

    session: Session
    no: int
    head_no: int | None
    redo_no: int | None
    redo_all: bool
    active_no: int | None
    pruned_through: int

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def owner(self) -> str:
        return self.session.owner


def session_of(row: Row) -> SessionRow:
    session = Session(
        id=row[1],
        owner=row[2],
        version=row[3],
        position=row[4],
        created_at=row[5],
        updated_at=row[6],
        title=row[7],
        is_title_given=bool(row[8]),
        key=row[9],
        head=row[10],
        redo_to=row[11],
        pinned=bool(row[12]),
        archived=bool(row[13]),
        private=bool(row[14]),
        tags=_tags.decode(row[15]),
        project=row[16],
        profile=row[17],
        model=row[18],
        active_turn=row[19],
        active_state=TurnState(row[20]) if row[20] else None,
        last_state=TurnState(row[21]) if row[21] else None,
        queued=row[22],
        asks=row[23],
        is_unread=bool(row[24]),
        messages=row[25],
        preview=row[26],
        transcript_version=row[32],
    )
    return SessionRow(session, row[0], row[27], row[28], bool(row[29]), row[30], row[31])


class TurnRow(msgspec.Struct, frozen=True):
    """A turn with the numbers that only the store uses."""

    turn: Turn
    no: int
    session_no: int
    parent_no: int | None
    has_parent: bool
    first_position: int
    ready_reason: str
    stopped_at: int | None
    recovery_attempts: int
    is_late: bool
    worker: str | None
    is_pruned: bool

    @property
    def id(self) -> str:
        return self.turn.id

    @property
    def state(self) -> TurnState:
        return self.turn.state


def turn_of(row: Row) -> TurnRow:
    turn = Turn(
        id=row[1],
        session_id=row[2],
        owner=row[3],
        state=TurnState(row[4]),
        epoch=row[5],
        created_at=row[6],
        kind=TurnKind(row[7]),
        parent_id=row[8],
        model=row[9],
        profile=row[10],
        started_at=row[11],
        ended_at=row[12],
        attempts=row[13],
        is_ready=bool(row[14]),
        failure=_failure.decode(row[15]) if row[15] else None,
        recovery=Recovery(row[16]),
        recovered_at=row[17],
        usage=_usage.decode(row[18]) if row[18] else Usage(),
        timeline=timeline_of(row[19]),
        private_note=row[20],
        first_position=row[31],
    )
    return TurnRow(
        turn=turn,
        no=row[0],
        session_no=row[21],
        parent_no=row[22],
        has_parent=bool(row[23]),
        first_position=row[24],
        ready_reason=row[25],
        stopped_at=row[26],
        recovery_attempts=row[27],
        is_late=bool(row[28]),
        worker=row[29],
        is_pruned=bool(row[30]),
    )


# --- messages: the words go into `text`, once; `parts` holds the rest and how to cut the words ----------


def message_columns(message: Message) -> tuple[int, str, bytes | None]:
    """(flags, text, parts) of a message."""
    flags = (
        _IS_STEERING * message.is_steering
        + _IS_RECOVERED * message.is_recovered
        + _IS_IMPORTED * message.is_imported
    )
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text and not (parts[0].is_abandoned or parts[0].cuts):
        return flags, parts[0].text, None
    words: list[str] = []
    rest: list[AnyPart] = []
    for part in parts:
        if isinstance(part, (Text, Result, Summary)) and not getattr(part, "is_abandoned", False):
            words.append(part.text)
            rest.append(msgspec.structs.replace(part, text=""))
        else:
            rest.append(part)
    return flags, "\n".join(words), _json.encode(([len(word) for word in words], rest))


def message_of(row: Row, turn_id: str) -> Message:
    flags = row[4]
    return Message(
        id=message_id(turn_id, row[2]),
        turn_id=turn_id,
        role=Role(row[3]),
        parts=_parts_of(row[7], row[8]),
        created_at=row[6],
        ordinal=row[2],
        is_steering=bool(flags & _IS_STEERING),
        is_recovered=bool(flags & _IS_RECOVERED),
        model=row[5],
        is_imported=bool(flags & _IS_IMPORTED),
    )


def _parts_of(text: str, packed: bytes | None) -> tuple[AnyPart, ...]:
    if packed is None:
        return (Text(text),)
    lengths, rest = _parts.decode(packed)
    remaining = iter(lengths)
    start = 0
    parts: list[AnyPart] = []
    for part in rest:
        if isinstance(part, (Text, Result, Summary)) and not getattr(part, "is_abandoned", False):
            end = start + next(remaining)
            parts.append(msgspec.structs.replace(part, text=text[start:end]))
            start = end + 1
        else:
            parts.append(part)
    return tuple(parts)


# --- events -----------------------------------------------------------------------------------------


def crc_of(data: bytes) -> int:
    return zlib.crc32(data)


def event_of(row: Row, session_id: str, turn_ids: Mapping[int, str]) -> Event:
    """The event of a row, after checking that its bytes are the ones that were written."""
    position, turn_no, epoch, number, is_late, at, crc, data = row
    if zlib.crc32(data) != crc:
        raise JournalCorrupt(
            f"Event {position} of session {session_id} fails its check: its bytes on disk are not the ones "
            f"that were written. Events before it are safe."
        )
    return Event(
        session_id=session_id,
        position=position,
        turn_id=turn_ids.get(turn_no) if turn_no is not None else None,
        kind=kind_in(data),
        at=at,
        data=bytes(data),
        epoch=epoch,
        number=number,
        is_late=bool(is_late),
    )


def published(stored: Stored) -> list[Event]:
    """The events of one stored run, as readers get them."""
    return [
        Event(
            stored.session_id,
            stored.position + index,
            stored.turn_id,
            kind_in(data),
            stored.at,
            data,
            stored.epoch,
            stored.number + index,
            stored.is_late,
        )
        for index, data in enumerate(stored.data)
    ]


def kind_in(data: bytes) -> str:
    """The kind of a payload's JSON, whose first field it is."""
    return str(data[9 : data.index(b'"', 9)], "ascii")


# --- asks --------------------------------------------------------------------------------------------


class AskBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an ask says; kept as JSON because nothing is looked up by it."""

    text: str = ""
    choices: tuple[str, ...] = ()
    name: str = ""
    arguments: str = ""
    digest: str = ""
    label: str = ""
    edited: str | None = None


_ask_body = msgspec.json.Decoder(AskBody)


def ask_body(ask: Ask) -> str:
    return to_json(AskBody(ask.text, ask.choices, ask.name, ask.arguments, ask.digest, ask.label, ask.edited))


def ask_of(row: Row) -> Ask:
    body = _ask_body.decode(row[6])
    return Ask(
        id=row[0],
        session_id=row[1],
        turn_id=row[2],
        topic=row[3],
        created_at=row[4],
        call_id=row[5],
        text=body.text,
        choices=body.choices,
        name=body.name,
        arguments=body.arguments,
        digest=body.digest,
        label=body.label,
        answer=row[7],
        by=row[8],
        answered_at=row[9],
        expires_at=row[10],
        title=row[11],
        edited=body.edited,
    )
