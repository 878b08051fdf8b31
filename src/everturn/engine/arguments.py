"""Checks arguments against a tool's schema, so that a user who edits a call sees a mistake at once.

It knows the part of JSON Schema that describes arguments and ignores the rest: the tool checks its arguments
again when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from everturn.domain.json_types import Json
from everturn.domain.model import properties_of, required_of

_DEPTH_MAX = 40  # schemas of other people's servers may refer to themselves

_KINDS: dict[str, Callable[[Json], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}

_BOUNDS = {
    "number": ("minimum", "maximum", ""),
    "string": ("minLength", "maxLength", " characters"),
    "array": ("minItems", "maxItems", " items"),
}


def find_misfit(schema: Mapping[str, Json], arguments: Mapping[str, Json]) -> str | None:
    """Describe the first argument that does not fit the schema; None if all fit."""
    return _SchemaCheck(schema).look(schema, arguments, "", 0)


class _SchemaCheck:
    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root

    def look(self, schema: Json, value: Json, at: str, depth: int) -> str | None:
        if schema is False:
            return f"{_label(at)} is not taken"
        if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
            return None
        if "$ref" in schema:
            return self.look(self._resolve(schema["$ref"]), value, at, depth + 1)
        return (
            _check_kind(schema, value, at)
            or _check_choice(schema, value, at)
            or _check_size(schema, value, at)
            or self._check_parts(schema, value, at, depth)
            or self._check_alternatives(schema, value, at, depth)
        )

    def _resolve(self, reference: Json) -> Json:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: Json = self._root
        for name in reference.removeprefix("#").strip("/").split("/"):
            if name:
                found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _check_parts(self, schema: Mapping[str, Json], value: Json, at: str, depth: int) -> str | None:
        if isinstance(value, Mapping):
            return self._check_fields(schema, value, at, depth)
        if isinstance(value, list):
            items = schema.get("items")
            wrong = (self.look(items, one, f"{at}[{n}]", depth + 1) for n, one in enumerate(value))
            return next((found for found in wrong if found), None)
        return None

    def _check_fields(
        self, schema: Mapping[str, Json], value: Mapping[str, Json], at: str, depth: int
    ) -> str | None:
        known = properties_of(schema)
        lacking = [name for name in required_of(schema) if name not in value]
        if lacking:
            return f"{_label(f'{at}.{lacking[0]}')} is missing"
        for name, one in value.items():
            expected = known[name] if name in known else schema.get("additionalProperties", True)
            found = self.look(expected, one, f"{at}.{name}", depth + 1)
            if found:
                return found
        return None

    def _check_alternatives(self, schema: Mapping[str, Json], value: Json, at: str, depth: int) -> str | None:
        for part in _list(schema.get("allOf")):
            found = self.look(part, value, at, depth + 1)
            if found:
                return found
        for name in ("anyOf", "oneOf"):
            wrong = [self.look(part, value, at, depth + 1) for part in _list(schema.get(name))]
            if wrong and all(wrong):
                return wrong[0]
        return None


def _check_kind(schema: Mapping[str, Json], value: Json, at: str) -> str | None:
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else _list(kinds)
    known = [kind for kind in wanted if isinstance(kind, str) and kind in _KINDS]
    if not known or any(_KINDS[kind](value) for kind in known):
        return None
    return f"{_label(at)} must be of type {' or '.join(known)}"


def _check_choice(schema: Mapping[str, Json], value: Json, at: str) -> str | None:
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(choices, list) or value in choices:
        return None
    return f"{_label(at)} must be one of: {', '.join(str(choice) for choice in choices)}"


def _check_size(schema: Mapping[str, Json], value: Json, at: str) -> str | None:
    is_number = _KINDS["number"](value)
    size = value if is_number else len(value) if isinstance(value, (str, list)) else None
    if size is None:
        return None
    low, high, unit = _BOUNDS["number" if is_number else "string" if isinstance(value, str) else "array"]
    lowest, highest = schema.get(low), schema.get(high)
    if isinstance(lowest, (int, float)) and size < lowest:
        return f"{_label(at)} must be at least {lowest}{unit}"
    if isinstance(highest, (int, float)) and size > highest:
        return f"{_label(at)} must be at most {highest}{unit}"
    return None


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _label(at: str) -> str:
    return at.removeprefix(".") or "The whole"
