"""Working copies: the folder of a session follows the conversation.

A move of the conversation (undo, redo, …) records in its own transaction which files the folder must hold.
The folder is brought there afterwards, file by file; after a crash the next start or claim finishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from everturn.domain.checkpoints import Changes, Checkpoint, FileChange
from everturn.domain.trees import EMPTY_TREE


class FilesChoice(StrEnum):
    """What happens to the files of a session when its conversation moves, or to one of them."""

    RESTORE = "restore"  # they become what they were
    KEEP = "keep"  # they stay as they are
    BOTH = "both"  # they become what they were; what a user changed stays beside them, under another name


class FileChoices(msgspec.Struct, frozen=True):
    """What a user decided. ``files``: about everything they changed themselves; None: ask. ``paths``: about
    single files."""

    files: FilesChoice | None = None
    paths: dict[str, FilesChoice] = {}

    def of(self, path: str) -> FilesChoice | None:
        return self.paths.get(path, self.files)


ASK: FileChoices = FileChoices()


class Move(StrEnum):
    """How the conversation moves."""

    UNDO = "undo"
    REDO = "redo"
    CLEAR = "clear"
    SELECT = "select"
    RETRY = "retry"  # also with another text


class FilesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a move does to the folder. It is carried out only if nothing was recorded since it was made.

    ``after``: the id of the last checkpoint. ``present``: what the folder holds, as a tree in the blobs, and
    ``changes`` since that checkpoint. ``wanted``: what it has to hold, and ``restores``: what that changes.
    ``choices``: about files that a user changed, by path.
    """

    after: str | None
    present: str
    changes: Changes
    wanted: str
    restores: Changes
    choices: dict[str, FilesChoice] = {}


class MoveFiles(msgspec.Struct, frozen=True):
    """A move takes the files along, by this plan. Without one it raises PlanNeeded if there are any."""

    plan: FilesPlan | None = None


class PlanNeeded(Exception):
    """The move would change files, and there is no plan for that or an outdated one. Nothing was written."""


class WorkingCopy(msgspec.Struct, frozen=True):
    """The folder of a session.

    ``last``: what it was last seen to hold. While ``wanted`` is set, it is being brought from ``present`` to
    that tree; ``last`` goes with ``wanted`` already. ``machine``: whose folder that is; None: any.
    """

    last: Checkpoint | None = None
    wanted: str | None = None
    present: str = EMPTY_TREE
    choices: dict[str, FilesChoice] = {}
    machine: str | None = None

    @property
    def tree(self) -> str:
        return EMPTY_TREE if self.last is None else self.last.tree


class KeptFile(msgspec.Struct, frozen=True):
    """A file that a restore did not touch, and why."""

    path: str
    why: str


class RestoredFiles(msgspec.Struct, frozen=True):
    """What a restore did: the first changes and how many there are, and what it left as it was."""

    changes: tuple[FileChange, ...] = ()
    changes_total: int = 0
    kept: tuple[KeptFile, ...] = ()


class HeldFiles(msgspec.Struct, frozen=True):
    """What a folder holds because damaged bytes could not be restored. ``changes``: how it differs from what
    was wanted, if that is known."""

    tree: str
    changes: Changes


class Unsettled(msgspec.Struct, frozen=True):
    """A session whose folder does not hold the wanted files yet."""

    owner: str
    session_id: str
    machine: str | None


class WorkingCopies(Protocol):
    async def get(self, owner: str, session_id: str) -> WorkingCopy:
        """Raises NotFound, Gone."""
        ...

    async def tree_made(self, owner: str, session_id: str) -> str:
        """What the folder held after the last call or restore. What differs from it now is a user's own
        work, found or saved since. Raises NotFound, Gone."""
        ...

    async def after_move(self, owner: str, session_id: str, move: Move, turn_id: str | None) -> str | None:
        """The tree that the folder has to hold after a move; None if its files stay as they are.

        ``turn_id``: the turn that is selected or asked again. Raises NotFound, Gone, NothingToDo.
        """
        ...

    async def restore(self, owner: str, session_id: str, plan: FilesPlan) -> Checkpoint:
        """Have the folder hold ``plan.wanted``; the conversation stays where it is. Raises PlanNeeded if the
        plan is outdated, Busy, NotFound, Gone."""
        ...

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
        """The folder now holds ``wanted`` or, where that is damaged, ``held``. False if something else is
        wanted meanwhile. Raises NotFound, Gone."""
        ...

    async def find_unsettled(self) -> Sequence[Unsettled]: ...
