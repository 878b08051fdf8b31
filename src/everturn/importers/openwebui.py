"""Reads the exported chats of Open WebUI: a JSON list."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from everturn.domain.json_types import JsonObject
from everturn.domain.messages import AnyPart, Call, Reasoning, Result, Role, Text
from everturn.importers import texts
from everturn.importers.export_file import ExportFile, Reader
from everturn.importers.values import Conversation, ForeignFile, ForeignMessage

SOURCE: Final = "openwebui"
_OPENS: Final = re.compile(r"<details\b")
_SPACE: Final = re.compile(r"\s*")
_CLOSES: Final = "</details>"
_SUMMARY: Final = re.compile(r"^\s*<summary>.*?</summary>\s*", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r'(?<!\w)(\w++)="([^"]*)"')


def _conversation(data: JsonObject, export: ExportFile) -> Conversation:
    chat = data.get("chat")
    chat = chat if isinstance(chat, dict) else data
    created = texts.ms_of(data.get("created_at"), texts.ms_of(chat.get("timestamp"), 0))
    history = chat.get("history")
    history = history if isinstance(history, dict) else {}
    nodes = history.get("messages")
    if isinstance(nodes, dict) and nodes:
        given = [dict(node, id=key) for key, node in nodes.items() if isinstance(node, dict)]
    else:
        given = _link(texts.dicts(chat.get("messages")))
    messages = tuple(made for one in given for made in _messages(one, created))
    messages = tuple(_after_last_part(messages))
    current = str(history.get("currentId"))
    meta = data.get("meta")
    tags = texts.strings(meta.get("tags")) if isinstance(meta, dict) else ()
    return Conversation(
        SOURCE,
        str(data.get("id") or chat.get("id") or f"{created}-{chat.get('title')}"),
        texts.title_of(data.get("title") or chat.get("title")),
        min((created, *(one.at for one in messages))),
        max((texts.ms_of(data.get("updated_at"), created), *(one.at for one in messages))),
        messages,
        current=_last_part(current, messages),
        is_pinned=data.get("pinned") is True,
        is_archived=data.get("archived") is True,
        tags=tuple(title for tag in tags if (title := texts.title_of(tag)))[:20],
    )


def _link(given: tuple[JsonObject, ...]) -> list[JsonObject]:
    """Messages of an old export, which are only listed."""
    linked: list[JsonObject] = []
    for number, one in enumerate(given):
        parent = linked[-1]["id"] if linked else None
        linked.append({**one, "id": str(one.get("id") or number), "parentId": one.get("parentId", parent)})
    return linked


def _messages(node: JsonObject, at: int) -> Iterator[ForeignMessage]:
    """One for a message of the user; for an answer, its parts, and the results of its calls between them."""
    key, parent = str(node["id"]), node.get("parentId")
    parent = parent if isinstance(parent, str) else None
    at = texts.ms_of(node.get("timestamp"), at)
    content = texts.text_of(node.get("content"))
    files = tuple(_files(node))
    if node.get("role") == "user":
        yield ForeignMessage(key, parent, Role.USER, (Text(content),) if content else (), at, "", files)
        return
    if node.get("role") != "assistant":
        return
    model = str(node.get("model") or "")
    groups = list(_groups(key, content))
    for number, parts in enumerate(groups or [()]):
        name = f"{key}/{number}" if number else key
        role = Role.TOOL if parts and isinstance(parts[0], Result) else Role.ASSISTANT
        yield ForeignMessage(name, parent, role, tuple(parts), at, model, () if number else files)
        parent = name


def _groups(key: str, content: str) -> Iterator[list[AnyPart]]:
    """Parts of a written answer: thoughts and calls stand in it as HTML."""
    group: list[AnyPart] = []
    place = 0
    for number, found in enumerate(_details_in(content)):
        before = content[place : found.start].strip()
        if before:
            group.append(Text(before))
        place = found.end
        attributes = dict(_ATTRIBUTE.findall(found.head))
        if attributes.get("type") == "reasoning":
            thought = html.unescape(_SUMMARY.sub("", found.inner))
            lines = (line.removeprefix("> ").removeprefix(">") for line in thought.strip().splitlines())
            group.append(Reasoning("\n".join(lines)))
        elif attributes.get("type") == "tool_calls":
            call_id = attributes.get("id") or f"{key}-{number}"
            name = attributes.get("name") or "tool"
            arguments = texts.as_arguments(html.unescape(attributes.get("arguments", "{}")))
            yield [*group, Call(call_id, name, arguments)]
            group = []
            result = html.unescape(attributes.get("result", ""))
            yield [Result(call_id, name, result, is_untrusted=True)]
        else:
            group.append(Text(content[found.start : found.end].strip()))
    rest = content[place:].strip()
    if rest:
        group.append(Text(rest))
    if group:
        yield group


class _Details(NamedTuple):
    start: int
    head: str  # its attributes
    inner: str
    end: int  # with the space after it


def _details_in(content: str) -> Iterator[_Details]:
    """Each up to the next end. One expression for all of it would begin anew at each that has no end, and the
    whole server would wait for that."""
    place = 0
    while (opens := _OPENS.search(content, place)) is not None:
        head = content.find(">", opens.end())
        closes = -1 if head < 0 else content.find(_CLOSES, head)
        if closes < 0:
            return
        space = _SPACE.match(content, closes + len(_CLOSES))
        place = closes + len(_CLOSES) if space is None else space.end()
        yield _Details(opens.start(), content[opens.end() : head], content[head + 1 : closes], place)


def _last_part(key: str, messages: tuple[ForeignMessage, ...]) -> str | None:
    parts = [one.id for one in messages if one.id == key or one.id.startswith(f"{key}/")]
    return parts[-1] if parts else None


def _after_last_part(messages: tuple[ForeignMessage, ...]) -> Iterator[ForeignMessage]:
    """What follows a divided answer follows its last part."""
    last = {one.id.partition("/")[0]: one.id for one in messages}
    for one in messages:
        is_first = "/" not in one.id
        parent = last.get(one.parent, one.parent) if is_first and one.parent is not None else one.parent
        yield ForeignMessage(one.id, parent, one.role, one.parts, one.at, one.model, one.files)


def _files(node: JsonObject) -> Iterator[ForeignFile]:
    for number, one in enumerate(texts.dicts(node.get("files"))):
        name = str(one.get("name") or f"{one.get('type') or 'file'}-{number + 1}")
        yield texts.file_of_data_url(one.get("url"), name) or ForeignFile(name)


READER: Final = Reader("chat", ("id",), _conversation)
