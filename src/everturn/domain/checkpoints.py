"""Checkpoints: what a session's workspace held after a step, and the contract of the store that keeps
them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.ids import check_id
from everturn.domain.trees import Reason
from everturn.domain.words import Words

LISTED_MAX: Final = 200  # changes, and paths left out, that a checkpoint lists; it counts the rest


class ChangeKind(Words):
    ADDED = "added"
    CHANGED = "changed"
    DELETED = "deleted"


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file or link that differs from the previous checkpoint. ``size``: the new size in bytes."""

    path: str
    what: ChangeKind
    size: int = 0


class LeftOut(msgspec.Struct, frozen=True):
    """A path that the checkpoint does not hold, and why."""

    path: str
    reason: Reason


class Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a checkpoint is about: the first changes and paths left out, and how many there are of each."""

    changed: tuple[FileChange, ...] = ()
    changed_total: int = 0
    left_out: tuple[LeftOut, ...] = ()
    left_out_total: int = 0


class TurnFiles(msgspec.Struct, frozen=True):
    """The net changes of a turn: the first ones, and how many there are."""

    changes: tuple[FileChange, ...]
    total: int


def merge_changes(steps: Iterable[Changes]) -> Changes:
    """The net changes of consecutive steps: a file that was made and deleted again is no change.

    Changes that a step did not list are only counted, so the total may be too high.
    """
    merged: dict[str, FileChange] = {}
    unlisted = 0
    left_out: Changes = Changes()
    for step in steps:
        left_out = step
        unlisted += step.changed_total - len(step.changed)
        for change in step.changed:
            was = merged.pop(change.path, None)
            if (now := _merge(was, change)) is not None:
                merged[change.path] = now
    changed = sorted(merged.values(), key=lambda change: change.path)
    return Changes(
        tuple(changed[:LISTED_MAX]), len(changed) + unlisted, left_out.left_out, left_out.left_out_total
    )


def _merge(was: FileChange | None, now: FileChange) -> FileChange | None:
    if was is None or was.what is ChangeKind.CHANGED:
        return now
    if was.what is ChangeKind.ADDED:
        is_gone = now.what is ChangeKind.DELETED
        return None if is_gone else FileChange(now.path, ChangeKind.ADDED, now.size)
    is_gone = now.what is ChangeKind.DELETED
    return now if is_gone else FileChange(now.path, ChangeKind.CHANGED, now.size)


class FilesInDoubt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the workspace shows about a call whose outcome is unknown.

    ``before`` and ``after`` can be compared as two versions: the last checkpoint before the call, and what
    was found afterwards. They are equal if nothing changed. ``is_elsewhere``: the call ran on another
    machine, ``machine``; what it changed there since ``before`` is not known here.
    """

    before: str
    after: str
    changes: tuple[FileChange, ...] = ()
    changes_total: int = 0
    is_elsewhere: bool = False
    machine: str = ""


class Cause(Words):
    """Why a checkpoint was made."""

    CALL = "call"  # a tool call changed files
    FOUND = "found"  # changes that no call reported
    SAVED = "saved"  # a user saved files, from the page
    RESTORED = "restored"  # a user brought files back


class NewCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint to be stored. Its tree and everything that the tree names is in the blobs already.

    ``turn_id`` and ``epoch``: the claim of the worker that stores it. ``before``: the tree of the session's
    last checkpoint. ``is_of_parent``: the changes were there before the turn's first call. They belong to
    the turn before it, so that undoing the turn keeps them. ``project``: whose folder it is; None: the
    session's own.
    """

    turn_id: str
    epoch: int
    before: str
    tree: str
    changes: Changes
    cause: Cause = Cause.CALL
    call_id: str | None = None
    is_of_parent: bool = False
    project: str | None = None


class NewSave(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of what a user did. It belongs to the turn that is under way, or to the last one.
    ``after``: the id of the checkpoint that the folder was compared with; None: there was none."""

    after: str | None
    before: str
    tree: str
    changes: Changes
    cause: Cause = Cause.SAVED


class Checkpoint(msgspec.Struct, frozen=True):
    """``turn_id`` made the changes or, if ``epoch`` is 0, was the last turn before them; None: there was
    none."""

    id: str
    session_id: str
    turn_id: str | None
    call_id: str | None
    epoch: int
    created_at: int
    before: str
    tree: str
    changes: Changes
    cause: Cause = Cause.CALL


class SessionCheckpoints(msgspec.Struct, frozen=True, omit_defaults=True):
    """The kept checkpoints of a session, oldest first. ``current``: the id of the one that its workspace was
    last seen to hold."""

    checkpoints: tuple[Checkpoint, ...] = ()
    current: str | None = None


class At(msgspec.Struct, frozen=True):
    """A point in the history of a session's files: after a turn, before it, at a checkpoint, or before the
    first turn if none of them is named. ``is_made``: after a turn, without what was changed since."""

    turn_id: str | None = None
    is_before: bool = False
    is_made: bool = False
    checkpoint_id: str | None = None


NOW: Final = "now"  # what the folder holds
START: Final = "start"  # what was there before the first turn


def parse_at(text: str) -> At | None:
    """``start``, ``trn_…``, ``before:trn_…``, ``made:trn_…`` or ``chk_…``; None for ``now``, what the folder
    holds.

    Raises Invalid, InvalidId.
    """
    if text in ("", NOW):
        return None
    if text == START:
        return At()
    if text.startswith("chk_"):
        return At(checkpoint_id=check_id(text, "chk"))
    point, _, turn_id = text.rpartition(":")
    if point not in ("", "before", "made") or not turn_id.startswith("trn_"):
        raise Invalid(
            f"{text[:80]!r} is not a point in the history of files.",
            hint="Possible: now, start, trn_… (after that turn), before:trn_…, made:trn_…, chk_….",
        )
    return At(check_id(turn_id, "trn"), is_before=point == "before", is_made=point == "made")


class Checkpoints(Protocol):
    async def put(self, new: NewCheckpoint) -> Checkpoint:
        """Store a checkpoint; from now on the session's workspace counts as holding it.

        On return it is durable. Raises Fenced if the worker no longer holds the turn; then nothing was
        stored.
        """
        ...

    async def save(self, owner: str, session_id: str, new: NewSave) -> Checkpoint | None:
        """Like ``put``, for a user. None if the workspace was recorded or moved meanwhile: then nothing was
        stored, and the caller scans again. Raises NotFound, Gone."""
        ...

    async def get(self, owner: str, session_id: str, checkpoint_id: str) -> Checkpoint:
        """Raises NotFound, Gone."""
        ...

    async def at(self, owner: str, session_id: str, turn_id: str | None) -> Checkpoint | None:
        """The files of a turn: its last checkpoint, or that of its nearest ancestor that has one, or what
        was there before the first turn (also for ``turn_id`` None). None if there was nothing. Raises
        NotFound,
        Gone."""
        ...

    async def last(self, owner: str, session_id: str) -> Checkpoint | None:
        """What the session's workspace was last seen to hold. Raises NotFound, Gone."""
        ...

    async def find_tree(self, owner: str, session_id: str, tree: str) -> str | None:
        """The newest checkpoint of the session that has this tree; None if none has. Raises NotFound,
        Gone."""
        ...

    async def keep_aside(
        self, owner: str, session_id: str, found: NewSave, back: Changes
    ) -> Checkpoint | None:
        """Store what a folder holds before it is overwritten, and then again what the workspace must hold,
        in one step; return the second checkpoint. ``back``: the changes from the first to the
        second. The workspace stays on the machine where it is. None if it was recorded meanwhile. Raises
        NotFound, Gone."""
        ...

    async def arrive(self, owner: str, session_id: str, after: str) -> bool:
        """The folder on this machine now holds ``last``, which is ``after``. False if it was recorded
        meanwhile. Raises NotFound, Gone."""
        ...

    async def of_turn(self, owner: str, turn_id: str) -> Sequence[Checkpoint]:
        """The turn's checkpoints, oldest first. Raises NotFound."""
        ...

    async def of_user(self, owner: str, session_id: str, turn_id: str | None) -> Sequence[Checkpoint]:
        """What a user saved or changed during a turn or after it, before the next one; before the first turn
        for ``turn_id`` None. Oldest first. Raises NotFound, Gone."""
        ...

    async def of_session(
        self, owner: str, session_id: str, *, before: str | None = None, limit: int = 200
    ) -> Sequence[Checkpoint]:
        """A session's checkpoints, newest first, from the one before ``before`` on. Raises NotFound, Gone."""
        ...

    async def list_kept(self, owner: str, session_id: str) -> Sequence[Checkpoint]:
        """All checkpoints of a session, oldest first. Raises NotFound, Gone."""
        ...

    async def tree_at(self, owner: str, session_id: str, at: At) -> str:
        """The tree that the session's workspace held then. Raises NotFound, Gone.

        After a turn: the tree of its last checkpoint, or of its nearest ancestor that has one; else that of
        the last checkpoint without a turn; else the empty tree. Before a turn: what its first call found, or
        the files of its parent if it changed nothing. Made by a turn: what its last call left; what it found
        if it changed nothing.
        """
        ...
