"""A document as text: sections, each with its place (page, sheet, slide, heading)."""

from __future__ import annotations

import msgspec

SECTION_CHARS_MAX = 4_000  # a longer one is given as several, with the same place
TEXT_BYTES_MAX = 10_000_000  # of a whole document; the answer of the child has to fit its output


class Section(msgspec.Struct, frozen=True):
    place: str
    text: str


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """``error``: why nothing could be read. ``notes``: what was left out of it. ``is_passing``: the file
    is not to blame for the error, so another attempt may succeed."""

    title: str = ""
    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    is_passing: bool = False

    @property
    def chars(self) -> int:
        return sum(len(section.text) for section in self.sections)

    def text(self) -> str:
        """The whole, with the places as headings."""
        parts = [f"[{one.place}]\n{one.text}" if one.place else one.text for one in self.sections]
        return "\n\n".join([*parts, *(f"[{note}]" for note in self.notes)])


def split(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """The sections, none longer than ``SECTION_CHARS_MAX``, cut at line ends where there are any."""
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
