"""The pictures of a tool's result: kept as artifacts, shown with the call, and given to models that can see.

A result names them in ``display``, as the page reads them: ``{"kind": "images", "items": [...]}``.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import msgspec

from everturn.domain.json_types import Json
from everturn.domain.messages import AnyPart, Attachment, Result

KIND: Final = "images"
SEEN_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # that models read
SEEN_MAX: Final = 8  # in one request, the newest
SEEN_BYTES_MAX: Final = 3_700_000  # of one: providers take 5 MB, in base64


class Picture(msgspec.Struct, frozen=True):
    id: str  # of the artifact
    name: str = ""
    media: str = ""
    size: int = 0


def pictures_of(result: Result) -> tuple[Picture, ...]:
    display = result.display
    if not isinstance(display, dict) or display.get("kind") != KIND:
        return ()
    try:
        return tuple(msgspec.convert(display.get("items", []), list[Picture]))
    except msgspec.ValidationError:
        return ()  # a plug-in's own display


def names_files(part: AnyPart) -> bool:
    """True if the part refers to files: an attachment, or a result with pictures."""
    return type(part) is Attachment or (type(part) is Result and bool(pictures_of(part)))


def with_pictures(result: Result, kept: Container[str]) -> Result:
    """The result with only these of its pictures."""
    items: list[Json] = [
        msgspec.to_builtins(picture) for picture in pictures_of(result) if picture.id in kept
    ]
    return msgspec.structs.replace(result, display={"kind": KIND, "items": items} if items else None)
