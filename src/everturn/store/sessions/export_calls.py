"""The arguments of a tool call as people read them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.store.sessions.export_text import visible

_LABEL_CHARS_MAX = 200
_TELLING = ("command", "cmd", "path", "file", "url", "query", "pattern", "text", "task", "code")
_SELF_EVIDENT = frozenset({"", "command", "cmd", "code", "patch"})


def fields_of(arguments: str) -> list[tuple[str, str]]:
    """The name and the text of each argument, or the whole text if it is not a JSON object."""
    try:
        given = msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return [("", arguments)]
    return [(name, value if isinstance(value, str) else _json(value)) for name, value in given.items()]


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def label_of(fields: Sequence[tuple[str, str]]) -> str:
    """The first line of the argument that says most."""
    given = dict(fields)
    telling = next((given[name] for name in _TELLING if given.get(name)), "")
    line = visible(telling.strip().split("\n")[0])
    return line if len(line) <= _LABEL_CHARS_MAX else line[:_LABEL_CHARS_MAX] + "…"


def write_fields(fields: Sequence[tuple[str, str]]) -> str:
    if len(fields) == 1 and fields[0][0] in _SELF_EVIDENT:
        return visible(fields[0][1])
    return "\n".join(visible(f"{name}: {text}") for name, text in fields)
