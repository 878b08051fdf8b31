"""Reads the export of ChatGPT: ``conversations.json``, alone or in its ZIP file with the attachments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from everturn.domain.json_types import JsonObject
from everturn.domain.messages import AnyPart, Call, Outcome, Reasoning, Result, Role, Text
from everturn.importers import texts
from everturn.importers.export_file import ExportFile, Reader
from everturn.importers.values import Conversation, ForeignFile, ForeignMessage

SOURCE: Final = "chatgpt"


def _conversation(data: JsonObject, export: ExportFile) -> Conversation:
    created = texts.ms_of(data.get("create_time"), 0)
    mapping = data.get("mapping")
    nodes = {key: node for key, node in mapping.items() if isinstance(node, dict)} if mapping else {}
    messages = tuple(_messages(nodes, created, export))
    current = data.get("current_node")
    return Conversation(
        SOURCE,
        str(data.get("conversation_id") or data.get("id")),
        texts.title_of(data.get("title")),
        min((created, *(one.at for one in messages))),
        max((texts.ms_of(data.get("update_time"), created), *(one.at for one in messages))),
        messages,
        current=_nearest_shown(current, nodes, {one.id for one in messages}),
        is_pinned=data.get("is_starred") is True,
        is_archived=data.get("is_archived") is True,
    )


def _nearest_shown(node_id: object, nodes: Mapping[str, JsonObject], kept: set[str]) -> str | None:
    """The nearest node from here up that became a message."""
    seen = set()
    while isinstance(node_id, str) and node_id in nodes and node_id not in seen:
        if node_id in kept:
            return node_id
        seen.add(node_id)
        node_id = nodes[node_id].get("parent")
    return None


def _messages(nodes: Mapping[str, JsonObject], at: int, export: ExportFile) -> Iterator[ForeignMessage]:
    """Nodes with something to show; their parents skip the others."""
    made = {key: one for key, node in nodes.items() if (one := _message(key, node, at, export)) is not None}
    shown: dict[str, str | None] = {}  # by node: the nearest from there up that became a message
    for key in _in_order(nodes):
        parent = shown.get(nodes[key].get("parent") or "")  # parents come first: no walk up for each node
        shown[key] = key if key in made else parent
        if key in made:
            yield ForeignMessage(
                key,
                parent,
                made[key].role,
                made[key].parts,
                made[key].at,
                made[key].model,
                made[key].files,
            )


def _in_order(nodes: Mapping[str, JsonObject]) -> Iterator[str]:
    """Parents first, children as they are listed: their order is that of the versions."""
    parents = {key: node.get("parent") for key, node in nodes.items()}
    waiting = [key for key in reversed(list(nodes)) if parents[key] not in nodes]
    seen = set()
    while waiting:
        key = waiting.pop()
        if key not in seen:
            seen.add(key)
            yield key
            listed = [child for child in texts.strings(nodes[key].get("children")) if child in nodes]
            waiting.extend(reversed(listed))


def _message(key: str, node: JsonObject, at: int, export: ExportFile) -> ForeignMessage | None:
    message = node.get("message")
    if not isinstance(message, dict):
        return None
    author, content = message.get("author"), message.get("content")
    metadata = message.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if not isinstance(author, dict) or not isinstance(content, dict):
        return None
    role = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}.get(str(author.get("role")))
    if role is None or metadata.get("is_visually_hidden_from_conversation") is True:
        return None
    files = tuple(_files(content, metadata, export))
    parts = tuple(_parts(key, node, role, str(message.get("recipient") or "all"), author, content))
    if not parts and not files:
        return None
    return ForeignMessage(
        key,
        None,
        role,
        parts,
        texts.ms_of(message.get("create_time"), at),
        str(metadata.get("model_slug") or "") if role is Role.ASSISTANT else "",
        files,
    )


def _parts(
    key: str, node: JsonObject, role: Role, recipient: str, author: JsonObject, content: JsonObject
) -> Iterator[AnyPart]:
    text = _text(content)
    if role is Role.TOOL:
        # A tool answers the call that is its parent.
        outcome = Outcome.ERROR if content.get("content_type") == "system_error" else Outcome.OK
        name = str(author.get("name") or "tool")
        yield Result(str(node.get("parent") or key), name, text, outcome, is_untrusted=True)
    elif content.get("content_type") in ("thoughts", "reasoning_recap"):
        if text:
            yield Reasoning(text)
    elif role is Role.ASSISTANT and recipient != "all":
        yield Call(key, recipient, texts.as_arguments(text))
    elif text:
        yield Text(text)


def _text(content: JsonObject) -> str:
    kind = content.get("content_type")
    if kind == "thoughts":
        thoughts = texts.dicts(content.get("thoughts"))
        return "\n\n".join(texts.text_of(one.get("content")) for one in thoughts).strip()
    if kind == "reasoning_recap":
        return texts.text_of(content.get("content"))
    if kind in ("user_editable_context", "model_editable_context"):
        return ""
    if "parts" in content:
        return texts.text_of(content.get("parts"))
    return texts.text_of(content.get("text") or content.get("result"))


def _files(content: JsonObject, metadata: JsonObject, export: ExportFile) -> Iterator[ForeignFile]:
    """Attachments, and pictures in the text that are not among them."""
    seen = set()
    for one in texts.dicts(metadata.get("attachments")):
        seen.add(str(one.get("id")))
        yield export.file(str(one.get("id")), str(one.get("name") or "file"))
    for part in texts.dicts(content.get("parts")):
        pointer = part.get("asset_pointer")
        file_id = pointer.partition("://")[2] if isinstance(pointer, str) else ""
        if file_id and file_id not in seen:
            seen.add(file_id)
            yield export.file(file_id, "picture")


READER: Final = Reader("conversations", ("conversation_id", "id"), _conversation)
