"""Reads a conversation that LibreChat exported as JSON: as a tree or as a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from everturn.domain.json_types import JsonObject
from everturn.domain.messages import AnyPart, Call, Outcome, Reasoning, Result, Role, Text
from everturn.importers import texts
from everturn.importers.export_file import ExportFile, Reader
from everturn.importers.values import Conversation, ForeignFile, ForeignMessage

SOURCE: Final = "librechat"


def _conversation(data: JsonObject, export: ExportFile) -> Conversation:
    exported = texts.ms_of(data.get("exportAt"), 0)
    messages: list[ForeignMessage] = []
    ends: dict[str, str] = {}
    at = 0
    for node in _flat(texts.dicts(data.get("messages"))):
        at = max(at, texts.ms_of(node.get("createdAt"), at or exported))
        made = list(_messages(node, ends, at))
        if made:
            ends[str(node.get("messageId"))] = made[-1].id
        messages += made
    return Conversation(
        SOURCE,
        str(data.get("conversationId")),
        texts.title_of(data.get("title")),
        min((one.at for one in messages), default=exported),
        max((one.at for one in messages), default=exported),
        tuple(messages),
    )


def _flat(nodes: tuple[JsonObject, ...]) -> Iterator[JsonObject]:
    """Parents first; a tree is walked without recursion, because it is as deep as the conversation long."""
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(texts.dicts(node.get("children"))))


def _messages(node: JsonObject, ends: dict[str, str], at: int) -> Iterator[ForeignMessage]:
    key = str(node.get("messageId"))
    parent = ends.get(str(node.get("parentMessageId")))
    files = tuple(_files(node))
    if node.get("isCreatedByUser") is True:
        text = texts.text_of(node.get("text"))
        yield ForeignMessage(key, parent, Role.USER, (Text(text),) if text else (), at, "", files)
        return
    model = str(node.get("model") or "")
    group: list[AnyPart] = []
    number = 0
    for part in _parts(node, key):
        if isinstance(part, Result):
            name = f"{key}/{number}" if number else key
            yield ForeignMessage(name, parent, Role.ASSISTANT, tuple(group), at, model)
            yield ForeignMessage(f"{key}/{number + 1}", name, Role.TOOL, (part,), at)
            parent, group, number = f"{key}/{number + 1}", [], number + 2
        else:
            group.append(part)
    if group or not number:
        name = f"{key}/{number}" if number else key
        yield ForeignMessage(name, parent, Role.ASSISTANT, tuple(group), at, model, files)


def _parts(node: JsonObject, key: str) -> Iterator[AnyPart]:
    content = texts.dicts(node.get("content"))
    if not content:
        text = texts.text_of(node.get("text"))
        if text:
            yield Text(text)
        return
    for number, block in enumerate(content):
        kind, value = block.get("type"), block.get(str(block.get("type")))
        if kind == "tool_call" and isinstance(value, dict):
            yield from _call(value, f"{key}-{number}")
            continue
        text = texts.text_of(value.get("value") if isinstance(value, dict) else value)
        if text:
            yield Reasoning(text) if kind == "think" else Text(text)


def _call(value: JsonObject, name: str) -> Iterator[AnyPart]:
    call_id, tool = str(value.get("id") or name), str(value.get("name") or "tool")
    yield Call(call_id, tool, texts.as_arguments(value.get("args")))
    output = value.get("output")
    if output is None:
        yield Result(call_id, tool, "The export holds no result of this call.", Outcome.UNKNOWN)
    else:
        yield Result(call_id, tool, texts.text_of(output), is_untrusted=True)


def _files(node: JsonObject) -> Iterator[ForeignFile]:
    for one in texts.dicts(node.get("files")):
        yield ForeignFile(str(one.get("filename") or "file"))


READER: Final = Reader("conversation", ("conversationId",), _conversation)
