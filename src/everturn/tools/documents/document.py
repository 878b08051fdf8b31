"""A document as text: sections, each with its place (page, sheet, slide, heading)."""

from __future__ import annotations

import msgspec

SECTION_CHARS_MAX = 4_000  # a longer section is split into several with the same place
TEXT_BYTES_MAX = 10_000_000  # of a whole document, so that the child's answer fits its output limit


class Section(msgspec.Struct, frozen=True):
    place: str
    text: str


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """A converted document.

    ``error`` says why nothing could be read, ``notes`` what was left out. ``is_passing``: the error was not
    the file's fault, so another attempt may succeed.
    """

    title: str = ""
    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    is_passing: bool = False

    @property
    def chars(self) -> int:
        return sum(len(section.text) for section in self.sections)

    def text(self) -> str:
        """Return the whole text, with the places as headings."""
        parts = [f"[{one.place}]\n{one.text}" if one.place else one.text for one in self.sections]
        return "\n\n".join([*parts, *(f"[{note}]" for note in self.notes)])


def split(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """Return the sections, each at most ``SECTION_CHARS_MAX`` long and cut at line ends where possible."""
    found: list[Section] = []
    for section in sections:
        text = section.text
        while len(text) > SECTION_CHARS_MAX:
            end = text.rfind("\n", SECTION_CHARS_MAX // 2, SECTION_CHARS_MAX)
            end = end if end > 0 else SECTION_CHARS_MAX
            found.append(Section(section.place, text[:end]))
            text = text[end:].lstrip("\n")
        if text.strip():
            found.append(Section(section.place, text))
    return tuple(found)
