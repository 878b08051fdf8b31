"""The head of a SKILL.md or a prompt: a few lines of YAML between two lines of dashes.

This reads only what such heads need: keys with text values, quoted or not, on one or several lines. A value
that YAML would not read as text (an anchor, a tag, a list) is refused where text is needed, and skipped under
other keys. Aliases are not supported, so input cannot expand, and ``no`` is the text "no".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from everturn.domain.errors import Invalid

_KEY: Final = re.compile(r"([A-Za-z0-9_-]+)[ ]*:(?:[ ]+(.*)|$)")
_BLOCK: Final = re.compile(r"([|>])([+-]?)[0-9]?\s*(?:#.*)?$")
_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/", "r": "\r", "0": "", " ": " "}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.S)


class Head(msgspec.Struct, frozen=True):
    """``fields`` holds the unindented keys with text values, ``body`` what follows the head."""

    fields: Mapping[str, str]
    body: str


def read_head(text: str, file: str, wanted: Sequence[str]) -> Head:
    """Split a file into its head and its body. Without a head there are no fields.

    The values of the ``wanted`` keys must be text. Raises Invalid, naming the line.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return Head({}, text)
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        raise Invalid(f"{file} begins with --- and has no second line of --- after it.", hint="Add it.")
    fields: dict[str, str] = {}
    at = 1
    while at < end:
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            at += 1
            continue
        if line[0] == "\t":
            raise _wrong(file, at, "is indented with a tab", "Use spaces.")
        found = _KEY.match(line)
        if found is None:
            raise _wrong(file, at, "is not a key with a value", "Write it as 'key: value'.")
        key, value = found[1], (found[2] or "").strip()
        more = at + 1
        while more < end and (not lines[more].strip() or lines[more][0] in " \t" or _is_item(lines[more])):
            more += 1
        if key in fields:
            raise _wrong(file, at, f"has the key {key} a second time", "Keep one of them.")
        if key in wanted:
            fields[key] = _read_text(value, lines[at + 1 : more], file, at, key)
        at = more
    return Head(fields, "\n".join(lines[end + 1 :]))


def _is_item(line: str) -> bool:
    """True for a list item. A list under a key may be unindented."""
    return line.startswith("- ") or line.rstrip() == "-"


def _read_text(value: str, more: Sequence[str], file: str, at: int, key: str) -> str:
    if any(line[:1] == "\t" for line in more):
        raise _wrong(file, at, "is continued with a tab", "Use spaces.")
    if block := _BLOCK.match(value):
        return _fold(more) if block[1] == ">" else _keep(more)
    if value[:1] in ('"', "'"):
        return _unquote(" ".join([value, *(line.strip() for line in more)]).strip(), file, at, key)
    if (value[:1] and value[0] in "&*!{[%@`") or any(_is_item(line.strip()) for line in more if not value):
        raise _wrong(file, at, f"gives {key} something other than a text", "Put the text in quotes.")
    parts = [value, *(line.strip() for line in more)]
    return " ".join(part for part in map(_without_comment, parts) if part)


def _without_comment(part: str) -> str:
    return "" if part.startswith("#") else re.sub(r"\s#.*$", "", part).strip()


def _unquote(value: str, file: str, at: int, key: str) -> str:
    quote = value[0]
    pattern = r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?$' if quote == '"' else r"'((?:[^']|'')*)'\s*(?:#.*)?$"
    found = re.match(pattern, value, re.S)
    if found is None:
        raise _wrong(file, at, f"has a quote in {key} that is not closed", "Close it at the end of the text.")
    if quote == "'":
        return found[1].replace("''", "'")
    return _ESCAPE.sub(_unescape, found[1])


def _unescape(found: re.Match[str]) -> str:
    if code := found[1] or found[2]:
        char = chr(int(code, 16))
        return "\ufffd" if "\ud800" <= char <= "\udfff" else char
    return _ESCAPES.get(found[3], found[3])


def _keep(lines: Sequence[str]) -> str:
    margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:].rstrip() for line in lines).strip("\n")


def _fold(lines: Sequence[str]) -> str:
    return re.sub(r"(?<=\S)\n(?=\S)", " ", _keep(lines))


def _wrong(file: str, at: int, what: str, hint: str) -> Invalid:
    return Invalid(f"{file}, line {at + 1} {what}.", hint=hint, line=at + 1)
