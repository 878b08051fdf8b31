"""Formulas as MathML, which browsers draw themselves: the document needs no scripts for them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html import escape
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.dollarmath import dollarmath_plugin

_CHARS_MAX: Final = 2_000
_MATHML: Final = "{http://www.w3.org/1998/Math/MathML}"
# Nothing that loads or leads anywhere, and no styles: a formula comes from a model.
_TAGS: Final = frozenset(
    re.findall(
        r"\w+",
        "math mrow mi mn mo ms mtext mspace msub msup msubsup munder mover munderover mfrac msqrt mroot "
        "mtable mtr mtd mpadded mphantom menclose mmultiscripts mprescripts none mstyle",
    )
)
_ATTRIBUTES: Final = frozenset(
    re.findall(
        r"\w+",
        "display stretchy fence separator form accent accentunder linethickness columnalign columnspacing "
        "rowspacing lspace rspace width height depth minsize maxsize mathvariant notation largeop "
        "movablelimits",
    )
)


def read_math(parser: MarkdownIt) -> None:
    r"""Let the parser read ``$…$``, ``$$…$$`` and ``\(…\)``, as the page does."""
    dollarmath_plugin(parser, allow_space=False, allow_digits=False, double_inline=True)
    parser.inline.ruler.before("escape", "math_brackets", _read_bracketed)


def _read_bracketed(state: StateInline, silent: bool) -> bool:
    if not state.src.startswith("\\(", state.pos):
        return False
    # Where nothing closes is remembered: to look again at each opening would take the square of the length.
    if state.env.get("math_unclosed") is state.src:
        return False
    end = state.src.find("\\)", state.pos + 2)
    if end < 0:
        state.env["math_unclosed"] = state.src
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content = state.src[state.pos + 2 : end]
    state.pos = end + 2
    return True


def formula(tex: str, *, is_block: bool) -> str:
    """The formula as MathML; as written, where it cannot be read."""
    import latex2mathml.converter

    tex = tex.strip()
    try:
        if len(tex) > _CHARS_MAX:
            raise ValueError("too long")
        drawn = latex2mathml.converter.convert(tex, display="block" if is_block else "inline")
        root = ElementTree.fromstring(drawn)  # noqa: S314 - written by the library, without entities of its own
        return _write(root)
    except Exception:  # the library raises many kinds, and the document needs only to know that it cannot
        return f"<code>{escape(tex)}</code>"


def _write(node: ElementTree.Element) -> str:
    tag = node.tag.removeprefix(_MATHML)
    inner = escape(node.text or "") + "".join(_write(child) + escape(child.tail or "") for child in node)
    if tag not in _TAGS:
        return inner
    given = "".join(f' {name}="{escape(value)}"' for name, value in node.items() if name in _ATTRIBUTES)
    return f"<{tag}{given}>{inner}</{tag}>"
