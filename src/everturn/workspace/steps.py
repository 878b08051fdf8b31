"""What has to be done in a folder to bring it to a wanted tree, from any point at which that was cut off."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from everturn.domain.trees import Entry, Kind, show_path
from everturn.domain.working_copies import FilesChoice, WorkingCopy
from everturn.workspace.diff import Change, Load, diff
from everturn.workspace.mine import find_free_name
from everturn.workspace.overlay import find_entry

_CHANGED: Final = "it was changed meanwhile"
_CHOSEN: Final = "as chosen"


class Steps(msgspec.Struct, frozen=True):
    """``changes``: what is still to be done. ``kept``: files that stay, and why. ``whole``: all that the
    restore is about, also what was done before it was cut off."""

    changes: list[Change]
    kept: dict[bytes, str]
    whole: list[Change]


def find_steps(load: Load, copy: WorkingCopy, seen: str, wanted: str) -> Steps:
    """The steps in a folder that holds the tree ``seen`` now.

    Each path holds what it held when the restore was asked for, or what is wanted. A file that holds anything
    else was changed since by a user or a program, and stays.
    """
    whole = diff(load, copy.present, wanted)
    since = {change.path for change in diff(load, copy.present, seen)}
    copies = _copies(load, copy, whole, wanted)
    changes = [change for change in diff(load, seen, wanted) if change.path not in copies]
    kept: dict[bytes, str] = {}
    for change in changes:
        if change.before is None or change.before.kind is Kind.FOLDER:
            continue  # nothing of it would be lost
        if copy.choices.get(show_path(change.path)) is FilesChoice.KEEP:
            kept[change.path] = _CHOSEN
        elif change.path in since:  # guard: e02
            kept[change.path] = _CHANGED
    staying = [*kept, *copies]
    left = [one for one in changes if one.path not in kept and not _removes_around(one, staying)]
    missing = [path for path in copies if find_entry(load, seen, path) is None]
    return Steps([*left, *(Change(path, None, copies[path]) for path in missing)], kept, whole)


def _copies(load: Load, copy: WorkingCopy, whole: list[Change], wanted: str) -> dict[bytes, Entry]:
    """Where to put the user's version of each file of which both are to stay. The names follow from the two
    trees alone, so that a repeated restore finds its own copies."""
    taken = (copy.present, wanted)
    found: dict[bytes, Entry] = {}

    def is_taken(path: bytes) -> bool:
        return path in found or any(find_entry(load, tree, path) for tree in taken)

    for change in whole:
        if change.before is not None and copy.choices.get(show_path(change.path)) is FilesChoice.BOTH:
            path = find_free_name(change.path, is_taken)
            found[path] = msgspec.structs.replace(change.before, name=path.rpartition(b"/")[2])
    return found


def _removes_around(change: Change, staying: Collection[bytes]) -> bool:
    """True if the change would remove a folder in which something stays."""
    if change.before is None or change.before.kind is not Kind.FOLDER:
        return False
    if change.after is not None and change.after.kind is Kind.FOLDER:
        return False
    return any(path.startswith(change.path + b"/") for path in staying)
