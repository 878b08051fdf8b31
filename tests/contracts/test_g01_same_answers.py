"""G01: two servers with data folders of their own on one PostgreSQL give the same answers.

Every endpoint that can be read is asked on both. What differs is named here, with the reason.
"""

from __future__ import annotations

import io
import signal
import time
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from everturn.store.secrets.key_ring import new_key
from everturn.testing.forks import fork_command
from everturn.testing.ports import free_port
from everturn.testing.postgres_server import PostgresServer
from tests.acceptance.command_line import environment
from tests.golden.make_folder import provider, wait_until_ready

pytestmark = pytest.mark.timeout(600)  # two servers start and run turns, on a machine that may be busy
PATIENCE_S = 120.0
SETTLED_S = 60.0
KEY = "sk-planted-0123456789"
# Paths whose answers may differ, and why.
DIFFERENT = {
    "/metrics": "figures of one process",
    "/api/health": "figures of one process: open streams, commit times",
    "/api/backups": "each server names its own folder",
    "/api/audit": "a log of each machine, a file that can be kept and shipped when the database cannot",
    "/api/mcp/callback": "it ends a sign-in that waits, and there is none",
    "/api/sessions/{session}/files/archive": "the time at which it was made; compared in a test of its own",
}
# Fields that say something about the process that answers.
OF_ONE_PROCESS = {
    "/api/memory": {"providers"},  # how its own calls of the memory provider went
    "/api/gateway": {"accounts"},  # each is compared alone
    "/api/gateway/{account}": {"health"},  # since when it has been off, as this server saw it
}
# Streams have no end. A session's events are compared in a test of their own.
STREAMS = {"/api/sessions/{session}/events", "/api/events"}
# What a query needs to find something.
FILES = "/api/sessions/{session}/files"
QUERIES = {
    "/api/export": {"sessions": "{session}"},
    "/api/needs/answered": {"since": "0"},
    "/api/skills/{skill}/file": {"path": "SKILL.md"},
    "/api/search": {"q": "rivers"},
    FILES: {"at": "{turn}"},
    f"{FILES}/content": {"path": "made.txt", "at": "{turn}"},
    f"{FILES}/diff": {"from": "start", "to": "{turn}"},
    f"{FILES}/history": {"path": "made.txt"},
    f"{FILES}/plan": {"action": "undo"},
}

Pair = tuple[httpx2.Client, httpx2.Client]


@contextmanager
def server(home: Path, **environ: str) -> Iterator[httpx2.Client]:
    port = free_port()
    serving = fork_command("serve", "--port", str(port), environ=environment(home, None, **environ))
    try:
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, trust_env=False
        ) as client:
            wait_until_ready(client)
            yield client
    finally:
        serving.send_signal(signal.SIGTERM)
        if serving.wait(PATIENCE_S) is None:
            serving.send_signal(signal.SIGKILL)
            serving.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def pair(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two servers that share a database and a secret key, and nothing else."""
    folder = tmp_path_factory.mktemp("pair")
    with ExitStack() as stack:
        given = {
            "EVERTURN_DATABASE_URL": stack.enter_context(postgres.database()),
            "EVERTURN_SECRET_KEY": new_key(),
            "OPENAI_BASE_URL": f"http://127.0.0.1:{stack.enter_context(provider())}/v1",
            "EVERTURN_MODEL": "openai:old-model",
        }
        one, two = (stack.enter_context(server(folder / name, **given)) for name in ("one", "two"))
        yield one, two


def send(client: httpx2.Client, method: str, path: str, **body: Any) -> Any:
    answer = client.request(method, path, json=body or None)
    assert answer.status_code < 300, f"{method} {path}: {answer.text}"
    return answer.json() if answer.content else None


def wait_for(client: httpx2.Client, path: str, is_so: Any) -> Any:
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        found = client.get(path).json()
        if is_so(found):
            return found
        assert time.monotonic() < give_up_at, f"{path} stays {found}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def ids(pair: Pair) -> dict[str, str]:
    """Ids for the paths, of what was stored through both servers."""
    one, two = pair
    send(one, "PUT", "/api/keys/openai", key=KEY)
    session = send(one, "POST", "/api/sessions", title="About rivers")["id"]
    upload = one.post("/api/uploads", files={"file": ("a.txt", b"attached", "text/plain")})
    assert upload.status_code < 300, upload.text
    file = upload.json()["id"]
    accepted = send(two, "POST", f"/api/sessions/{session}/turns", text="Please write a file about rivers.")
    turn = accepted["turn"]["id"]
    wait_for(one, f"/api/turns/{turn}", lambda found: found["state"] == "completed")
    send(two, "PUT", "/api/memory", text="Likes rivers.")
    send(two, "PATCH", "/api/settings", steps_max=7)
    send(one, "POST", "/api/tokens", label="phone")
    other = send(two, "POST", "/api/sessions", title="Archived")["id"]
    send(two, "PATCH", f"/api/sessions/{other}", archived=True)
    send(two, "POST", f"/api/sessions/{other}/turns", text="Please ask first.")
    wait_for(one, f"/api/approvals?session={other}", lambda found: found["items"])
    queued = send(one, "POST", f"/api/sessions/{other}/turns", text="This one waits.")["turn"]["id"]
    trust(pair, send(one, "POST", "/api/sessions", title="Trusted")["id"])
    job = run_job(one)
    account = {"name": "ci", "platform": "webhook", "options": {"url": "https://ci.example.com/"}}
    send(
        one,
        "POST",
        "/api/gateway",
        **account,
        secrets={"secret": "whsec_" + b64encode(bytes(32)).decode()},
        enabled=False,
    )
    wait_for(two, "/api/gateway", lambda found: found["accounts"])  # the other servers look every few seconds
    rule = {"kind": "cron", "expression": "0 8 * * 1-5"}
    schedule = send(one, "POST", "/api/schedules", name="Morning", text="Say hello.", rule=rule)["id"]
    text = "---\nname: tides\ndescription: Tells the tides.\n---\nAsk the sea.\n"
    return {
        "skill": send(one, "POST", "/api/skills", files=[{"path": "SKILL.md", "text": text}])["id"],
        "profile": send(one, "POST", "/api/profiles", name="writer", prompt="Write plainly.")["name"],
        "schedule": schedule,
        "session": session,
        "turn": turn,
        "file": file,
        "other": other,
        "queued": queued,
        "job": job,
        "delegate": run_delegate(one),
        "account": "ci",
        "platform": "webhook",
    }


def run_job(client: httpx2.Client) -> str:
    """The id of a job that has ended."""
    session = send(client, "POST", "/api/sessions", title="Job")["id"]
    send(client, "POST", f"/api/sessions/{session}/turns", text="Please start a job.")
    [job] = wait_for(client, f"/api/jobs?session={session}", lambda found: found["items"])["items"]
    wait_for(client, f"/api/jobs/{job['id']}", lambda found: found["state"] == "ended")
    return str(job["id"])


def run_delegate(client: httpx2.Client) -> str:
    """The id of a delegate that has ended."""
    session = send(client, "POST", "/api/sessions", title="Delegate")["id"]
    turn = send(client, "POST", f"/api/sessions/{session}/turns", text="Please delegate.")["turn"]["id"]
    wait_for(client, f"/api/turns/{turn}", lambda found: found["state"] == "completed")
    [delegate] = client.get(f"/api/turns/{turn}/delegates").json()["items"]
    return str(delegate["id"])


def trust(pair: Pair, session: str) -> None:
    """Let a session run without asking, from an approval that the other server raised."""
    one, two = pair
    turn = send(one, "POST", f"/api/sessions/{session}/turns", text="Please ask first.")["turn"]["id"]
    [ask] = wait_for(two, f"/api/approvals?session={session}", lambda found: found["items"])["items"]
    send(two, "POST", f"/api/approvals/{ask['id']}", decision="trust")
    wait_for(two, f"/api/turns/{turn}", lambda found: found["state"] == "completed")
    assert send(one, "GET", "/api/policy")["trusted"]


def readable(document: dict[str, Any]) -> list[str]:
    return sorted(path for path, methods in document["paths"].items() if "get" in methods)


def test_g01_every_endpoint_that_can_be_read_answers_the_same_on_both_servers(
    pair: Pair, ids: dict[str, str]
) -> None:
    document = pair[0].get("/openapi.json").json()
    paths = [path for path in readable(document) if path not in STREAMS]
    assert set(DIFFERENT) | STREAMS <= set(readable(document)), "an exception names a path that is not there"
    differing = [path for path in paths if path not in DIFFERENT and not become_same(pair, path, ids)]
    assert not differing


def become_same(pair: Pair, path: str, ids: dict[str, str]) -> bool:
    """Whether both give the same answer, once what follows a turn's end has been written."""
    if "/queue" in path:
        ids = {**ids, "session": ids["other"], "turn": ids["queued"]}
    give_up_at = time.monotonic() + SETTLED_S
    while True:
        first, second = (read(client, path, ids) for client in pair)
        if first == second:
            return True
        if time.monotonic() > give_up_at:
            print(f"{path}\n  {first}\n  {second}")
            return False
        time.sleep(0.2)


def read(client: httpx2.Client, path: str, ids: dict[str, str]) -> Any:
    query = {name: value.format_map(ids) for name, value in QUERIES.get(path, {}).items()}
    answer = client.get(path.format_map(ids), params=query)
    assert answer.status_code < 400, f"{path}: {answer.text}"
    if path not in OF_ONE_PROCESS:
        return answer.text
    return {name: value for name, value in answer.json().items() if name not in OF_ONE_PROCESS[path]}


def test_g01_a_key_saved_through_one_server_is_used_by_the_other_at_once(pair: Pair) -> None:
    one, two = pair
    session = send(two, "POST", "/api/sessions")["id"]
    send(one, "PUT", "/api/keys/openai", key=KEY)
    [state] = [key for key in send(two, "GET", "/api/settings")["keys"] if key["name"] == "openai"]
    assert (state["has_key"], state["source"]) == (True, "store")
    turn = send(two, "POST", f"/api/sessions/{session}/turns", text="Hello")["turn"]["id"]
    ended = wait_for(two, f"/api/turns/{turn}", lambda found: found["state"] not in ("queued", "running"))
    assert ended["state"] == "completed", ended
    send(two, "DELETE", "/api/keys/openai")
    [state] = [key for key in send(one, "GET", "/api/settings")["keys"] if key["name"] == "openai"]
    assert not state["has_key"]


def test_g01_both_servers_stream_the_same_events(pair: Pair, ids: dict[str, str]) -> None:
    heard = []
    for client in pair:
        lines = []
        with client.stream("GET", f"/api/sessions/{ids['session']}/events?after=0") as stream:
            for line in stream.iter_lines():
                if line.startswith(("id:", "event:", "data:")):
                    lines.append(line)
                if line.startswith("data:") and lines[-2:-1] == ["event: turn.completed"]:
                    break
        heard.append(lines)
    assert heard[0] == heard[1]


def test_g01_files_made_through_one_server_are_read_and_taken_from_both(
    pair: Pair, ids: dict[str, str]
) -> None:
    made = b"made by an older version\n"  # as the provider of this test has it
    for client in pair:
        files = f"/api/sessions/{ids['session']}/files"
        answer = client.get(f"{files}/content", params={"path": "made.txt", "at": ids["turn"]})
        assert answer.content == made
        assert [file["name"] for file in client.get(files).json()["files"]] == ["made.txt"]
        assert client.get(f"{files}/content", params={"path": "made.txt"}).content == made
        answer = client.get(f"{files}/archive", params={"at": ids["turn"]})
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.namelist() == ["made.txt"]
            assert archive.read("made.txt") == made


def test_g01_the_present_files_are_the_same_on_both_and_can_be_saved_on_both(
    pair: Pair, ids: dict[str, str]
) -> None:
    """One machine has the folder, the other one the last checkpoint; a save brings the folder there."""
    session = send(pair[0], "POST", "/api/sessions", title="Present")["id"]
    turn = send(pair[0], "POST", f"/api/sessions/{session}/turns", text="Please write a file about rivers.")
    path = f"/api/turns/{turn['turn']['id']}"
    wait_for(pair[0], path, lambda found: found["state"] == "completed")
    files = FILES.format(session=session)
    for number, client in enumerate((*pair, *pair)):
        listed = [
            {file["path"] for file in send(each, "GET", files)["files"] if file["kind"] == "file"}
            for each in pair
        ]
        assert listed[0] == listed[1]
        assert "made.txt" in listed[0]
        query = {"path": "made.txt"}
        before = [each.get(f"{files}/content", params=query) for each in pair]
        assert before[0].content == before[1].content
        text = f"saved {number}".encode()
        tag = before[0].headers["etag"]
        saved = client.put(f"{files}/content", params=query, content=text, headers={"If-Match": tag})
        assert saved.status_code == 200, saved.text
        assert [each.get(f"{files}/content", params=query).content for each in pair] == [text, text]
