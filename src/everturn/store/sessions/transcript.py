"""The transcript: reading the path to the head, moving the head, copying paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from everturn.domain.errors import Invalid, NotFound, NothingToDo, TextEmpty, WrongState
from everturn.domain.events import Event
from everturn.domain.ids import turn_id_of_message
from everturn.domain.messages import Message, Role, Summary, Text, untrusted_source
from everturn.domain.parameters import NO_PARAMETERS, Parameters
from everturn.domain.probe import Moment
from everturn.domain.sessions import Page, Session
from everturn.domain.store_values import Accepted, ImportedSession, Request, RetriedTurn, TranscriptPage
from everturn.domain.turns import ENDED, Turn, TurnKind
from everturn.domain.working_copies import MoveFiles
from everturn.store.journal.journal import of_newer_kinds
from everturn.store.scripts.common import (
    add_change_event,
    bump,
    digest_of,
    find_answer,
    get_session,
    get_session_again,
    get_session_by_no,
    locked_shown_session,
    move_head,
    refresh,
    refuse_busy,
    refuse_stale,
    refuse_text,
    save_answer,
    shown_session,
)
from everturn.store.scripts.queries.messages import (
    CONTEXT_MESSAGES,
    MESSAGE_FIRST,
    MESSAGES_OF_SESSION,
    NEWEST_SUMMARY,
    PATH_PAGE,
    SUMMARIES_OF_SESSION,
    PathMessage,
)
from everturn.store.scripts.queries.sessions import SESSION_INSERT, SESSION_LIST_TITLED
from everturn.store.scripts.queries.turns import (
    PATH,
    TURN,
    TURN_IDS,
    TURN_TEXT,
    TURNS_OF_SESSION,
)
from everturn.store.scripts.rows import (
    SessionRow,
    message_columns,
    message_of,
    parameters_json,
    session_of,
    to_json,
    turn_of,
)
from everturn.store.scripts.script import Database, Query, Script, Tx, q
from everturn.store.sessions.import_numbers import refuse_event_numbers
from everturn.store.sessions.imports import (
    import_events,
    import_session,
    refuse_broken,
    rename_covered,
)
from everturn.store.sessions.targets import redo_target, select_target, turn_in, undo_target
from everturn.store.sessions.titles import copy_title, needle_of, origin_title, put_title, title_text
from everturn.store.turn_files import files_of_turns
from everturn.store.turn_replies import replies_of_turns
from everturn.store.turns.details import with_siblings
from everturn.store.turns.endings import NewTurn, queue_turn
from everturn.store.turns.queue import queued_turns
from everturn.store.turns.submissions import repeat_answer
from everturn.store.working_copies import branch_files, move_files, plan_files

PAGE_MESSAGES_MAX = 500
_WHOLE_PATH = 1 << 30
_NEWEST = 1 << 62
_COPIES_MAX = 100
_COPIES_LOOK_MAX = 500  # sessions among which the copies of a title are looked for


class Transcript:
    def __init__(self, db: Database, *, text_bytes_max: int) -> None:
        self._db = db
        self._text_bytes_max = text_bytes_max

    async def messages(
        self, owner: str, session_id: str, *, before: str | None = None, limit: int = 50
    ) -> Page[Message]:
        limit = max(1, min(limit, PAGE_MESSAGES_MAX))
        return await self._db.read(_messages, owner, session_id, before, limit)

    async def page(
        self, owner: str, session_id: str, *, before: str | None = None, limit: int = 50
    ) -> TranscriptPage:
        limit = max(1, min(limit, PAGE_MESSAGES_MAX))
        return await self._db.read(_page, owner, session_id, before, limit)

    async def context(self, owner: str, session_id: str, *, upto: str | None = None) -> list[Message]:
        return await self._db.read(_context, owner, session_id, upto)

    async def undo(
        self, owner: str, session_id: str, request: Request, *, files: MoveFiles | None = None
    ) -> Session:
        return await self._db.write(_undo, owner, session_id, request, files)

    async def redo(
        self, owner: str, session_id: str, request: Request, *, files: MoveFiles | None = None
    ) -> Session:
        return await self._db.write(_redo, owner, session_id, request, files)

    async def clear(
        self, owner: str, session_id: str, request: Request, *, files: MoveFiles | None = None
    ) -> Session:
        return await self._db.write(_clear, owner, session_id, request, files)

    async def select(
        self, owner: str, session_id: str, turn_id: str, request: Request, *, files: MoveFiles | None = None
    ) -> Session:
        return await self._db.write(_select, owner, session_id, turn_id, request, files)

    async def retry(
        self,
        owner: str,
        session_id: str,
        retried: RetriedTurn,
        request: Request,
        *,
        files: MoveFiles | None = None,
    ) -> Accepted:
        if retried.text is not None:
            refuse_text(retried.text, self._text_bytes_max)
        return await self._db.write(_retry, owner, session_id, retried, request, files)

    async def branch(
        self,
        owner: str,
        session_id: str,
        turn_id: str | None,
        request: Request,
        *,
        files: MoveFiles | None = None,
    ) -> Session:
        newer = await self._db.read(of_newer_kinds, owner, session_id)
        return await self._db.write(_branch, owner, session_id, _Branched(turn_id, files, newer), request)

    async def import_session(self, owner: str, imported: ImportedSession) -> Session:
        refuse_broken(imported.session, imported.turns, imported.messages)
        refuse_event_numbers(imported.events)
        return await self._db.write(import_session, owner, imported)

    async def export(self, owner: str, session_id: str) -> tuple[Session, list[Turn], list[Message]]:
        return await self._db.read(_export, owner, session_id)


# --- reading ------------------------------------------------------------------------------------------


def _messages(tx: Tx, owner: str, session_id: str, before: str | None, limit: int) -> Script[Page[Message]]:
    session = yield from shown_session(tx, owner, session_id)
    return (yield from _messages_of(session, before, limit))


def _messages_of(session: SessionRow, before: str | None, limit: int) -> Script[Page[Message]]:
    """Walks back from the end: the cost follows the page, not the session."""
    turn_no, ordinal = session.head_no, _WHOLE_PATH
    if before is not None:
        turn_no, ordinal = yield from _from_cursor(session, before)
    found: list[Message] = []
    while turn_no is not None and len(found) <= limit:
        wanted = limit + 1 - len(found)
        ancestors = wanted // 2  # a turn has two messages at least, as a rule
        rows = yield from PATH_PAGE.all(turn_no, ancestors, ordinal, wanted + ancestors + 1)
        found.extend(message_of(row, row.turn_id) for row in rows if row.message_no is not None)
        turn_no, ordinal = rows[-1].parent_no, _WHOLE_PATH
    page = tuple(reversed(found[:limit]))
    return Page(page, page[0].id if len(found) > limit else None)


def _from_cursor(session: SessionRow, before: str) -> Script[tuple[int, int]]:
    turn_id = turn_id_of_message(before)
    turn = yield from TURN.first(turn_id)
    if turn is None or turn.session_no != session.no:
        raise Invalid("The cursor is not one of this session's.", hint="Start again without a cursor.")
    return turn.turn_no, int(before.rsplit("-", 1)[1])


def _page(tx: Tx, owner: str, session_id: str, before: str | None, limit: int) -> Script[TranscriptPage]:
    session = yield from shown_session(tx, owner, session_id)
    page = yield from _messages_of(session, before, limit)
    wanted = dict.fromkeys(message.turn_id for message in page.items)
    if before is None and session.session.active_turn is not None:
        wanted[session.session.active_turn] = None
    turns = []
    files = (yield from files_of_turns(wanted)) if wanted else {}
    replies = (yield from replies_of_turns(wanted)) if wanted else {}
    for turn_id in wanted:
        turn = turn_of((yield from TURN.only(turn_id)))
        shown = yield from with_siblings(turn)
        turns.append(
            msgspec.structs.replace(shown, files=files.get(turn_id), replies=replies.get(turn_id, ()))
        )
    # A turn that was accepted and not claimed yet is on no path: without the queue, a client that reads its
    # own write would not find it. The row's count spares the query.
    is_newest = before is None and session.session.queued
    queued = (yield from queued_turns(session)) if is_newest else []
    return TranscriptPage(session.session, page, tuple(turns), tuple(queued))


def _context(tx: Tx, owner: str, session_id: str, upto: str | None) -> Script[list[Message]]:
    session = yield from get_session(tx, owner, session_id)
    end = session.head_no
    if upto is not None:
        turn = yield from TURN.first(upto)
        if turn is None or turn.session_no != session.no:
            raise NotFound("turn", upto)
        end = turn.turn_no
    if end is None:
        return []
    from_turn, after_ordinal = 0, -1
    found = yield from NEWEST_SUMMARY.first(end)
    if found is not None:
        summary = message_of(found, found.turn_id)
        covers = next((part.covers for part in summary.parts if isinstance(part, Summary)), "")
        if covers:  # guard: a14
            start = yield from TURN.first(turn_id_of_message(covers))
            if start is not None:
                from_turn, after_ordinal = start.turn_no, int(covers.rsplit("-", 1)[1])
    rows = yield from CONTEXT_MESSAGES.all(end, from_turn, after_ordinal)
    return _without_covered_summaries([message_of(row, row.turn_id) for row in rows], found)


def _without_covered_summaries(messages: list[Message], newest: PathMessage | None) -> list[Message]:
    """Only the newest summary stays: it covers the ones before it."""
    if newest is None:  # guard: a14 always
        return messages
    keep = (newest.turn_id, newest.ordinal)
    return [m for m in messages if m.role is not Role.SUMMARY or (m.turn_id, m.ordinal) == keep]


def _export(tx: Tx, owner: str, session_id: str) -> Script[tuple[Session, list[Turn], list[Message]]]:
    session = yield from shown_session(tx, owner, session_id)
    turn_rows = [turn_of(row) for row in (yield from TURNS_OF_SESSION.all(session.no))]
    ids = {turn.no: turn.id for turn in turn_rows}
    rows = yield from MESSAGES_OF_SESSION.all(session.no)
    # Where a message came from is for this store to know, not part of the document: it stays equal (A15).
    messages = [msgspec.structs.replace(message_of(row, ids[row.turn_no]), is_imported=False) for row in rows]
    return session.session, [t.turn for t in turn_rows], messages


# --- moving the head ----------------------------------------------------------------------------------


def _begin_move(
    tx: Tx, owner: str, session_id: str, request: Request, digest: str
) -> Script[tuple[SessionRow, str | None]]:
    """The locked session and, for a repeated request, its first answer; refuses stale and busy ones."""
    session = yield from locked_shown_session(tx, owner, session_id)
    before = yield from find_answer(session, request, digest)
    if before is None:
        refuse_stale(session, request.version)
        yield from refuse_busy(session)
    return session, before


def _finish_move(tx: Tx, session: SessionRow, request: Request, digest: str, what: str) -> Script[Session]:
    # A turn that was to be resumed is not the last one any more, or not the one that was meant.
    yield q("turns_unready", session.no)
    version = yield from bump(tx, session)
    yield from refresh(tx, session)
    head = (yield from get_session_again(session)).head
    yield from add_change_event(tx, session, what, version, head)
    answer = yield from get_session_again(session)
    yield from save_answer(tx, session, request, digest, to_json(answer))
    tx.probe.pass_by(Moment.MOVE_WRITTEN, session.id)
    return answer


_session_decoder = msgspec.json.Decoder(Session)


def _undo(
    tx: Tx, owner: str, session_id: str, request: Request, files: MoveFiles | None = None
) -> Script[Session]:
    digest = digest_of("undo")
    session, before = yield from _begin_move(tx, owner, session_id, request, digest)
    if before is not None:  # guard: a13
        return _session_decoder.decode(before)
    target = yield from undo_target(session)
    redo = session.redo_no or session.head_no
    yield from move_files(tx, session, target, files)
    yield from move_head(tx, session, target, redo_no=redo)
    return (yield from _finish_move(tx, session, request, digest, "undo"))


def _redo(
    tx: Tx, owner: str, session_id: str, request: Request, files: MoveFiles | None = None
) -> Script[Session]:
    digest = digest_of("redo")
    session, before = yield from _begin_move(tx, owner, session_id, request, digest)
    if before is not None:
        return _session_decoder.decode(before)
    target = yield from redo_target(session)
    left = session.redo_no if target != session.redo_no else None
    yield from move_files(tx, session, target, files)
    yield from move_head(tx, session, target, redo_no=left)
    return (yield from _finish_move(tx, session, request, digest, "redo"))


def _clear(
    tx: Tx, owner: str, session_id: str, request: Request, files: MoveFiles | None = None
) -> Script[Session]:
    digest = digest_of("clear")
    session, before = yield from _begin_move(tx, owner, session_id, request, digest)
    if before is not None:
        return _session_decoder.decode(before)
    if session.head_no is None:
        raise NothingToDo(f"Session {session_id} is empty already.")
    redo = session.redo_no or session.head_no  # what was undone before comes back with the rest
    yield from move_files(tx, session, None, files)
    yield from move_head(tx, session, None, redo_no=redo, is_clear=True)
    return (yield from _finish_move(tx, session, request, digest, "clear"))


def _select(
    tx: Tx, owner: str, session_id: str, turn_id: str, request: Request, files: MoveFiles | None = None
) -> Script[Session]:
    digest = digest_of("select", turn_id)
    session, before = yield from _begin_move(tx, owner, session_id, request, digest)
    if before is not None:
        return _session_decoder.decode(before)
    target = yield from select_target(session, turn_id)
    yield from move_files(tx, session, target, files)
    yield from move_head(tx, session, target)
    return (yield from _finish_move(tx, session, request, digest, "select"))


def _retry(
    tx: Tx,
    owner: str,
    session_id: str,
    retried: RetriedTurn,
    request: Request,
    files: MoveFiles | None,
) -> Script[Accepted]:
    turn_id, text, model = retried.turn_id, retried.text, retried.model
    # Digests are stored: without parameters it is what it was before there were any.
    digest = digest_of("retry", turn_id, text, model, *_list_given(retried.parameters))
    session, before = yield from _begin_move(tx, owner, session_id, request, digest)
    if before is not None:
        return (yield from repeat_answer(before))
    turn = yield from turn_in(session, turn_id)
    if turn.turn.kind is not TurnKind.MESSAGE or not turn.has_parent:
        raise WrongState(f"Turn {turn.id} is not one that can be asked again.")
    first = yield from MESSAGE_FIRST.first(turn.no)
    if first is None:  # an imported one
        raise WrongState(f"Turn {turn.id} has no message that can be asked again.")
    old = message_of(first, turn.id)
    parts = [part for part in old.parts if not isinstance(part, (Summary,))]
    if text is not None:
        parts = [part for part in parts if not isinstance(part, Text)]
        if text.strip():
            parts.insert(0, Text(text, source=untrusted_source(old)))
        elif not parts:
            raise TextEmpty
    new = NewTurn(
        parts=parts,  # type: ignore[arg-type]  # a user's message holds text and attachments only
        created_at=tx.now,
        model=model or turn.turn.model,
        profile=turn.turn.profile,
        parent_no=turn.parent_no,
        has_parent=True,
        is_imported=old.is_imported and text is None,
        parameters=(retried.parameters or NO_PARAMETERS).over(turn.turn.parameters),
    )
    sibling, position = yield from queue_turn(tx, session, new)
    yield from plan_files(tx, session, sibling, files)
    yield from bump(tx, session)
    yield from refresh(tx, session)
    kept = {"turn_id": sibling.id, "cursor": position}
    yield from save_answer(tx, session, request, digest, to_json(kept))
    tx.probe.pass_by(Moment.MOVE_WRITTEN, session.id)
    tx.moments.append((Moment.ACCEPT_COMMITTED, sibling.id))
    shown = yield from TURN_TEXT.only(sibling.no)
    return Accepted(msgspec.structs.replace(sibling.turn, text=shown), position)


def _list_given(parameters: Parameters | None) -> tuple[Parameters, ...]:
    return () if parameters is None else (parameters,)


# --- copying ------------------------------------------------------------------------------------------


class _Branched(msgspec.Struct, frozen=True):
    """What a branch takes along. ``newer``: events that the messages do not tell of, for a newer version."""

    turn_id: str | None
    files: MoveFiles | None
    newer: Sequence[Event]


def _branch(tx: Tx, owner: str, session_id: str, branched: _Branched, request: Request) -> Script[Session]:
    turn_id = branched.turn_id
    digest = digest_of("branch", turn_id)
    session = yield from locked_shown_session(tx, owner, session_id)
    before = yield from find_answer(session, request, digest)
    if before is not None:
        return _session_decoder.decode(before)
    refuse_stale(session, request.version)
    if turn_id is None:
        yield from refuse_busy(session)  # the last turn has not ended: it must be named
    turn = yield from turn_in(session, turn_id)
    if turn.state not in ENDED or not turn.has_parent:
        yield from refuse_busy(session)
        raise WrongState(f"Turn {turn.id} is {turn.state}: it has nothing to branch from.")
    path = (yield from PATH.all(turn.no, _WHOLE_PATH))[::-1]
    copy = yield from _copy_session(tx, session)
    ids = [tx.ids.turn() for _ in path]
    parents = ["", *ids[:-1]]
    copied = zip(ids, parents, path, strict=True)
    yield Query("branch_turn", many=[(new, copy.no, above, old, tx.now) for new, above, old in copied])
    pairs = zip(ids, path, strict=True)
    yield Query("branch_messages", many=[(copy.no, new, old) for new, old in pairs])
    yield q("branch_files", session.no, copy.no)
    found = yield from TURN_IDS.all(session.no, min(path), max(path))
    new_ids = dict(zip(path, ids, strict=True))
    names = {old.id: new_ids[old.turn_no] for old in found if old.turn_no in new_ids}
    yield from _rename_covers(copy, names)
    head = yield from TURN.only(ids[-1])
    numbers = {turn.id: turn.turn_no for turn in (yield from TURN_IDS.all(copy.no, 0, _NEWEST))}
    turns = {old: numbers[new] for old, new in new_ids.items()}
    yield from branch_files(tx, session, copy, turns, branched.files)
    by_id = {old.id: turns[old.turn_no] for old in found if old.turn_no in turns}
    yield from import_events(copy, by_id, [event for event in branched.newer if event.turn_id in by_id])
    yield q("session_head", copy.no, head.turn_no, None, 0)
    yield q("session_recount", copy.no)
    yield q("session_said", copy.no, 0, session.session.preview)
    yield from refresh(tx, copy)
    answer = yield from get_session_again(copy)
    yield from save_answer(tx, session, request, digest, to_json(answer))
    tx.probe.pass_by(Moment.MOVE_WRITTEN, session.id)
    return answer


def _rename_covers(copy: SessionRow, names: Mapping[str, str]) -> Script[None]:
    """Let copied summaries name the copies of the messages they cover, not the originals."""
    for row in (yield from SUMMARIES_OF_SESSION.all(copy.no)):
        _, _, packed = message_columns(rename_covered(message_of(row, row.turn_id), names))
        yield q("message_parts_update", row.turn_no, row.ordinal, packed)


def _copy_session(tx: Tx, session: SessionRow) -> Script[SessionRow]:
    value = session.session
    title = yield from _copy_title(session.owner, value.title)
    session_no = yield from SESSION_INSERT.only(
        tx.ids.session(),
        session.owner,
        value.key,
        tx.now,
        title,
        int(value.is_title_given),
        int(value.private),
        value.project,
        value.profile,
        value.model,
        value.machine,
    )
    if value.parameters is not None:
        yield q("session_parameters", session_no, parameters_json(value.parameters))
    yield q("tail_insert", session_no, session.owner, tx.now)
    yield from put_title(tx, session_no, title_text(title, ()))
    return (yield from get_session_by_no(session_no))


def _copy_title(owner: str, title: str) -> Script[str]:
    """Numbered after the copies among the newest sessions: to look farther would make the write slow."""
    if not title:
        return ""
    # Archived or not, from the newest on, pinned or not, with any tag.
    narrowed = (owner, -1, _NEWEST, _NEWEST, _COPIES_MAX, -1, "")
    rows = yield from SESSION_LIST_TITLED.all(*narrowed, needle_of(origin_title(title)), _COPIES_LOOK_MAX, "")
    return copy_title(title, {session_of(row).session.title for row in rows})
