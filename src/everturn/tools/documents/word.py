"""Word documents and presentations as sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from everturn.tools.documents.document import Document, Section
from everturn.tools.documents.packed import PackedDocument

_HEADING = re.compile(r"heading (\d)|title")
_EXTRAS = (
    ("word/footnotes.xml", "footnotes"),
    ("word/endnotes.xml", "endnotes"),
    ("word/comments.xml", "comments"),
)


class WordLines:
    """The paragraphs and table rows of one XML member.

    Word and PowerPoint use the same tags: p is a paragraph, t its text, tr a row, tc a cell.
    """

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []  # (style or kind of placeholder, text)
        self._words: list[str] = []
        self._style = ""
        self._shape = ""
        self._is_text = False
        self._rows: list[list[str]] = []  # of the open tables: the cells of the current row
        self._cell: list[list[str]] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "t":
            self._is_text = True
        elif tag in ("tab", "br", "cr"):
            self._words.append("\t" if tag == "tab" else "\n")
        elif tag == "pStyle":
            self._style = attributes.get("val", "")
        elif tag == "sp":
            self._shape = ""
        elif tag == "ph":
            self._shape = attributes.get("type", "")
        elif tag == "tr":
            self._rows.append([])
        elif tag == "tc" and self._rows:
            self._cell.append([])

    def text(self, words: str) -> None:
        if self._is_text:
            self._words.append(words)

    def end(self, tag: str) -> None:
        if tag == "t":
            self._is_text = False
        elif tag == "p":
            self._end_paragraph()
        elif tag == "tc" and self._cell and self._rows:
            self._rows[-1].append(" ".join(self._cell.pop()))
        elif tag == "tr" and self._rows:
            row = " | ".join(self._rows.pop())
            if self._cell:  # a nested table
                self._cell[-1].append(row)
            elif row.strip(" |"):
                self.lines.append(("", row))

    def _end_paragraph(self) -> None:
        words = "".join(self._words).strip()
        if words and self._cell:
            self._cell[-1].append(words)
        elif words:
            self.lines.append((self._style or self._shape, words))
        self._words, self._style = [], ""


def _lines(package: PackedDocument, name: str) -> list[tuple[str, str]]:
    found = WordLines()
    package.xml(name, found.start, found.end, found.text)
    return found.lines


def read_docx(path: Path) -> Document:
    package = PackedDocument(path)
    main = package.main("word/document.xml")
    names = _style_names(package)
    sections: list[Section] = []
    place, words, title = "beginning", list[str](), ""
    for style, text in _lines(package, main):
        heading = _HEADING.match(names.get(style, style).lower())
        if heading is None:
            words.append(text)
            continue
        if words:
            sections.append(Section(place, "\n".join(words)))
        line = " ".join(text.split())
        title = title or line
        place, words = f"heading “{line[:100]}”", ["#" * int(heading[1] or 1) + " " + line]
    sections.append(Section(place, "\n".join(words)))
    for name, what in _EXTRAS:
        if package.has(name):
            sections.append(Section(what, "\n".join(text for _, text in _lines(package, name))))
    return Document(title, tuple(sections))


def _style_names(package: PackedDocument) -> dict[str, str]:
    """Return style names by id. Word translates the ids of headings but not their names."""
    names: dict[str, str] = {}
    current = ""

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal current
        if tag == "style":
            current = attributes.get("styleId", "")
        elif tag == "name" and current:
            names[current] = attributes.get("val", "")

    if package.has("word/styles.xml"):
        package.xml("word/styles.xml", start)
    return names


def read_pptx(path: Path) -> Document:
    package = PackedDocument(path)
    sections: list[Section] = []
    title = ""
    for number, name in enumerate(_slides(package), 1):
        lines = _lines(package, name)
        first = next((text for shape, text in lines if shape in ("title", "ctrTitle")), "")
        first = " ".join(first.split())
        title = title or first
        words = [f"# {text}" if shape in ("title", "ctrTitle") else text for shape, text in lines]
        for kind, notes in package.relations(name).values():
            if kind == "notesSlide" and package.has(notes):
                spoken = [text for shape, text in _lines(package, notes) if shape == "body"]
                words += ["Notes: " + "\n".join(spoken)] if spoken else []
        sections.append(Section(f"slide {number}", "\n".join(words)))
    return Document(title, tuple(sections))


def _slides(package: PackedDocument) -> Iterator[str]:
    main = package.main("ppt/presentation.xml")
    named = package.relations(main)
    ids: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "sldId":
            # The element has two ids that differ only in their namespace; the relation's comes last.
            ids.extend(value for value in attributes.values() if value in named)

    package.xml(main, start)
    return (named[one][1] for one in ids if package.has(named[one][1]))
