"""The difference of two texts, line by line, within bounds of time whatever the texts are.

A short edit script is looked for first (Myers). Where the texts differ too much for that, lines that occur
once in both divide them (patience), and each part is compared on its own; what cannot be divided counts as
replaced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

import msgspec

_EDITS_MAX: Final = 200  # the cost grows with the square of it
_CONTEXT: Final = 3

Opcode = tuple[str, int, int, int, int]  # as difflib has them
_Hunk = tuple[int, int, int, int]  # these lines of the first are replaced by those of the second


class LineDiff(msgspec.Struct, frozen=True):
    """A unified diff without the names of the files. ``is_cut``: there is more than ``text``."""

    added: int
    removed: int
    text: str
    is_cut: bool


def count_lines(before: str, after: str) -> tuple[int, int]:
    """How many lines were added and removed."""
    hunks = _hunks(*_number_lines(_lines(before), _lines(after)))
    return sum(hunk[3] - hunk[2] for hunk in hunks), sum(hunk[1] - hunk[0] for hunk in hunks)


def diff_lines(before: str, after: str, chars_max: int) -> LineDiff:
    old, new = _lines(before), _lines(after)
    hunks = _hunks(*_number_lines(old, new))
    out: list[str] = []
    size = 0
    for line in _format_unified(old, new, hunks):
        size += len(line)
        if size > chars_max:
            break
        out.append(line)
    added, removed = sum(hunk[3] - hunk[2] for hunk in hunks), sum(hunk[1] - hunk[0] for hunk in hunks)
    return LineDiff(added, removed, "".join(out), size > chars_max)


def _lines(text: str) -> list[str]:
    """Divided at line feeds only: other separators are content."""
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def _number_lines(old: Sequence[str], new: Sequence[str]) -> tuple[list[int], list[int]]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(line, len(numbers)) for line in old], [
        numbers.setdefault(line, len(numbers)) for line in new
    ]


# --- hunks -----------------------------------------------------------------------------------------------


def _hunks(old: Sequence[int], new: Sequence[int]) -> list[_Hunk]:
    found: list[_Hunk] = []
    waiting = [(0, len(old), 0, len(new))]
    while waiting:
        part = _trim(old, new, waiting.pop())
        a0, a1, b0, b1 = part
        if a0 == a1 or b0 == b1:
            found += [part] if part != (a0, a0, b0, b0) else []
            continue
        edits = _shortest(old[a0:a1], new[b0:b1])
        if edits is not None:
            found += [(a0 + w, a0 + x, b0 + y, b0 + z) for w, x, y, z in edits]
            continue
        anchors = _anchors(old, new, part)
        if not anchors:
            found.append(part)
            continue
        for x, y in (*anchors, (a1, b1)):
            waiting.append((a0, x, b0, y))
            a0, b0 = x + 1, y + 1
    return sorted(found)


def _trim(old: Sequence[int], new: Sequence[int], part: _Hunk) -> _Hunk:
    """Without equal lines at its beginning and end."""
    a0, a1, b0, b1 = part
    while a0 < a1 and b0 < b1 and old[a0] == new[b0]:
        a0, b0 = a0 + 1, b0 + 1
    while a0 < a1 and b0 < b1 and old[a1 - 1] == new[b1 - 1]:
        a1, b1 = a1 - 1, b1 - 1
    return a0, a1, b0, b1


def _shortest(old: Sequence[int], new: Sequence[int]) -> list[_Hunk] | None:
    """The shortest edit script; None if it has more than ``_EDITS_MAX`` edits."""
    reach = {1: 0}  # by diagonal: how far into ``old`` one gets
    steps: list[dict[int, int]] = []
    for edits in range(min(_EDITS_MAX, len(old) + len(new)) + 1):
        steps.append(reach.copy())
        for at in range(-edits, edits + 1, 2):
            goes_down = at == -edits or (at != edits and reach[at - 1] < reach[at + 1])
            x = reach[at + 1] if goes_down else reach[at - 1] + 1
            while x < len(old) and 0 <= x - at < len(new) and old[x] == new[x - at]:
                x += 1
            reach[at] = x
            if x >= len(old) and x - at >= len(new):
                return _join(_walk_back(steps, len(old), len(new)))
    return None


def _walk_back(steps: Sequence[dict[int, int]], x: int, y: int) -> Iterator[_Hunk]:
    """The single edits that lead to the end, the last one first."""
    for edits in range(len(steps) - 1, 0, -1):
        reach, at = steps[edits], x - y
        goes_down = at == -edits or (at != edits and reach[at - 1] < reach[at + 1])
        before = at + 1 if goes_down else at - 1
        x0 = reach[before]
        y0 = x0 - before
        yield (x0, x0, y0, y0 + 1) if goes_down else (x0, x0 + 1, y0, y0)
        x, y = x0, y0


def _join(edits: Iterator[_Hunk]) -> list[_Hunk]:
    found: list[_Hunk] = []
    for a0, a1, b0, b1 in edits:
        if found and (a1, b1) == (found[-1][0], found[-1][2]):
            found[-1] = (a0, found[-1][1], b0, found[-1][3])
        else:
            found.append((a0, a1, b0, b1))
    return found


def _anchors(old: Sequence[int], new: Sequence[int], part: _Hunk) -> list[tuple[int, int]]:
    """Places of lines that occur once in both, as many as are in the same order in both."""
    a0, a1, b0, b1 = part
    olds, news = Counter(old[a0:a1]), Counter(new[b0:b1])
    places = {new[y]: y for y in range(b0, b1) if news[new[y]] == 1}
    pairs = [(x, places[old[x]]) for x in range(a0, a1) if olds[old[x]] == 1 and old[x] in places]
    ends: list[int] = []  # the smallest end of an increasing row, by its length
    chain: list[int] = []  # which pair that is
    previous: list[int] = []
    for number, (_, y) in enumerate(pairs):
        length = bisect_left(ends, y)
        previous.append(chain[length - 1] if length else -1)
        ends[length : length + 1] = [y]
        chain[length : length + 1] = [number]
    found = []
    number = chain[-1] if chain else -1
    while number >= 0:
        found.append(pairs[number])
        number = previous[number]
    return found[::-1]


# --- unified diff ----------------------------------------------------------------------------------------


class _Found(SequenceMatcher[str]):
    """difflib's grouping of changes with their context, over changes that were found here."""

    def __init__(self, hunks: Sequence[_Hunk], old_count: int, new_count: int) -> None:
        super().__init__(None, "", "")
        self._opcodes: list[Opcode] = []
        a = b = 0
        for a0, a1, b0, b1 in (*hunks, (old_count, old_count, new_count, new_count)):
            if a0 > a:
                self._opcodes.append(("equal", a, a0, b, b0))
            if (a0, b0) != (a1, b1):
                self._opcodes.append(("replace", a0, a1, b0, b1))
            a, b = a1, b1

    def get_opcodes(self) -> list[Opcode]:  # type: ignore[override]  # typeshed: literal tags
        return self._opcodes


def _format_unified(old: Sequence[str], new: Sequence[str], hunks: Sequence[_Hunk]) -> Iterator[str]:
    if not hunks:
        return
    for group in _Found(hunks, len(old), len(new)).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
        for tag, a0, a1, b0, b1 in group:
            if tag == "equal":
                yield from (_mark_line(" ", line) for line in old[a0:a1])
            else:
                yield from (_mark_line("-", line) for line in old[a0:a1])
                yield from (_mark_line("+", line) for line in new[b0:b1])


def _range(start: int, end: int) -> str:
    count = end - start
    begin = start + 1 if count else start
    return f"{begin}" if count == 1 else f"{begin},{count}"


def _mark_line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
