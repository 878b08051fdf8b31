"""Fields that a newer version added to a value that this version knows (G04)."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from everturn.domain.json_types import Json, JsonObject

T = TypeVar("T", bound=msgspec.Struct)
_CLASSES_MAX = 64


def keep_newer_fields(value: T, stored: JsonObject) -> T:
    """``value`` with all fields that it was read from, also those that its class does not have.

    The result is of a subclass: it is used like any other value, and written as it was stored.
    """
    known = {*value.__struct_encode_fields__, value.__struct_config__.tag_field}
    newer = tuple(name for name in stored if name not in known)
    whole = msgspec.convert(stored, _subclass(type(value), newer)) if newer else value
    inner = {
        name: keep_newer_fields(part, stored[name])
        for name in value.__struct_fields__
        if isinstance(part := getattr(value, name), msgspec.Struct)
    }
    return cast(T, msgspec.structs.replace(whole, **inner) if inner else whole)


@lru_cache(_CLASSES_MAX)
def _subclass(kind: type[msgspec.Struct], newer: tuple[str, ...]) -> type[msgspec.Struct]:
    """``kind`` with more fields. In Python they have numbers: a newer name may not be an identifier."""
    names = {f"newer_{number}": name for number, name in enumerate(newer)}
    config = kind.__struct_config__
    return msgspec.defstruct(
        kind.__name__,
        [(name, Json) for name in names],
        bases=(kind,),
        frozen=config.frozen,
        kw_only=True,
        omit_defaults=config.omit_defaults,
        rename=names,
        tag=config.tag,
        tag_field=config.tag_field,
    )
