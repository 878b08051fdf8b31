"""Conversations of other systems become sessions, whole or not at all, and never twice."""

from __future__ import annotations

import json
import sqlite3
import struct
import zipfile
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from everturn.domain.errors import BadImport
from everturn.domain.media import describe_file
from everturn.domain.messages import Attachment, Call, Message, Outcome, Reasoning, Result, Role, Text
from everturn.domain.store_values import Request, RetriedTurn
from everturn.domain.turns import Turn, TurnState
from everturn.importers import Imported, ImportOutcome, import_history, open_history, recognize
from everturn.importers.values import Conversation
from everturn.store import Store
from everturn.testing import Say, ScriptedModel
from everturn.testing.acting import ME
from everturn.testing.harness import open_harness
from tests import foreign_exports as ex
from tests.waiting import until

pytestmark = pytest.mark.anyio


async def bring_in(store: Store, source: str, path: Path) -> list[Imported]:
    with closing(open_history(source, path)) as history:
        return [one async for one in import_history(store, ME, history, describe_file)]


async def only(store: Store, source: str, path: Path) -> tuple[Imported, list[Turn], list[Message]]:
    [one] = await bring_in(store, source, path)
    assert one.outcome is ImportOutcome.IMPORTED, one
    assert one.session_id is not None
    _, turns, messages = await store.transcript.export(ME, one.session_id)
    return one, turns, messages


def shown(messages: list[Message]) -> list[str]:
    """Role and text of each message, a call as its name, a result as its outcome and text."""
    words = []
    for message in messages:
        for part in message.parts:
            match part:
                case Text() | Reasoning():
                    words.append(f"{message.role}: {part.text}")
                case Call():
                    words.append(f"call: {part.name} {part.arguments}")
                case Result():
                    words.append(f"{part.outcome}: {part.text}")
                case Attachment():
                    words.append(f"file: {part.name} {part.media_type} {part.size}")
    return words


# --- Hermes -----------------------------------------------------------------------------------------------


async def test_a_session_of_hermes_keeps_its_words_calls_and_times(store: Store, tmp_path: Path) -> None:
    folder = ex.hermes_folder(tmp_path, a1=ex.hermes_session())
    one, turns, messages = await only(store, "hermes", folder)
    assert (one.title, one.turns, one.messages) == ("Backup script", 1, 4)
    assert shown(messages) == [
        "user: Why did it fail?",
        'call: terminal {"command": "ls"}',
        "ok: a.txt",
        "assistant: The lock was held.",
    ]
    assert [turn.state for turn in turns] == [TurnState.COMPLETED]
    session = await store.sessions.get(ME, str(one.session_id))
    assert (session.pinned, session.is_title_given) == (True, True)
    assert (session.created_at, session.updated_at) == (1_779_200_000_000, 1_779_200_009_000)
    page = await store.transcript.messages(ME, str(one.session_id))
    assert all(message.is_imported for message in page.items)  # it counts as text from outside


async def test_an_answer_that_hermes_left_unfinished_is_recovered_from_its_journal(
    store: Store, tmp_path: Path
) -> None:
    pending = {
        "pending_user_message": "Look again",
        "active_stream_id": "r1",
        "pending_started_at": 1_779_200_200,
    }
    folder = ex.hermes_folder(tmp_path, a1=ex.hermes_session(**pending))
    ex.journal(
        folder,
        "a1",
        "r1",
        ex.happened("token", text="Checking"),
        ex.happened("token", text=" first."),
        ex.happened("tool", name="terminal", preview="df", args={"command": "df"}),
        ex.happened("tool_complete", name="terminal", is_error=False),
        ex.happened("token", text="Two are missing."),
        ex.happened("tool", name="write_file", args={"path": "a"}),
        '{"event": "token", "payl',
    )
    one, turns, messages = await only(store, "hermes", folder)
    assert turns[-1].state is TurnState.INTERRUPTED
    assert shown([message for message in messages if message.turn_id == turns[-1].id]) == [
        "user: Look again",
        "assistant: Checking first.",
        'call: terminal {"command":"df"}',
        "ok: The journal does not hold its output.",
        "assistant: Two are missing.",
        'call: write_file {"path":"a"}',
        "unknown: Outcome unknown: the call started and never reported back. It may have taken effect.",
    ]
    assert all(
        message.is_recovered for message in messages if message.turn_id == turns[-1].id and message.ordinal
    )
    assert one.notes == (
        "Its last answer was cut off; what the journal holds of it was recovered.",
        "1 lines of that journal are damaged.",
    )


async def test_a_message_without_a_journal_is_kept_and_can_be_answered(store: Store, tmp_path: Path) -> None:
    pending = {"pending_user_message": "And now?", "active_stream_id": "../../etc/passwd"}
    folder = ex.hermes_folder(tmp_path, a1=ex.hermes_session(**pending))
    one, turns, messages = await only(store, "hermes", folder)
    assert shown(messages)[-1] == "user: And now?"
    assert (turns[-1].state, one.notes) == (TurnState.INTERRUPTED, ("Its last message was not answered.",))
    session = await store.sessions.get(ME, str(one.session_id))
    assert session.head == turns[-1].id
    model = ScriptedModel(Say("Now it is done."))
    async with open_harness(store, model=model) as harness:
        again = await harness.engine.retry(ME, session.id, RetriedTurn(), Request(key="r"))
        await until("it is answered", lambda: _is_completed(store, again.turn.id))
    assert [message.text for message in model.requests[0].messages][-1] == "And now?"
    _, _, messages = await store.transcript.export(ME, str(one.session_id))
    assert shown(messages)[-1] == "assistant: Now it is done."


async def _is_completed(store: Store, turn_id: str) -> bool:
    return (await store.turns.get(ME, turn_id)).state is TurnState.COMPLETED


async def test_a_torn_file_is_read_from_the_database_and_one_found_nowhere_is_named(
    store: Store, tmp_path: Path
) -> None:
    ex.hermes_database(tmp_path)
    folder = tmp_path / "webui" / "sessions"
    folder.mkdir(parents=True)
    (folder / "a1.json").write_text('{"title": "Torn", "mess')
    (folder / "b2.json").write_text("")
    results = {one.foreign_id: one for one in await bring_in(store, "hermes", tmp_path)}
    assert {name: one.outcome for name, one in results.items()} == {
        "a1": ImportOutcome.IMPORTED,
        "b2": ImportOutcome.REFUSED,
        "s1": ImportOutcome.IMPORTED,
    }
    assert results["a1"].notes[0].endswith("It was read from state.db instead.")
    assert results["b2"].notes[0].startswith("b2.json cannot be read: It is not complete JSON")
    assert results["s1"].notes == ("1 messages that were undone there were left out.",)
    _, _, messages = await store.transcript.export(ME, str(results["s1"].session_id))
    assert shown(messages) == ["user: hello", "assistant: hi"]


async def test_a_session_of_the_database_that_cannot_be_read_does_not_keep_out_the_others(
    store: Store, tmp_path: Path
) -> None:
    ex.hermes_database(tmp_path)
    with sqlite3.connect(tmp_path / "state.db") as database:
        for name, column, value in (("b1", "tool_calls", "[{"), ("b2", "content", "\0json:[")):
            database.execute("INSERT INTO sessions (id) VALUES (?)", (name,))
            database.execute(
                f"INSERT INTO messages (session_id, role, {column}) VALUES (?, 'user', ?)", (name, value)
            )
    database.close()
    results = {one.foreign_id: one.outcome for one in await bring_in(store, "hermes", tmp_path)}
    assert {name for name, outcome in results.items() if outcome is ImportOutcome.REFUSED} == {"b1", "b2"}
    assert results.keys() == {"a1", "s1", "b1", "b2"}


async def test_only_files_inside_the_folder_are_read(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("mine")
    folder = ex.hermes_folder(tmp_path / "home")
    (folder / "uploads").mkdir(parents=True)
    (folder / "uploads" / "a.txt").write_text("inside")
    (folder / "uploads" / "link.txt").symlink_to(tmp_path / "secret.txt")
    paths = ["uploads/a.txt", "../secret.txt", str(tmp_path / "secret.txt"), "uploads/link.txt"]
    given = [{"name": f"{number}.txt", "path": path} for number, path in enumerate(paths)]
    message = {"role": "user", "content": "See these", "timestamp": 1_779_200_000, "attachments": given}
    ex.hermes_folder(folder, a1=ex.hermes_session(messages=[message]))
    one, _, messages = await only(store, "hermes", folder)
    assert shown(messages) == ["user: See these", "file: 0.txt text/plain 6"]
    assert sum("is not in the export" in note for note in one.notes) == 3


def test_a_folder_without_hermes_in_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadImport, match="holds neither"):
        open_history("hermes", tmp_path)


# --- exported files ---------------------------------------------------------------------------------------


async def test_chatgpt_with_a_picture_a_tool_and_two_versions_of_an_answer(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps(ex.chatgpt()))
        archive.writestr("file-abc-photo.png", ex.PNG)
    assert recognize(path) == "chatgpt"
    one, turns, messages = await only(store, "chatgpt", path)
    assert (one.title, one.turns, one.files) == ("A picture", 3, 1)
    by_turn = {turn.id: shown([one for one in messages if one.turn_id == turn.id]) for turn in turns}
    picture = f"file: picture.png image/png {len(ex.PNG)}"
    question = ["user: Look at this", picture]
    answers = ['call: python {"text":"print(1)"}', "ok: 1", "assistant: Second answer"]
    assert sorted(by_turn.values()) == sorted(
        [[*question, "assistant: First answer"], [*question, *answers], ["user: Thanks"]]
    )
    session = await store.sessions.get(ME, str(one.session_id))
    last = next(turn for turn in turns if turn.id == session.head)
    assert by_turn[last.id] == ["user: Thanks"]
    assert by_turn[str(last.parent_id)][-1] == "assistant: Second answer"
    assert session.archived


async def test_claude_with_a_document_a_tool_and_a_missing_picture(store: Store, tmp_path: Path) -> None:
    path = ex.write(tmp_path / "conversations.json", ex.claude())
    assert recognize(path) == "claude"
    rivers, empty = await bring_in(store, "claude", path)
    assert (empty.outcome, empty.notes) == (ImportOutcome.REFUSED, ("It has no messages.",))
    assert rivers.notes == ("The file map.png is not in the export.",)
    _, _, messages = await store.transcript.export(ME, str(rivers.session_id))
    assert shown(messages) == [
        "user: Name a river.",
        "file: list.txt text/plain 7",
        "assistant: Let me look.",
        'call: search {"q":"rivers"}',
        "ok: Po",
        "assistant: The Po.",
    ]


async def test_open_webui_with_thoughts_and_calls_written_as_html(store: Store, tmp_path: Path) -> None:
    path = ex.write(tmp_path / "chat-export.json", ex.openwebui())
    assert recognize(path) == "openwebui"
    one, turns, messages = await only(store, "openwebui", path)
    session = await store.sessions.get(ME, str(one.session_id))
    last = next(turn for turn in turns if turn.id == session.head)
    assert session.tags == ("clock",)
    assert shown([one for one in messages if one.turn_id == last.parent_id]) == [
        "user: What time is it?",
        f"file: image-1.png image/png {len(ex.PNG)}",
        "assistant: Hm.",
        'call: clock {"zone":1}',
        'ok: "noon"',
        "assistant: It is noon.",
    ]
    assert (len(turns), one.files) == (3, 1)


def test_an_answer_full_of_ends_that_are_missing_is_read_at_once(tmp_path: Path) -> None:
    text = f"<details {'a' * 100_000}>x</details>" + '<details type="reasoning">' * 100_000
    chat = {"history": {"messages": {"1": {"role": "assistant", "content": text}}}}
    with closing(
        open_history("openwebui", ex.write(tmp_path / "chat.json", [{"id": "c", "chat": chat}]))
    ) as found:
        [one] = found
    assert isinstance(one, Conversation)
    assert [len(part.text) for part in one.messages[0].parts if isinstance(part, Text)] == [
        100_000 + 21,
        2_600_000,
    ]


async def test_librechat_as_a_tree(store: Store, tmp_path: Path) -> None:
    path = ex.write(tmp_path / "Weather.json", ex.librechat())
    assert recognize(path) == "librechat"
    _, turns, messages = await only(store, "librechat", path)
    assert len(turns) == 1
    assert shown(messages) == [
        "user: Weather in Graz?",
        "assistant: Hm.",
        'call: weather {"at":"Graz"}',
        "ok: sunny",
        "assistant: It is sunny.",
    ]


# --- once, and bad input ----------------------------------------------------------------------------------


async def test_nothing_is_imported_twice_not_even_at_the_same_time(store: Store, tmp_path: Path) -> None:
    folder = ex.hermes_folder(tmp_path, a1=ex.hermes_session())
    results: list[Imported] = []

    async def once() -> None:
        results.extend(await bring_in(store, "hermes", folder))

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(once)
    counts = [one.outcome for one in results]
    assert (counts.count(ImportOutcome.IMPORTED), counts.count(ImportOutcome.PRESENT)) == (1, 3)
    assert len((await store.sessions.list(ME)).items) == 1


async def test_what_was_deleted_here_is_not_brought_back(store: Store, tmp_path: Path) -> None:
    folder = ex.hermes_folder(tmp_path, a1=ex.hermes_session())
    one, _, _ = await only(store, "hermes", folder)
    await store.sessions.delete(ME, str(one.session_id))
    [again] = await bring_in(store, "hermes", folder)
    assert again.outcome is ImportOutcome.DELETED
    assert (await store.sessions.list(ME)).items == ()


async def test_one_broken_conversation_does_not_keep_out_the_others(store: Store, tmp_path: Path) -> None:
    broken = [
        {"uuid": "c-0", "name": "Odd", "chat_messages": [{"sender": "human", "content": 7}]},
        5,
        *ex.claude(),
    ]
    results = await bring_in(store, "claude", ex.write(tmp_path / "conversations.json", broken))
    assert [one.outcome for one in results] == [
        ImportOutcome.IMPORTED,  # a message without words is one all the same
        ImportOutcome.REFUSED,
        ImportOutcome.IMPORTED,
        ImportOutcome.REFUSED,
    ]


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b"[1, 2]", b"PK\x03\x04 cut off", b"\xff\xfe"])
def test_a_file_of_no_known_system_is_refused_and_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "upload-123"
    path.write_bytes(content)
    with pytest.raises(BadImport, match=r"chats\.zip"):
        recognize(path, "chats.zip")


def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 30_000_000 + b"]")
    with pytest.raises(BadImport, match="too large"):
        open_history("chatgpt", path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):  # each alone is small enough
            archive.writestr(f"conversations-{number}.json", b"[" + b" " * 9_000_000 + b"]")
    with pytest.raises(BadImport, match="too large"):
        open_history("chatgpt", path)


def test_an_archive_with_an_endless_list_of_members_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "chats.zip"
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 1 << 30, 0, 0)
    with path.open("wb") as file:
        file.write(b"PK")
        file.truncate(1 << 30)  # holes: it takes no room
        file.seek(0, 2)
        file.write(end)
    with pytest.raises(BadImport, match="too many members"):
        open_history("chatgpt", path)


async def test_a_conversation_of_thousands_of_messages_is_imported(store: Store, tmp_path: Path) -> None:
    flat = [
        {
            "messageId": f"m{number}",
            "parentMessageId": f"m{number - 1}",
            "text": f"word {number}",
            "isCreatedByUser": number % 2 == 0,
            "createdAt": "2025-04-01T08:00:00.000Z",
        }
        for number in range(3_000)
    ]
    path = ex.write(tmp_path / "long.json", {"conversationId": "l", "title": "Long", "messages": flat})
    one, turns, messages = await only(store, "librechat", path)
    assert (len(turns), len(messages), one.notes) == (1_500, 3_000, ())
    assert [message.role for message in messages[:2]] == [Role.USER, Role.ASSISTANT]
    assert all(
        part.outcome is Outcome.OK for one in messages for part in one.parts if isinstance(part, Result)
    )
