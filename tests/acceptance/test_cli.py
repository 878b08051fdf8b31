"""The command line as its user has it: real processes on a real data folder, a model on a real socket."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
import pytest

import everturn
from everturn.domain.sessions import NewSession, SessionPatch
from everturn.domain.store_values import ImportedSession, Submission
from everturn.engine import Preferences, write_preferences
from everturn.store import open_store
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    openai_answer,
    openai_call,
    openai_delta,
    refuse,
    sse,
)
from tests.acceptance.command_line import PATIENCE_S, command, environment, program

pytestmark = pytest.mark.anyio


def say(*texts: str) -> WireAnswer:
    return WireAnswer(openai_answer(texts))


async def test_run_answers_and_the_session_is_there_afterwards(data_dir: Path, wires: WireServer) -> None:
    wires.play(say("The Rhine", " and the Po."), say("Rivers"))
    done = await command(data_dir, "run", "Name rivers", wires=wires)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The Rhine and the Po.\n"
    async with everturn.open(data_dir, model="openai:test-model") as agent:
        [session] = (await agent.sessions()).items
        said = [message.text for message in (await agent.messages(session.id)).items]
    assert said == ["Name rivers", "The Rhine and the Po."]


async def test_run_prints_events_as_json(data_dir: Path, wires: WireServer) -> None:
    wires.play(say("Yes."), say("Title"))
    done = await command(data_dir, "run", "--json", "-", wires=wires, stdin="Really?")
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [line["event"]["kind"] for line in lines]
    assert kinds[0] == "turn.accepted"
    assert kinds[-1] == "turn.completed"
    assert [line["position"] for line in lines] == sorted(line["position"] for line in lines)
    assert "".join(line["event"]["text"] for line in lines if line["event"]["kind"] == "text.delta") == "Yes."


async def test_run_says_why_a_turn_failed_and_its_exit_code_says_it_too(
    data_dir: Path, wires: WireServer
) -> None:
    wires.play(refuse(400, {"error": {"message": "no such thing"}}))
    done = await command(data_dir, "run", "Hello", wires=wires)
    assert done.returncode == 1
    assert "no such thing" in done.stderr


@pytest.mark.parametrize(("model", "said"), [("nowhere:x", "nowhere"), ("anthropic:x", "no key")])
async def test_run_with_a_model_that_cannot_answer_leaves_no_session(
    data_dir: Path, model: str, said: str
) -> None:
    done = await command(data_dir, "run", "--model", model, "Hello", ANTHROPIC_API_KEY="")
    assert done.returncode == 1
    assert said in done.stderr
    assert not (data_dir / "everturn.db").exists()


async def test_serve_refuses_a_provider_that_does_not_exist(data_dir: Path) -> None:
    done = await command(data_dir, "serve", "--port", "0", "--model", "nope:x")
    assert done.returncode == 1
    assert "no model provider 'nope'" in done.stderr
    assert "ready" not in done.stdout


async def test_sessions_are_listed_newest_first_with_whole_ids(data_dir: Path, wires: WireServer) -> None:
    (data_dir / "config.toml").write_text('[memory]\nprovider = ""\n', encoding="utf-8")
    wires.play(say("One."), say("Two."))
    question = "Name the rivers\x1b of Europe, " + "all of them, " * 10
    for text in (question + "\nand seas", "Second"):
        assert (await command(data_dir, "run", text, wires=wires)).returncode == 0
    done = await command(data_dir, "sessions", "--json", COLUMNS="60")
    second, first = [json.loads(line) for line in done.stdout.splitlines()]
    assert (second["title"], second["state"], second["messages"]) == ("Second", "completed", 2)
    assert first["title"].startswith("Name the rivers")
    assert len(first["title"]) <= 80
    shown = (await command(data_dir, "sessions", COLUMNS="60")).stdout
    assert shown.index(second["id"]) < shown.index(first["id"])
    assert "\x1b" not in shown
    for arguments in (["export", "nope"], ["run", "--session", "ses_" + "0" * 26, "Hello"]):
        wrong = await command(data_dir, *arguments, wires=wires)
        assert wrong.returncode == 1
        assert "'everturn sessions' lists" in wrong.stderr
    [only] = (await command(data_dir, "sessions", "--limit", "1")).stdout.splitlines()
    assert only.startswith(second["id"])
    assert only.endswith("Second")


async def test_sessions_all_adds_archived_ones_but_neither_deleted_nor_ephemeral_ones(data_dir: Path) -> None:
    async with open_store(data_dir=data_dir) as store:
        kept, archived, deleted = [
            await store.sessions.create("local", NewSession(title=title))
            for title in ("Kept", "Archived", "Deleted")
        ]
        await store.sessions.change("local", archived.id, SessionPatch(archived=True))
        await store.sessions.mark_deleted("local", deleted.id, due_at=1 << 50)
        one_answer = msgspec.structs.replace(kept, id=f"ses_{'0' * 26}", title="API")
        await store.transcript.import_session("local", ImportedSession(one_answer, (), (), purge_at=1 << 50))
    done = await command(data_dir, "sessions", "--all", "--json")
    assert [json.loads(line)["title"] for line in done.stdout.splitlines()] == ["Archived", "Kept"]
    refused = await command(data_dir, "export", deleted.id)
    assert refused.returncode == 1


async def test_sessions_are_called_by_their_first_words_until_they_have_a_title(data_dir: Path) -> None:
    async with open_store(data_dir=data_dir) as store:
        session = await store.sessions.create("local")
        for text in ("First\x1b[2J words\nmore", "last words"):
            await store.turns.accept("local", session.id, Submission(text=text))
    shown = (await command(data_dir, "sessions")).stdout
    assert shown.rstrip().endswith("  First[2J words")


async def test_run_says_that_an_earlier_turn_of_the_session_waits(data_dir: Path, wires: WireServer) -> None:
    call = openai_call(0, '{"command": "git push"}', "c1", "terminal")
    wires.play(WireAnswer(sse(call, openai_delta("tool_calls"), b"[DONE]")))
    first = await command(data_dir, "run", "--json", "Push it", wires=wires)
    assert first.returncode == 3
    session_id = json.loads(first.stdout.splitlines()[0])["session_id"]
    second = await command(data_dir, "run", "--session", session_id, "And now?", wires=wires)
    assert second.returncode == 3
    assert "waits for an answer: git push" in second.stderr
    assert f"'everturn chat --session {session_id}'" in second.stderr


async def test_a_mistake_in_the_settings_is_a_sentence_not_a_traceback(data_dir: Path) -> None:
    (data_dir / "config.toml").write_text("prot = 1\n", encoding="utf-8")
    done = await command(data_dir, "doctor")
    assert done.returncode == 1
    assert "line 1" in done.stderr
    assert "Traceback" not in done.stderr


async def test_doctor_is_content_with_a_fresh_folder_and_repairs_a_wrong_list(data_dir: Path) -> None:
    import apsw

    async with everturn.open(data_dir, model="pocket") as agent:
        await agent.create_session(title="One")
    assert (await command(data_dir, "doctor")).returncode == 0
    connection = apsw.Connection(str(data_dir / "everturn.db"))
    connection.execute("UPDATE sessions SET messages = 99")
    connection.close()
    found = await command(data_dir, "doctor")
    assert found.returncode == 1
    assert "list differs" in found.stdout
    repaired = await command(data_dir, "doctor", "--repair")
    assert repaired.returncode == 0, repaired.stdout
    assert (await command(data_dir, "doctor")).returncode == 0


async def test_a_backup_is_restored_into_an_empty_folder_only(data_dir: Path, tmp_path: Path) -> None:
    async with everturn.open(data_dir, model="pocket") as agent:
        kept = await agent.create_session(title="Kept")
    copy, home = tmp_path / "copy", tmp_path / "restored"
    assert (await command(data_dir, "backup", str(copy))).returncode == 0
    again = await command(data_dir, "backup", str(copy))
    assert again.returncode == 1
    assert "exists already" in again.stderr
    refused = await command(data_dir, "restore", str(copy))
    assert refused.returncode == 1
    assert "not empty" in refused.stderr
    assert (await command(home, "restore", str(copy))).returncode == 0
    async with everturn.open(home, model="pocket") as agent:
        assert [session.id for session in (await agent.sessions()).items] == [kept.id]


async def test_a_backup_holds_workspaces_and_memory_and_is_its_owner_s_alone(
    data_dir: Path, tmp_path: Path
) -> None:
    async with everturn.open(data_dir, model="pocket") as agent:
        session = await agent.create_session(title="Kept")
    work = data_dir / "workspaces" / session.id
    work.mkdir(parents=True)
    (work / "made.txt").write_text("by hand", encoding="utf-8")
    (work / "link").symlink_to("/etc")
    os.mkfifo(work / "pipe")
    (data_dir / "memory").mkdir(exist_ok=True)
    os.mkfifo(data_dir / "memory" / "odd")
    (tmp_path / "notes.md").write_text("Likes rivers", encoding="utf-8")
    (data_dir / "memory" / "notes.md").symlink_to(tmp_path / "notes.md")
    (data_dir / "config.toml").write_text("port = 0\n", encoding="utf-8")
    (data_dir / "secrets.toml").write_text('openai = "sk-1"\n', encoding="utf-8")
    copy, home = tmp_path / "copy", tmp_path / "restored"
    home.mkdir(mode=0o755)
    done = await command(data_dir, "backup", str(copy))
    assert done.returncode == 0, done.stderr
    assert "workspaces" in done.stdout
    assert "with a password or database_url" in done.stdout
    assert f"{session.id}/pipe: a pipe" in done.stderr
    assert not (copy / "secrets.toml").exists()
    assert (await command(home, "restore", str(copy))).returncode == 0
    back = home / "workspaces" / session.id
    assert (back / "made.txt").read_text(encoding="utf-8") == "by hand"
    assert (back / "link").readlink() == Path("/etc")
    assert (home / "config.toml").exists()
    assert "memory/odd: neither" in done.stderr
    (tmp_path / "notes.md").unlink()
    assert (home / "memory" / "notes.md").read_text(encoding="utf-8") == "Likes rivers"
    assert [path.stat().st_mode & 0o777 for path in (copy, home)] == [0o700, 0o700]
    inside = await command(data_dir, "backup", str(work / "copy"))
    assert inside.returncode == 1
    assert "which is copied" in inside.stderr


async def test_a_backup_that_fails_is_not_left_behind(data_dir: Path, tmp_path: Path) -> None:
    async with everturn.open(data_dir, model="pocket") as agent:
        session = await agent.create_session(title="Kept")
    work = data_dir / "workspaces" / session.id
    work.mkdir(parents=True)
    (work / "large").write_bytes(bytes(8_000_000))
    command_line = ["bash", "-c", 'ulimit -f 4000 && exec "$0" "$@"', sys.executable, "-m", "everturn"]
    done = await anyio.run_process(
        [*command_line, "backup", str(tmp_path / "copy")], env=environment(data_dir), check=False
    )
    assert done.returncode == 1
    assert b"The backup was not made, and nothing of it is left: File too large." in done.stderr
    assert b"Traceback" not in done.stderr
    assert not (tmp_path / "copy").exists()
    assert (await command(data_dir, "backup", str(tmp_path / "copy"))).returncode == 0
    done = await anyio.run_process(
        [*command_line, "restore", str(tmp_path / "copy")], env=environment(tmp_path / "new"), check=False
    )
    assert done.returncode == 1
    assert b"was not restored whole: File too large." in done.stderr


async def test_a_folder_that_is_no_backup_is_not_restored(tmp_path: Path) -> None:
    (tmp_path / "etc" / "postgresql").mkdir(parents=True)
    (tmp_path / "etc" / "hosts").write_text("localhost", encoding="utf-8")
    done = await command(tmp_path / "home", "restore", str(tmp_path / "etc"))
    assert done.returncode == 1
    assert "is not a backup of Everturn" in done.stderr
    assert not (tmp_path / "home").exists()


async def test_a_backup_is_restored_to_the_address_of_a_sqlite_file(data_dir: Path, tmp_path: Path) -> None:
    address = str(tmp_path / "elsewhere" / "my.db")
    (tmp_path / "elsewhere").mkdir()
    assert (await command(data_dir, "token", "create", "x", EVERTURN_DATABASE_URL=address)).returncode == 0
    copy, home = tmp_path / "copy", tmp_path / "restored"
    assert (await command(data_dir, "backup", str(copy), EVERTURN_DATABASE_URL=address)).returncode == 0
    taken = await command(home, "restore", "--yes", str(copy), EVERTURN_DATABASE_URL=address)
    assert taken.returncode == 1
    assert "exists already" in taken.stderr
    address = str(tmp_path / "new" / "my.db")
    assert (await command(home, "restore", "--yes", str(copy), EVERTURN_DATABASE_URL=address)).returncode == 0
    assert "tok_" in (await command(home, "token", "list", EVERTURN_DATABASE_URL=address)).stdout
    assert not (home / "my.db").exists()


async def test_names_that_look_like_markup_are_printed_as_they_are(data_dir: Path, tmp_path: Path) -> None:
    async with everturn.open(data_dir, model="pocket") as agent:
        session = await agent.create_session(title="[/b] [red]old[/red]")
    path = tmp_path / "[old] session.json"
    wrote = await command(data_dir, "export", session.id, "--output", str(path))
    assert "[old] session.json" in wrote.stderr.replace("\n", "")
    imported = await command(tmp_path / "[new]", "import", str(path))
    assert (imported.returncode, "[/b] [red]old[/red]" in imported.stdout) == (0, True), imported.stderr
    assert (await command(data_dir, "token", "create", "[/b] phone")).returncode == 0
    assert "[/b] phone" in (await command(data_dir, "token", "list")).stdout
    assert (await command(tmp_path / "[new]", "doctor")).returncode == 0


# --- backups that are cut off ------------------------------------------------------------------------

# Holds the real command in the middle of its work: says so, and goes on when it is told to.
HELD = """
import sys
from everturn.backups import backup
from everturn.cli.main import main
copied = backup.copy_memory
def held(home, folder, watch):
    print("held", flush=True)
    sys.stdin.readline()
    return copied(home, folder, watch)
backup.copy_memory = held
main(sys.argv[1:])
"""


@asynccontextmanager
async def held_backup(home: Path, target: Path) -> AsyncIterator[anyio.abc.Process]:
    """``everturn backup`` after it has copied the database."""
    line = [sys.executable, "-c", HELD, "backup", str(target)]
    with anyio.fail_after(PATIENCE_S):
        async with await anyio.open_process(line, env=environment(home)) as process:
            assert process.stdout is not None
            assert (await process.stdout.receive()).strip() == b"held"
            yield process


async def test_a_backup_that_was_killed_is_not_restored_and_the_next_one_clears_it(
    data_dir: Path, tmp_path: Path
) -> None:
    async with everturn.open(data_dir, model="pocket") as agent:
        kept = await agent.create_session(title="Kept")
    copy, left, home = tmp_path / "copy", tmp_path / "copy.unfinished", tmp_path / "restored"
    async with held_backup(data_dir, copy) as process:
        assert not copy.exists()
        meanwhile = await command(data_dir, "backup", str(copy))
        assert (meanwhile.returncode, "Another process is making" in meanwhile.stderr) == (1, True)
        process.send_signal(signal.SIGKILL)
    assert (left / "backup" / "everturn.db").exists()
    for source in (left, left / "backup"):
        refused = await command(home, "restore", str(source))
        assert (refused.returncode, "was not finished" in refused.stderr) == (1, True), refused.stderr
        assert not home.exists()
    assert (await command(data_dir, "backup", str(copy))).returncode == 0
    assert not left.exists()
    assert (await command(home, "restore", str(copy))).returncode == 0
    async with everturn.open(home, model="pocket") as agent:
        assert [session.id for session in (await agent.sessions()).items] == [kept.id]


HELD_RESTORE = """
import sys
from everturn.backups import restore
from everturn.cli.main import main
synced = restore.sync_tree
def held(disk, folder, check):
    print("held", flush=True)
    sys.stdin.readline()
    synced(disk, folder, check)
restore.sync_tree = held
main(sys.argv[1:])
"""


@asynccontextmanager
async def held_restore(home: Path, source: Path, **more: str) -> AsyncIterator[anyio.abc.Process]:
    """``everturn restore`` after it has copied the files, before the database in the data folder."""
    line = [sys.executable, "-c", HELD_RESTORE, "restore", "--yes", str(source)]
    with anyio.fail_after(PATIENCE_S):
        async with await anyio.open_process(line, env=environment(home) | more) as process:
            assert process.stdout is not None
            assert (await process.stdout.receive()).strip() == b"held"
            yield process


@pytest.mark.parametrize("has_address", [False, True])
async def test_a_restoration_that_was_killed_is_begun_again(
    data_dir: Path, tmp_path: Path, has_address: bool
) -> None:
    copy, home = tmp_path / "copy", tmp_path / "restored"
    new: dict[str, Any] = (
        {"EVERTURN_DATABASE_URL": str(tmp_path / "elsewhere" / "everturn.db")} if has_address else {}
    )
    async with everturn.open(data_dir, model="pocket") as agent:
        kept = await agent.create_session(title="Kept")
    # The backup's own settings, half restored, must not decide where the next attempt puts the database.
    (data_dir / "config.toml").write_text(f"database_url = '{tmp_path / 'wrong.db'}'\n")
    address: dict[str, Any] = {"EVERTURN_DATABASE_URL": str(data_dir / "everturn.db")}
    assert (await command(data_dir, "backup", str(copy), **address)).returncode == 0
    async with held_restore(home, copy, **new) as process:
        meanwhile = await command(home, "restore", "--yes", str(copy), **new)
        assert (meanwhile.returncode, "Another process is restoring" in meanwhile.stderr) == (1, True)
        process.send_signal(signal.SIGKILL)
    assert (home / "config.toml").exists()
    again = await command(home, "restore", "--yes", str(copy), **new)
    assert again.returncode == 0, again.stderr
    assert not (home / "UNFINISHED").exists()
    assert not (tmp_path / "wrong.db").exists()
    url = new.get("EVERTURN_DATABASE_URL") or str(home / "everturn.db")
    async with everturn.open(home, model="pocket", database_url=url) as agent:
        assert [session.id for session in (await agent.sessions()).items] == [kept.id]
    refused = await command(home, "restore", "--yes", str(copy), **new)
    assert (refused.returncode, "is not empty" in refused.stderr) == (1, True)


async def test_a_folder_that_was_used_after_a_cut_restoration_is_not_cleared(
    data_dir: Path, tmp_path: Path
) -> None:
    copy, home = tmp_path / "copy", tmp_path / "restored"
    async with everturn.open(data_dir, model="pocket") as agent:
        await agent.create_session(title="Kept")
    assert (await command(data_dir, "backup", str(copy))).returncode == 0
    async with held_restore(home, copy) as process:
        process.send_signal(signal.SIGKILL)
    async with everturn.open(home, model="pocket") as agent:
        new = await agent.create_session(title="New")
    refused = await command(home, "restore", str(copy))
    assert (refused.returncode, "is not empty" in refused.stderr) == (1, True)
    async with everturn.open(home, model="pocket") as agent:
        assert [session.id for session in (await agent.sessions()).items] == [new.id]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_backup_that_is_stopped_clears_up_and_a_second_signal_hurries(
    data_dir: Path, tmp_path: Path, number: signal.Signals
) -> None:
    async with everturn.open(data_dir, model="pocket") as agent:
        await agent.create_session(title="Kept")
    async with held_backup(data_dir, tmp_path / "copy") as process:
        assert process.stderr is not None
        assert process.stdin is not None
        process.send_signal(number)
        assert b"Stopping after this part" in await process.stderr.receive()
        await process.stdin.send(b"\n")
        assert await process.wait() == 1
        assert b"nothing of it is left: it was ended by a signal." in await process.stderr.receive()
    assert list(tmp_path.glob("copy*")) == []
    async with held_backup(data_dir, tmp_path / "copy") as process:
        assert process.stderr is not None
        process.send_signal(number)
        assert b"Stopping after this part" in await process.stderr.receive()
        process.send_signal(number)
        assert await process.wait() == -number
    assert [path.name for path in tmp_path.glob("copy*")] == ["copy.unfinished"]


async def test_leftovers_among_the_data_folder_s_backups_are_cleared_and_what_is_not_ours_stays(
    data_dir: Path,
) -> None:
    async with everturn.open(data_dir, model="pocket") as agent:
        await agent.create_session(title="Kept")
    left, other = (
        data_dir / "backups" / "2020-01-01-000000.unfinished",
        data_dir / "backups" / "my.unfinished",
    )
    (left / "backup" / "locked").mkdir(parents=True)
    (left / "UNFINISHED").touch()
    (left / "backup" / "locked").chmod(0o500)
    other.mkdir()
    (other / "poem.txt").write_text("not ours", encoding="utf-8")
    done = await command(data_dir, "backup")
    assert done.returncode == 0
    assert f"Cleared {left.name}" in done.stderr
    assert not left.exists()
    assert (other / "poem.txt").exists()
    in_the_way = await command(data_dir, "backup", str(data_dir / "backups" / "my"))
    assert (in_the_way.returncode, "is in the way" in in_the_way.stderr) == (1, True)
    assert (other / "poem.txt").exists()


async def test_a_restoration_that_is_cut_off_leaves_no_data_that_looks_whole(
    data_dir: Path, tmp_path: Path
) -> None:
    async with everturn.open(data_dir, model="pocket") as agent:
        session = await agent.create_session(title="Kept")
    work = data_dir / "workspaces" / session.id
    work.mkdir(parents=True)
    (work / "large").write_bytes(bytes(8_000_000))
    copy, home = tmp_path / "copy", tmp_path / "restored"
    assert (await command(data_dir, "backup", str(copy))).returncode == 0
    line = ["bash", "-c", 'ulimit -f 4000 && exec "$0" "$@"', sys.executable, "-m", "everturn"]
    done = await anyio.run_process([*line, "restore", str(copy)], env=environment(home), check=False)
    assert done.returncode == 1
    looked = await command(home, "sessions")
    assert (looked.returncode, "There is no Everturn data" in looked.stderr) == (1, True)


async def test_restored_settings_that_name_another_database_are_reported(
    data_dir: Path, tmp_path: Path
) -> None:
    address = str(tmp_path / "my.db")
    assert (await command(data_dir, "token", "create", "x", EVERTURN_DATABASE_URL=address)).returncode == 0
    (data_dir / "config.toml").write_text(f'database_url = "{address}"\n', encoding="utf-8")
    copy, home = tmp_path / "copy", tmp_path / "restored"
    assert (await command(data_dir, "backup", str(copy))).returncode == 0
    nowhere = await command(home, "restore", "--yes", str(copy))
    assert (nowhere.returncode, "with an address of its own" in nowhere.stderr) == (1, True)
    new = str(tmp_path / "new" / "my.db")
    done = await command(home, "restore", "--yes", str(copy), EVERTURN_DATABASE_URL=new)
    assert done.returncode == 0
    assert "names another database" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["sessions"],
        ["backup"],
        ["export", "ses_1"],
        ["memory", "list"],
        ["memory", "where"],
        ["token", "list"],
        ["password", "--remove"],
    ],
)
async def test_a_folder_without_data_is_reported_and_not_created(
    tmp_path: Path, arguments: list[str]
) -> None:
    done = await command(tmp_path, *arguments, "--home", str(tmp_path / "typo"))
    assert done.returncode == 1
    assert f"There is no Everturn data in {tmp_path / 'typo'}." in done.stderr
    assert not (tmp_path / "typo").exists()


async def test_an_exported_session_is_imported_elsewhere_as_an_equal_one(
    data_dir: Path, tmp_path: Path, wires: WireServer
) -> None:
    wires.play(say("Four."), say("Sums"))
    assert (await command(data_dir, "run", "Two and two?", wires=wires)).returncode == 0
    async with everturn.open(data_dir, model="pocket") as agent:
        [session] = (await agent.sessions()).items
        said = (await agent.messages(session.id)).items
    document, other = tmp_path / "session.json", tmp_path / "other"
    assert (await command(data_dir, "export", session.id, "--output", str(document))).returncode == 0
    done = await command(other, "import", str(document))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(session.id)
    async with everturn.open(other, model="pocket") as agent:
        [copy] = (await agent.sessions()).items
        assert (copy.id, copy.title, copy.updated_at) == (session.id, session.title, session.updated_at)
        copied = (await agent.messages(copy.id)).items
        assert all(message.is_imported for message in copied)
        assert [msgspec.structs.replace(message, is_imported=False) for message in copied] == list(said)
    text = (await command(data_dir, "export", session.id, "--format", "md")).stdout
    assert "Two and two?" in text
    assert "Four." in text
    document.write_text('{"format": "nothing"', encoding="utf-8")
    refused = await command(other, "import", str(document))
    assert refused.returncode == 1
    assert "is not a session that Everturn exported" in refused.stderr


async def test_names_of_models_are_whole_in_a_narrow_terminal(data_dir: Path, wires: WireServer) -> None:
    long = "some-organisation/a-model-with-a-rather-long-name-2026-11"
    wires.route("/v1/models", {"object": "list", "data": [{"id": long, "object": "model"}]})
    narrow = (await command(data_dir, "models", wires=wires, COLUMNS="80")).stdout.splitlines()
    assert f"openai:{long}" in narrow
    pocket = next(number for number, line in enumerate(narrow) if line.startswith("pocket:"))
    assert narrow[pocket + 1].endswith("free")
    wide = (await command(data_dir, "models", wires=wires, COLUMNS="160")).stdout
    assert next(line for line in wide.splitlines() if long in line).split()[0] == f"openai:{long}"


async def test_the_model_that_was_chosen_on_the_page_is_the_default_here_too(
    data_dir: Path, wires: WireServer
) -> None:
    wires.route("/v1/models", {"object": "list", "data": [{"id": "gpt-5-mini"}, {"id": "other"}]})
    async with open_store(data_dir=data_dir) as store:
        await write_preferences(store.records, "local", Preferences(model="openai:other"))
    listed = (await command(data_dir, "models", wires=wires, COLUMNS="160")).stdout
    assert [line.split()[0] for line in listed.splitlines() if "(default)" in line] == ["openai:other"]
    wires.play(WireAnswer(openai_answer(["Hello."])))
    ran = await command(data_dir, "run", "hi", wires=wires)
    assert ran.returncode == 0, ran.stderr
    assert wires.requests[-1].json["model"] == "other"


async def test_a_short_password_is_refused_before_it_is_asked_for_again(data_dir: Path) -> None:
    done = await command(data_dir, "password", stdin="short\n")
    assert done.returncode == 1
    assert "at least 8 characters" in done.stderr
    assert "Repeat the password" not in done.stdout + done.stderr


async def test_a_token_is_shown_once_listed_and_revoked(data_dir: Path) -> None:
    made = await command(data_dir, "token", "create", "phone")
    text = made.stdout.strip()
    assert len(text) > 32
    listed = await command(data_dir, "token", "list")
    assert "phone" in listed.stdout
    assert text not in listed.stdout
    ident = next(word for word in listed.stdout.split() if word.startswith("tok_"))
    assert (await command(data_dir, "token", "revoke", ident)).returncode == 0
    assert "no tokens" in (await command(data_dir, "token", "list")).stdout


async def test_ids_are_whole_in_a_narrow_terminal_and_brackets_stay_in_errors(data_dir: Path) -> None:
    made = await command(data_dir, "token", "create", "a rather long label for one token", "--scope", "admin")
    ident = made.stderr.split()[1]
    assert ident in (await command(data_dir, "token", "list", COLUMNS="60")).stdout.split()
    (data_dir / "config.toml").write_text("server = 3\n")
    wrong = await command(data_dir, "token", "list")
    assert wrong.returncode == 1
    assert "Write [server]." in wrong.stderr


async def test_serve_stops_cleanly_and_refuses_other_addresses_without_a_password(data_dir: Path) -> None:
    refused = await command(data_dir, "serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 1
    assert "password" in refused.stderr
    async with program(environment(data_dir), "serve", "--port", "0") as server:
        await server.until("is ready")
        server.process.send_signal(signal.SIGTERM)
        with anyio.fail_after(PATIENCE_S):
            assert await server.process.wait() == 0


async def test_the_ten_lines_of_the_readme_work(data_dir: Path, wires: WireServer) -> None:
    wires.play(say("Danube, Rhine, Loire."), say("Three rivers"))
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0].replace("~/.everturn", str(data_dir))
    result = await anyio.run_process([sys.executable, "-c", code], env=environment(data_dir, wires))
    assert b"turn.completed" in result.stdout
    assert b"Danube" in result.stdout


async def test_sessions_are_renamed_archived_and_deleted(data_dir: Path) -> None:
    async with open_store(data_dir=data_dir) as store:
        session = await store.sessions.create("local")
    await command(data_dir, "sessions", "rename", session.id, "Rivers of Europe")
    assert (await command(data_dir, "sessions")).stdout.endswith("Rivers of Europe\n")
    await command(data_dir, "sessions", "archive", session.id)
    assert session.id not in (await command(data_dir, "sessions")).stdout
    await command(data_dir, "sessions", "archive", session.id, "--undo")
    refused = await command(data_dir, "sessions", "delete", session.id)
    assert refused.returncode == 1  # nobody answers
    assert session.id in (await command(data_dir, "sessions")).stdout
    assert (await command(data_dir, "sessions", "delete", session.id, "--yes")).returncode == 0
    assert session.id not in (await command(data_dir, "sessions", "--all")).stdout
    async with open_store(data_dir=data_dir) as store:
        [deletion] = await store.sessions.deletions()
        assert deletion.session_id == session.id
    wrong = await command(data_dir, "sessions", "rename", "ses_x", "y")
    assert wrong.returncode == 1
    assert "'everturn sessions' lists" in wrong.stderr


async def test_keys_are_listed_by_place_saved_and_removed_but_never_shown(data_dir: Path) -> None:
    saved = await command(data_dir, "keys", "set", "openai", stdin="sk-planted-0123456789\n")
    assert (saved.returncode, saved.stdout) == (0, "The key of openai is saved (file).\n")
    listed = (await command(data_dir, "keys", ANTHROPIC_API_KEY="sk-other-0123456789")).stdout
    places = {line.split()[1]: line.split()[-1] for line in listed.splitlines()[1:]}
    assert (places["openai"], places["anthropic"]) == ("file", "environment")
    assert "sk-" not in listed + saved.stderr
    assert (await command(data_dir, "keys", "remove", "openai")).returncode == 0
    again = await command(data_dir, "keys", "remove", "openai")
    assert (again.returncode, "No key of openai is saved." in again.stderr) == (1, True)
    unknown = await command(data_dir, "keys", "set", "nosuch", stdin="sk-x-0123456789\n")
    assert (unknown.returncode, "There is no provider 'nosuch'." in unknown.stderr) == (1, True)
