"""What the model is told about files that it did not change itself: with the user's message, or in a note
before its next tool result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from everturn.domain import events as ev
from everturn.domain.checkpoints import Changes, FileChange, LeftOut
from everturn.domain.events import Event
from everturn.domain.messages import SavedFiles

_PATHS_MAX: Final = 20
_MOVED: Final = "[This session continues on another machine."
_KINDS: Final = frozenset({"tool.finished", "files.changed", "files.moved"})
NOTHING_KEPT: Final[Mapping[str, str]] = MappingProxyType({})
_PATH_CHARS_MAX: Final = 200


def notes_in(journal: Sequence[Event]) -> list[str]:
    """What former workers of the turn found since its last result. The model has not been told yet."""
    notes: list[str] = []
    for event in journal:
        if event.kind not in _KINDS:
            continue
        payload = event.payload
        if isinstance(payload, ev.ToolFinished):
            notes = []
        elif isinstance(payload, ev.FilesMoved):
            note = moved_note(
                payload.former_machine, payload.left_out, payload.left_out_total, is_aside=payload.is_aside
            )
            notes = [*without_moves(notes), note]
        elif isinstance(payload, ev.FilesChanged) and payload.call_id is None:
            notes += changed_note(payload.changes, payload.changes_total)
    return notes


def changed_note(changes: Sequence[FileChange], total: int) -> list[str]:
    """Nothing if nothing changed."""
    if not total:
        return []
    said = _list([f"{_quote(change.path)} ({change.what})" for change in changes], total)
    return [f"[Files that were changed, and not by a call that reported back: {said}]"]


def list_saved(saved: SavedFiles) -> str:
    return _list([f"{_quote(change.path)} ({change.what})" for change in saved.changes], saved.total)


def without_moves(notes: Sequence[str]) -> list[str]:
    """The notes without those of earlier moves: the session has moved on since, or back."""
    return [note for note in notes if not note.startswith(_MOVED)]


def moved_note(
    former_machine: str,
    left_out: Sequence[LeftOut],
    total: int,
    kept: Mapping[str, str] = NOTHING_KEPT,
    *,
    is_aside: bool = False,
) -> str:
    missing = ""
    if total:
        said = _list([f"{_quote(left.path)} ({left.reason.replace('_', ' ')})" for left in left_out], total)
        missing = f" Checkpoints leave these out, so they may be missing; make them again if needed: {said}."
    aside = " Files that were left here earlier and not recorded were stored first." if is_aside else ""
    return (
        f"{_MOVED} The workspace was restored as it was last recorded on "
        f"{_quote(former_machine)}; later changes there are not here.{aside}{missing}{_describe_kept(kept)}]"
    )


def went_back_note(changes: Changes, kept: Mapping[str, str]) -> str:
    said = _list([_quote(change.path) for change in changes.changed], changes.changed_total)
    return f"[The user went back to the files from before this call. Restored: {said}.{_describe_kept(kept)}]"


def _describe_kept(kept: Mapping[str, str]) -> str:
    if not kept:
        return ""
    said = _list([f"{_quote(path)} ({why})" for path, why in kept.items()], len(kept))
    return f" Left as they are: {said}."


def _quote(path: str) -> str:
    """One line, whatever the name is."""
    return repr(path if len(path) <= _PATH_CHARS_MAX else path[:_PATH_CHARS_MAX] + "…")


def _list(lines: Sequence[str], total: int) -> str:
    listed = lines[:_PATHS_MAX]
    more = total - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more > 0 else "")
