"""Importing a session with its turns and messages: from a document, or for one answer only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from everturn.domain.checkpoints import SessionCheckpoints
from everturn.domain.errors import AlreadyImported, BadImport, Invalid, InvalidId
from everturn.domain.events import Event
from everturn.domain.ids import check_id, message_id, turn_id_of_message
from everturn.domain.messages import Attachment, Message, Summary
from everturn.domain.parameters import NO_PARAMETERS, check_parameters
from everturn.domain.sessions import Session, SessionKind, refuse_control_characters
from everturn.domain.store_values import ImportedSession
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.turns import ENDED, Turn, TurnState
from everturn.store.scripts.common import (
    add_messages,
    get_session_again,
    get_session_by_no,
    preview_of,
)
from everturn.store.scripts.queries.files import CHECKPOINT, CHECKPOINT_INSERT
from everturn.store.scripts.queries.sessions import SESSION_INSERT, TAIL_POSITION
from everturn.store.scripts.queries.turns import IMPORT_TURN
from everturn.store.scripts.rows import (
    SessionRow,
    crc_of,
    parameters_json,
    timeline_json,
    to_json,
)
from everturn.store.scripts.script import Query, Script, Tx, q
from everturn.store.sessions.import_numbers import refuse_numbers
from everturn.store.sessions.titles import put_title, title_text


def refuse_broken(session: Session, turns: Sequence[Turn], messages: Sequence[Message]) -> None:
    """Refuse a document with duplicate entries, invalid ids or impossible numbers."""
    try:
        check_id(session.id, "ses")
        for turn in turns:
            check_id(turn.id, "trn")
    except InvalidId as error:
        raise BadImport(error.message) from error
    if len({turn.id for turn in turns}) < len(turns):  # guard: a15
        raise BadImport("A turn is in this document twice.")
    if len({(message.turn_id, message.ordinal) for message in messages}) < len(messages):  # guard: a15
        raise BadImport("Two messages of this document have the same place in their turn.")
    try:
        refuse_control_characters(
            title=session.title,
            key=session.key,
            profile=session.profile,
            model=session.model,
            tags=session.tags,
        )
        for given in (session.parameters, *(turn.parameters for turn in turns)):
            check_parameters(given or NO_PARAMETERS)
    except Invalid as error:
        raise BadImport(f"{error.message} Nothing was imported.", hint=error.hint) from error
    refuse_numbers(session, turns, messages)  # guard: a15


def import_session(tx: Tx, owner: str, imported: ImportedSession) -> Script[Session]:
    """Import under the exported ids if they are free here, else under new ones."""
    asked = imported.session
    asked = msgspec.structs.replace(asked, title=" ".join(asked.title.split()))
    turns, messages = tuple(imported.turns), tuple(imported.messages)
    renamed = yield from _import_names(tx, owner, asked, turns)
    if renamed and imported.is_once:
        raise AlreadyImported(f"The session {asked.id} was imported before.")
    session_id = renamed.get(asked.id, asked.id)
    session_no = yield from SESSION_INSERT.only(
        session_id,
        owner,
        asked.key,
        asked.created_at,
        asked.title,
        int(asked.is_title_given),
        int(asked.private),
        None,
        asked.profile,
        asked.model,
        None,
    )
    if asked.parameters is not None:
        yield q("session_parameters", session_no, parameters_json(asked.parameters))
    yield q("tail_insert", session_no, owner, asked.updated_at)
    session = yield from get_session_by_no(session_no)
    numbers = yield from _import_turns(session, turns, asked.head, renamed)
    yield from _import_messages(tx, session, numbers, messages, renamed)
    head_no = numbers.get(asked.head or "")
    head_state = next((turn.state.value for turn in turns if turn.id == asked.head), None)
    yield q(
        "import_session",
        session_no,
        asked.version,
        asked.created_at,
        asked.title,
        int(asked.is_title_given),
        int(asked.pinned),
        int(asked.archived),
        int(asked.private),
        to_json(asked.tags),
        len(messages),
        preview_of(asked.preview),
        head_no,
        head_state,
    )
    yield from put_title(tx, session_no, title_text(asked.title, asked.tags))
    yield q("tail_set", session_no, asked.updated_at, int(asked.archived))
    yield from import_events(session, numbers, imported.events)
    yield from _import_files(tx, session, numbers, imported.files, keeps_ids=not renamed)
    if imported.purge_at is not None:
        yield q("session_kind", session_no, SessionKind.EPHEMERAL.value)
        yield q("session_deleted", session_no, imported.purge_at)
        yield q("tail_listed", session_no, 0)
    tx.touch(owner, session_id)
    return (yield from get_session_again(session))


def _import_messages(
    tx: Tx,
    session: SessionRow,
    numbers: Mapping[str, int],
    messages: Sequence[Message],
    renamed: Mapping[str, str],
) -> Script[None]:
    by_turn: dict[str, list[Message]] = {}
    for message in messages:
        if message.turn_id not in numbers:  # guard: a15
            raise BadImport(f"Message {message.id[:60]} belongs to no turn of this document.")
        own = msgspec.structs.replace(rename_covered(message, renamed), is_imported=True)
        by_turn.setdefault(message.turn_id, []).append(own)
    for turn_id, of_turn in by_turn.items():
        of_turn.sort(key=lambda message: message.ordinal)
        yield from add_messages(tx, session, numbers[turn_id], of_turn)
        yield from _use_files(session, of_turn)


def _import_files(
    tx: Tx, session: SessionRow, numbers: Mapping[str, int], files: SessionCheckpoints, *, keeps_ids: bool
) -> Script[None]:
    """Import checkpoints. The workspace has to hold the current one; until then the store has its files."""
    for made in files.checkpoints:
        is_free = keeps_ids and (yield from CHECKPOINT.first(made.id)) is None
        number = yield from CHECKPOINT_INSERT.only(
            made.id if is_free else tx.ids.make("chk"),
            session.no,
            None if made.turn_id is None else numbers[made.turn_id],
            made.call_id,
            made.epoch,
            made.cause.value,
            made.created_at,
            made.before,
            made.tree,
            to_json(made.changes),
        )
        if made.id == files.current:
            yield q("workspace_import", session.no, number, made.tree, EMPTY_TREE)


def import_events(session: SessionRow, numbers: Mapping[str, int], events: Sequence[Event]) -> Script[None]:
    """Keep events of a newer version for it, in their order."""
    if not events:
        return
    last = yield from TAIL_POSITION.only(session.no, len(events))
    rows = []
    for position, event in enumerate(events, start=last - len(events) + 1):
        turn_no = None if event.turn_id is None else numbers[event.turn_id]
        place = (session.no, position, turn_no, event.epoch, event.number, session.owner, 0, event.at)
        rows.append((*place, crc_of(event.data), event.data))
    yield Query("event_insert", many=rows)


def _use_files(session: SessionRow, messages: Sequence[Message]) -> Script[None]:
    """Keep the session's attachments, those that were imported with it, from being swept."""
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, Attachment) and (yield q("file_get", part.file_id, session.owner)):
            yield q("file_use", part.file_id, session.no)


def _import_names(tx: Tx, owner: str, asked: Session, turns: tuple[Turn, ...]) -> Script[dict[str, str]]:
    """New names for everything if any of the old ones is taken or was deleted here."""
    taken = bool((yield q("session_row", asked.id, owner))) or bool((yield q("tombstone", asked.id, owner)))
    for turn in turns:
        taken = taken or bool((yield q("turn_exists", turn.id)))
    taken = taken or bool((yield q("session_id_taken", asked.id)))
    if not taken:  # guard: a15 always
        return {}
    renamed = {turn.id: tx.ids.turn() for turn in turns}
    renamed[asked.id] = tx.ids.session()
    return renamed


def _parents_first(turns: tuple[Turn, ...]) -> list[Turn]:
    """The turns in an order in which each follows its parent: one that was overtaken in the queue may be
    older than its parent."""
    children: dict[str | None, list[Turn]] = {}
    for turn in turns:
        children.setdefault(turn.parent_id, []).append(turn)
    ordered = children.pop(None, [])
    for turn in ordered:  # grows as it is read
        ordered += children.pop(turn.id, ())
    if children:
        orphan = next(iter(children.values()))[0]
        raise BadImport(f"The parent of turn {orphan.id[:60]} is missing, or they go in a circle.")
    return ordered


def _import_turns(
    session: SessionRow, turns: tuple[Turn, ...], head: str | None, renamed: dict[str, str]
) -> Script[dict[str, int]]:
    numbers: dict[str, int] = {}
    in_tree = {head, *(turn.parent_id for turn in turns)}
    for turn in _parents_first(turns):
        if turn.state not in ENDED:  # guard: a15
            raise BadImport(f"Turn {turn.id[:60]} is {turn.state}; only ended turns can be imported.")
        parent = renamed.get(turn.parent_id or "", turn.parent_id)
        # One that was removed from the queue was never in the tree: without a parent it is no root either.
        is_in_tree = turn.id in in_tree or parent is not None
        was_removed = turn.state is TurnState.CANCELLED and turn.started_at is None and not is_in_tree
        numbers[turn.id] = yield from IMPORT_TURN.only(
            renamed.get(turn.id, turn.id),
            session.owner,
            session.no,
            parent,
            turn.kind.value,
            turn.state.value,
            turn.epoch,
            turn.attempts,
            turn.model,
            turn.profile,
            turn.private_note,
            turn.created_at,
            turn.started_at,
            turn.ended_at or turn.created_at,
            to_json(turn.failure) if turn.failure else None,
            "final" if turn.recovery == "pending" else turn.recovery.value,
            turn.recovered_at,
            to_json(turn.usage),
            timeline_json(turn.timeline),
            int(not was_removed),
        )
        if turn.parameters is not None:
            yield q("turn_parameters", numbers[turn.id], parameters_json(turn.parameters))
    return numbers


def rename_covered(message: Message, names: Mapping[str, str]) -> Message:
    parts = []
    for part in message.parts:
        if isinstance(part, Summary) and part.covers:
            turn_id = turn_id_of_message(part.covers)
            ordinal = int(part.covers.rsplit("-", 1)[1])
            part = msgspec.structs.replace(part, covers=message_id(names.get(turn_id, turn_id), ordinal))
        parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts))
