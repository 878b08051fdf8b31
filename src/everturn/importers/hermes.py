"""Reads a data folder of Hermes: session files and run journals of its WebUI, and the agent's ``state.db``.

A conversation may be in both. The file is read first, because it has the pending message; where it is
damaged, the database may still hold the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import apsw
import msgspec

from everturn.domain.errors import BadImport
from everturn.domain.json_types import JsonObject
from everturn.domain.messages import AnyPart, Call, Outcome, Reasoning, Result, Role, Text
from everturn.importers import texts
from everturn.importers.hermes_journal import read_journal
from everturn.importers.values import Conversation, CutOff, ForeignFile, ForeignMessage, Unreadable

SOURCE: Final = "hermes"
_JSON_CONTENT: Final = "\0json:"  # in front of a content of several parts in state.db
_SESSION_BYTES_MAX: Final = 500_000_000
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}


class HermesFolder:
    """``folder``: the one with ``state.db``, or the one that Hermes WebUI keeps its data in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        places = (folder / "webui" / "sessions", folder / "sessions", folder)
        self._sessions = next((place for place in places if (place / "_index.json").is_file()), places[0])
        self._files = [] if not self._sessions.is_dir() else sorted(self._sessions.glob("[!_.]*.json"))
        self._database = _open(folder / "state.db")
        if self._database is None and not self._files:
            raise BadImport(
                f"{folder} holds neither state.db nor webui/sessions/*.json. Nothing was imported.",
                hint="Name the data folder of Hermes, usually ~/.hermes.",
            )

    @property
    def total(self) -> int:
        """How many both hold; a conversation that is in both counts once."""
        return len({file.stem for file in self._files} | self._ids())

    def _ids(self) -> set[str]:
        if self._database is None:
            return set()
        return {row[0] for row in self._database.execute("SELECT id FROM sessions")}

    def __iter__(self) -> Iterator[Conversation | Unreadable]:
        seen = set()
        for file in self._files:
            found = self._from_file(file)
            seen.add(found.id)
            yield found
        for session_id in sorted(self._ids() - seen):
            yield self._from_database(session_id)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _from_file(self, file: Path) -> Conversation | Unreadable:
        try:
            if file.is_symlink() or file.stat().st_size > _SESSION_BYTES_MAX:
                raise BadImport("It is a link, or larger than 500 MB.")
            return self._conversation(file.stem, texts.decode(file.read_bytes()))
        except (BadImport, OSError) as error:
            why = f"{file.name} cannot be read: {error}"
        if file.stem not in self._ids():
            return Unreadable(file.stem, file.stem, why)
        found = self._from_database(file.stem)
        if isinstance(found, Unreadable):
            return found
        return _with_note(found, f"{why} It was read from state.db instead.")

    def _conversation(self, stem: str, data: JsonObject) -> Conversation:
        if not isinstance(data, dict):
            raise BadImport("It is not a session.")
        created = texts.ms_of(data.get("created_at"), 0)
        updated = texts.ms_of(data.get("updated_at"), created)
        messages = _chain(texts.dicts(data.get("messages")), created, self._folder)
        created = _first(created, messages)
        notes = [_MISSING_FILES] if any(one.files for one in messages) else []
        cut_off, pending, more = self._find_pending(stem, data, messages, updated)
        tags = (project,) if (project := texts.title_of(data.get("project_id"))) else ()
        return Conversation(
            SOURCE,
            stem,
            texts.title_of(data.get("title")),
            created,
            max((one.at for one in (*messages, *pending)), default=updated),
            (*messages, *pending),
            is_pinned=data.get("pinned") is True,
            is_archived=data.get("archived") is True,
            tags=tags,
            cut_off=cut_off,
            notes=(*notes, *more),
        )

    def _find_pending(
        self, stem: str, data: JsonObject, messages: Sequence[ForeignMessage], updated: int
    ) -> tuple[CutOff | None, tuple[ForeignMessage, ...], tuple[str, ...]]:
        """The message that was being answered, with what the journal of its run has."""
        text = data.get("pending_user_message")
        if not isinstance(text, str) or not text:
            return None, (), ()
        last = messages[-1] if messages else None
        at = max(texts.ms_of(data.get("pending_started_at"), updated), 0 if last is None else last.at)
        parent = None if last is None else last.id
        pending = ForeignMessage("pending", parent, Role.USER, (Text(texts.plain(text)),), at)
        run = data.get("active_stream_id")
        if not isinstance(run, str) or Path(run).name != run:
            return None, (pending,), ("Its last message was not answered.",)
        events, damaged = read_journal(self._sessions / "_run_journal" / stem / f"{run}.jsonl", at)
        if not events:
            return None, (pending,), ("The journal of its last answer is gone; the message is kept.",)
        notes = ["Its last answer was cut off; what the journal holds of it was recovered."]
        if damaged:
            notes.append(f"{damaged} lines of that journal are damaged.")
        return CutOff("pending", events), (pending,), tuple(notes)

    # --- state.db ------------------------------------------------------------------------------------

    def _from_database(self, session_id: str) -> Conversation | Unreadable:
        try:
            return self._read_rows(session_id)
        except (apsw.Error, BadImport, KeyError, TypeError, ValueError) as error:
            return Unreadable(session_id, session_id, f"state.db cannot be read: {error}")

    def _read_rows(self, session_id: str) -> Conversation:
        session = next(iter(self._rows("sessions", "id", session_id)))
        rows = list(self._rows("messages", "session_id", session_id))
        rows.sort(key=lambda row: int(row["id"]))
        kept = [row for row in rows if row.get("active", 1) != 0 or row.get("compacted")]
        undone = len(rows) - len(kept)
        created = texts.ms_of(session.get("started_at"), 0)
        messages = _chain([_message_of_row(row) for row in kept], created, self._folder)
        created = _first(created, messages)
        notes = []
        if undone:
            notes.append(f"{undone} messages that were undone there were left out.")
        if session.get("parent_session_id"):
            notes.append(f"It continues the session {session['parent_session_id']}.")
        said = texts.title_of(session.get("source"))
        return Conversation(
            SOURCE,
            session_id,
            texts.title_of(session.get("title")) or texts.title_of(session.get("display_name")),
            created,
            max((one.at for one in messages), default=created),
            messages,
            is_archived=bool(session.get("archived")),
            tags=(said,) if said else (),
            notes=tuple(notes),
        )

    def _rows(self, table: str, column: str, value: str) -> Iterator[JsonObject]:
        """By name, because older versions lack columns."""
        if self._database is None:
            return
        cursor = self._database.cursor()
        found = cursor.execute(f"SELECT * FROM {table} WHERE {column} = ?", (value,))  # noqa: S608 - names of ours
        names: list[str] = []
        for row in found:
            names = names or [name for name, *_ in cursor.getdescription()]
            yield dict(zip(names, row, strict=True))


_MISSING_FILES: Final = "Files of messages were taken only from inside the folder."


def _open(path: Path) -> apsw.Connection | None:
    """Read only. In a read-only folder: as it was when it was last closed."""
    if not path.is_file():
        return None
    name = path.resolve().as_uri()
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    for mode in ("?mode=ro", "?mode=ro&immutable=1"):
        database = apsw.Connection(name + mode, flags=flags)
        try:
            database.execute("SELECT count(*) FROM sessions").fetchall()
            return database
        except apsw.CantOpenError:
            database.close()
        except apsw.Error as error:
            database.close()
            raise BadImport(f"{path} cannot be read: {error}. Nothing was imported.") from error
    raise BadImport(f"{path} cannot be opened. Nothing was imported.")


def _with_note(conversation: Conversation, note: str) -> Conversation:
    return msgspec.structs.replace(conversation, notes=(note, *conversation.notes))


def _message_of_row(row: JsonObject) -> JsonObject:
    """A row as a session file has it."""
    content = row.get("content")
    if isinstance(content, str) and content.startswith(_JSON_CONTENT):
        content = texts.decode(content[len(_JSON_CONTENT) :].encode())
    calls = row.get("tool_calls")
    return {
        "role": row.get("role"),
        "content": content,
        "timestamp": row.get("timestamp"),
        "tool_calls": texts.decode(calls.encode()) if isinstance(calls, str) and calls else None,
        "tool_call_id": row.get("tool_call_id"),
        "name": row.get("tool_name"),
        "reasoning": row.get("reasoning") or row.get("reasoning_content"),
    }


# --- messages ---------------------------------------------------------------------------------------------


def _first(created: int, messages: Sequence[ForeignMessage]) -> int:
    return min((one.at for one in messages), default=created)


def _chain(given: Sequence[JsonObject], created: int, folder: Path) -> tuple[ForeignMessage, ...]:
    """Messages in the order in which they are listed, each after the one before."""
    chain: list[ForeignMessage] = []
    for number, message in enumerate(given):
        role = _ROLES.get(str(message.get("role")))
        if role is None:
            continue  # a system prompt
        before = chain[-1].at if chain else 0
        at = max(before, texts.ms_of(message.get("timestamp"), before or created))
        parent = chain[-1].id if chain else None
        files = tuple(_files_of(message, folder))
        chain.append(ForeignMessage(str(number), parent, role, tuple(_parts(role, message)), at, "", files))
    return tuple(chain)


def _parts(role: Role, message: JsonObject) -> Iterator[AnyPart]:
    text = texts.text_of(message.get("content"))
    if role is Role.TOOL:
        name = str(message.get("name") or message.get("tool_name") or "tool")
        call_id = str(message.get("tool_call_id") or "")
        yield Result(call_id, name, text, Outcome.OK, is_untrusted=True)
        return
    reasoning = message.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        yield Reasoning(texts.plain(reasoning))
    if text:
        yield Text(text)
    for call in texts.dicts(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict):
            arguments = texts.plain(str(function.get("arguments") or "{}"))
            yield Call(str(call.get("id") or ""), str(function.get("name") or "tool"), arguments)


def _files_of(message: JsonObject, folder: Path) -> Iterator[ForeignFile]:
    for place, part in enumerate(texts.dicts(message.get("content"))):
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        found = texts.file_of_data_url(url, f"picture-{place + 1}")
        if found is not None:
            yield found
    for attachment in texts.dicts(message.get("attachments")):
        path = attachment.get("path")
        name = Path(str(attachment.get("name") or path or "file")).name
        yield ForeignFile(name, _reader(folder, path))


def _reader(folder: Path, path: object) -> Callable[[], bytes] | None:
    """Reads a file inside the folder; None for any other: the folder may come from another person."""
    if not isinstance(path, str) or not path:
        return None
    inside = folder.resolve()
    real = (inside / path).resolve()
    if not real.is_relative_to(inside) or not real.is_file():
        return None
    return real.read_bytes
