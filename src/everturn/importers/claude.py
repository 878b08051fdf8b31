"""Reads the export of Claude: ``conversations.json``, alone or in its ZIP file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.messages import AnyPart, Call, Outcome, Reasoning, Result, Role, Text
from everturn.importers import texts
from everturn.importers.export_file import ExportFile, Reader
from everturn.importers.values import Conversation, ForeignFile, ForeignMessage

SOURCE: Final = "claude"


def _conversation(data: JsonObject, export: ExportFile) -> Conversation:
    created = texts.ms_of(data.get("created_at"), 0)
    messages = tuple(_messages(texts.dicts(data.get("chat_messages")), created))
    return Conversation(
        SOURCE,
        str(data.get("uuid")),
        texts.title_of(data.get("name")),
        min((created, *(one.at for one in messages))),
        max((texts.ms_of(data.get("updated_at"), created), *(one.at for one in messages))),
        messages,
        is_pinned=data.get("is_starred") is True,
    )


def _messages(given: tuple[JsonObject, ...], at: int) -> Iterator[ForeignMessage]:
    """A tree where the export names parents, else one after the other. A message holds calls and their
    results in one list; here they are messages of their own."""
    known = {str(one.get("uuid")) for one in given}
    last: str | None = None
    ends: dict[str, str] = {}
    for message in given:
        uuid = str(message.get("uuid"))
        named = message.get("parent_message_uuid")
        parent = last if named is None else ends.get(str(named)) if str(named) in known else None
        at = max(at, texts.ms_of(message.get("created_at"), at))
        for made in _split(message, uuid, parent, at):
            yield made
            parent = made.id
        last = ends[uuid] = parent or uuid


def _split(message: JsonObject, uuid: str, parent: str | None, at: int) -> Iterator[ForeignMessage]:
    files = tuple(_files(message))
    if message.get("sender") == "human":
        text = _text_of(message)
        parts: tuple[AnyPart, ...] = (Text(text),) if text else ()
        yield ForeignMessage(uuid, parent, Role.USER, parts, at, "", files)
        return
    group: list[AnyPart] = []
    number = 0
    for part in _blocks(message) or [Text(_text_of(message))]:
        is_result = isinstance(part, Result)
        if group and isinstance(group[0], Result) != is_result:
            name = f"{uuid}/{number}" if number else uuid
            yield _answer(name, parent, group, at)
            parent, group, number = name, [], number + 1
        group.append(part)
    if group:
        yield _answer(f"{uuid}/{number}" if number else uuid, parent, group, at, files)


def _answer(
    name: str, parent: str | None, parts: list[AnyPart], at: int, files: tuple[ForeignFile, ...] = ()
) -> ForeignMessage:
    role = Role.TOOL if isinstance(parts[0], Result) else Role.ASSISTANT
    return ForeignMessage(name, parent, role, tuple(parts), at, "", files)


def _text_of(message: JsonObject) -> str:
    blocks = [one for one in texts.dicts(message.get("content")) if one.get("type") == "text"]
    return texts.text_of(blocks) or texts.text_of(message.get("text"))


def _blocks(message: JsonObject) -> list[AnyPart]:
    parts: list[AnyPart] = []
    last_call = ""
    for number, block in enumerate(texts.dicts(message.get("content"))):
        kind = block.get("type")
        if kind == "text" and block.get("text"):
            parts.append(Text(texts.text_of(block.get("text"))))
        elif kind == "thinking" and block.get("thinking"):
            parts.append(Reasoning(texts.text_of(block.get("thinking"))))
        elif kind == "tool_use":
            last_call = str(block.get("id") or f"{message.get('uuid')}-{number}")
            arguments = msgspec.json.encode(block.get("input") or {}).decode()
            parts.append(Call(last_call, str(block.get("name") or "tool"), arguments))
        elif kind == "tool_result":
            call_id = str(block.get("tool_use_id") or last_call)
            outcome = Outcome.ERROR if block.get("is_error") is True else Outcome.OK
            text = texts.text_of(block.get("content"))
            parts.append(Result(call_id, str(block.get("name") or "tool"), text, outcome, is_untrusted=True))
    return parts


def _files(message: JsonObject) -> Iterator[ForeignFile]:
    """The export has the text of attached documents, and of pictures and other files only the name."""
    for one in texts.dicts(message.get("attachments")):
        content = one.get("extracted_content")
        name = str(one.get("file_name") or "attachment.txt")
        yield ForeignFile(name, texts.plain(content).encode if isinstance(content, str) else None)
    for one in texts.dicts(message.get("files")):
        yield ForeignFile(str(one.get("file_name") or "file"))


READER: Final = Reader("conversations", ("uuid",), _conversation)
