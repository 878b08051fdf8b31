"""Notes in Markdown: one fact per list item, with its source on the line below.

    - Prefers tea to coffee.
      (not_0abc…, 2026-11-15, ses_… trn_…)

The user may edit everything. Text that is not a list item is left alone. An item without a source line was
written by the user; its id is derived from its text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

BY_USER = "you"
_EXTRACTED = "from "  # start of the source of a fact that a commit found
_ITEM = re.compile(r"^[-*] +(?P<text>\S.*)$")
# Control characters and lone surrogates (which also stand for bytes that are not UTF-8): databases, JSON and
# terminals reject them or break.
_UNFIT = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]|[\ud800-\udfff]")
_SOURCE = re.compile(
    r"^\s+\((?P<id>not_[0-9a-z]{26})(?:, (?P<day>\d{4}-\d\d-\d\d))?(?:, (?P<source>[^()]*))?\)\s*$"
)
_MONTH = re.compile(r"^\d{4}-\d\d\.md$")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact. ``source``: ``you``, or the session and the turn it was learned in."""

    id: str
    text: str
    day: str = ""
    source: str = BY_USER
    page: str = ""  # the name of its file
    first_line: int = 0
    lines: int = 1

    @property
    def is_extracted(self) -> bool:
        """Whether a commit found it in a turn; False if the user wrote it or asked for it."""
        return self.source.startswith(_EXTRACTED)

    @property
    def session_id(self) -> str | None:
        return next((word for word in self.source.split() if word.startswith("ses_")), None)

    @property
    def turn_id(self) -> str | None:
        return next((word for word in self.source.split() if word.startswith("trn_")), None)

    @property
    def created_at(self) -> int | None:
        """The start of its day, in milliseconds since 1970."""
        try:
            return int(datetime.fromisoformat(f"{self.day}T00:00:00+00:00").timestamp() * 1000)
        except ValueError:
            return None


def turn_source(session_id: str, turn_id: str) -> str:
    """The source of a fact that a commit found."""
    return f"{_EXTRACTED}{session_id} {turn_id}"


def one_line(text: str) -> str:
    """The text on one line, without characters that cannot be stored, sent or shown."""
    return " ".join(_UNFIT.sub("\N{REPLACEMENT CHARACTER}", text).split())


def day_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def page_of(day: str) -> str:
    """The file for facts of this day. There is one per month, so that a new fact rewrites little."""
    return f"{day[:7]}.md"


def new_page(page: str) -> str:
    month = datetime.fromisoformat(f"{page[:7]}-01").strftime("%B %Y")
    return (
        f"# Remembered in {month}\n\n"
        "Yours to change or delete. Each item is one fact; the line below it says where it came from.\n"
    )


def render_note(note: Note) -> list[str]:
    """The note as lines of Markdown."""
    facts = [note.id, *([note.day] if note.day else []), note.source]
    return [f"- {one_line(note.text)}", f"  ({', '.join(facts)})"]


def read_page(page: str, text: str) -> list[Note]:
    """The notes of a file, with their line numbers."""
    notes: list[Note] = []
    lines = [line.rstrip("\r") for line in text.removeprefix("\N{BYTE ORDER MARK}").split("\n")]
    number = 0
    while number < len(lines):
        item = _ITEM.match(lines[number])
        if item is None:
            number += 1
            continue
        end = number + 1
        words, source = [one_line(item["text"])], None
        while end < len(lines) and lines[end].startswith(("  ", "\t")) and source is None:
            source = _SOURCE.match(lines[end])
            if source is None:
                words.append(one_line(lines[end]))
            end += 1
        notes.append(_note(page, "\n".join(words).strip(), source, number, end - number))
        number = end
    return notes


def _note(page: str, text: str, source: re.Match[str] | None, first_line: int, lines: int) -> Note:
    month = f"{page[:7]}-01" if _MONTH.match(page) else ""
    if source is None:
        return Note(derive_id(text), text, month, BY_USER, page, first_line, lines)
    day = source["day"] or month
    return Note(source["id"], text, day, (source["source"] or BY_USER).strip(), page, first_line, lines)


def derive_id(text: str) -> str:
    number = int.from_bytes(hashlib.sha256(one_line(text).encode()).digest()[:17], "big")
    digits = []
    for _ in range(26):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "not_" + "".join(digits)


def replace_note(text: str, note: Note, new: Sequence[str]) -> str:
    """The page with the note's lines replaced; every other byte stays the same."""
    lines = text.split("\n")
    first, end = note.first_line, note.first_line + note.lines
    if not new and first and not lines[first - 1].strip() and (end == len(lines) or not lines[end].strip()):
        first -= 1  # also remove one of the two empty lines around the note
    lines[first:end] = [line + _line_end(text) for line in new]
    return "\n".join(lines)


def append_notes(text: str, notes: Sequence[Note]) -> str:
    lines = ["", *(line for note in notes for line in render_note(note)), ""]
    return text.rstrip("\r\n") + f"{_line_end(text)}\n" + f"{_line_end(text)}\n".join(lines)


def _line_end(text: str) -> str:
    """A carriage return if the file has Windows line ends, else nothing."""
    return "\r" if "\r\n" in text else ""
