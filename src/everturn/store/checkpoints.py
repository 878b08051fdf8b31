"""Checkpoints: rows that name a tree in the blobs, fenced like every write of a turn."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

import msgspec

from everturn.domain.blobs import Blobs
from everturn.domain.checkpoints import At, Cause, Changes, Checkpoint, NewCheckpoint, NewSave
from everturn.domain.errors import BlobDamaged, BlobMissing, NotFound, TreeUnreadable, WrongState
from everturn.domain.machine import Machine
from everturn.domain.probe import Moment
from everturn.domain.trees import EMPTY_TREE, Kind, decode_tree
from everturn.store.blobs.collector import GRACE_MS
from everturn.store.scripts.common import (
    find_turn,
    get_session,
    get_turn,
    locked_shown_session,
    shown_session,
)
from everturn.store.scripts.queries.files import (
    BLOB_TOUCHED,
    BLOBS_STORED_BY,
    CHECKPOINT,
    CHECKPOINT_AT_START,
    CHECKPOINT_AT_TURN,
    CHECKPOINT_FIRST_OF_TURN,
    CHECKPOINT_ID_OF_TREE,
    CHECKPOINT_INSERT,
    CHECKPOINT_LAST,
    CHECKPOINT_LAST_MADE,
    CHECKPOINT_TREES,
    CHECKPOINTS_KEPT,
    CHECKPOINTS_OF_SESSION,
    CHECKPOINTS_OF_TURN,
    CHECKPOINTS_OF_USER,
    WORKING_COPY,
    CheckpointColumns,
    CheckpointTree,
)
from everturn.store.scripts.rows import SessionRow, to_json
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.turns.held import lock_held_turn

_BATCH = 500
_log = logging.getLogger("everturn.store.checkpoints")
_NUMBER_MAX = (1 << 63) - 1
_changes = msgspec.json.Decoder(Changes)


class DamagedTree(msgspec.Struct, frozen=True):
    sha256: str
    checkpoint_id: str
    why: str


class CheckpointBody(Changes, frozen=True, omit_defaults=True):
    """The JSON of a row: its changes, and which folder it is of. ``project``: None for the session's own
    folder."""

    project: str | None = None
    machine: str | None = None

    def is_of(self, project: str | None, machine: str | None) -> bool:
        """True if it is of this folder. The session's own is one on all machines: it is brought there."""
        if self.project != project or project is None:
            return self.project == project
        return Machine.parse(self.machine or "").id == Machine.parse(machine or "").id


_bodies = msgspec.json.Decoder(CheckpointBody)


class Checkpoints:
    def __init__(self, db: Database, blobs: Blobs) -> None:
        self._db = db
        self._blobs = blobs

    async def put(self, new: NewCheckpoint) -> Checkpoint:
        return await self._db.write(_put, new)

    async def save(self, owner: str, session_id: str, new: NewSave) -> Checkpoint | None:
        return await self._db.write(_save, owner, session_id, new)

    async def get(self, owner: str, session_id: str, checkpoint_id: str) -> Checkpoint:
        return await self._db.read(_get, owner, session_id, checkpoint_id)

    async def at(self, owner: str, session_id: str, turn_id: str | None) -> Checkpoint | None:
        return await self._db.read(_at, owner, session_id, turn_id)

    async def of_user(self, owner: str, session_id: str, turn_id: str | None) -> list[Checkpoint]:
        return await self._db.read(_of_user, owner, session_id, turn_id)

    async def of_session(
        self, owner: str, session_id: str, *, before: str | None = None, limit: int = 200
    ) -> list[Checkpoint]:
        return await self._db.read(_of_session, owner, session_id, before, limit)

    async def list_kept(self, owner: str, session_id: str) -> list[Checkpoint]:
        return await self._db.read(_list_kept, owner, session_id)

    async def tree_at(self, owner: str, session_id: str, at: At) -> str:
        return await self._db.read(_tree_at, owner, session_id, at)

    async def last(self, owner: str, session_id: str) -> Checkpoint | None:
        return await self._db.read(_last, owner, session_id)

    async def find_tree(self, owner: str, session_id: str, tree: str) -> str | None:
        return await self._db.read(_find_tree, owner, session_id, tree)

    async def keep_aside(
        self, owner: str, session_id: str, found: NewSave, back: Changes
    ) -> Checkpoint | None:
        return await self._db.write(_keep_aside, owner, session_id, found, back)

    async def arrive(self, owner: str, session_id: str, after: str) -> bool:
        return await self._db.write(_arrive, owner, session_id, after)

    async def of_turn(self, owner: str, turn_id: str) -> list[Checkpoint]:
        return await self._db.read(_of_turn, owner, turn_id)

    async def roots(self) -> AsyncIterator[Sequence[str]]:
        """Every blob that a checkpoint names: its trees, and the files and links in them.

        What a damaged tree names is unknown, so everything that it can name is given: all blobs stored
        before it or shortly after. Raises StoreAway, StorageAway, FileUnreadable: what cannot be read
        at the moment is not damaged, and nothing may be collected meanwhile.
        """
        damaged: list[DamagedTree] = []
        async for hashes in self._walk_trees(damaged):
            yield hashes  # guard: e01
        if not damaged:
            return
        by = max([await self._db.read(_latest_put, tree.sha256) for tree in damaged])
        for tree in damaged:
            _log.warning("%s; what it can name is kept", tree.why.rstrip("."))
        after = ""
        while found := await self._db.read(_blobs_stored_by, after, by):
            after = found[-1]
            yield found

    async def find_damaged(self) -> list[DamagedTree]:
        """The trees that cannot be read, each with the first checkpoint that names it."""
        damaged: list[DamagedTree] = []
        async for _ in self._walk_trees(damaged):
            pass
        return damaged

    async def _walk_trees(self, damaged: list[DamagedTree]) -> AsyncIterator[Sequence[str]]:
        seen: set[str] = set()
        after = 0
        while rows := await self._db.read(_trees, after):
            after = rows[-1].checkpoint_no
            for checkpoint_id, tree in [(row.id, tree) for row in rows for tree in (row.before, row.tree)]:
                async for hashes in self._walk_tree(checkpoint_id, tree, seen, damaged):
                    yield hashes

    async def _walk_tree(
        self, checkpoint_id: str, root: str, seen: set[str], damaged: list[DamagedTree]
    ) -> AsyncIterator[Sequence[str]]:
        """The trees below this one that were not seen yet, and what they name."""
        waiting = [root]
        while waiting:
            sha256 = waiting.pop()
            if sha256 in seen or sha256 in ("", EMPTY_TREE):
                continue  # nothing was known before, or there was nothing, which is not stored
            seen.add(sha256)
            try:
                data = b"".join([piece async for piece in self._blobs.read(sha256)])
                entries = decode_tree(data, sha256).entries
            except (BlobDamaged, BlobMissing, TreeUnreadable) as error:
                damaged.append(DamagedTree(sha256, checkpoint_id, error.message))
                yield [sha256]
                continue
            waiting += [entry.sha256 for entry in entries if entry.kind is Kind.FOLDER]
            yield [sha256, *(entry.sha256 for entry in entries if entry.kind in (Kind.FILE, Kind.LINK))]


def _put(tx: Tx, new: NewCheckpoint) -> Script[Checkpoint]:
    session, turn = yield from lock_held_turn(tx, new.turn_id, new.epoch)
    turn_no, epoch = (turn.parent_no, 0) if new.is_of_parent else (turn.no, new.epoch)
    place = CheckpointPlace(turn_no, epoch, new.cause, new.call_id)
    if new.project == session.session.project:
        made = yield from add_checkpoint(tx, session, place, new.before, new.tree, new.changes)
    else:  # the session was given another folder while the turn ran in this one
        _, made = yield from _insert(tx, session, place, new.before, new.tree, new.changes, new.project)
    tx.probe.pass_by(Moment.CHECKPOINT_WRITTEN, new.turn_id)
    tx.moments.append((Moment.CHECKPOINT_COMMITTED, new.turn_id))
    return made


def _save(tx: Tx, owner: str, session_id: str, new: NewSave) -> Script[Checkpoint | None]:
    session = yield from locked_shown_session(tx, owner, session_id)
    last = yield from CHECKPOINT_LAST.first(session.no)
    if new.after != (last.id if last else None):  # guard: e02
        return None
    row = yield from WORKING_COPY.first(session.no)
    if row is not None and row.wanted is not None:  # guard: e02
        # The scan saw a mixture of the old version and the new one.
        raise WrongState(f"The files of session {session_id} are being restored.", hint="Try again.")
    # The folder also holds what a turn that is under way has done: going back from it must leave that behind.
    turn_no = session.head_no if session.active_no is None else session.active_no
    place = CheckpointPlace(turn_no, 0, new.cause)
    return (yield from add_checkpoint(tx, session, place, new.before, new.tree, new.changes))


def _keep_aside(
    tx: Tx, owner: str, session_id: str, found: NewSave, back: Changes
) -> Script[Checkpoint | None]:
    session = yield from locked_shown_session(tx, owner, session_id)
    last = yield from CHECKPOINT_LAST.first(session.no)
    if last is None or last.id != found.after:
        return None
    place = CheckpointPlace(session.head_no, 0, Cause.FOUND)
    yield from _insert(tx, session, place, found.before, found.tree, found.changes, None)
    place = CheckpointPlace(session.head_no, 0, Cause.RESTORED)
    changes = msgspec.structs.replace(
        _changes.decode(last.body), changed=back.changed, changed_total=back.changed_total
    )
    number, again = yield from _insert(tx, session, place, found.tree, found.before, changes, None)
    yield q("workspace_point", session.no, number)  # not the machine: the folder is not there yet
    return again


def _arrive(tx: Tx, owner: str, session_id: str, after: str) -> Script[bool]:
    session = yield from locked_shown_session(tx, owner, session_id)
    last = yield from CHECKPOINT_LAST.first(session.no)
    if last is None or last.id != after:
        return False
    yield q("workspace_arrive", session.no, tx.machine)
    return True


class CheckpointPlace(msgspec.Struct, frozen=True):
    """What a new checkpoint belongs to: a turn and, if the turn made it, the epoch and the call."""

    turn_no: int | None
    epoch: int
    cause: Cause
    call_id: str | None = None


def add_checkpoint(
    tx: Tx, session: SessionRow, place: CheckpointPlace, before: str, tree: str, changes: Changes
) -> Script[Checkpoint]:
    """Insert a checkpoint under the session's lock; its workspace, on this machine, counts as holding it."""
    project = session.session.project
    number, checkpoint = yield from _insert(tx, session, place, before, tree, changes, project)
    yield q("workspace_put", session.no, number, tx.machine)
    return checkpoint


def _insert(
    tx: Tx,
    session: SessionRow,
    place: CheckpointPlace,
    before: str,
    tree: str,
    changes: Changes,
    project: str | None,
) -> Script[tuple[int, Checkpoint]]:
    body = CheckpointBody(**msgspec.structs.asdict(changes), project=project, machine=tx.machine)
    checkpoint_id = tx.ids.make("chk")
    number = yield from CHECKPOINT_INSERT.only(
        checkpoint_id,
        session.no,
        place.turn_no,
        place.call_id,
        place.epoch,
        place.cause.value,
        tx.now,
        before,
        tree,
        to_json(body),
    )
    return number, checkpoint_of((yield from CHECKPOINT.only(checkpoint_id)))


def _get(tx: Tx, owner: str, session_id: str, checkpoint_id: str) -> Script[Checkpoint]:
    session = yield from shown_session(tx, owner, session_id)
    row = yield from CHECKPOINT.first(checkpoint_id)
    if row is None or row.session_id != session.id:  # guard: e04
        raise NotFound("checkpoint", checkpoint_id)
    return checkpoint_of(row)


def _at(tx: Tx, owner: str, session_id: str, turn_id: str | None) -> Script[Checkpoint | None]:
    session = yield from shown_session(tx, owner, session_id)
    if turn_id is None:
        row = yield from CHECKPOINT_AT_START.first(session.no)
        return None if row is None else checkpoint_of(row)
    turn = yield from find_turn(turn_id)
    if turn is None or turn.session_no != session.no:
        raise NotFound("turn", turn_id)
    return (yield from checkpoint_at(session, turn.no))


def _tree_at(tx: Tx, owner: str, session_id: str, at: At) -> Script[str]:
    if at.checkpoint_id is not None:
        return (yield from _get(tx, owner, session_id, at.checkpoint_id)).tree
    turn_id = at.turn_id
    if turn_id is not None and (at.is_before or at.is_made):
        turn = yield from find_turn(turn_id)
        if turn is None or turn.turn.session_id != session_id:
            raise NotFound("turn", turn_id)
        yield from shown_session(tx, owner, session_id)
        tree = yield from _tree_around(turn.no, is_before=at.is_before)
        if tree is not None:
            return tree
        turn_id = None if turn.parent_no is None else (yield from get_turn(turn.parent_no)).id
    made = yield from _at(tx, owner, session_id, turn_id)
    return EMPTY_TREE if made is None else made.tree


def _tree_around(turn_no: int, *, is_before: bool) -> Script[str | None]:
    """What the turn's first call found, or its last one left; None if the turn changed nothing.

    The files of the parent can differ from what the turn found: they hold what a user changed after an
    undo, too.
    """
    if is_before:
        first = yield from CHECKPOINT_FIRST_OF_TURN.first(turn_no)
        return None if first is None else first.before or None
    last = yield from CHECKPOINT_LAST_MADE.first(turn_no)
    return None if last is None else last.tree


def checkpoint_at(session: SessionRow, turn_no: int) -> Script[Checkpoint | None]:
    """The files of a turn."""
    row = yield from CHECKPOINT_AT_TURN.first(turn_no)
    if row is None:
        row = yield from CHECKPOINT_AT_START.first(session.no)
    return None if row is None else checkpoint_of(row)


def _last(tx: Tx, owner: str, session_id: str) -> Script[Checkpoint | None]:
    session = yield from get_session(tx, owner, session_id)
    row = yield from CHECKPOINT_LAST.first(session.no)
    return None if row is None else checkpoint_of(row)


def _find_tree(tx: Tx, owner: str, session_id: str, tree: str) -> Script[str | None]:
    session = yield from get_session(tx, owner, session_id)
    return (yield from CHECKPOINT_ID_OF_TREE.first(session.no, tree))


def _of_turn(tx: Tx, owner: str, turn_id: str) -> Script[list[Checkpoint]]:
    turn = yield from find_turn(turn_id)
    if turn is None or turn.turn.owner != owner:
        raise NotFound("turn", turn_id)
    return [checkpoint_of(row) for row in (yield from CHECKPOINTS_OF_TURN.all(turn.no))]


def _of_user(tx: Tx, owner: str, session_id: str, turn_id: str | None) -> Script[list[Checkpoint]]:
    session = yield from get_session(tx, owner, session_id)
    turn = None if turn_id is None else (yield from find_turn(turn_id))
    if turn_id is not None and (turn is None or turn.session_no != session.no):
        raise NotFound("turn", turn_id)
    rows = yield from CHECKPOINTS_OF_USER.all(session.no, None if turn is None else turn.no)
    return [checkpoint_of(row) for row in rows]


def _of_session(
    tx: Tx, owner: str, session_id: str, before: str | None, limit: int
) -> Script[list[Checkpoint]]:
    session = yield from shown_session(tx, owner, session_id)
    number = _NUMBER_MAX
    if before is not None:
        row = yield from CHECKPOINT.first(before)
        if row is None or row.session_id != session.id:
            raise NotFound("checkpoint", before)
        number = row.checkpoint_no
    rows = yield from CHECKPOINTS_OF_SESSION.all(session.no, number, limit)
    return [checkpoint_of(row) for row in rows]


def _list_kept(tx: Tx, owner: str, session_id: str) -> Script[list[Checkpoint]]:
    session = yield from shown_session(tx, owner, session_id)
    return [checkpoint_of(row) for row in (yield from CHECKPOINTS_KEPT.all(session.no))]


def _latest_put(tx: Tx, tree: str) -> Script[int]:
    """When the last blob that a tree names was stored, at the latest: within the put that stored it."""
    touched = yield from BLOB_TOUCHED.first(tree)
    return (tx.now if touched is None else touched) + GRACE_MS


def _blobs_stored_by(tx: Tx, after: str, by: int) -> Script[list[str]]:
    return (yield from BLOBS_STORED_BY.all(after, by, _BATCH))


def _trees(tx: Tx, after: int) -> Script[list[CheckpointTree]]:
    return (yield from CHECKPOINT_TREES.all(after, _BATCH))


def switch_folder(tx: Tx, session: SessionRow, project: str | None, machine: str | None) -> Script[None]:
    """The session works in another folder from now on: it holds what was last recorded of it, which may be
    nothing. Called under the session's lock."""
    before = _NUMBER_MAX
    while rows := (yield from CHECKPOINTS_OF_SESSION.all(session.no, before, _BATCH)):
        for row in rows:
            body = body_of(row)
            if body.is_of(project, machine):
                yield q("workspace_put", session.no, row.checkpoint_no, body.machine)
                return
        before = rows[-1].checkpoint_no
    yield q("workspace_delete", session.no)


def body_of(row: CheckpointColumns) -> CheckpointBody:
    return _bodies.decode(row.body)


def checkpoint_of(row: CheckpointColumns) -> Checkpoint:
    return Checkpoint(
        row.id,
        row.session_id,
        row.turn_id,
        row.call_id,
        row.epoch,
        row.created_at,
        row.before,
        row.tree,
        _changes.decode(row.body),
        Cause(row.cause),
    )
