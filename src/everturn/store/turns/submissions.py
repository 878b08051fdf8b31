"""Accepting a submission: it becomes a queued turn, or steering for the one that runs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain.errors import (
    Invalid,
    NotFound,
    TextEmpty,
    WrongState,
)
from everturn.domain.messages import Attachment, Text
from everturn.domain.probe import Moment
from everturn.domain.sessions import SessionKind
from everturn.domain.store_values import Accepted, Claim, Request, Submission, WhenBusy
from everturn.domain.turns import TurnKind, TurnState
from everturn.domain.words import read_word
from everturn.store.journal.fold import JournalFold
from everturn.store.scripts.common import (
    bump,
    digest_of,
    find_answer,
    find_turn,
    get_session,
    get_turn,
    locked_shown_session,
    next_turn,
    refresh,
    refuse_stale,
    refuse_text,
    save_answer,
)
from everturn.store.scripts.queries.files import FILE
from everturn.store.scripts.queries.turns import ANY_MACHINE, CLAIMABLE_IN_SESSION
from everturn.store.scripts.rows import (
    SessionRow,
    to_json,
)
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turns import endings
from everturn.store.turns.claims import take
from everturn.store.turns.details import with_text

ATTACHMENTS_MAX = 32
KEY_CHARS_MAX = 200


class _FirstAnswer(msgspec.Struct, frozen=True):
    """The first answer to an accepted request, kept beside its key."""

    turn_id: str
    cursor: int
    is_steering: bool = False


_kept = msgspec.json.Decoder(_FirstAnswer)


def check_submission(submission: Submission, text_bytes_max: int) -> None:
    """Refuse a message that can never be accepted."""
    if submission.kind is TurnKind.MESSAGE and not submission.text.strip() and not submission.attachments:
        raise TextEmpty
    refuse_text(submission.text, text_bytes_max)
    read_word(WhenBusy, submission.when_busy, "when_busy")
    if len(submission.attachments) > ATTACHMENTS_MAX:
        raise Invalid(f"A message has at most {ATTACHMENTS_MAX} attachments.", hint="Send fewer.")
    if submission.key is not None and not 0 < len(submission.key) <= KEY_CHARS_MAX:
        raise Invalid(f"An idempotency key has 1 to {KEY_CHARS_MAX} characters.", hint="Use a random id.")


def active_turn_of(tx: Tx, owner: str, session_id: str) -> Script[str | None]:
    return (yield from get_session(tx, owner, session_id)).session.active_turn


def accept(
    tx: Tx, owner: str, session_id: str, asked: Submission, ahead: JournalFold | None = None
) -> Script[Accepted]:
    session = yield from locked_shown_session(tx, owner, session_id)
    request = Request(key=asked.key)
    digest = yield from _digest(session, asked)
    before = yield from find_answer(session, request, digest)
    if before is not None:  # guard: a01
        return (yield from repeat_answer(before))
    refuse_stale(session, asked.version)
    _refuse_interrupting(session, asked)  # guard: e09
    files = yield from _files(tx, session, asked.attachments)
    is_active = session.active_no is not None
    if asked.when_busy == WhenBusy.STEER and (yield from _can_steer(session, asked)):
        accepted = yield from _steer(tx, session, asked, files)
    else:
        is_first = is_active and asked.when_busy == WhenBusy.INTERRUPT
        if is_first and session.active_no is not None:
            active = yield from get_turn(session.active_no)
            cancelled = endings.Ending(TurnState.CANCELLED, by="interrupt")
            yield from endings.end_active(tx, session, active, cancelled, ahead)
        elif (
            asked.when_busy == WhenBusy.INTERRUPT
            and (following := (yield from next_turn(session))) is not None
        ):
            # Accepted a moment ago and about to run: this is the turn to interrupt.
            is_first = True
            yield from endings.cancel(tx, owner, following.id, "interrupt")
        text = (Text(asked.text, source=asked.source),) if asked.text else ()
        parts = (*text, *files)
        new = endings.NewTurn(
            parts=parts,
            created_at=tx.now,
            model=asked.model or asked.preferred_model,
            profile=asked.profile,
            kind=asked.kind,
            note=asked.note,
            is_first=is_first,
            parameters=asked.parameters,
        )
        turn, position = yield from endings.queue_turn(tx, session, new)
        yield from bump(tx, session, is_transcript=False)
        yield from refresh(tx, session)
        accepted = Accepted((yield from with_text(turn)), position)
    kept = _FirstAnswer(accepted.turn.id, accepted.cursor, accepted.is_steering)
    yield from save_answer(tx, session, request, digest, to_json(kept))
    tx.probe.pass_by(Moment.ACCEPT_WRITTEN, accepted.turn.id)
    tx.moments.append((Moment.ACCEPT_COMMITTED, accepted.turn.id))
    return accepted


def _refuse_interrupting(session: SessionRow, asked: Submission) -> None:
    """A delegate's turn ends with its result, which goes to the parent: a message cannot take its place."""
    is_working = session.active_no is not None or session.session.queued > 0
    if session.kind == SessionKind.DELEGATE and is_working and asked.when_busy == WhenBusy.INTERRUPT:
        raise WrongState(
            "A delegate's turn cannot be interrupted by a message.", hint="Steer it, or cancel it."
        )


def accept_and_claim(
    tx: Tx, worker: str, owner: str, session_id: str, asked: Submission
) -> Script[tuple[Accepted, Claim | None]]:
    accepted = yield from accept(tx, owner, session_id, asked)
    if accepted.is_repeat or accepted.is_steering:
        return accepted, None
    session = yield from get_session(tx, owner, session_id)
    turn_no = yield from CLAIMABLE_IN_SESSION.first(session.no, ANY_MACHINE)
    claim = None if turn_no is None else (yield from take(tx, worker, session.no, turn_no))
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
        asked,
        key=None,
        preferred_model=None,
        version=None,
        may_choose_profile=True,
        attachments=tuple(contents),
    )
    return digest_of("turn", plain)


def _can_steer(session: SessionRow, asked: Submission) -> Script[bool]:
    """A running message turn takes steering. A compaction does not: the message is queued. So are the words
    of another person: the turn began without them, and may have been trusted. And those of a sender who could
    not have chosen the turn's profile, which may allow more than the session's."""
    if session.active_no is None or asked.kind is not TurnKind.MESSAGE:
        return False
    if asked.source is not None and not asked.source.is_trusted:  # guard: f05
        return False
    turn = (yield from get_turn(session.active_no)).turn
    if turn.profile is not None and not asked.may_choose_profile:
        return False
    return turn.kind is TurnKind.MESSAGE


def repeat_answer(answer: str) -> Script[Accepted]:
    """The first answer again, with the turn as it is now."""
    kept = _kept.decode(answer)
    found = yield from find_turn(kept.turn_id)
    if found is None:
        raise NotFound("turn", kept.turn_id)
    turn = yield from with_text(found)
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
