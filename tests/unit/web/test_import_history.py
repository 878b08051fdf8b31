"""POST /api/sessions/import/history and everturn import SOURCE."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everturn.domain.sessions import SessionFilter
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME
from everturn.testing.web_server import run_web
from tests import foreign_exports as ex
from tests.acceptance.command_line import command

pytestmark = pytest.mark.anyio


async def test_an_export_is_recognized_imported_and_not_imported_again(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    content = json.dumps(ex.chatgpt()).encode()
    async with run_web(store, tmp_path / "home", clock=clock) as server:
        for outcome in ("imported", "present"):
            files = {"file": ("conversations.json", content, "application/json")}
            answer = await server.http.post("/api/sessions/import/history", files=files)
            assert answer.status_code == 200, answer.text
            assert answer.json()["source"] == "chatgpt"
            assert [one["outcome"] for one in answer.json()["items"]] == [outcome]
        files = {"file": ("notes.json", b'{"a": 1}', "application/json")}
        refused = await server.http.post("/api/sessions/import/history", files=files)
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_import")
        assert "notes.json is not an export" in refused.json()["detail"]
    [session] = (await store.sessions.list(ME, SessionFilter(archived=None))).items
    assert (session.title, session.archived) == ("A picture", True)


async def test_the_command_reports_each_conversation(tmp_path: Path) -> None:
    path = ex.write(tmp_path / "conversations.json", ex.claude())
    done = await command(tmp_path / "home", "import", "claude", str(path))
    assert done.returncode == 1  # one has no messages
    assert "Rivers  (1 turns, 4 messages, 1 files)" in done.stdout
    assert "    The file map.png is not in the export." in done.stdout
    assert "not imported  Empty  (c-2)\n    It has no messages." in done.stdout
    assert done.stdout.endswith("1 imported, 1 not imported\n")
    again = await command(tmp_path / "home", "import", "claude", str(path))
    assert again.stdout.endswith("1 already here, 1 not imported\n")


async def test_the_system_need_not_be_named(tmp_path: Path) -> None:
    files = [
        ex.write(tmp_path / "a.json", ex.claude()[:1]),
        ex.write(tmp_path / "b.json", ex.librechat()),
        ex.hermes_folder(tmp_path / "hermes", a1=ex.hermes_session()),
    ]
    done = await command(tmp_path / "home", "import", *map(str, files))
    assert done.returncode == 0, done.stderr
    assert "Rivers" in done.stdout
    assert done.stdout.endswith("3 imported\n")


async def test_an_export_of_another_system_than_the_named_one_is_refused(tmp_path: Path) -> None:
    path = ex.write(tmp_path / "my export.json", ex.claude())
    done = await command(tmp_path / "home", "import", "chatgpt", str(path))
    assert done.returncode == 1
    assert "is an export of claude, not of chatgpt" in done.stderr
    assert f"everturn import claude '{path}'" in done.stderr


async def test_a_torn_file_is_named(tmp_path: Path) -> None:
    path = ex.write(tmp_path / "torn.json", ex.claude())
    path.write_bytes(path.read_bytes()[:300])
    done = await command(tmp_path / "home", "import", "claude", str(path))
    assert done.returncode == 1
    assert "torn.json cannot be read" in done.stderr


async def test_an_unknown_system_and_a_missing_file_are_named(tmp_path: Path) -> None:
    done = await command(tmp_path / "home", "import", "gemini", "export.json")
    assert done.returncode == 2
    assert "'gemini' does not exist. Other systems are: hermes, chatgpt" in " ".join(done.stderr.split())
