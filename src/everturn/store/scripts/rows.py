"""From rows to values and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from everturn.domain.asks import Ask, AskBudget, AskTopic
from everturn.domain.checkpoints import FilesInDoubt
from everturn.domain.errors import JournalCorrupt
from everturn.domain.events import KINDS, Event
from everturn.domain.ids import message_id
from everturn.domain.json_types import JsonObject
from everturn.domain.messages import AnyPart, Message, NewerPart, Result, Role, Summary, Text
from everturn.domain.newer_fields import keep_newer_fields
from everturn.domain.parameters import Parameters
from everturn.domain.sessions import Session, SessionChat, SessionKind
from everturn.domain.turns import Bar, Failure, Recovery, Turn, TurnKind, TurnState, Usage
from everturn.store.scripts.queries.events import EventColumns
from everturn.store.scripts.queries.messages import MessageColumns, PagedMessage
from everturn.store.scripts.queries.sessions import SessionColumns
from everturn.store.scripts.queries.turns import AskColumns, TurnColumns
from everturn.store.scripts.script import StoredEvents

_json = msgspec.json.Encoder()
_usage = msgspec.json.Decoder(Usage)
_failure = msgspec.json.Decoder(Failure)
_parameters = msgspec.json.Decoder(Parameters)
_bars: msgspec.json.Decoder[list[list[object] | Bar]] = msgspec.json.Decoder(list[list[object] | Bar])
_tags: msgspec.json.Decoder[tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...])
# Of a message: how long the words of each part are that has some, and the parts without them.
_Packed = tuple[tuple[int, ...], tuple[AnyPart, ...]]
_parts: msgspec.json.Decoder[_Packed] = msgspec.json.Decoder(_Packed)
_newer_parts: msgspec.json.Decoder[tuple[tuple[int, ...], tuple[JsonObject, ...]]] = msgspec.json.Decoder(
    tuple[tuple[int, ...], tuple[JsonObject, ...]]
)

_FIRST_WORDS_CHARS = 160
_WITH_WORDS = ("text", "result", "summary")
_IS_STEERING = 1
_IS_RECOVERED = 2
_IS_IMPORTED = 4


def to_json(value: object) -> str:
    return _json.encode(value).decode()


def usage_of(text: str | None) -> Usage:
    return _usage.decode(text) if text else Usage()


def parameters_of(text: str | None) -> Parameters | None:
    return _parameters.decode(text) if text else None


def parameters_json(given: Parameters | None) -> str | None:
    return None if given is None or given.is_empty else to_json(given)


def timeline_json(bars: Iterable[Bar]) -> str:
    """A timeline in few bytes: every turn has one, and names would be most of it."""
    return to_json([_trim(bar) for bar in bars])


def _trim(bar: Bar) -> list[object]:
    """The bar's fields in their order, without the defaults at the end."""
    values: list[object] = list(msgspec.structs.astuple(bar))
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


def _bar_of(values: list[object]) -> Bar:
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
    kind: str
    deleted_at: int | None

    @property
    def is_deleted(self) -> bool:
        """The user has deleted it. An ephemeral session serves until it is purged."""
        return self.deleted_at is not None and self.kind != SessionKind.EPHEMERAL

    @property
    def is_listed(self) -> bool:
        return self.deleted_at is None and self.kind == SessionKind.ORDINARY

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def owner(self) -> str:
        return self.session.owner


def _first_words(text: str) -> str:
    """The first line that says something, in one piece."""
    lines = text.strip().splitlines()
    return " ".join(lines[0].split())[:_FIRST_WORDS_CHARS] if lines else ""


def session_of(row: SessionColumns) -> SessionRow:
    session = Session(
        id=row.id,
        owner=row.owner,
        version=row.version,
        position=row.position,
        created_at=row.created_at,
        updated_at=row.updated_at,
        title=row.title,
        is_title_given=bool(row.is_title_given),
        key=row.key,
        head=row.head,
        redo_to=row.redo_to,
        pinned=bool(row.pinned),
        archived=bool(row.archived),
        private=bool(row.private),
        tags=_tags.decode(row.tags),
        project=row.project,
        machine=row.machine,
        profile=row.profile,
        model=row.model,
        active_turn=row.active_turn,
        active_state=TurnState(row.active_state) if row.active_state else None,
        last_state=TurnState(row.last_state) if row.last_state else None,
        queued=row.queued,
        asks=row.asks,
        is_unread=bool(row.is_unread),
        messages=row.messages,
        preview=row.preview,
        first_words=_first_words(row.first_text),
        transcript_version=row.transcript_version,
        chat=None if row.chat is None else SessionChat(*row.chat.split(":", 4)),
        parent_turn=row.parent_turn,
        parent_session=row.parent_session,
        parameters=parameters_of(row.parameters),
    )
    return SessionRow(
        session=session,
        no=row.session_no,
        head_no=row.head_no,
        redo_no=row.redo_no,
        redo_all=bool(row.redo_all),
        active_no=row.active_no,
        pruned_through=row.pruned_through,
        kind=row.kind,
        deleted_at=row.deleted_at,
    )


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


def turn_of(row: TurnColumns) -> TurnRow:
    turn = Turn(
        id=row.id,
        session_id=row.session_id,
        owner=row.owner,
        state=TurnState(row.state),
        epoch=row.epoch,
        created_at=row.created_at,
        kind=TurnKind(row.kind),
        parent_id=row.parent_id,
        model=row.model,
        profile=row.profile,
        started_at=row.started_at,
        ended_at=row.ended_at,
        attempts=row.attempts,
        is_ready=bool(row.is_ready),
        failure=_failure.decode(row.failure) if row.failure else None,
        recovery=Recovery(row.recovery),
        recovered_at=row.recovered_at,
        usage=usage_of(row.usage),
        timeline=timeline_of(row.timeline),
        private_note=row.note,
        first_position=row.readable_from,
        parameters=parameters_of(row.parameters),
    )
    return TurnRow(
        turn=turn,
        no=row.turn_no,
        session_no=row.session_no,
        parent_no=row.parent_no,
        has_parent=bool(row.has_parent),
        first_position=row.first_position,
        ready_reason=row.ready_reason,
        stopped_at=row.stopped_at,
        recovery_attempts=row.recovery_attempts,
        is_late=bool(row.is_late),
        worker=row.worker,
        is_pruned=bool(row.is_pruned),
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
    if len(parts) == 1 and type(parts[0]) is Text and parts[0] == Text(parts[0].text):
        return flags, parts[0].text, None
    words: list[str] = []
    rest: list[AnyPart] = []
    for part in parts:
        said = _words_of(part)
        if said is not None:
            words.append(said)
        rest.append(part if said is None else _with_words(part, ""))
    return flags, "\n".join(words), _json.encode(([len(word) for word in words], rest))


def _words_of(part: AnyPart | NewerPart) -> str | None:
    """What of a part is in the column ``text``; None if nothing is."""
    if isinstance(part, Text):
        return None if part.is_abandoned else part.text
    if isinstance(part, (Result, Summary)):
        return part.text
    if isinstance(part, NewerPart) and part.get("type") in _WITH_WORDS and not part.get("is_abandoned"):
        return str(part.get("text", ""))  # a type with words that holds a newer value
    return None


def _with_words(part: AnyPart | NewerPart, text: str) -> AnyPart:
    if isinstance(part, NewerPart):
        return cast(AnyPart, NewerPart(part, text=text))
    return msgspec.structs.replace(part, text=text)


def message_of(row: MessageColumns | PagedMessage, turn_id: str) -> Message:
    flags = row.flags
    return Message(
        id=message_id(turn_id, row.ordinal),
        turn_id=turn_id,
        role=Role(row.role),
        parts=_parts_of(row.text, row.parts),
        created_at=row.created_at,
        ordinal=row.ordinal,
        is_steering=bool(flags & _IS_STEERING),
        is_recovered=bool(flags & _IS_RECOVERED),
        model=row.model,
        is_imported=bool(flags & _IS_IMPORTED),
    )


def _parts_of(text: str, packed: bytes | None) -> tuple[AnyPart, ...]:
    if packed is None:
        return (Text(text),)
    start = 0
    parts: list[AnyPart] = []
    lengths, rest = _unpack(packed)
    remaining = iter(lengths)
    for part in rest:
        if _words_of(part) is None:
            parts.append(part)
        else:
            end = start + next(remaining)
            parts.append(_with_words(part, text[start:end]))
            start = end + 1
    return tuple(parts)


def _unpack(packed: bytes) -> _Packed:
    """The lengths of the words, and the parts without them.

    The decoder drops fields that it does not know. If it dropped none, encoding gives the same bytes again.
    """
    try:
        found = _parts.decode(packed)
    except msgspec.ValidationError:
        return _unpack_newer(packed)
    return found if _json.encode(found) == packed else _unpack_newer(packed)


def _unpack_newer(packed: bytes) -> _Packed:
    """As ``_unpack``, with types and fields that only a newer version knows (G04)."""
    lengths, stored = _newer_parts.decode(packed)
    return lengths, tuple(map(_part_of, stored))


def _part_of(stored: JsonObject) -> AnyPart:
    try:
        part: AnyPart = msgspec.convert(stored, AnyPart)
    except msgspec.ValidationError:
        return cast(AnyPart, NewerPart(stored))
    return keep_newer_fields(part, stored)


# --- events -----------------------------------------------------------------------------------------


def crc_of(data: bytes) -> int:
    return zlib.crc32(data)


def event_of(row: EventColumns, session_id: str, turn_ids: Mapping[int, str]) -> Event:
    """The event of a row, after checking that its bytes are the ones that were written."""
    position, turn_no, epoch, number, is_late, at, crc, data = row
    if zlib.crc32(data) != crc:
        raise damaged_event(position, session_id)
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


def damaged_event(position: int, session: str) -> JournalCorrupt:
    return JournalCorrupt(
        f"Event {position} of session {session} fails its check: its bytes on disk are not the ones that "
        "were written. Events before it are safe."
    )


def make_events(stored: StoredEvents) -> list[Event]:
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


def known_kinds(dialect: str) -> str | list[str]:
    """The event kinds that this version knows, as an argument of a query."""
    kinds = sorted(KINDS)
    return kinds if dialect == "postgresql" else to_json(kinds)


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
    files: FilesInDoubt | None = None
    budget: AskBudget | None = None


_ask_body = msgspec.json.Decoder(AskBody)


def ask_body(ask: Ask) -> str:
    return to_json(
        AskBody(
            ask.text,
            ask.choices,
            ask.name,
            ask.arguments,
            ask.digest,
            ask.label,
            ask.edited,
            ask.files,
            ask.budget,
        )
    )


def read_ask_body(body: str) -> AskBody:
    return _ask_body.decode(body)


def with_edited(body: str, edited: str) -> str:
    """The body of an ask with changed arguments. What else is in it stays as it is, also what a newer version
    wrote (G04)."""
    return to_json({**msgspec.json.decode(body, type=JsonObject), "edited": edited})


def ask_of(row: AskColumns) -> Ask:
    body = read_ask_body(row.body)
    return Ask(
        id=row.id,
        session_id=row.session_id,
        turn_id=row.turn_id,
        topic=AskTopic(row.topic),
        created_at=row.created_at,
        call_id=row.call_id,
        text=body.text,
        choices=body.choices,
        name=body.name,
        arguments=body.arguments,
        digest=body.digest,
        label=body.label,
        answer=row.answer,
        by=row.answered_by,
        answered_at=row.answered_at,
        expires_at=row.expires_at,
        title=row.title,
        edited=body.edited,
        files=body.files,
        budget=body.budget,
        root_session=row.root_session,
    )
