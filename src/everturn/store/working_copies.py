"""Working copies: the rows that record which files a session's folder holds, and which it must hold.

Files follow the turns that leave and join the shown path. A turn that joins brings the files it left
behind. If no joining turn has any, the files go back to before the first change of the leaving turns. If
those changed nothing either, the files stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from everturn.domain.checkpoints import START, Cause, Changes, Checkpoint
from everturn.domain.errors import JobsRunning
from everturn.domain.events import FilesRestored
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.working_copies import (
    FilesChoice,
    FilesPlan,
    HeldFiles,
    Move,
    MoveFiles,
    PlanNeeded,
    RestoredFiles,
    Unsettled,
    WorkingCopy,
)
from everturn.store.checkpoints import (
    CheckpointPlace,
    add_checkpoint,
    body_of,
    checkpoint_at,
    checkpoint_of,
)
from everturn.store.scripts.common import (
    OF_SESSION,
    add_events,
    get_session,
    locked_shown_session,
    paths_apart,
    refuse_busy,
    shown_session,
)
from everturn.store.scripts.queries.files import (
    CHECKPOINT_BEFORE,
    CHECKPOINT_LAST,
    CHECKPOINT_OF_TREE,
    CHECKPOINTS_OF_TURN,
    CHECKPOINTS_TO_COPY,
    TURN_FILES,
    WORKING_COPIES_UNSETTLED,
    WORKING_COPY,
    WORKING_COPY_SETTLE,
    CheckpointColumns,
    CheckpointToCopy,
)
from everturn.store.scripts.queries.jobs import JOBS_RUNNING_OF_SESSION
from everturn.store.scripts.rows import SessionRow, TurnRow, to_json
from everturn.store.scripts.script import Database, Query, Script, Tx, q
from everturn.store.sessions.targets import find_target

_OF_USERS = (Cause.SAVED, Cause.FOUND)
_choices: msgspec.json.Decoder[dict[str, FilesChoice]] = msgspec.json.Decoder(dict[str, FilesChoice])


class WorkingCopies:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, owner: str, session_id: str) -> WorkingCopy:
        return await self._db.read(_get, owner, session_id)

    async def tree_made(self, owner: str, session_id: str) -> str:
        return await self._db.read(_tree_made, owner, session_id)

    async def after_move(self, owner: str, session_id: str, move: Move, turn_id: str | None) -> str | None:
        return await self._db.read(_after_move, owner, session_id, move, turn_id)

    async def restore(self, owner: str, session_id: str, plan: FilesPlan) -> Checkpoint:
        return await self._db.write(_restore, owner, session_id, plan)

    async def settle(
        self,
        owner: str,
        session_id: str,
        wanted: str,
        machine: str | None,
        done: RestoredFiles,
        *,
        held: HeldFiles | None = None,
    ) -> bool:
        return await self._db.write(_settle, owner, session_id, wanted, machine, done, held)

    async def find_unsettled(self) -> list[Unsettled]:
        return await self._db.read(_find_unsettled)


def _get(tx: Tx, owner: str, session_id: str) -> Script[WorkingCopy]:
    session = yield from get_session(tx, owner, session_id)
    return (yield from _working_copy(session))


def _working_copy(session: SessionRow) -> Script[WorkingCopy]:
    row = yield from WORKING_COPY.first(session.no)
    if row is None:
        return WorkingCopy()
    last = yield from CHECKPOINT_LAST.first(session.no)
    return WorkingCopy(
        last=None if last is None else checkpoint_of(last),
        wanted=row.wanted,
        present=row.present or EMPTY_TREE,
        choices={} if row.choices is None else _choices.decode(row.choices),
        machine=row.machine,
    )


def _tree_made(tx: Tx, owner: str, session_id: str) -> Script[str]:
    session = yield from get_session(tx, owner, session_id)
    tree = (yield from _working_copy(session)).tree
    row = yield from CHECKPOINT_LAST.first(session.no)
    # What a take-over found, in the epoch of its worker, is the turn's work.
    while row is not None and row.cause in _OF_USERS and not row.epoch and row.before:
        tree = row.before
        row = yield from CHECKPOINT_BEFORE.first(session.no, tree, row.id)
    return tree


def _after_move(tx: Tx, owner: str, session_id: str, move: Move, turn_id: str | None) -> Script[str | None]:
    session = yield from shown_session(tx, owner, session_id)
    return (yield from _files_at(session, (yield from find_target(session, move, turn_id))))


def _files_at(session: SessionRow, head_no: int | None) -> Script[str | None]:
    """The tree that goes with a new head; None if the files stay as they are."""
    if session.session.project is not None:  # guard: e02
        return None  # a project's folder belongs to the user (E06)
    leaving, joining = yield from paths_apart(session.head_no, head_no)
    for turn_no in joining:
        if rows := (yield from _of_own_folder(turn_no)):
            return rows[-1].tree
    for turn_no in reversed(leaving):
        made = [row for row in (yield from _of_own_folder(turn_no)) if row.epoch > 0]
        if made:
            return made[0].before or None
    return None


def _of_own_folder(turn_no: int) -> Script[list[CheckpointColumns]]:
    """The turn's checkpoints of the session's own folder: it may have worked in a project's meanwhile."""
    rows = yield from CHECKPOINTS_OF_TURN.all(turn_no)
    return [row for row in rows if body_of(row).project is None]


def _refuse_jobs(session: SessionRow) -> Script[None]:
    """Refuse to change files in a folder in which a job works."""
    jobs = yield from JOBS_RUNNING_OF_SESSION.all(session.no)
    if jobs:  # guard: e02
        raise JobsRunning(jobs)


def move_files(tx: Tx, session: SessionRow, head_no: int | None, files: MoveFiles | None) -> Script[None]:
    """Called before the head moves, in the same transaction. Raises PlanNeeded."""
    plan = yield from _check_plan(session, head_no, files)
    if plan is not None:
        yield from _record_present(tx, session, plan)
        yield from _keep_tree(tx, session, head_no, plan.present, plan.wanted, plan.restores)
        yield from _want(tx, session, plan.wanted, plan.present, plan.choices)


def plan_files(tx: Tx, session: SessionRow, turn: TurnRow, files: MoveFiles | None) -> Script[None]:
    """Store with a retried turn what happens to the files when it is claimed. Raises PlanNeeded."""
    plan = yield from _check_plan(session, turn.parent_no, files)
    if plan is not None:
        yield from _record_present(tx, session, plan)
        yield from _keep_tree(tx, session, turn.parent_no, plan.present, plan.wanted, plan.restores)
        # Until the turn is claimed, the folder holds what it holds now.
        number = yield from CHECKPOINT_OF_TREE.first(session.no, plan.present)
        yield q("workspace_point", session.no, number)
        yield q("turn_files_put", turn.no, to_json(plan.choices))


def claim_files(tx: Tx, session: SessionRow, turn: TurnRow) -> Script[None]:
    """Carry out what was planned when the turn was retried. Called before the head moves to it."""
    planned = yield from TURN_FILES.first(turn.no)
    if planned is None:
        return
    wanted = yield from _files_at(session, turn.parent_no)
    present = (yield from _working_copy(session)).tree
    # A job that was started meanwhile works in the folder: the files stay as they are.
    has_jobs = bool((yield from JOBS_RUNNING_OF_SESSION.all(session.no)))
    if wanted is not None and wanted != present and not has_jobs:
        yield from _want(tx, session, wanted, present, _choices.decode(planned))


def _check_plan(
    session: SessionRow, head_no: int | None, files: MoveFiles | None
) -> Script[FilesPlan | None]:
    """The plan for this move, if it concerns files at all."""
    wanted = None if files is None else (yield from _files_at(session, head_no))
    if files is None or wanted is None:
        return None
    now = yield from _working_copy(session)
    if wanted == now.tree:
        return None  # the turns made no difference
    yield from _refuse_jobs(session)
    plan = files.plan
    if plan is None or plan.wanted != wanted or not _is_current(plan, now):  # guard: e02
        raise PlanNeeded
    return plan


def _is_current(plan: FilesPlan, now: WorkingCopy) -> bool:
    return now.wanted is None and plan.after == (None if now.last is None else now.last.id)


def _record_present(tx: Tx, session: SessionRow, plan: FilesPlan) -> Script[None]:
    """Store what a user changed since the last checkpoint, as part of the turn that is left: redo brings it
    back."""
    now = yield from _working_copy(session)
    if plan.present != now.tree:
        place = CheckpointPlace(session.head_no, 0, Cause.FOUND)
        yield from add_checkpoint(tx, session, place, now.tree, plan.present, plan.changes)  # guard: e02


def _want(
    tx: Tx, session: SessionRow, wanted: str, present: str, choices: dict[str, FilesChoice]
) -> Script[None]:
    """Have the folder hold a tree of which the session has a checkpoint, or nothing."""
    number = yield from CHECKPOINT_OF_TREE.first(session.no, wanted)
    yield q("working_copy_want", session.no, number, wanted, present, to_json(choices))  # guard: e02


def _keep_tree(
    tx: Tx, session: SessionRow, head_no: int | None, before: str, tree: str, changes: Changes
) -> Script[None]:
    """Make a checkpoint of a tree that has none in this session: it was thinned out, or a branch begins with
    it."""
    if tree != EMPTY_TREE and (yield from CHECKPOINT_OF_TREE.first(session.no, tree)) is None:
        place = CheckpointPlace(head_no, 0, Cause.RESTORED)
        yield from add_checkpoint(tx, session, place, before, tree, changes)


def _restore(tx: Tx, owner: str, session_id: str, plan: FilesPlan) -> Script[Checkpoint]:
    session = yield from locked_shown_session(tx, owner, session_id)
    yield from refuse_busy(session)
    yield from _refuse_jobs(session)
    if not _is_current(plan, (yield from _working_copy(session))):
        raise PlanNeeded
    yield from _record_present(tx, session, plan)
    place = CheckpointPlace(session.head_no, 0, Cause.RESTORED)
    made = yield from add_checkpoint(tx, session, place, plan.present, plan.wanted, plan.restores)
    yield from _want(tx, session, plan.wanted, plan.present, plan.choices)
    return made


def branch_files(
    tx: Tx, session: SessionRow, copy: SessionRow, turns: Mapping[int, int], files: MoveFiles | None
) -> Script[None]:
    """Give a copied session the history of its files, and those of the turn that it ends with. Its folder is
    filled when it is first used. ``turns``: the numbers of the copied turns, in order, with their copies'.

    The rows and the folder are its own: deleting one session leaves the other as it is (E03).
    """
    rows = yield from CHECKPOINTS_TO_COPY.all(session.no)
    copied = [row for row in rows if row.turn_no is None or row.turn_no in turns]
    yield Query("checkpoint_copy", many=[_copy_row(tx, copy, row, turns) for row in copied])  # guard: e03
    if session.session.project is not None:
        return
    last_no = next(reversed(turns))
    if last_no != session.head_no:  # guard: e03
        at = yield from checkpoint_at(copy, turns[last_no])
        tree = EMPTY_TREE if at is None else at.tree
    else:
        now = yield from _working_copy(session)
        plan = None if files is None else files.plan
        is_changed = plan is not None and _is_current(plan, now)
        tree = plan.present if plan is not None and is_changed else now.tree
        changes = plan.changes if plan is not None and is_changed else Changes()
        yield from _keep_tree(tx, copy, turns[last_no], now.tree, tree, changes)
    if tree != EMPTY_TREE:
        yield from _want(tx, copy, tree, EMPTY_TREE, {})  # guard: e03


def _copy_row(
    tx: Tx, copy: SessionRow, row: CheckpointToCopy, turns: Mapping[int, int]
) -> tuple[str | int | None, ...]:
    turn_no = None if row.turn_no is None else turns[row.turn_no]
    return (
        tx.ids.make("chk"),
        copy.no,
        turn_no,
        row.call_id,
        row.epoch,
        row.cause,
        row.created_at,
        row.before,
        row.tree,
        row.body,
    )


def present_tree(session: SessionRow) -> Script[str]:
    """What the session's folder was last seen to hold."""
    return (yield from _working_copy(session)).tree


def begin_with_tree(tx: Tx, session: SessionRow, tree: str) -> Script[None]:
    """Have a new session begin with a tree of another one. Its folder is filled when it is first used."""
    yield from _keep_tree(tx, session, None, EMPTY_TREE, tree, Changes())
    yield from _want(tx, session, tree, EMPTY_TREE, {})


def _settle(
    tx: Tx,
    owner: str,
    session_id: str,
    wanted: str,
    machine: str | None,
    done: RestoredFiles,
    held: HeldFiles | None,
) -> Script[bool]:
    session = yield from locked_shown_session(tx, owner, session_id)
    if (yield from WORKING_COPY_SETTLE.first(session.no, wanted, machine)) is None:
        return False
    if held is not None and held.tree != wanted:
        yield from _record_held(tx, session, wanted, done, held)
    last = (yield from _working_copy(session)).last
    event = FilesRestored(
        at=session.session.head or START,
        checkpoint=None if last is None else last.id,
        changes=done.changes,
        changes_total=done.changes_total,
        kept=done.kept,
    )
    yield from add_events(tx, session, OF_SESSION, [event], is_activity=False)
    return True


def _record_held(
    tx: Tx, session: SessionRow, wanted: str, done: RestoredFiles, held: HeldFiles
) -> Script[None]:
    """Record what the folder holds in place of damaged files, which is neither what is wanted nor a user's
    change.

    The checkpoint of a restore that a user asked for is corrected, so that no version is listed that does
    not exist. After a move the last checkpoint is an older one, which stays as it is.
    """
    last = yield from CHECKPOINT_LAST.first(session.no)
    if last is not None and last.cause == Cause.RESTORED and last.before != wanted:
        restored = Changes(done.changes, done.changes_total)
        body = msgspec.structs.replace(body_of(last), **msgspec.structs.asdict(restored))
        yield q("checkpoint_correct", last.checkpoint_no, held.tree, to_json(body))
        return
    place = CheckpointPlace(session.head_no, 0, Cause.RESTORED)
    yield from add_checkpoint(tx, session, place, wanted, held.tree, held.changes)


def _find_unsettled(tx: Tx) -> Script[list[Unsettled]]:
    rows = yield from WORKING_COPIES_UNSETTLED.all()
    return [Unsettled(row.owner, row.session_id, row.machine) for row in rows]
