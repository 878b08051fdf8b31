"""Edits as pure functions: exact replacement, patches, and the hunks that the page draws."""

from __future__ import annotations

import difflib
import re

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.tools.schema import ToolFailed

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_DRAWN_LINES_MAX = 400
_BYTE_ORDER_MARK = "\ufeff"


def lines_of(text: str) -> list[str]:
    """The lines as editors count them: they end with LF, and a CR before it is not part of them."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def replace_exact(content: str, old: str, new: str, path: str, *, everywhere: bool) -> str:
    """The content with ``old`` replaced. It must occur exactly once, unless ``everywhere``.

    Repeating an edit changes nothing, so a call whose outcome is unknown after a crash can be made again: new
    text is not replaced a second time, and an edit for which that cannot be decided is refused. Returns the
    content unchanged if the edit is done already.
    """
    if not old:
        raise ToolFailed("The text to replace is empty. Use write_file to make a file.")
    if old == new:
        raise ToolFailed("The old and the new text are the same; nothing was changed.")
    after = _replace_once(content, old, new, path, everywhere)
    try:
        is_stable = _replace_once(after, old, new, path, everywhere) == after
    except ToolFailed:
        is_stable = True  # a repeat is refused
    if not is_stable:
        raise ToolFailed(
            f"In {path} the new text would make the old text again, with what stands beside it; nothing was "
            "changed. Give more of the text around it."
        )
    return after


def _replace_once(content: str, old: str, new: str, path: str, everywhere: bool) -> str:
    if old not in content and "\r\n" in content:
        # Lines are shown without their CR, so the text to replace comes without it too.
        old, new = (text.replace("\r\n", "\n").replace("\n", "\r\n") for text in (old, new))
    places = _places(content, old, new)
    if not places and new and new in content:
        return content
    if not places:
        raise ToolFailed(
            f"{path} does not contain that text exactly; nothing was changed.{_hint_near(content, old)}"
        )
    if len(places) > 1 and not everywhere:
        raise ToolFailed(
            f"{path} contains that text {len(places)} times; nothing was changed. Give more of the text "
            "around it, or set everywhere."
        )
    pieces = []
    end = 0
    for at in places:
        pieces += [content[end:at], new]
        end = at + len(old)
    return "".join([*pieces, content[end:]])


def _places(content: str, old: str, new: str) -> list[int]:
    """Where ``old`` stands, except inside what is ``new`` already."""
    done = _occurrences(content, new) if old in new else []
    return [
        at
        for at in _occurrences(content, old)
        if not any(start <= at and at + len(old) <= start + len(new) for start in done)
    ]


def _occurrences(content: str, text: str) -> list[int]:
    """Without overlaps, from the left, as ``str.replace`` finds them."""
    found = []
    at = content.find(text)
    while at >= 0:
        found.append(at)
        at = content.find(text, at + len(text))
    return found


def _hint_near(content: str, old: str) -> str:
    """A hint for the most common mistake: the same words with other spaces."""
    first = old.strip().splitlines()[0].strip() if old.strip() else ""
    for number, line in enumerate(content.splitlines(), 1):
        if first and line.strip() == first:
            return f" Line {number} is similar, but spaces or the lines after it differ."
    return ""


class Hunk(msgspec.Struct, frozen=True):
    start: int  # line in the old file, from 1; 0 for an empty one
    old: tuple[str, ...]
    new: tuple[str, ...]
    is_old_open: bool = False  # the last line has no line end, says "\\ No newline at end of file"
    is_new_open: bool = False


class FilePatch(msgspec.Struct, frozen=True):
    """``old_path`` None: a new file. ``new_path`` None: the file is deleted."""

    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...]

    @property
    def path(self) -> str:
        return self.new_path or self.old_path or ""


def parse_patch(text: str) -> list[FilePatch]:
    """Read a unified diff. Counts in the hunk headers may be wrong, as models often write them."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    patches: list[FilePatch] = []
    at = 0
    while at < len(lines):
        if lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            old, new = _path(lines[at][4:], "a/"), _path(lines[at + 1][4:], "b/")
            hunks, at = _hunks(lines, at + 2)
            if not hunks and old and new:
                raise ToolFailed(f"The patch of {new} has no hunk (a part that begins with @@).")
            patches.append(FilePatch(old, new, tuple(hunks)))
        else:
            at += 1
    if not patches:
        raise ToolFailed("There is no patch in that text: a file begins with '--- a/…' and '+++ b/…'.")
    return patches


def _path(text: str, prefix: str) -> str | None:
    path = text.split("\t")[0].strip()
    if path == "/dev/null":
        return None
    return path[len(prefix) :] if path.startswith(prefix) else path


def _hunks(lines: list[str], at: int) -> tuple[list[Hunk], int]:
    hunks = []
    while at < len(lines) and (head := _HUNK.match(lines[at])):
        old: list[str] = []
        new: list[str] = []
        is_open = {"-": False, "+": False}
        at += 1
        # After the last line of the new file, an empty line does not belong to it.
        while at < len(lines) and _is_body(lines, at) and (lines[at] or not is_open["+"]):
            line = lines[at]
            at += 1
            if line.startswith("\\"):
                before = lines[at - 2][:1]
                is_open |= {before: True} if before in is_open else {"-": True, "+": True}
                continue
            if line[:1] in (" ", "-", ""):
                old.append(line[1:])
            if line[:1] in (" ", "+", ""):
                new.append(line[1:])
        # Empty lines beyond what the header counts stand between two files, or end the text.
        while len(old) > int(head[2] or 1) and old and new and not old[-1] and not new[-1]:
            old.pop()
            new.pop()
        hunks.append(Hunk(int(head[1]), tuple(old), tuple(new), is_open["-"], is_open["+"]))
        while at < len(lines) and not lines[at] and at + 1 < len(lines):
            at += 1
    return hunks, at


def _is_body(lines: list[str], at: int) -> bool:
    line = lines[at]
    if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
        return False
    if line.startswith(("diff --git ", "index ", "@@ ")):
        return False
    return line[:1] in (" ", "-", "+", "\\", "")


def apply_hunks(content: str, hunks: tuple[Hunk, ...], path: str) -> str:
    """The content with every hunk applied, or ToolFailed and nothing.

    A repeat usually does not fit, but it may: a hunk that only adds lines finds its context a second time,
    and nothing shows that the lines are there already. Line ends stay as they are and new lines get the
    file's, because the model saw the lines without their ends and without the byte order mark.
    """
    mark = _BYTE_ORDER_MARK if content.startswith(_BYTE_ORDER_MARK) else ""
    lines = content.removeprefix(mark).split("\n")
    end = "\r" if sum(line.endswith("\r") for line in lines) * 2 >= len(lines) > 1 else ""
    # A last line without an end is a line like the others until all is done: another may come to stand last.
    is_bare = not lines[-1].endswith("\r") and lines[-1] != ""
    lines[-1] += end if is_bare else ""
    shift = 0
    for number, hunk in enumerate(hunks, 1):
        shown = [line.removesuffix("\r") for line in lines]
        at = _find(shown, hunk, shift)
        while at is None and hunk.old and hunk.new and not hunk.old[-1] and not hunk.new[-1]:
            # With a wrong count in the header, the end of the text was taken for an empty line.
            hunk = msgspec.structs.replace(hunk, old=hunk.old[:-1], new=hunk.new[:-1])
            at = _find(shown, hunk, shift)
        if at is None:
            raise ToolFailed(
                f"Hunk {number} of {path} does not fit: its context lines are not in the file. "
                "Nothing was changed. Read the file again."
            )
        lines[at : at + len(hunk.old)] = _with_line_ends(hunk, lines[at : at + len(hunk.old)], end)
        shift += len(hunk.new) - len(hunk.old)
        is_last = lines[at + len(hunk.new) :] in ([], [""])
        if is_last and hunk.is_old_open != hunk.is_new_open:
            lines[at + len(hunk.new) :] = [] if hunk.is_new_open else [""]
            is_bare = hunk.is_new_open
        lines = lines or [""]
    if is_bare:
        lines[-1] = lines[-1].removesuffix(end)
    return mark + "\n".join(lines)


def _with_line_ends(hunk: Hunk, before: list[str], end: str) -> list[str]:
    """The hunk's new lines: unchanged ones as they were, the others with the file's line end."""
    matcher = difflib.SequenceMatcher(None, hunk.old, hunk.new, autojunk=False)
    after: list[str] = []
    for op, i1, i2, j1, j2 in matcher.get_opcodes():
        after += before[i1:i2] if op == "equal" else [line + end for line in hunk.new[j1:j2]]
    return after


def _find(lines: list[str], hunk: Hunk, shift: int) -> int | None:
    """Where the hunk's old lines are, nearest to where it says."""
    if not hunk.old:
        # Without an old line the number is that of the line before it; after the last there is no other.
        return min(hunk.start + shift, len(lines) - (not lines[-1]))
    expected = max(0, hunk.start - 1) + shift
    size = len(hunk.old)
    places = [at for at in range(len(lines) - size + 1) if tuple(lines[at : at + size]) == hunk.old]
    return min(places, key=lambda at: abs(at - expected)) if places else None


def diff_display(path: str, before: str, after: str) -> JsonObject:
    """What the page draws of an edit: hunks of (sign, old line number, new line number, text)."""
    old, new = lines_of(before), lines_of(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > 2000)
    hunks: list[JsonObject] = []
    added = removed = drawn = 0
    for group in matcher.get_grouped_opcodes(3):
        rows: list[JsonObject] = []
        for op, i1, i2, j1, j2 in group:
            if op == "equal":
                rows += [_row(" ", i + 1, i - i1 + j1 + 1, old[i]) for i in range(i1, i2)]
                continue
            rows += [_row("-", i + 1, None, old[i]) for i in range(i1, i2)]
            rows += [_row("+", None, j + 1, new[j]) for j in range(j1, j2)]
            removed += i2 - i1
            added += j2 - j1
        room = _DRAWN_LINES_MAX - drawn
        drawn += len(rows)
        if room > 0:
            hunks.append({"old": group[0][1] + 1, "new": group[0][3] + 1, "lines": rows[:room]})
    display = {"kind": "diff", "path": path, "added": added, "removed": removed, "hunks": hunks}
    return {**display, "is_cut": True} if drawn > _DRAWN_LINES_MAX else display


def _row(sign: str, old: int | None, new: int | None, text: str) -> JsonObject:
    return {"sign": sign, "old": old, "new": new, "text": text[:1000]}
