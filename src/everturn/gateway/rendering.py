"""Converts an answer in Markdown to the messages of a platform, and splits it at sensible places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from unicodedata import category

import msgspec

from everturn.gateway.blocks import Block, Run, parse_blocks
from everturn.gateway.dialects import Dialect, write_block

LIMIT_MIN: Final = 200  # of one message; every platform allows far more
# Where a text may be cut, best first, and how far back from the limit to look for such a place.
_CUTS: Final = (("\n", 0.5), (". ", 0.5), ("! ", 0.5), ("? ", 0.5), ("; ", 0.7), (" ", 0.5))
_JOINER: Final = "‍"


def render(markdown: str, dialect: Dialect, limit: int) -> list[str]:
    """The messages in which the platform shows this answer, none longer than ``limit``.

    Lengths are counted in UTF-16 units, as Telegram does; other platforms count fewer for the same text.
    A code block that fits into one message is never cut. No text: no message. Takes about 0.2 s for 100 KB:
    longer answers are better sent as a file.
    """
    if limit < LIMIT_MIN:
        raise ValueError(f"a limit of {limit} is below {LIMIT_MIN}")
    return list(_Messages(dialect, limit).fill(parse_blocks(markdown)))


def length_of(text: str) -> int:
    """In UTF-16 units: characters beyond the first plane, such as most emoji, are two."""
    return len(text) + sum(char > "￿" for char in text)


class _Written(msgspec.Struct, frozen=True):
    text: str
    is_tight: bool


class _Messages:
    def __init__(self, dialect: Dialect, limit: int) -> None:
        self._dialect = dialect
        self._limit = limit

    def fill(self, blocks: list[Block]) -> Iterator[str]:
        message = ""
        for block in blocks:
            for written in self._pieces(block):
                gap = "\n" if written.is_tight else "\n\n"
                if message and length_of(message + gap + written.text) > self._limit:
                    yield message
                    message = ""
                message = message + gap + written.text if message else written.text
        if message:
            yield message

    def _pieces(self, block: Block) -> Iterator[_Written]:
        """The block, in pieces that each fit into a message. Blank pieces are left out."""
        rest: Block | None = block
        while rest is not None:
            piece, rest = (rest, None) if self._fits(rest) else self._cut(rest)
            if _content(piece).strip():
                yield _Written(write_block(piece, self._dialect), piece.is_tight)

    def _fits(self, block: Block) -> bool:
        # The first condition avoids writing a long text in full for each message it is split into.
        is_short = sum(len(run.text) for run in block.runs) <= self._limit
        return is_short and length_of(write_block(block, self._dialect)) <= self._limit

    def _cut(self, block: Block) -> tuple[Block, Block]:
        """The longest beginning of the block that fits, ended at a sensible place, and what follows it."""
        low, high = 1, min(self._limit, sum(len(run.text) for run in block.runs) - 1)
        while low < high:  # the written length grows with the text
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(_part(block, 0, middle)) else (low, middle - 1)
        at = _sensible(_content(block), low, lines_only=block.is_code)
        first, second = _part(block, 0, at), _part(block, at, None)
        if first.is_code:  # the line break is where the two messages part
            second = _without_break(second)
        lead = block.indent + len(block.mark)
        return first, msgspec.structs.replace(second, mark="", indent=lead, is_tight=True)


def _content(block: Block) -> str:
    return "".join(run.text for run in block.runs)


def _part(block: Block, start: int, end: int | None) -> Block:
    """The block with a part of its text, in the same styles."""
    runs, at = [], 0
    for run in block.runs:
        text = run.text[max(0, start - at) : None if end is None else max(0, end - at)]
        at += len(run.text)
        if text:
            runs.append(Run(text, run.styles, run.link))
    return msgspec.structs.replace(block, runs=tuple(runs))


def _without_break(block: Block) -> Block:
    return _part(block, 1, None) if _content(block).startswith("\n") else block


def _sensible(text: str, end: int, *, lines_only: bool) -> int:
    """Where to cut at or before ``end``: after a line, a sentence or a word, and never inside a character
    that is written with several code points."""
    for sign, share in _CUTS[:1] if lines_only else _CUTS:
        found = text.rfind(sign, int(end * share), end)
        if found > 0:
            return found if lines_only else found + len(sign)
    while end > 1 and not is_boundary(text, end):
        end -= 1
    return end


def is_boundary(text: str, at: int) -> bool:
    """True if no visible character spans this place, such as an emoji of several code points, a letter with
    accents, or a flag."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if after == _JOINER or before == _JOINER or before + after == "\r\n":
        return False
    if category(after) in ("Mn", "Me", "Mc", "Cf") or "\U0001f3fb" <= after <= "\U0001f3ff":
        return False
    flags = 0
    while at - flags > 0 and "\U0001f1e6" <= text[at - flags - 1] <= "\U0001f1ff":
        flags += 1
    return not (flags % 2 and "\U0001f1e6" <= after <= "\U0001f1ff")
