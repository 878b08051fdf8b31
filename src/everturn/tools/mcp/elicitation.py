"""What a server asks the user for in the middle of a call, as a question with words for an answer."""

from __future__ import annotations

from typing import Any

import msgspec

from everturn.domain.asks import DECLINE, EXPIRED
from everturn.domain.json_types import Json, JsonObject
from everturn.tools.mcp.catalog import storable

_TEXT_CHARS_MAX = 4000
_FIELDS_MAX = 20
_ACCEPT = "go ahead"
_YES, _NO = "yes", "no"


class Elicitation(msgspec.Struct, frozen=True):
    """``text``: for the user, with who asks; ``choices``: offered answers; others are possible."""

    text: str
    choices: tuple[str, ...]
    fields: dict[str, JsonObject]
    is_address: bool = False


class Reply(msgspec.Struct, frozen=True):
    """``action``: accept | decline | cancel, as the protocol has it."""

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
    described = "\n".join(_describe(name, field) for name, field in list(fields.items())[:_FIELDS_MAX])
    how = "\n\nAnswer with a line for each, as in: name = value" if len(fields) > 1 else ""
    text = f"The MCP server {server} asks:\n\n{message}"
    if fields:
        text += f"\n\n{described}{how}"
    return Elicitation(text, (*_choices(fields), DECLINE), fields)


def read_reply(asked: Elicitation, answer: str) -> Reply | str:
    """What the server is given; or what is wrong with the answer, for the user."""
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
            continue  # whether it is required is for the server to say: it has the schema
        value = _value(field, text)
        if value is None:
            return f"{name} cannot be {text[:60]!r}: {_kind(field)} is wanted."
        content[name] = value
    return Reply("accept", content)


def _lines(words: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in words.splitlines() if line.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _describe(name: str, field: JsonObject) -> str:
    words = " ".join(str(field.get("description") or field.get("title") or "").split())[:300]
    return storable(f"{name}: {words} ({_kind(field)})" if words else f"{name} ({_kind(field)})")


def _kind(field: JsonObject) -> str:
    if options := _options(field):
        return "one of " + ", ".join(options[:20])
    return {"boolean": "yes or no", "integer": "a whole number", "number": "a number"}.get(
        str(field.get("type")), "text"
    )


def _options(field: JsonObject) -> list[str]:
    if isinstance(field.get("enum"), list):
        return [str(option) for option in field["enum"]]
    several = field.get("oneOf")
    found = several if isinstance(several, list) else []
    return [str(option["const"]) for option in found if isinstance(option, dict) and "const" in option]


def _choices(fields: dict[str, JsonObject]) -> tuple[str, ...]:
    if not fields:
        return (_ACCEPT,)
    if len(fields) > 1:
        return ()
    [field] = fields.values()
    if field.get("type") == "boolean":
        return (_YES, _NO)
    return tuple(_options(field)[:8])


def _value(field: JsonObject, text: str) -> Json:
    """None: it does not fit."""
    if options := _options(field):
        return text if text in options else None
    kind = field.get("type")
    if kind == "boolean":
        return {"yes": True, "true": True, "no": False, "false": False}.get(text.lower())
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        return None
    if kind == "array":
        return [part.strip() for part in text.split(",")]
    return text
