"""Which fields of a settings struct can be set in config.toml.

A field whose type carries a description is a setting: it is accepted in config.toml and listed in
docs/configuration.md. A field without a description is a fixed bound; only tests pass other values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec

# A type as a value, unions and ``list[X]`` included. ``Any``: Python 3.11 has no type for those.
TypeForm = Any


class Setting(msgspec.Struct, frozen=True):
    """One setting. ``name`` includes inner tables, as in ``cache.agents_max``."""

    name: str
    type: TypeForm
    default: object  # msgspec.NODEFAULT if a value is required
    about: str


def settings_of(kind: type[msgspec.Struct]) -> dict[str, Setting]:
    """The settings of a struct, those of structs inside it included, in the order of their definition."""
    return {setting.name: setting for setting in _walk(kind, "") if setting.about}


def default_of(kind: type[msgspec.Struct], name: str) -> object:
    """The default of a field, whether or not it is a setting."""
    return next(setting.default for setting in _walk(kind, "") if setting.name == name)


def inner_struct(annotation: object) -> type[msgspec.Struct] | None:
    """The struct that an annotation names; None if it names something else."""
    bare = _split(annotation)[0]
    return bare if isinstance(bare, type) and issubclass(bare, msgspec.Struct) else None


def _walk(kind: type[msgspec.Struct], prefix: str) -> Iterator[Setting]:
    for field in msgspec.structs.fields(kind):
        inner = inner_struct(field.type)
        if inner is not None:
            yield from _walk(inner, f"{prefix}{field.name}.")
            continue
        annotation, about = _split(field.type)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield Setting(prefix + field.name, annotation, default, about)


def _split(annotation: object) -> tuple[object, str]:
    """The annotation without its metadata, and the description in the metadata."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    bare, *metadata = get_args(annotation)
    descriptions = (item.description for item in metadata if isinstance(item, msgspec.Meta))
    return bare, next(filter(None, descriptions), "")
