"""Markdown as HTML that can only be read: no markup of its own, no pictures, links only to web and mail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin

from everturn.store.sessions.export_math import formula, read_math
from everturn.store.sessions.export_text import visible

_DEPTH_MAX: Final = 30
_ADDRESS_CHARS_MAX: Final = 200  # of one that is written out, such as that of a picture
_LINKS: Final = ("http://", "https://", "mailto:")
_BOXES: Final = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Written without their attribute, a style: the document's own rules refuse it.
_SIDED: Final = frozenset({"ul", "ol", "blockquote"})
_CELLS: Final = frozenset({"th_open", "td_open"})


def prose(markdown: str) -> str:
    """The HTML of a Markdown text. Deeply nested text, which the parser would cut, stays as written."""
    tokens = _parser().parse(markdown)
    if any(token.level >= _DEPTH_MAX - 1 for token in tokens):
        return plain(markdown)
    return "".join(_blocks(tokens))


def plain(text: str) -> str:
    return f'<div class="plain">{_safe(text)}</div>'


def code(text: str, language: str = "") -> str:
    caption = f"<figcaption>{escape(visible(language))}</figcaption>" if language else ""
    return f'<figure class="code">{caption}<pre><code>{_safe(text.rstrip(chr(10)))}</code></pre></figure>'


def _safe(text: str) -> str:
    """Escaped. Control characters, which HTML does not allow, are written out; others are the author's."""
    return escape(_CONTROL.sub(lambda found: visible(found[0]), text.replace("\r\n", "\n")))


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _DEPTH_MAX})
    parser.enable(["table", "strikethrough"])
    read_math(parser)
    footnote_plugin(parser, inline=False, move_to_end=False)  # where they were written, as on the page
    # Every address is parsed: those that lead nowhere are written out instead of being left as markup.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # how the library is configured
    return parser


def _blocks(tokens: Sequence[Token]) -> Iterator[str]:
    starts_item = False
    for token in tokens:
        if token.hidden:
            continue
        if token.type == "inline":
            yield _inline(token.children or [], starts_item)
        elif token.type in ("fence", "code_block"):
            yield code(token.content, token.info.strip().split(" ")[0])
        elif token.type == "table_open":
            yield '<div class="table"><table dir="auto">'
        elif token.type == "table_close":
            yield "</table></div>\n"
        elif token.type == "math_block":
            yield f'<div class="math">{formula(token.content, is_block=True)}</div>'
        elif token.type == "footnote_reference_open":
            yield f'<div class="note"><sup>{_safe(_label(token))}</sup>'
        elif token.type == "footnote_reference_close":
            yield "</div>\n"
        elif token.type in _CELLS:
            yield f"<{token.tag}{_alignment(token)}>"
        else:
            yield _tag(token)
        starts_item = token.type == "list_item_open"


def _tag(token: Token) -> str:
    if token.nesting < 0:
        return f"</{token.tag}>\n"
    start = token.attrGet("start") if token.type == "ordered_list_open" else None
    number = f' start="{start}"' if isinstance(start, int) else ""
    # The browser finds the side from the words: bullets and numbers of Hebrew or Arabic stand on the right.
    side = ' dir="auto"' if token.tag in _SIDED else ""
    return f"<{token.tag}{number}{side}>"


def _label(token: Token) -> str:
    return str(token.meta.get("label", ""))


def _alignment(token: Token) -> str:
    style = str(token.attrGet("style") or "")
    return next((f' class="{side}"' for side in ("right", "center") if style.endswith(side)), "")


def _inline(tokens: Sequence[Token], starts_item: bool) -> str:
    written: list[str] = []
    opened: list[str] = []  # what ends the links that are open
    for index, token in enumerate(tokens):
        if token.type == "text":
            box = _BOXES.get(token.content[:4], "") if starts_item and index == 0 else ""
            written.append(_safe(box + token.content[4:] if box else token.content))
        elif token.type == "code_inline":
            written.append(f"<code>{_safe(token.content)}</code>")
        elif token.type == "softbreak":
            written.append("\n")
        elif token.type == "hardbreak":
            written.append("<br>\n")
        elif token.type == "image":
            written.append(_picture(token))
        elif token.type.startswith("math_inline"):
            written.append(formula(token.content, is_block=token.type.endswith("double")))
        elif token.type == "footnote_ref":
            written.append(f"<sup>{_safe(_label(token))}</sup>")
        elif token.type == "link_open":
            start, end = _link(str(token.attrGet("href") or ""))
            written.append(start)
            opened.append(end)
        elif token.type == "link_close":
            written.append(opened.pop())
        elif token.tag in ("em", "strong", "s"):
            written.append(f"</{token.tag}>" if token.nesting < 0 else f"<{token.tag}>")
        else:
            written.append(_safe(token.content))
    return "".join(written)


def _link(address: str) -> tuple[str, str]:
    """What comes before and after the words of a link."""
    if address.lower().startswith(_LINKS):
        return f'<a href="{_safe(address)}" rel="noopener noreferrer">', "</a>"
    return "", f' <span class="to">({_shorten_address(address)})</span>' if address else ""


def _picture(token: Token) -> str:
    """Its words and its address: a document that loads nothing can show no picture."""
    start, end = _link(str(token.attrGet("src") or ""))
    return f'<span class="picture">{start}{_safe(token.content or "Picture")}{end}</span>'


def _shorten_address(address: str) -> str:
    shown = visible(address)
    return escape(shown if len(shown) <= _ADDRESS_CHARS_MAX else shown[:_ADDRESS_CHARS_MAX] + "…")
