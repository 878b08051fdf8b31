"""Converts a server's answers to results of a call."""

from __future__ import annotations

import base64
import binascii
import unicodedata

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.media import safe_name
from everturn.domain.messages import Outcome
from everturn.domain.tool import ToolFile, ToolImage, ToolResult
from everturn.tools.mcp.catalog import storable
from everturn.tools.mcp.wire import SdkAnswer, SdkBlock, SdkValue
from everturn.tools.terminal.output import head_and_tail

_OUTPUT_BYTES_MAX = 48_000
_IMAGES_MAX = 8
_FILES_MAX = 8
_FILE_BYTES_MAX = 8 * 1024 * 1024
_IMAGE_BYTES_MAX = 8 * 1024 * 1024
# Types that a browser shows only as pictures. An SVG could contain a script.
_SIGNATURES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


# Letters and marks by category, but invisible on the screen.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


class _Content:
    """Text for the model, and images and files for the user."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.images: list[ToolImage] = []
        self.files: list[ToolFile] = []

    def add(self, block: SdkBlock) -> None:
        if block.type == "text":
            self.lines.append(str(block.text))
        elif block.type == "image":
            self._add_image(str(block.mime_type), str(block.data))
        elif block.type == "resource":
            self.add_resource(block.resource)
        elif block.type == "resource_link":
            self.lines.append(f"[resource {block.uri}: {block.name}]")
        else:
            self.lines.append(f"[{getattr(block, 'mime_type', None) or block.type}, not shown]")

    def add_resource(self, resource: SdkValue) -> None:
        if hasattr(resource, "text"):
            self.lines.append(str(resource.text))
        elif str(resource.mime_type or "").startswith("image/"):
            self._add_image(str(resource.mime_type), str(resource.blob))
        else:
            kind = str(resource.mime_type or "application/octet-stream")[:80]
            self._add_file(str(resource.uri), kind, str(resource.blob))

    def _add_file(self, uri: str, media: str, encoded: str) -> None:
        name, size = safe_name(uri.partition("?")[0].rstrip("/")), len(encoded) * 3 // 4
        why = ""
        if len(self.files) >= _FILES_MAX:
            why = f"there are more than {_FILES_MAX}"
        elif size > _FILE_BYTES_MAX:
            why = f"it is larger than {_FILE_BYTES_MAX:,} bytes"
        else:
            try:
                self.files.append(ToolFile(storable(name), media, base64.b64decode(encoded, validate=True)))
            except (binascii.Error, ValueError):
                why = "it is damaged"
        kept = f"not kept: {why}" if why else "kept as a file for the user"
        self.lines.append(f"[{name}, {media}, {size:,} bytes, {kept}]")

    def _add_image(self, media: str, encoded: str) -> None:
        why = self._why_left_out(media, encoded)
        if why:
            self.lines.append(f"[{media[:80]}, not shown: {why}]")
            return
        data = base64.b64decode(encoded)
        self.images.append(ToolImage(media, data))
        self.lines.append(f"[{media}, {len(data):,} bytes, shown to the user]")

    def _why_left_out(self, media: str, encoded: str) -> str:
        if media not in _SIGNATURES:
            return "not a kind of picture that is shown"
        if len(self.images) >= _IMAGES_MAX:
            return f"there are more than {_IMAGES_MAX}"
        if len(encoded) > _IMAGE_BYTES_MAX * 4 // 3:
            return "it is too large"
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return "it is damaged"
        return "" if data.startswith(_SIGNATURES[media]) else "it is not what it says"


def result_of(answer: SdkAnswer) -> ToolResult:
    """Convert the answer of a tool."""
    content = _Content()
    for block in answer.content:
        content.add(block)
    if not content.lines and answer.structured_content is not None:
        content.lines.append(msgspec.json.encode(answer.structured_content).decode())
    return _result(content, Outcome.ERROR if answer.is_error else Outcome.OK)


def resource_result(answer: SdkValue) -> ToolResult:
    """Convert the contents of a resource."""
    content = _Content()
    for resource in answer.contents:
        content.add_resource(resource)
    return _result(content, Outcome.OK)


def _result(content: _Content, outcome: Outcome) -> ToolResult:
    text = storable("\n".join(content.lines))
    shown, is_cut = head_and_tail(text.encode("utf-8", "replace"), _OUTPUT_BYTES_MAX)
    return ToolResult(
        shown or "[no output]",
        outcome=outcome,
        full_output=text.encode("utf-8", "replace") if is_cut else None,
        images=tuple(content.images),
        files=tuple(content.files),
    )


def prompt_text(answer: SdkValue) -> str:
    """Return a prompt as one text for the composer, without invisible characters.

    The user reads the text and sends it as their own words, but a model would also read what invisible
    characters spell.
    """
    content = _Content()
    several = len({message.role for message in answer.messages}) > 1
    for message in answer.messages:
        if several:
            content.lines.append(f"{str(message.role).capitalize()}:")
        content.add(message.content)
    return "".join(map(_make_visible, storable("\n\n".join(content.lines))))


def _make_visible(char: str) -> str:
    """Return the character, a plain space for an unusual one, or nothing for an invisible one."""
    kind = unicodedata.category(char)
    if kind in ("Zs", "Zl", "Zp"):
        return " " if kind == "Zs" else "\n"
    # These two join letters and parts of emoji.
    is_kept = char in "\n\t\u200c\u200d" or not (kind.startswith("C") or char in _BLANK)
    return char if is_kept and not "\U000e0100" <= char <= "\U000e01ef" else ""


def resource_rows(answer: SdkValue, kind: str) -> list[JsonObject]:
    """Return one row for each resource or template of a page."""
    return [
        {
            "uri": str(getattr(one, "uri", None) or getattr(one, "uri_template", "")),
            "name": one.name,
            "description": (one.description or "")[:500],
            "mime_type": one.mime_type or "",
        }
        for one in getattr(answer, kind)
    ]
