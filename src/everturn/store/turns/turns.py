"""Turns: accept, queue, claim, wait, end. The ends themselves are in ``endings``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain import events as ev
from everturn.domain.errors import (
    Invalid,
    JournalCorrupt,
    NotFound,
    StoreAway,
    TextEmpty,
    WrongState,
)
from everturn.domain.fold import Folded
from everturn.domain.ids import message_id
from everturn.domain.messages import Attachment, Message, Role, Text
from everturn.domain.probe import Moment
from everturn.domain.store import Accepted, Ask, Claim, Request, Submission
from everturn.domain.turns import ClaimReason, Completed, Failure, Turn, TurnKind, TurnState
from everturn.store.journal.fold import JournalFold, read_ahead
from everturn.store.scripts.common import (
    add_change_event,
    add_events,
    bump,
    delete_answers,
    digest_of,
    find_answer,
    find_turn,
    get_session,
    get_session_by_no,
    get_turn,
    journal_of,
    lock_turn,
    locked_shown_session,
    move_head,
    next_turn,
    refresh,
    refuse_busy,
    refuse_stale,
    refuse_text,
    reindex,
    save_answer,
    shown_session,
)
from everturn.store.scripts.queries import (
    APPEND_STATE,
    CLAIMABLE,
    CLAIMABLE_IN_SESSION,
    FILE,
    HELD_EPOCHS,
    MESSAGE_FIRST,
    QUEUE_PLACES,
    QUEUE_ROWS,
    ROOT_SIBLINGS,
    SESSION_NO_OF_ID,
    STEERING_OF_TURN,
    TURN,
    TURN_CLAIM,
    TURN_SIBLINGS,
    TURN_TEXT,
    TURNS_OF_WORKER,
    WORKER_CLAIMS,
)
from everturn.store.scripts.rows import (
    SessionRow,
    TurnRow,
    ask_body,
    make_events,
    message_columns,
    message_of,
    to_json,
    turn_of,
)
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.turns import endings

ATTACHMENTS_MAX = 32
KEY_CHARS_MAX = 200
_DELTAS = frozenset({"text.delta", "reasoning.delta", "tool.output"})


class Turns:
    def __init__(self, db: Database, *, text_bytes_max: int) -> None:
        self._db = db
        self._text_bytes_max = text_bytes_max

    async def accept(self, owner: str, session_id: str, submission: Submission) -> Accepted:
        self._check(submission)
        ahead = None
        if submission.when_busy == "interrupt":
            active = await self._db.read(_active, owner, session_id)
            ahead = None if active is None else await read_ahead(self._db, active)
        return await self._db.write(_accept, owner, session_id, submission, ahead)

    async def accept_and_claim(
        self, worker: str, owner: str, session_id: str, submission: Submission
    ) -> tuple[Accepted, Claim | None]:
        self._check(submission)
        return await self._db.write(_accept_and_claim, worker, owner, session_id, submission)

    async def get(self, owner: str, turn_id: str) -> Turn:
        return await self._db.read(_get, owner, turn_id)

    async def queue(self, owner: str, session_id: str) -> Sequence[Turn]:
        return await self._db.read(_queue, owner, session_id)

    async def edit_queued(
        self,
        owner: str,
        turn_id: str,
        text: str | None = None,
        *,
        place: int | None = None,
        version: int | None = None,
    ) -> Turn:
        if text is not None:
            self._check(Submission(text=text))
        return await self._db.write(_edit_queued, owner, turn_id, text, place, version)

    async def remove_queued(self, owner: str, turn_id: str) -> None:
        await self._db.write(_remove_queued, owner, turn_id)

    async def claim(
        self,
        worker: str,
        *,
        limit: int = 1,
        session_id: str | None = None,
        without_owners: Sequence[str] = (),
    ) -> list[Claim]:
        # Looking first costs no write transaction when there is nothing to do (A03).
        if not await self._db.read(_claimable, limit, session_id, tuple(without_owners)):
            return []
        return await self._db.write(_claim, worker, limit, session_id, tuple(without_owners))

    async def find_lost(self, held: Sequence[tuple[str, int]]) -> list[str]:
        """Those of the held (turn, epoch) that this worker no longer holds."""
        return await self._db.read(_lost, tuple(held))

    async def held_by(self, worker: str) -> list[tuple[str, int]]:
        """What the worker holds, as (turn, epoch)."""
        return await self._db.read(_held, worker)

    async def take_steering(self, turn_id: str, epoch: int, number: int) -> list[Message]:
        if not await self._db.read(_has_steering, turn_id):
            return []
        return await self._db.write(_take_steering, turn_id, epoch, number)

    async def wait(
        self,
        turn_id: str,
        epoch: int,
        number: int,
        asks: Sequence[Ask],
        payloads: Sequence[ev.Payload],
        *,
        worked_ms: int | None = None,
    ) -> Turn:
        return await self._db.write(_wait, turn_id, epoch, number, tuple(asks), tuple(payloads), worked_ms)

    async def complete(
        self,
        turn_id: str,
        epoch: int,
        number: int,
        folded: Folded,
        *,
        provider: str | None = None,
        handle: str = "",
    ) -> Completed:
        return await self._db.write(endings.complete, turn_id, epoch, number, folded, provider, handle)

    async def fail(self, turn_id: str, epoch: int | None, failure: Failure) -> Turn:
        self._refuse_undelivered(epoch)
        ahead = await read_ahead(self._db, turn_id)
        return await self._db.write(endings.fail, turn_id, epoch, failure, ahead)

    async def interrupt(
        self, turn_id: str, epoch: int | None, failure: Failure, *, is_sealed: bool = True
    ) -> Turn:
        self._refuse_undelivered(epoch)
        ahead = await read_ahead(self._db, turn_id)
        return await self._db.write(endings.interrupt, turn_id, epoch, failure, is_sealed, ahead)

    async def cancel(self, owner: str, turn_id: str, *, by: str = "") -> Turn:
        ahead = await read_ahead(self._db, turn_id)
        return await self._db.write(endings.cancel, owner, turn_id, by, ahead)

    async def hand_over(self, turn_id: str, epoch: int) -> Turn:
        self._refuse_undelivered(epoch)
        return await self._db.write(_hand_over, turn_id, epoch)

    async def resume(self, owner: str, turn_id: str) -> Turn:
        return await self._db.write(_resume, owner, turn_id)

    def _refuse_undelivered(self, epoch: int | None) -> None:
        """What its own worker says about a turn's fate seals its journal. Said while the spool waits for its
        delivery, it could come before what the spool holds, and that would be dropped as a repeat."""
        if epoch is not None and self._db.is_away:
            raise StoreAway(
                "What the turn has said may not be in the database yet. Nothing was written.",
                hint="It is tried again once everything is delivered.",
            )

    def _check(self, submission: Submission) -> None:
        if submission.kind is TurnKind.MESSAGE and not submission.text.strip() and not submission.attachments:
            raise TextEmpty
        refuse_text(submission.text, self._text_bytes_max)
        if submission.when_busy not in ("queue", "steer", "interrupt"):
            raise Invalid(
                f"when_busy is {submission.when_busy[:40]!r}.", hint="Use queue, steer or interrupt."
            )
        if len(submission.attachments) > ATTACHMENTS_MAX:
            raise Invalid(f"A message has at most {ATTACHMENTS_MAX} attachments.", hint="Send fewer.")
        if submission.key is not None and not 0 < len(submission.key) <= KEY_CHARS_MAX:
            raise Invalid(f"An idempotency key has 1 to {KEY_CHARS_MAX} characters.", hint="Use a random id.")


class _FirstAnswer(msgspec.Struct, frozen=True):
    """The first answer to an accepted request, kept beside its key."""

    turn_id: str
    cursor: int
    is_steering: bool = False


_kept = msgspec.json.Decoder(_FirstAnswer)


def _active(tx: Tx, owner: str, session_id: str) -> Script[str | None]:
    return (yield from get_session(tx, owner, session_id)).session.active_turn


def _accept(
    tx: Tx, owner: str, session_id: str, asked: Submission, ahead: JournalFold | None = None
) -> Script[Accepted]:
    session = yield from locked_shown_session(tx, owner, session_id)
    request = Request(key=asked.key)
    digest = yield from _digest(session, asked)
    before = yield from find_answer(session, request, digest)
    if before is not None:  # guard: a01
        return (yield from repeat_answer(before))
    refuse_stale(session, asked.version)
    files = yield from _files(tx, session, asked.attachments)
    is_active = session.active_no is not None
    if asked.when_busy == "steer" and (yield from _can_steer(session, asked)):
        accepted = yield from _steer(tx, session, asked, files)
    else:
        is_first = is_active and asked.when_busy == "interrupt"
        if is_first and session.active_no is not None:
            active = yield from get_turn(session.active_no)
            cancelled = TurnState.CANCELLED
            yield from endings.end_active(tx, session, active, cancelled, None, ahead, by="interrupt")
        elif asked.when_busy == "interrupt" and (following := (yield from next_turn(session))) is not None:
            # Accepted a moment ago, and about to run: it is what is to be interrupted.
            is_first = True
            yield from endings.cancel(tx, owner, following.id, "interrupt")
        parts = (*((Text(asked.text),) if asked.text else ()), *files)
        turn, position = yield from endings.queue_turn(
            tx,
            session,
            parts,
            created_at=tx.now,
            model=asked.model or asked.preferred_model,
            profile=asked.profile,
            kind=asked.kind,
            note=asked.note,
            is_first=is_first,
        )
        yield from bump(tx, session, is_transcript=False)
        yield from refresh(tx, session)
        accepted = Accepted((yield from _with_text(turn)), position)
    kept = _FirstAnswer(accepted.turn.id, accepted.cursor, accepted.is_steering)
    yield from save_answer(tx, session, request, digest, to_json(kept))
    tx.probe.pass_by(Moment.ACCEPT_WRITTEN, accepted.turn.id)
    tx.moments.append((Moment.ACCEPT_COMMITTED, accepted.turn.id))
    return accepted


def _accept_and_claim(
    tx: Tx, worker: str, owner: str, session_id: str, asked: Submission
) -> Script[tuple[Accepted, Claim | None]]:
    accepted = yield from _accept(tx, owner, session_id, asked)
    if accepted.is_repeat or accepted.is_steering:
        return accepted, None
    session = yield from get_session(tx, owner, session_id)
    turn_no = yield from CLAIMABLE_IN_SESSION.first(session.no)
    claim = None if turn_no is None else (yield from _take(tx, worker, session.no, turn_no))
    if claim is not None and claim.turn.id == accepted.turn.id:
        accepted = msgspec.structs.replace(accepted, turn=claim.turn)
    return accepted, claim


def _digest(session: SessionRow, asked: Submission) -> Script[str]:
    """What is asked for. Attachments count by their content: a client that repeats a request whose answer
    was lost may have uploaded them again."""
    contents = []
    for file_id in asked.attachments:
        file = yield from FILE.first(file_id, session.owner)
        contents.append(file_id if file is None else file.sha256)
    plain = msgspec.structs.replace(
        asked, key=None, preferred_model=None, version=None, attachments=tuple(contents)
    )
    return digest_of("turn", plain)


def _can_steer(session: SessionRow, asked: Submission) -> Script[bool]:
    """A running conversation takes steering; a compaction answers nobody, so the message queues."""
    if session.active_no is None or asked.kind is not TurnKind.MESSAGE:
        return False
    return (yield from get_turn(session.active_no)).turn.kind is TurnKind.MESSAGE


def repeat_answer(answer: str) -> Script[Accepted]:
    """The first answer again, with the turn as it is now."""
    kept = _kept.decode(answer)
    found = yield from find_turn(kept.turn_id)
    if found is None:
        raise NotFound("turn", kept.turn_id)
    turn = yield from _with_text(found)
    return Accepted(turn, kept.cursor, is_repeat=True, is_steering=kept.is_steering)


def _files(tx: Tx, session: SessionRow, file_ids: Sequence[str]) -> Script[tuple[Attachment, ...]]:
    """The attachments, which must belong to the session's owner; from now on the session uses them."""
    found = []
    for file_id in file_ids:
        file = yield from FILE.first(file_id, session.owner)
        if file is None:
            raise NotFound("file", file_id)
        yield q("file_use", file_id, session.no)
        found.append(Attachment(file_id=file.id, name=file.name, media_type=file.media_type, size=file.size))
    return tuple(found)


def _steer(tx: Tx, session: SessionRow, asked: Submission, files: tuple[Attachment, ...]) -> Script[Accepted]:
    if session.active_no is None:
        raise WrongState("There is no running turn to steer.")
    yield q("steering_insert", session.owner, session.active_no, asked.text, to_json(files), tx.now)
    turn = yield from get_turn(session.active_no)
    return Accepted(turn.turn, session.session.position, is_steering=True)


def _with_text(turn: TurnRow) -> Script[Turn]:
    text = yield from TURN_TEXT.first(turn.no)
    return msgspec.structs.replace(turn.turn, text=text or "")


def with_siblings(turn: TurnRow) -> Script[Turn]:
    if turn.parent_no is None:
        siblings = yield from ROOT_SIBLINGS.all(turn.session_no)
    else:
        siblings = yield from TURN_SIBLINGS.all(turn.session_no, turn.parent_no)
    numbers = [sibling.turn_no for sibling in siblings]
    place = numbers.index(turn.no) + 1 if turn.no in numbers else 1
    ids = tuple(sibling.id for sibling in siblings) if len(siblings) > 1 else ()
    return msgspec.structs.replace(turn.turn, sibling=place, siblings=max(1, len(numbers)), sibling_ids=ids)


def _get(tx: Tx, owner: str, turn_id: str) -> Script[Turn]:
    turn = yield from find_turn(turn_id)
    if turn is None or turn.turn.owner != owner:
        raise NotFound("turn", turn_id)
    text = yield from _with_text(turn)
    return msgspec.structs.replace((yield from with_siblings(turn)), text=text.text)


# --- the queue ----------------------------------------------------------------------------------------


def _queue(tx: Tx, owner: str, session_id: str) -> Script[list[Turn]]:
    session = yield from shown_session(tx, owner, session_id)
    turns = []
    for row in (yield from QUEUE_ROWS.all(session.no)):
        turns.append((yield from _with_text(turn_of(row))))
    return turns


def _queued(tx: Tx, owner: str, turn_id: str) -> Script[tuple[SessionRow, TurnRow]]:
    session, turn = yield from lock_turn(tx, turn_id, owner)
    if turn.state is not TurnState.QUEUED:
        raise WrongState(f"Turn {turn_id} is {turn.state}, not queued.", hint="It can be stopped or undone.")
    return session, turn


def _edit_queued(
    tx: Tx, owner: str, turn_id: str, text: str | None, place: int | None, version: int | None
) -> Script[Turn]:
    session, turn = yield from _queued(tx, owner, turn_id)
    refuse_stale(session, version)
    if text is not None:
        yield from _reword(tx, turn, text)
    if place is not None:
        yield from _move(session, turn, place)
    version = yield from bump(tx, session, is_transcript=False)
    yield from add_change_event(tx, session, "queue", version, session.session.head)
    return (yield from _with_text(turn))


def _move(session: SessionRow, turn: TurnRow, place: int) -> Script[None]:
    """Number the queue anew, from its lowest place on."""
    rows = yield from QUEUE_ROWS.all(session.no)
    order = [found for row in rows if (found := turn_of(row)).no != turn.no]
    order.insert(max(0, place), turn)
    places = yield from QUEUE_PLACES.only(session.no)
    for number, found in enumerate(order, start=places.lowest):
        yield q("turn_place", found.no, number)


def _reword(tx: Tx, turn: TurnRow, text: str) -> Script[None]:
    first = yield from MESSAGE_FIRST.first(turn.no)
    if first is None:
        raise WrongState(f"Turn {turn.id} is a {turn.turn.kind}: it has no text.", hint="Remove it instead.")
    old = message_of(first, turn.id)
    parts = (Text(text), *(part for part in old.parts if not isinstance(part, Text)))
    _, words, packed = message_columns(msgspec.structs.replace(old, parts=parts))
    yield q("message_text_update", turn.no, words, packed)
    yield from reindex(tx, first.message_no, first.text, words)


def _remove_queued(tx: Tx, owner: str, turn_id: str) -> Script[None]:
    session, turn = yield from _queued(tx, owner, turn_id)
    yield from endings.end_queued(tx, session, turn, TurnState.CANCELLED, None, by="queue")


# --- claiming -----------------------------------------------------------------------------------------


def _claimable(
    tx: Tx, limit: int, session_id: str | None, without_owners: tuple[str, ...]
) -> Script[list[tuple[int, int]]]:
    """Candidates as (session_no, turn_no), in the order in which they are to be taken."""
    only = None
    if session_id is not None:
        only = yield from SESSION_NO_OF_ID.first(session_id)
        if only is None:
            return []
    is_choosy = only is not None or bool(without_owners)
    found = [
        (turn.session_no, turn.turn_no)
        for turn in (yield from CLAIMABLE.all(10_000 if is_choosy else limit))
        if turn.owner not in without_owners and (only is None or turn.session_no == only)
    ]
    return found[:limit]


def _claim(
    tx: Tx, worker: str, limit: int, session_id: str | None, without_owners: tuple[str, ...]
) -> Script[list[Claim]]:
    if tx.dialect == "postgresql" and (yield from WORKER_CLAIMS.first(worker)) == 0:
        return []  # its lease ran out and its turns were taken: it must hear so before it takes others
    claims: list[Claim] = []
    tried: set[int] = set()
    while True:
        wanted = limit - len(claims) + len(tried)
        candidates = yield from _claimable(tx, wanted, session_id, without_owners)
        sessions = sorted({session_no for session_no, _ in candidates} - tried)
        tried.update(sessions)
        found, was_refused = yield from _claim_in(tx, worker, sessions)
        claims += found
        if not was_refused or len(claims) >= limit:
            return claims
        # Turns that only a newer version can run must not keep this one from those behind them.


def _claim_in(tx: Tx, worker: str, sessions: Sequence[int]) -> Script[tuple[list[Claim], bool]]:
    """Claim the next turn of each session, and say whether one could not be run here."""
    claims: list[Claim] = []
    was_refused = False
    for session_no in sessions:
        if tx.dialect == "postgresql" and not (yield q("session_lock_skip", session_no)):
            continue  # another worker is writing this session; its next look will find the turn
        turn_no = yield from CLAIMABLE_IN_SESSION.first(session_no)
        claim = None if turn_no is None else (yield from _take(tx, worker, session_no, turn_no))
        if claim is not None:
            claims.append(claim)
        was_refused = was_refused or claim is None
    return claims, was_refused


def _take(tx: Tx, worker: str, session_no: int, turn_no: int) -> Script[Claim | None]:
    session = yield from get_session_by_no(session_no)
    turn = yield from get_turn(turn_no)
    reason = ClaimReason(turn.ready_reason or ClaimReason.NEW)
    is_queued = turn.state is TurnState.QUEUED
    parent = turn.parent_no if turn.has_parent else session.head_no
    try:
        journal = [] if is_queued else (yield from journal_of(session, turn))
    except JournalCorrupt as damage:
        yield from _give_up_damaged(tx, session, turn, damage)
        return None
    if any(map(_is_newer, journal)):
        return None  # a newer version began it and goes on with it (G04)
    if turn.state is TurnState.INTERRUPTED:
        # Its messages were folded at the interruption; the turn is live again and folds anew at its end.
        yield from delete_answers(tx, session, turn.no)  # guard: c08
    steps = [step.step for step in map(_finished_step, journal) if step is not None]
    epoch = yield from TURN_CLAIM.only(turn.no, worker, tx.now, parent, int(reason == ClaimReason.CRASH))
    yield q("writer_insert", turn.no, epoch, worker, 1)
    if is_queued:
        yield from move_head(tx, session, turn.no)
        event: ev.Payload = ev.TurnStarted(epoch=epoch, worker=worker)
    else:
        attempt = turn.turn.attempts + (reason == ClaimReason.CRASH)
        event = ev.TurnResumed(epoch, worker, reason, attempt, turn.stopped_at, max(steps, default=0))
    yield from add_events(tx, session, turn, epoch, 1, [event])
    if is_queued:
        journal = yield from journal_of(session, turn, skips_damage=True)
    else:
        journal += make_events(tx.events[-1])
    yield from refresh(tx, session)
    now_row = yield from get_turn(turn_no)
    session_now = yield from get_session_by_no(session_no)
    first = yield from MESSAGE_FIRST.first(turn_no)
    message = None if first is None else message_of(first, turn.id)
    return Claim(
        turn=msgspec.structs.replace(now_row.turn, text=first.text if first else ""),
        session=session_now.session,
        epoch=epoch,
        number=1,
        reason=reason,
        journal=tuple(journal),
        stopped_at=turn.stopped_at,
        message=message,
    )


def _is_newer(event: ev.Event) -> bool:
    """Whether only a newer version can read the event. Deltas, of which there are many, hold plain text."""
    if event.kind in _DELTAS:
        return False
    return event.kind not in ev.KINDS or isinstance(event.payload, ev.Unknown)


def _finished_step(event: ev.Event) -> ev.StepFinished | None:
    if event.kind != "step.finished":
        return None
    payload = event.payload
    return payload if isinstance(payload, ev.StepFinished) else None


def _give_up_damaged(tx: Tx, session: SessionRow, turn: TurnRow, damage: JournalCorrupt) -> Script[None]:
    """A turn whose journal is damaged cannot be resumed: it says so, and holds up nobody else."""
    if turn.state is TurnState.INTERRUPTED:
        yield q("turns_unready", session.no)
        yield from refresh(tx, session)
        return
    failure = Failure.from_error(damage)
    yield from endings.end_active(tx, session, turn, TurnState.FAILED, failure)


def _lost(tx: Tx, held: tuple[tuple[str, int], ...]) -> Script[list[str]]:
    if tx.dialect == "postgresql":
        rows = yield from HELD_EPOCHS.all([turn_id for turn_id, _ in held])
        still = {(turn.id, turn.epoch) for turn in rows}
        return [turn_id for turn_id, epoch in held if (turn_id, epoch) not in still]
    gone = []
    for turn_id, epoch in held:
        now = yield from APPEND_STATE.first(turn_id, epoch)
        if now is None or now.state != "running" or now.epoch != epoch:
            gone.append(turn_id)
    return gone


def _held(tx: Tx, worker: str) -> Script[list[tuple[str, int]]]:
    return [(turn.id, turn.epoch) for turn in (yield from TURNS_OF_WORKER.all(worker))]


def _hand_over(tx: Tx, turn_id: str, epoch: int) -> Script[Turn]:
    session, turn = yield from endings.lock_held_turn(tx, turn_id, epoch)
    yield q("turn_ready", turn.no, "handed_over", tx.now)
    yield q("writer_seal", turn.no, epoch)
    yield from refresh(tx, session)
    tx.moments.append((Moment.HANDED_OVER, turn_id))
    return (yield from get_turn(turn.no)).turn


def _resume(tx: Tx, owner: str, turn_id: str) -> Script[Turn]:
    session, turn = yield from lock_turn(tx, turn_id, owner)
    if turn.state is not TurnState.INTERRUPTED:
        raise WrongState(
            f"Turn {turn_id} is {turn.state}; only an interrupted turn can be resumed.",
            hint="Send a new message instead.",
        )
    if session.active_no is not None or not turn.turn.is_ready:
        yield from refuse_busy(session)
    if session.head_no != turn.no:
        raise WrongState(
            f"Turn {turn_id} is no longer the last one of its session.", hint="Branch from it, or ask again."
        )
    if turn.is_pruned:
        raise WrongState(
            f"The journal of turn {turn_id} was pruned: its text is in the transcript, its steps are not.",
            hint="Retry the message, or send a new one.",
        )
    if not turn.turn.is_ready:
        yield q("turn_ready", turn.no, "manual", tx.now)
        yield from refresh(tx, session)
    return (yield from get_turn(turn.no)).turn


# --- steering and waiting ------------------------------------------------------------------------------


def _has_steering(tx: Tx, turn_id: str) -> Script[bool]:
    turn = yield from TURN.first(turn_id)
    if turn is None:
        raise NotFound("turn", turn_id)
    return bool((yield q("steering_of_turn", turn.turn_no)))


def _take_steering(tx: Tx, turn_id: str, epoch: int, number: int) -> Script[list[Message]]:
    session, turn = yield from endings.lock_held_turn(tx, turn_id, epoch, number - 1)
    waiting = yield from STEERING_OF_TURN.all(turn.no)
    messages = [
        Message(
            id=message_id(turn_id, 0),
            turn_id=turn_id,
            role=Role.USER,
            parts=endings.steering_parts(sent.text, sent.attachments),
            created_at=sent.created_at,
            is_steering=True,
        )
        for sent in waiting
    ]
    if messages:
        payloads = [ev.MessageAdded(message=message) for message in messages]
        yield from add_events(tx, session, turn, epoch, number, payloads)
        yield q("writer_number", turn.no, epoch, number + len(messages) - 1)
        yield q("steering_delete", turn.no)  # guard: a16
    return messages


def _wait(
    tx: Tx,
    turn_id: str,
    epoch: int,
    number: int,
    asks: tuple[Ask, ...],
    payloads: tuple[ev.Payload, ...],
    worked_ms: int | None,
) -> Script[Turn]:
    session, turn = yield from endings.lock_held_turn(tx, turn_id, epoch, number - 1)
    if not asks:
        raise WrongState(f"Turn {turn_id} has nothing to wait for.")
    for ask in asks:
        yield q(
            "ask_insert",
            ask.id,
            session.owner,
            session.no,
            turn.no,
            ask.topic,
            ask.call_id,
            ask_body(ask),
            tx.now,
            ask.expires_at,
        )
    waiting = ev.TurnWaiting(tuple(ask.id for ask in asks), worked_ms)
    yield from add_events(tx, session, turn, epoch, number, [*payloads, waiting])
    yield q("writer_number", turn.no, epoch, number + len(payloads))
    yield q("turn_wait", turn.no)
    yield q("writer_seal", turn.no, epoch)  # all it had to say is here: its count was checked
    yield from refresh(tx, session)
    return (yield from get_turn(turn.no)).turn
