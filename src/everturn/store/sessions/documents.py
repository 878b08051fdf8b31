"""A session as a document: JSON that gives back an equal session."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from everturn.domain import ids
from everturn.domain.checkpoints import SessionCheckpoints
from everturn.domain.errors import BadImport, FileMissing, NotFound
from everturn.domain.events import KINDS, Event
from everturn.domain.messages import Attachment, Message
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.domain.store_values import ImportedSession
from everturn.domain.turns import ENDED, Turn, TurnState

FORMAT = "everturn.session"
VERSION = 1
_KIND = re.compile(rb'\{"kind":"([a-z][a-z0-9_.]{0,79})"')
FILES_BYTES_MAX = 100_000_000  # of attachments in one document


class ExportedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attachment with its bytes (base64 in JSON). The name is shown, never used as a path."""

    id: str
    name: str
    media_type: str
    content: bytes


class ExportedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of a newer version, which the messages do not tell of, as it is stored."""

    data: msgspec.Raw
    at: int
    turn_id: str | None = None
    epoch: int = 0
    number: int = 0


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    format: str
    version: int
    session: Session
    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]
    files: tuple[ExportedFile, ...] = ()
    events: tuple[ExportedEvent, ...] = ()


async def export_document(store: Store, owner: str, session_id: str) -> Document:
    """The session as it is at one moment, with the attachments that fit. Raises FileUnreadable."""
    session, turns, messages = await store.transcript.export(owner, session_id)
    known = {turn.id for turn in turns}
    events = await store.journal.of_newer_kinds(owner, session_id)
    return Document(
        format=FORMAT,
        version=VERSION,
        # These mean nothing elsewhere.
        session=msgspec.structs.replace(session, machine=None, parent_turn=None, parent_session=None),
        turns=tuple(turns),
        messages=tuple(messages),
        files=tuple(await _files_of(store, owner, messages)),
        events=tuple(
            ExportedEvent(msgspec.Raw(event.data), event.at, event.turn_id, event.epoch, event.number)
            for event in events
            if event.turn_id is None or event.turn_id in known
        ),
    )


async def _files_of(store: Store, owner: str, messages: list[Message]) -> list[ExportedFile]:
    wanted = {
        part.file_id: part for message in messages for part in message.parts if isinstance(part, Attachment)
    }
    files, size = [], 0
    for file_id, part in wanted.items():
        size += part.size
        if size > FILES_BYTES_MAX:
            break  # the document stays readable; what does not fit keeps its name and size
        try:
            file = await store.files.get(owner, file_id)
            content = b"".join([piece async for piece in store.files.read(file)])
        except (NotFound, FileMissing):
            continue  # it was not imported, or the disk has lost it: its name and size stay
        files.append(ExportedFile(file_id, part.name, part.media_type, content))
    return files


async def import_document(
    store: Store,
    owner: str,
    document: Document,
    described: Callable[[str, bytes], tuple[str, str]],
    workspace: SessionCheckpoints | None = None,
) -> Session:
    """Bring a document in as a session. ``described`` gives a safe name and the media type of a file, from
    its name and its first bytes: what the document says about them is not believed. ``workspace``: its
    checkpoints, whose bytes are stored and checked. Raises BadImport."""
    check_document(document)
    renamed = {}
    for file in document.files:
        name, media_type = described(file.name, file.content[:512])
        stored = await store.files.put(owner, name, media_type, file.content)
        renamed[file.id] = stored.id
    return await store.transcript.import_session(
        owner,
        ImportedSession(
            document.session,
            end_unfinished(document.turns),
            with_files(document, renamed),
            events=tuple(_of_newer_kinds(document)),
            files=workspace or SessionCheckpoints(),
        ),
    )


def _of_newer_kinds(document: Document) -> Iterator[Event]:
    """The events of the document that are kept for a newer version. Kinds that this version knows are left
    out: the messages tell what such events did. Raises BadImport."""
    for exported in document.events:
        # On one line, as each event is stored: a line break would end it early in a stream.
        data = msgspec.json.format(bytes(exported.data), indent=-1)
        found = _KIND.match(data)
        if found is None:
            raise BadImport("An event of the document does not begin with its kind. Nothing was imported.")
        kind = found[1].decode()
        if _kind_read_last(data) != kind:
            raise BadImport("An event of the document has two kinds. Nothing was imported.")
        if kind not in KINDS:  # guard: g04 always
            place = (document.session.id, 0, exported.turn_id, kind, exported.at, data)
            yield Event(*place, epoch=exported.epoch, number=exported.number)


def _kind_read_last(data: bytes) -> object:
    """The kind as browsers read it: of several members with one name they take the last."""
    try:
        return msgspec.json.decode(data, type=dict[str, object])["kind"]
    except msgspec.DecodeError as error:
        raise BadImport(f"An event of the document cannot be read: {error}. Nothing was imported.") from error


def check_document(document: Document) -> Document:
    """Raises BadImport or InvalidId, saying what does not fit."""
    if document.format != FORMAT or document.version != VERSION:
        raise BadImport(
            f"The document is {document.format[:40]!r} version {document.version}; "
            f"this server reads {FORMAT!r} version {VERSION}. Nothing was imported.",
            hint="Export it with the server it comes from, of the same version.",
        )
    ids.check_id(document.session.id, "ses")
    known = {ids.check_id(turn.id, "trn") for turn in document.turns}
    if len(known) != len(document.turns):
        raise BadImport("Two turns of the document have the same id. Nothing was imported.")
    for turn in document.turns:
        if turn.parent_id is not None and turn.parent_id not in known:
            raise BadImport(f"Turn {turn.id[:40]} follows one that is not in the document.")
    for message in document.messages:
        ids.check_message_id(message.id)
        if message.turn_id not in known:
            raise BadImport(f"Message {message.id[:60]} belongs to a turn that is not in the document.")
    for event in document.events:
        if event.turn_id is not None and event.turn_id not in known:
            raise BadImport("An event of the document belongs to a turn that is not in it.")
    if document.session.head is not None and document.session.head not in known:
        raise BadImport("The document ends with a turn that is not in it.")
    return document


def with_files(document: Document, renamed: Mapping[str, str]) -> tuple[Message, ...]:
    """The messages with attachments pointing to the files as they were stored here."""
    return tuple(
        msgspec.structs.replace(
            message,
            parts=tuple(
                msgspec.structs.replace(part, file_id=renamed[part.file_id])
                if isinstance(part, Attachment) and part.file_id in renamed
                else part
                for part in message.parts
            ),
        )
        for message in document.messages
    )


def end_unfinished(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """The turns as they can be imported: what was under way or queued elsewhere is not so here."""
    return tuple(turn if turn.state in ENDED else _end_unfinished(turn) for turn in turns)


def _end_unfinished(turn: Turn) -> Turn:
    state = TurnState.CANCELLED if turn.state is TurnState.QUEUED else TurnState.INTERRUPTED
    return msgspec.structs.replace(turn, state=state, ended_at=turn.ended_at or turn.created_at)


def path_to_head(session: Session, turns: list[Turn], messages: list[Message]) -> list[Message]:
    """The messages that a reader sees, in order."""
    parents = {turn.id: turn.parent_id for turn in turns}
    path, turn_id = [], session.head
    while turn_id is not None and turn_id in parents:
        path.append(turn_id)
        turn_id = parents.pop(turn_id)
    order = {turn: index for index, turn in enumerate(reversed(path))}
    shown = [message for message in messages if message.turn_id in order]
    return sorted(shown, key=lambda message: (order[message.turn_id], message.ordinal))
