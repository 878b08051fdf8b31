"""Prints a call for approval: all of it, without characters that hide or move a part."""

from __future__ import annotations

import re

import msgspec
from rich.console import Console
from rich.text import Text

_BAR = "  │ "
_MARK = "reverse"  # a literal "\u202e" in the text looks different from a character that was replaced
_BLANK_LINES_MIN = 4  # runs of at least this many blank lines, and of spaces, are replaced with their count
_SPACES_MIN = 60
_SELF_EVIDENT = frozenset({"command", "code", "patch"})
# Printable by their category, but they leave no mark on the screen.
_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
_BLANK_RUN = re.compile(rf"^(?:[ \t]*\n){{{_BLANK_LINES_MIN},}}", re.MULTILINE)
_SPACE_RUN = re.compile(rf"[ \t]{{{_SPACES_MIN},}}")


def exact(text: str) -> Text:
    """The text with hidden characters, blank lines and long gaps made visible, each in reverse video."""
    drawn = Text()
    end = 0
    for found in _BLANK_RUN.finditer(text):
        _add_line_part(drawn, text[end : found.start()])
        drawn.append(f"[{found.group().count(chr(10)):,} blank lines]", _MARK)
        drawn.append("\n")
        end = found.end()
    _add_line_part(drawn, text[end:])
    return drawn


def _add_line_part(drawn: Text, text: str) -> None:
    end = 0
    for found in _SPACE_RUN.finditer(text):
        _add_words(drawn, text[end : found.start()])
        drawn.append(f"[{len(found.group()):,} spaces]", _MARK)
        end = found.end()
    _add_words(drawn, text[end:])


def _add_words(drawn: Text, text: str) -> None:
    plain: list[str] = []
    for char in text:
        if not _is_hidden(char):
            plain.append(char)
            continue
        drawn.append("".join(plain))
        plain.clear()
        drawn.append(char.encode("unicode_escape", "surrogatepass").decode(), _MARK)
    drawn.append("".join(plain))


def _is_hidden(char: str) -> bool:
    """Whether a character is invisible: control and format characters, odd spaces, fillers, no glyph."""
    if char in "\n\t":
        return False
    return not char.isprintable() or char in _INVISIBLE or "\U000e0100" <= char <= "\U000e01ef"


def fields_of(arguments: str) -> list[tuple[str, str]]:
    """The name and text of every argument.

    The name is empty if it adds nothing: for a single command or program, and if the text is not a JSON
    object.
    """
    try:
        given = msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError):
        return [("", arguments)]
    if len(given) == 1 and _SELF_EVIDENT.intersection(given):
        return [("", _readable(value)) for value in given.values()]
    return [(name, _readable(value)) for name, value in given.items()]


def _readable(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def print_call(arguments: str, out: Console) -> None:
    """Print every argument in full."""
    count = 0
    for name, text in fields_of(arguments):
        if name:
            out.print(Text("  ") + exact(name.replace("\n", " ")) + Text(":"), style="dim", soft_wrap=True)
        print_text(text, out)
        count += text.count("\n") + 1
    if count > out.height // 2:  # its beginning may have left the screen
        out.print(f"  {count:,} lines in all.", style="dim")


def print_text(text: str, out: Console) -> None:
    """Print a text in full, each line behind a bar, so that none of them can pass for a prompt."""
    for line in exact(text).split("\n", allow_blank=True):
        for piece in line.wrap(out, max(20, out.width - len(_BAR)), overflow="fold"):
            out.print(Text(_BAR, "dim") + piece, soft_wrap=True)


def print_question(text: str, out: Console, style: str = "") -> None:
    """Print a question or a reason: its first line as a sentence, the rest as text that others wrote."""
    head, _, rest = text.partition("\n")
    out.print(Text("  ") + exact(head), style=style, soft_wrap=True)
    if rest.strip():
        print_text(rest.strip("\n"), out)
