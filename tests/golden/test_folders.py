"""A data folder of every earlier schema opens, and shows what was in it."""

from __future__ import annotations

import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from everturn.domain.errors import WrongState
from everturn.store import open_store
from everturn.store.sqlite.connection import SCHEMA
from everturn.testing.forks import fork_command
from everturn.testing.ports import free_port
from tests.acceptance.command_line import environment
from tests.golden.make_folder import PASSWORD, provider, wait_until_ready

FOLDERS = sorted(Path(__file__).parent.glob("folders/*.tar.gz"))


def test_there_is_a_folder_of_every_earlier_schema() -> None:
    """After a migration: make one with ``tests.golden.make_folder`` and the version before it."""
    assert {path.name for path in FOLDERS} == {f"schema-{number}.tar.gz" for number in range(1, SCHEMA)}


@pytest.fixture(params=FOLDERS, ids=lambda path: path.name.split(".")[0])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[httpx2.Client]:
    """Today's server on the folder, and a client that is signed in."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    port = free_port()
    with provider() as wire:
        base = f"http://127.0.0.1:{wire}/v1"
        environ = environment(tmp_path / "data", OPENAI_BASE_URL=base, OPENAI_API_KEY="sk-not-a-key")
        serving = fork_command("serve", "--port", str(port), environ=environ)
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
                wait_until_ready(client)
                assert client.post("/api/signin", json={"password": PASSWORD}).status_code < 300
                yield client
        finally:
            serving.send_signal(signal.SIGKILL)  # one turn still waits for its model: a polite end would wait
            serving.wait(60)


def test_an_old_folder_shows_everything_that_was_in_it(old: httpx2.Client) -> None:
    sessions = {item["title"]: item for item in _get(old, "/api/sessions?limit=100")["items"]}
    archived = {item["title"] for item in _get(old, "/api/sessions?limit=100&archived=true")["items"]}
    assert {"Plain talk", "Tools", "Attachments", "Summarised", "Cut off"} <= sessions.keys()
    assert "Archived" in archived
    assert not {"Being deleted", "Archived, then deleted", "API"} & (sessions.keys() | archived)
    assert sessions["Plain talk"]["pinned"] is True
    assert sessions["Plain talk"]["tags"] == ["old", "kept"]
    assert _texts(old, sessions["Plain talk"])[:2] == ["question 0", "An answer to: question 0"]
    assert "write a file" in _texts(old, sessions["Tools"])
    made = old.get(f"/api/sessions/{sessions['Tools']['id']}/files/content?path=made.txt")
    assert made.text.startswith("made by")
    found = {found["title"] for found in _get(old, "/api/sessions?q=lain")["items"]}
    assert found - {"Plain talk (2)"} == {"Plain talk"}  # the branch has a number since schema 6
    assert [found["title"] for found in _get(old, "/api/sessions?q=kept")["items"]] == ["Plain talk"]
    assert _get(old, "/api/search?q=que")["items"]
    assert _get(old, "/api/settings")["model"] == "openai:old-model"
    assert [token["label"] for token in _get(old, "/api/tokens")["items"]] == ["phone"]
    if "Jobs" in sessions:
        (job,) = _get(old, f"/api/jobs?session={sessions['Jobs']['id']}")["items"]
        assert job["command"] == "echo built"
    if "Delegates" in sessions:
        assert _get(old, "/api/schedules")["items"][0]["name"] == "Yearly"
        assert _get(old, "/api/budgets")["items"][0]["amount"] == 900_000_000
        assert "delegate" in str(_get(old, f"/api/sessions/{sessions['Delegates']['id']}/messages"))


def test_an_old_approval_is_answered_and_the_waiting_turn_runs(old: httpx2.Client) -> None:
    (ask,) = _get(old, "/api/approvals")["items"]
    answer = old.post(f"/api/approvals/{ask['id']}", json={"decision": "deny"})
    assert answer.status_code < 300, answer.text
    with old.stream("GET", f"/api/sessions/{ask['session_id']}/events?after=0") as stream:
        for line in stream.iter_lines():
            if "An answer to: this one waits its turn" in line:
                break
        else:
            pytest.fail("the waiting turn did not run")


def test_a_deletion_that_was_pending_can_still_be_undone(tmp_path: Path) -> None:
    """In the folder of schema 4: deletions whose time has not come, and a request to /v1 that was cut off."""
    with tarfile.open(Path(__file__).parent / "folders" / "schema-4.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    anyio.run(_restore_deleted, tmp_path / "data")


async def _restore_deleted(home: Path) -> None:
    async with open_store(data_dir=home) as store:
        deletions = await store.sessions.deletions()
        assert [found.due_at for found in deletions] == [1794800560672, 4948398760637, 4948398760657]
        one_answer, *deleted = deletions
        restored = [await store.sessions.restore(found.owner, found.session_id) for found in deleted]
        assert [(session.title, session.archived) for session in restored] == [
            ("Being deleted", False),
            ("Archived, then deleted", True),
        ]
        with pytest.raises(WrongState):
            await store.sessions.restore(one_answer.owner, one_answer.session_id)


def _get(client: httpx2.Client, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _texts(client: httpx2.Client, session: dict[str, Any]) -> list[str]:
    messages = _get(client, f"/api/sessions/{session['id']}/messages?limit=100")["messages"]
    return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]
