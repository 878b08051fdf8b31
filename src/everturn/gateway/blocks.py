"""Parses Markdown into blocks of styled text, which every platform's dialect can write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Final
from unicodedata import east_asian_width

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

BULLET: Final = "•"
_RULE: Final = "———"
_DEPTH_MAX: Final = 30
_LINKS: Final = ("http://", "https://", "mailto:")


class Style(StrEnum):
    BOLD = "bold"
    ITALIC = "italic"
    STRUCK = "struck"
    CODE = "code"


class Run(msgspec.Struct, frozen=True):
    """Text in one style. ``link`` is its target, or empty."""

    text: str
    styles: frozenset[Style] = frozenset()
    link: str = ""


class Block(msgspec.Struct, frozen=True):
    """A paragraph, heading, list item or code block.

    ``mark``: what stands before its first line, such as ``• ``; further lines are indented by as much.
    ``is_tight``: it follows the block before it without an empty line.
    """

    runs: tuple[Run, ...]
    is_code: bool = False
    language: str = ""
    is_quote: bool = False
    indent: int = 0
    mark: str = ""
    is_tight: bool = False


_STYLES: Final = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRUCK}


def parse_blocks(markdown: str) -> list[Block]:
    """The blocks of a Markdown text, in order. HTML in it is text: no platform gets markup from a model."""
    options = {"html": False, "maxNesting": _DEPTH_MAX}
    tokens = MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).parse(markdown)
    if any(token.level >= _DEPTH_MAX - 1 for token in tokens):
        return [Block((Run(markdown),))]  # the parser leaves out what is nested deeper
    return list(_Reader(tokens).blocks())


class _List(msgspec.Struct):
    number: int | None  # of the next item; None: bullets
    is_tight: bool = False


class _Reader:
    """Reads the parser's tokens once, from the first to the last."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._lists: list[_List] = []
        self._quotes = 0
        self._mark = ""  # of the list item that has begun and has no text yet

    def blocks(self) -> Iterator[Block]:
        at = 0
        while at < len(self._tokens):
            token = self._tokens[at]
            if token.type == "table_open":
                end = next(i for i in range(at, len(self._tokens)) if self._tokens[i].type == "table_close")
                yield self._block((Run(_table(self._tokens[at:end])),), is_code=True)
                at = end
            elif token.type == "inline":
                is_heading = at > 0 and self._tokens[at - 1].type == "heading_open"
                yield self._block(_runs(token.children or [], {Style.BOLD} if is_heading else set()))
            elif token.type in ("fence", "code_block"):
                yield self._block(
                    (Run(token.content.removesuffix("\n")),), is_code=True, language=_language(token.info)
                )
            elif token.type == "hr":
                yield self._block((Run(_RULE),))
            else:
                self._enter_or_leave(token)
            at += 1

    def _enter_or_leave(self, token: Token) -> None:
        if token.type == "blockquote_open":
            self._quotes += 1
        elif token.type == "blockquote_close":
            self._quotes -= 1
        elif token.type == "bullet_list_open":
            self._lists.append(_List(None))
        elif token.type == "ordered_list_open":
            self._lists.append(_List(int(token.attrs.get("start", 1))))
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            self._lists.pop()
        elif token.type == "list_item_open":
            self._begin_item(self._lists[-1])
        elif token.type == "list_item_close":
            self._mark = ""  # of an item without text

    def _begin_item(self, within: _List) -> None:
        self._mark = f"{BULLET} " if within.number is None else f"{within.number}. "
        if within.number is not None:
            within.number += 1

    def _block(self, runs: tuple[Run, ...], *, is_code: bool = False, language: str = "") -> Block:
        mark, self._mark = self._mark, ""
        depth = len(self._lists)
        is_tight = depth > 0 and (depth > 1 or self._lists[-1].is_tight)
        if depth:
            self._lists[-1].is_tight = True
        return Block(
            runs,
            is_code=is_code,
            language=language,
            is_quote=self._quotes > 0,
            indent=2 * max(0, depth - 1) + (0 if mark or not depth else 2),
            mark=mark,
            is_tight=is_tight,
        )


def _runs(tokens: Sequence[Token], styles: set[Style]) -> tuple[Run, ...]:
    """Runs of a line's tokens; neighbours in one style are one run."""
    same_look = groupby(_single_runs(tokens, set(styles)), key=lambda run: (run.styles, run.link))
    return tuple(Run("".join(run.text for run in runs), *look) for look, runs in same_look)


def _single_runs(tokens: Sequence[Token], styles: set[Style]) -> Iterator[Run]:
    link = ""
    for token in tokens:
        name = token.type.removesuffix("_open").removesuffix("_close")
        if name in _STYLES:
            (styles.add if token.nesting > 0 else styles.discard)(_STYLES[name])
        elif token.type == "link_open":
            link = _address(str(token.attrs.get("href", "")))
        elif token.type == "link_close":
            link = ""
        elif token.type == "image":
            source = _address(str(token.attrs.get("src", "")))
            yield Run(token.content or source or "image", frozenset(styles), source)
        elif token.type == "code_inline":
            yield Run(token.content, frozenset({*styles, Style.CODE}), link)
        elif token.type in ("softbreak", "hardbreak"):
            yield Run("\n", frozenset(styles), link)
        elif token.content:
            yield Run(token.content, frozenset(styles), link)


def _address(href: str) -> str:
    """Return the address if a chat can link to it; a workspace path is not such an address."""
    return href if href.lower().startswith(_LINKS) else ""


def _language(info: str) -> str:
    name = info.split(maxsplit=1)[0] if info.strip() else ""
    return name if name.replace("+", "").replace("-", "").replace("#", "").isalnum() else ""


def _table(tokens: Sequence[Token]) -> str:
    """Return a table with aligned columns, for a monospaced font."""
    rows: list[list[str]] = []
    rights: list[bool] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "th_open":
            rights.append("right" in str(token.attrs.get("style", "")))
        elif token.type == "inline":
            rows[-1].append("".join(run.text for run in _runs(token.children or [], set())))
    widths = [max(_width(row[at]) for row in rows) for at in range(len(rights))]
    lines = ["  ".join(map(_pad, row, widths, rights)).rstrip() for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def _pad(text: str, width: int, is_right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if is_right else text + space


def _width(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
