"""Excel workbooks as sections: the rows of each sheet, with dates as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from everturn.tools.documents.document import SECTION_CHARS_MAX, Document, Section
from everturn.tools.documents.packed import PackedDocument

_ROWS_MAX = 200_000  # in all sheets together
_COLUMNS_MAX = 200
_DATE_FORMATS = frozenset((*range(14, 23), *range(45, 48)))  # the built-in ones
_LITERAL = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')
_COLUMN = re.compile(r"[A-Z]+")


class _Shared:
    """The shared texts, which cells refer to by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._words: list[str] = []
        self._is_text = False
        self._is_hint = False  # inside a pronunciation hint

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "si":
            self._words = []
        self._is_hint = self._is_hint or tag == "rPh"
        self._is_text = tag == "t" and not self._is_hint

    def end(self, tag: str) -> None:
        self._is_text = False
        if tag == "rPh":
            self._is_hint = False
        elif tag == "si":
            self.texts.append("".join(self._words))

    def text(self, words: str) -> None:
        if self._is_text:
            self._words.append(words)


class _Rows:
    """The rows of one sheet, as lines."""

    def __init__(self, shared: list[str], dates: frozenset[int], rows_max: int, start_1904: bool) -> None:
        self.rows: list[tuple[int, str]] = []
        self.is_cut = False
        self._shared, self._dates, self._left = shared, dates, rows_max
        self._start = datetime(1904, 1, 1) if start_1904 else datetime(1899, 12, 30)
        self._number = 0
        self._cells: list[str] = []
        self._kind = ""
        self._style = 0
        self._column = 0
        self._in = ""
        self._words: dict[str, list[str]] = {}

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "row":
            self._number = int(attributes.get("r", self._number + 1))
            self._cells = []
        elif tag == "c":
            self._kind = attributes.get("t", "n")
            self._style = int(attributes.get("s", 0))
            self._column = _column(attributes.get("r", "")) or len(self._cells) + 1
            self._words = {}
        elif tag in ("v", "t", "f"):
            self._in = tag
            self._words.setdefault(tag, [])

    def text(self, words: str) -> None:
        if self._in:
            self._words[self._in].append(words)

    def end(self, tag: str) -> None:
        if tag == "c":
            self._end_cell()
        elif tag == "row":
            line = " | ".join(self._cells).rstrip(" |")
            if line.strip() and self._left > 0:
                self.rows.append((self._number, line))
                self._left -= 1
            self.is_cut = self.is_cut or self._left <= 0
        else:
            self._in = ""

    def _end_cell(self) -> None:
        if self._column > _COLUMNS_MAX:
            self.is_cut = True
            return
        while len(self._cells) < self._column - 1:
            self._cells.append("")
        self._cells.append(" ".join(self._value().split()))

    def _value(self) -> str:
        value = "".join(self._words.get("v", []))
        if self._kind == "s":
            number = int(value) if value.isdigit() else -1
            return self._shared[number] if 0 <= number < len(self._shared) else ""
        if self._kind == "inlineStr":
            return "".join(self._words.get("t", []))
        if self._kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        if not value and "f" in self._words:
            return "=" + "".join(self._words["f"])  # the program that wrote it did not calculate it
        return self._date(value) if self._kind == "n" and self._style in self._dates else value

    def _date(self, value: str) -> str:
        try:
            moment = self._start + timedelta(days=float(value))
        except (ValueError, OverflowError):
            return value
        moment = (moment + timedelta(microseconds=500_000)).replace(microsecond=0)
        if float(value) < 1:
            return moment.strftime("%H:%M:%S")
        return moment.strftime("%Y-%m-%d" if moment.time() == datetime.min.time() else "%Y-%m-%d %H:%M:%S")


def read_xlsx(path: Path) -> Document:
    package = PackedDocument(path)
    main = package.main("xl/workbook.xml")
    named = package.relations(main)
    sheets: list[tuple[str, str]] = []
    is_1904 = False

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal is_1904
        if tag == "sheet":
            target = named.get(attributes.get("id", ""), ("", ""))[1]
            sheets.append((attributes.get("name", "?"), target))
        elif tag == "workbookPr":
            is_1904 = attributes.get("date1904") in ("1", "true")

    package.xml(main, start)
    members = dict(named.values())
    shared = _Shared()
    if package.has(members.get("sharedStrings", "")):
        package.xml(members["sharedStrings"], shared.start, shared.end, shared.text)
    dates = _date_styles(package, members.get("styles", ""))
    sections: list[Section] = []
    left, is_cut = _ROWS_MAX, False
    for name, target in sheets:
        if not package.has(target):
            continue  # a chart sheet or a macro sheet
        rows = _Rows(shared.texts, dates, left, is_1904)
        package.xml(target, rows.start, rows.end, rows.text)
        left -= len(rows.rows)
        is_cut = is_cut or rows.is_cut
        sections += _sections(name, rows.rows)
    note = f"Only the first {_ROWS_MAX:,} rows and {_COLUMNS_MAX} columns were read."
    return Document("", tuple(sections), (note,) if is_cut else ())


def _sections(sheet: str, rows: list[tuple[int, str]]) -> list[Section]:
    """Group rows into sections, each with the sheet's first row, which usually names the columns."""
    found: list[Section] = []
    head = f"{rows[0][0]}: {rows[0][1]}"[: SECTION_CHARS_MAX // 4] if rows else ""
    group: list[str] = []
    first = size = last = 0
    for number, line in rows:
        row = f"{number}: {line}"
        if group and size + len(row) > SECTION_CHARS_MAX - len(head) - 2:
            found.append(Section(f"sheet “{sheet}”, rows {first}-{last}", "\n".join(group)))
            group, size = [head], len(head)
            first = number
        first = first or number
        group.append(row)
        size += len(row) + 1
        last = number
    if group:
        found.append(Section(f"sheet “{sheet}”, rows {first}-{last}", "\n".join(group)))
    return found


def _date_styles(package: PackedDocument, name: str) -> frozenset[int]:
    """Return the cell styles that show a number as a date."""
    formats: dict[int, str] = {}
    styles: list[int] = []
    is_inside = False

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal is_inside
        if tag == "numFmt":
            formats[int(attributes.get("numFmtId", -1))] = attributes.get("formatCode", "")
        elif tag == "cellXfs":
            is_inside = True
        elif tag == "xf" and is_inside:
            styles.append(int(attributes.get("numFmtId", 0)))

    def end(tag: str) -> None:
        nonlocal is_inside
        if tag == "cellXfs":
            is_inside = False

    if package.has(name):
        package.xml(name, start, end)
    return frozenset(
        number
        for number, form in enumerate(styles)
        if form in _DATE_FORMATS or re.search("[ymdhs]", _LITERAL.sub("", formats.get(form, "")).lower())
    )


def _column(reference: str) -> int:
    letters = _COLUMN.match(reference)
    number = 0
    for letter in letters[0][:4] if letters else "":
        number = number * 26 + ord(letter) - 64
    return number
