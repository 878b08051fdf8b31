"""Exports of other systems, small ones, as those systems write them."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
JsonObject = dict[str, Any]  # what a test writes as JSON


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


# --- Hermes -----------------------------------------------------------------------------------------------


def hermes_session(**more: Any) -> JsonObject:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "terminal", "arguments": '{"command": "ls"}'},
    }
    return {
        "session_id": "a1",
        "title": "Backup script",
        "created_at": 1_779_200_090.5,
        "updated_at": 1_779_200_100.0,
        "pinned": True,
        "messages": [
            {"role": "user", "content": "Why did it fail?", "timestamp": 1_779_200_000},
            {"role": "assistant", "content": "", "timestamp": 1_779_200_004, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "name": "terminal",
                "content": "a.txt",
                "timestamp": 1_779_200_005,
            },
            {"role": "assistant", "content": "The lock was held.", "timestamp": 1_779_200_009},
        ],
        **more,
    }


def hermes_folder(folder: Path, **sessions: JsonObject) -> Path:
    for name, session in sessions.items():
        write(folder / "webui" / "sessions" / f"{name}.json", session)
    return folder


def journal(folder: Path, session: str, run: str, *lines: JsonObject | str) -> None:
    path = folder / "webui" / "sessions" / "_run_journal" / session / f"{run}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))


def happened(event: str, **payload: Any) -> JsonObject:
    return {"event": event, "type": event, "created_at": 1_779_200_201.0, "payload": payload}


def hermes_database(folder: Path) -> None:
    """``state.db`` with the columns that are read; versions differ in the others."""
    folder.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(folder / "state.db") as database:
        database.executescript(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, title TEXT, started_at REAL,"
            " parent_session_id TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,"
            " tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL, active INTEGER);"
            "INSERT INTO sessions VALUES ('s1', 'telegram', NULL, 1779200000.5, NULL), ('a1', 'cli', 'Copy', 1, 's1');"
            "INSERT INTO messages VALUES (1, 's1', 'user', 'hello', NULL, NULL, NULL, 1779200001, 1),"
            " (2, 's1', 'assistant', 'undone', NULL, NULL, NULL, 1779200002, 0),"
            " (3, 's1', 'assistant', 'hi', NULL, NULL, NULL, 1779200003, 1),"
            " (4, 'a1', 'user', 'from the database', NULL, NULL, NULL, 1779200003, 1);"
        )
    database.close()


# --- ChatGPT ----------------------------------------------------------------------------------------------


def chatgpt() -> list[JsonObject]:
    """A question with a hidden system message, a tool, a picture, and an answer that was made again."""
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-abc"}
    nodes = [
        _node("root", None, None),
        _node("system", "root", _said("system", "You are helpful.")),
        _node("u1", "system", _said("user", "Look at this", more=[picture])),
        _node("a1", "u1", _said("assistant", "First answer", model="gpt-4o")),
        _node("call", "u1", _said("assistant", "print(1)", recipient="python", kind="code")),
        _node("tool", "call", _said("tool", "1", name="python", kind="execution_output")),
        _node("a2", "tool", _said("assistant", "Second answer", model="gpt-4o")),
        _node("u2", "a2", _said("user", "Thanks")),
    ]
    for node in nodes:
        node["children"] = [one["id"] for one in nodes if one["parent"] == node["id"]]
    return [
        {
            "conversation_id": "conv-1",
            "title": "A\u0007 picture",
            "create_time": 1_700_000_000.25,
            "update_time": 1_700_000_500.0,
            "mapping": {node["id"]: node for node in nodes},
            "current_node": "u2",
            "is_archived": True,
        }
    ]


def _node(name: str, parent: str | None, message: JsonObject | None) -> JsonObject:
    return {"id": name, "parent": parent, "message": message, "children": []}


def _said(role: str, text: str, **options: Any) -> JsonObject:
    kind = options.get("kind", "text")
    content: JsonObject = {"content_type": kind}
    if kind == "text":
        more = options.get("more", [])
        content |= {"content_type": "multimodal_text" if more else "text", "parts": [*more, text]}
    else:
        content["text"] = text
    return {
        "author": {"role": role, "name": options.get("name")},
        "create_time": 1_700_000_100.0,
        "content": content,
        "recipient": options.get("recipient", "all"),
        "metadata": {"model_slug": options.get("model")},
    }


# --- Claude, Open WebUI, LibreChat ------------------------------------------------------------------------


def claude() -> list[JsonObject]:
    blocks = [
        {"type": "thinking", "thinking": "Let me look."},
        {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "rivers"}},
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "name": "search",
            "content": [{"type": "text", "text": "Po"}],
        },
        {"type": "text", "text": "The Po."},
    ]
    return [
        {
            "uuid": "c-1",
            "name": "Rivers",
            "created_at": "2025-03-01T10:00:00.000000Z",
            "updated_at": "2025-03-01T10:05:00.000000Z",
            "chat_messages": [
                {
                    "uuid": "m-1",
                    "sender": "human",
                    "text": "Name a river.",
                    "content": [{"type": "text", "text": "Name a river."}],
                    "created_at": "2025-03-01T10:00:00.000000Z",
                    "attachments": [{"file_name": "list.txt", "extracted_content": "Po\nElbe"}],
                    "files": [{"file_name": "map.png"}],
                },
                {
                    "uuid": "m-2",
                    "sender": "assistant",
                    "text": "The Po.",
                    "content": blocks,
                    "created_at": "2025-03-01T10:01:00.000000Z",
                },
            ],
        },
        {"uuid": "c-2", "name": "Empty", "created_at": "2025-03-01T10:00:00Z", "chat_messages": []},
    ]


def openwebui() -> list[JsonObject]:
    answer = (
        '<details type="reasoning" done="true"><summary>Thought for 2 seconds</summary>\n&gt; Hm.\n</details>\n'
        '<details type="tool_calls" done="true" id="t1" name="clock" arguments="{&quot;zone&quot;: 1}" '
        'result="&quot;noon&quot;"><summary>Tool Executed</summary></details>\nIt is noon.'
    )
    picture = "data:image/png;base64," + base64.b64encode(PNG).decode()
    messages = {
        "u1": _web("u1", None, "user", "What time is it?", files=[{"type": "image", "url": picture}]),
        "x1": _web("x1", "u1", "assistant", "I do not know.", model="small"),
        "x2": _web("x2", "u1", "assistant", answer, model="large"),
        "u2": _web("u2", "x2", "user", "Thanks"),
        "x3": _web("x3", "u2", "assistant", "You are welcome."),
    }
    return [
        {
            "id": "w-1",
            "title": "Time",
            "created_at": 1_700_000_000,
            "updated_at": 1_700_000_900,
            "pinned": True,
            "meta": {"tags": ["clock"]},
            "chat": {"title": "Time", "history": {"messages": messages, "currentId": "x3"}},
        }
    ]


def _web(name: str, parent: str | None, role: str, content: str, **more: Any) -> JsonObject:
    return {
        "id": name,
        "parentId": parent,
        "role": role,
        "content": content,
        "timestamp": 1_700_000_100,
        **more,
    }


def librechat() -> JsonObject:
    """As a tree: its first answer was edited, and an answer called a tool."""
    tool = {"id": "t1", "name": "weather", "args": '{"at": "Graz"}', "output": "sunny"}
    content = [{"type": "think", "think": "Hm."}, {"type": "tool_call", "tool_call": tool}]
    answer = {
        "messageId": "b",
        "parentMessageId": "a",
        "isCreatedByUser": False,
        "model": "large",
        "createdAt": "2025-04-01T08:00:05.000Z",
        "content": [*content, {"type": "text", "text": {"value": "It is sunny."}}],
        "children": [],
    }
    question = {
        "messageId": "a",
        "parentMessageId": "00000000-0000-0000-0000-000000000000",
        "isCreatedByUser": True,
        "text": "Weather in Graz?",
        "createdAt": "2025-04-01T08:00:00.000Z",
        "children": [answer],
    }
    return {"conversationId": "l-1", "title": "Weather", "recursive": True, "messages": [question]}
