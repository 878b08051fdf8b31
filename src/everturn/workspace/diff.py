"""The difference of two trees, and which files a restore would overwrite that are in neither checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from everturn.domain.trees import Entry, Kind, Tree

Load = Callable[[str], Tree]  # the tree with this hash


class Change(msgspec.Struct, frozen=True):
    """One path that differs; None where it does not exist. A folder that appears or disappears is a change
    of its own, listed before the changes inside it."""

    path: bytes
    before: Entry | None
    after: Entry | None


def diff(load: Load, before: str, after: str) -> list[Change]:
    """What turns the first tree into the second, sorted by path. Cost follows what differs.

    Paths that either tree leaves out are skipped: nothing is known about them.
    """
    changes = list(_folders(load, b"", before, after))
    return sorted(changes, key=lambda change: change.path)


def _folders(load: Load, path: bytes, before: str, after: str) -> Iterator[Change]:
    if before == after:
        return
    old, new = (load(tree) if tree else Tree() for tree in (before, after))
    olds = {entry.name: entry for entry in old.entries}
    news = {entry.name: entry for entry in new.entries}
    for name in sorted(olds.keys() | news.keys()):
        was, now = olds.get(name), news.get(name)
        is_unknown = (was is None and old.unlisted) or (now is None and new.unlisted)
        if not is_unknown:
            yield from _entries(load, path + b"/" + name if path else name, was, now)


def _entries(load: Load, path: bytes, was: Entry | None, now: Entry | None) -> Iterator[Change]:
    if _is_left_out(was) or _is_left_out(now):
        return
    before = "" if was is None or was.kind is not Kind.FOLDER else was.sha256
    after = "" if now is None or now.kind is not Kind.FOLDER else now.sha256
    if before and after:
        is_same = was is not None and now is not None and was.mode == now.mode
    else:
        is_same = was is not None and was.is_same(now)
    if not is_same:
        yield Change(path, was, now)
    yield from _folders(load, path, before, after)


def _is_left_out(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is Kind.LEFT_OUT


def find_conflicts(load: Load, last: str, present: str, wanted: str) -> list[Change]:
    """What bringing ``present`` to ``wanted`` would destroy: files that match neither the last checkpoint
    nor the wanted one. A folder is no conflict, and neither is a path without a file: nothing would be
    lost."""
    since = {change.path for change in diff(load, last, present)}
    return [
        change
        for change in diff(load, present, wanted)
        if change.path in since and change.before is not None and change.before.kind is not Kind.FOLDER
    ]
