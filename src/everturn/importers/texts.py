"""Reads what foreign exports have in common: times, titles, JSON, pictures written into a text."""

from __future__ import annotations

import base64
import binascii
import datetime
import mimetypes
import re
import unicodedata
from typing import Final

import msgspec

from everturn.domain.errors import BadImport
from everturn.domain.json_types import Json, JsonObject
from everturn.importers.values import ForeignFile

TITLE_CHARS_MAX: Final = 200
_MS_MIN: Final = 10**11  # 1973 as milliseconds; a smaller number counts seconds
_MS_MAX: Final = 10**14
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)


def ms_of(value: object, default: int) -> int:
    """A time as milliseconds: from seconds, milliseconds or ISO 8601."""
    if isinstance(value, str):
        try:
            parsed = datetime.datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        except ValueError:
            return default
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=datetime.UTC)
        value = parsed.timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _MS_MAX:
        return default
    return int(value if value >= _MS_MIN else value * 1000)


def title_of(value: object) -> str:
    """One line without control characters."""
    text = value if isinstance(value, str) else ""
    kept = "".join(" " if unicodedata.category(char) in ("Cc", "Cs") else char for char in text)
    return " ".join(kept.split())[:TITLE_CHARS_MAX]


def plain(text: str) -> str:
    """The text without half characters, which no database can store."""
    return text.encode("utf-8", "replace").decode("utf-8")


def decode(data: bytes | msgspec.Raw) -> Json:
    """Raises BadImport where the text is not JSON or is cut off."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadImport(f"It is not complete JSON: {error}.") from error


def items_of(data: bytes) -> list[msgspec.Raw]:
    """The members of a JSON list, each to be decoded when it is its turn. Raises BadImport."""
    try:
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadImport(f"It is not a complete JSON list: {error}.") from error


def strings(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def dicts(value: object) -> tuple[JsonObject, ...]:
    return tuple(one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def text_of(value: object) -> str:
    """The text of a string, or of a list of strings and parts with a text."""
    if isinstance(value, str):
        return plain(value)
    found = []
    for one in value if isinstance(value, list) else ():
        text = one.get("text") if isinstance(one, dict) else one
        if isinstance(text, str):
            found.append(plain(text))
    return "\n".join(found)


def file_of_data_url(url: object, name: str) -> ForeignFile | None:
    """The file that an address holds itself; None for another address."""
    found = _DATA_URL.match(url) if isinstance(url, str) else None
    if found is None or not isinstance(url, str):
        return None
    content = url[found.end() :]

    def read() -> bytes:
        try:
            return base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise BadImport(f"{name}: its bytes are damaged ({error}).") from error

    return ForeignFile(name + (mimetypes.guess_extension(found[1]) or ""), read)


def as_arguments(value: object) -> str:
    """The arguments of a call as JSON text; other text becomes the one argument ``text``."""
    if isinstance(value, str):
        try:
            parsed = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            parsed = None
        value = parsed if isinstance(parsed, dict) else {"text": plain(value)}
    return msgspec.json.encode(value if isinstance(value, dict) else {}).decode()
