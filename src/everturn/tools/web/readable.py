"""HTML as text that can be read: headings, lists, links and tables stay, the rest of the page goes.

One pass from front to back that reads no character twice, so the time for a hostile page is linear in its
length.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import msgspec


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DROPPED = _names(
    "script style noscript template svg iframe object canvas form button select head nav footer aside"
)
_RAW = _names("script style textarea title")
_BLOCKS = _names(
    "address article blockquote dd div dl dt fieldset figure figcaption h1 h2 h3 h4 h5 h6 header hr li main "
    "ol p pre section table tr ul"
)
_ROWS = _names("li tr dt dd")
_NAME = re.compile(r"/?([a-zA-Z][a-zA-Z0-9:-]*)")
_HREF = re.compile(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.I)


class Readable(msgspec.Struct, frozen=True):
    title: str
    text: str


def readable(page: str) -> Readable:
    reader = _Reader()
    for kind, value in _tokens(page):
        if kind == "":
            reader.text(value)
        elif kind == "title":
            reader.title = reader.title or _squeeze(value)
        else:
            reader.tag(kind, value)
    return Readable(reader.title, reader.result())


def _tokens(page: str) -> Iterator[tuple[str, str]]:
    """(name of the tag, what is inside the brackets); text has no name; a title comes with its text."""
    at = 0
    while at < len(page):
        open_at = page.find("<", at)
        if open_at < 0:
            yield ("", page[at:])
            break
        if open_at > at:
            yield ("", page[at:open_at])
        if page.startswith("<!--", open_at):
            end = page.find("-->", open_at + 4)
            at = len(page) if end < 0 else end + 3
            continue
        name = _NAME.match(page, open_at + 1)
        if name is None and page[open_at + 1 : open_at + 2] not in ("!", "?", "/"):
            yield ("", "<")
            at = open_at + 1
            continue
        close_at = page.find(">", open_at)
        if close_at < 0:
            break
        at = close_at + 1
        if name is None:
            continue
        inner = page[open_at + 1 : close_at]
        lowered = name[1].lower()
        if lowered in _RAW and not inner.startswith("/"):
            end = _raw_end(page, at, lowered)
            if lowered == "title":
                yield ("title", page[at:end])
            at = end
        else:
            yield (lowered, inner)


def _raw_end(page: str, at: int, name: str) -> int:
    found = re.compile(f"</{name}", re.I).search(page, at)
    return found.start() if found else len(page)


class _Reader:
    def __init__(self) -> None:
        self.title = ""
        self._parts: list[str] = []
        self._dropped = ""  # the tag whose content is being left out
        self._depth = 0  # how many of that tag are open
        self._link: tuple[str, int] | None = None
        self._is_pre = 0

    def text(self, value: str) -> None:
        if self._dropped:
            return
        value = _unescape(value)
        self._parts.append(value if self._is_pre else re.sub(r"\s+", " ", value))

    def tag(self, name: str, inner: str) -> None:
        if self._dropped:
            if name == self._dropped and not inner.endswith("/"):
                self._depth += -1 if inner.startswith("/") else 1
                self._dropped = name if self._depth else ""
        elif inner.startswith("/"):
            self._end(name)
        elif name in _DROPPED and not inner.endswith("/"):
            self._dropped, self._depth = name, 1
        else:
            self._start(name, inner)

    def _start(self, name: str, inner: str) -> None:
        if name in _BLOCKS:
            self._parts.append("\n" if name in _ROWS or name == "div" else "\n\n")
        if name in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._parts.append("#" * int(name[1]) + " ")
        elif name == "li":
            self._parts.append("- ")
        elif name == "br":
            self._parts.append("\n")
        elif name in ("td", "th"):
            self._parts.append(" | ")
        elif name == "pre":
            self._parts.append("```\n")
            self._is_pre += 1
        elif name == "a":
            href = _HREF.search(inner[:4096])
            target = _unescape(next((part for part in href.groups() if part), "")) if href else ""
            self._link = (target, len(self._parts))  # links do not nest: a new one ends the old

    def _end(self, name: str) -> None:
        if name == "pre" and self._is_pre:
            self._is_pre -= 1
            self._parts.append("\n```")
        elif name == "a" and self._link is not None:
            self._close_link(*self._link)
            self._link = None
        if name in _BLOCKS and name not in _ROWS:
            self._parts.append("\n")

    def _close_link(self, target: str, start: int) -> None:
        words = "".join(self._parts[start:]).strip()
        if words and target.startswith(("http://", "https://", "/")) and "\n" not in words:
            self._parts[start:] = [f"[{words}]({target})"]

    def result(self) -> str:
        lines: list[str] = []
        is_pre = False
        for line in "".join(self._parts).split("\n"):
            is_pre ^= line.strip() == "```"
            kept = line.rstrip() if is_pre else line.strip()
            if kept or is_pre or (lines and lines[-1]):
                lines.append(kept)
        return "\n".join(lines).strip()


def _unescape(text: str) -> str:
    # Python refuses to read a number of thousands of digits; no character has more than seven.
    return html.unescape(re.sub(r"&#[0-9]{8,}", "", text))


def _squeeze(text: str) -> str:
    return " ".join(_unescape(text).split())
