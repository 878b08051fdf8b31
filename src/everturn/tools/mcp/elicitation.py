"""Turns a server's request for input during a call into a question that the user answers in text."""

from __future__ import annotations

from typing import Any

import msgspec

from everturn.domain.asks import DECLINE, EXPIRED
from everturn.domain.json_types import Json, JsonObject
from everturn.tools.mcp.catalog import storable

_TEXT_CHARS_MAX = 4000
_FIELDS_MAX = 20
_OPTIONS_MAX = 20
_CHOICES_MAX = 8
_ACCEPT = "go ahead"
_YES, _NO = "yes", "no"


class Elicitation(msgspec.Struct, frozen=True):
    """A question. ``text`` says who asks; ``choices`` are suggestions, other answers are possible."""

    text: str
    choices: tuple[str, ...]
    fields: dict[str, JsonObject]
    is_address: bool = False
    required: frozenset[str] = frozenset()


class Reply(msgspec.Struct, frozen=True):
    """``action``: accept | decline | cancel, as in the protocol."""

    action: str
    content: dict[str, Json] | None = None


# ``Any``: a value of the SDK.
def read_elicitation(server: str, params: Any) -> Elicitation:
    message = storable(str(params.message))[:_TEXT_CHARS_MAX]
    if params.mode == "url":
        text = (
            f"The MCP server {server} wants you to open an address before it goes on. Never enter a password "
            f"of another service there.\n\n{message}\n\n{storable(params.url)[:2000]}"
        )
        return Elicitation(text, (_ACCEPT, DECLINE), {}, is_address=True)
    schema = params.requested_schema if isinstance(params.requested_schema, dict) else {}
    fields = {str(name): field for name, field in dict(schema.get("properties") or {}).items()}
    fields = {name: field for name, field in fields.items() if isinstance(field, dict)}
    listed = schema.get("required")
    required = frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()
    described = "\n".join(
        _describe(name, field, is_required=name in required)
        for name, field in list(fields.items())[:_FIELDS_MAX]
    )
    how = f"\n\nAnswer with a line for each, as in: {_example(fields, required)}" if len(fields) > 1 else ""
    text = f"The MCP server {server} asks:\n\n{message}"
    if fields:
        text += f"\n\n{described}{how}"
    return Elicitation(text, (*_choices(fields), DECLINE), fields, required=required)


def _example(fields: dict[str, JsonObject], required: frozenset[str]) -> str:
    name = next((name for name in fields if name in required), next(iter(fields)))
    return storable(f"{name[:60]} = …")


def read_reply(asked: Elicitation, answer: str) -> Reply | str:
    """Return the reply for the server, or what is wrong with the user's answer."""
    words = answer.strip()
    if words == EXPIRED:
        return Reply("cancel")
    if words.lower() == DECLINE:
        return Reply("decline")
    if asked.is_address:
        return Reply("accept") if words == _ACCEPT else f"Answer with {_ACCEPT} or {DECLINE}."
    if not asked.fields:
        return Reply("accept", {}) if words == _ACCEPT else f"Answer with {_ACCEPT} or {DECLINE}."
    given = {next(iter(asked.fields)): words} if len(asked.fields) == 1 else _lines(words)
    unknown = sorted(set(given) - set(asked.fields))
    if unknown:
        return f"{unknown[0][:60]!r} is not asked for."
    content: dict[str, Json] = {}
    for name, field in asked.fields.items():
        text = given.get(name, "")
        if not text and "default" in field:
            content[name] = field["default"]
            continue
        if not text:
            if name in asked.required:
                return f"{name[:60]} is missing: {_kind(field)} is wanted. Answer again, with all lines."
            continue
        value = _value(field, text)
        if value is None:
            return f"{name} cannot be {text[:60]!r}: {_kind(field)} is wanted."
        content[name] = value
    return Reply("accept", content)


def _lines(words: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in words.splitlines() if line.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _describe(name: str, field: JsonObject, *, is_required: bool) -> str:
    words = " ".join(str(field.get("description") or field.get("title") or "").split())[:300]
    facts = [_kind(field, with_titles=True)]
    if "default" in field:
        facts.append(f"{_show(field['default'])} if you leave it out")
    elif not is_required:
        facts.append("may be left out")
    about = f"({'; '.join(facts)})"
    return storable(f"{name}: {words} {about}" if words else f"{name} {about}")


def _show(value: Json) -> str:
    if isinstance(value, bool):
        return _YES if value else _NO
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)[:100]


def _kind(field: JsonObject, *, with_titles: bool = False) -> str:
    options = _options(field)
    shown = ", ".join(
        f"{option} for {title}" if with_titles and title not in ("", option) else option
        for option, title in list(options.items())[:_OPTIONS_MAX]
    )
    if field.get("type") == "array":
        return f"one or more of {shown}, with commas between them" if options else "several, with commas"
    if options:
        return f"one of {shown}"
    kind, form = str(field.get("type")), str(field.get("format"))
    if kind == "string":
        return {"date": "a date, as in 2026-01-31", "email": "a mail address", "uri": "an address"}.get(
            form, "text"
        )
    return {"boolean": "yes or no", "integer": "a whole number", "number": "a number"}.get(kind, "text")


def _options(field: JsonObject) -> dict[str, str]:
    """Return the allowed values with their titles. Empty means that all are allowed."""
    if field.get("type") == "array":
        items = field.get("items")
        return _options(items) if isinstance(items, dict) else {}
    if isinstance(field.get("enum"), list):
        names = field.get("enumNames")
        titles = [str(name) for name in names] if isinstance(names, list) else []
        values = [str(option) for option in field["enum"]]
        return dict(zip(values, titles + [""] * len(values), strict=False))
    several = field.get("oneOf") or field.get("anyOf")
    found = several if isinstance(several, list) else []
    return {
        str(option["const"]): str(option.get("title") or "")
        for option in found
        if isinstance(option, dict) and "const" in option
    }


def _choices(fields: dict[str, JsonObject]) -> tuple[str, ...]:
    if not fields:
        return (_ACCEPT,)
    if len(fields) > 1:
        return ()
    [field] = fields.values()
    if field.get("type") == "boolean":
        return (_YES, _NO)
    return () if field.get("type") == "array" else tuple(_options(field))[:_CHOICES_MAX]


def _value(field: JsonObject, text: str) -> Json:
    """Return the value, or None if it does not fit."""
    options, kind = _options(field), field.get("type")
    if kind == "array":
        parts = [_option(options, part.strip()) for part in text.split(",") if part.strip()]
        return None if None in parts else parts
    if options:
        return _option(options, text)
    if kind == "boolean":
        return {"yes": True, "true": True, "no": False, "false": False}.get(text.lower())
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        return None
    return text


def _option(options: dict[str, str], text: str) -> str | None:
    """Return the option with this value or this title."""
    if not options or text in options:
        return text
    meant = [value for value, title in options.items() if title.lower() == text.lower()]
    return meant[0] if len(meant) == 1 else None
