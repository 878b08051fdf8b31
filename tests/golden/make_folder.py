"""Makes a data folder by talking to a server of a given version over HTTP, then killing it.

    python -m tests.golden.make_folder PROGRAM TARGET.tar.gz

``PROGRAM`` is the ``everturn`` of the version whose data are wanted. The folder holds something of everything that
is stored: turns that completed, were cancelled, wait for an approval or wait their turn; versions of an answer, undone
and branched turns, a summary, attachments, tags, tokens, settings, stored approvals, notes, sessions that are being
deleted (one of them was archived before), and the session of a request to ``/v1`` that was under way. What only newer
versions have is made if the version's API has it: a job, a schedule, a budget, a delegate.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2

PASSWORD = "four old words here"
UNDO_S = 100 * 365 * 24 * 3600


class _Provider(BaseHTTPRequestHandler):
    """Speaks OpenAI's wire. What it answers follows from the last message."""

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [{"id": "old-model", "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        delta, finish = _answer(asked["messages"])
        if not asked.get("stream"):
            self._json(
                {
                    "choices": [
                        {"index": 0, "message": {"role": "assistant", **delta}, "finish_reason": finish}
                    ]
                }
            )
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        usage = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}
        for choice in ({"delta": delta}, {"delta": {}, "finish_reason": finish}):
            self._event({"choices": [{"index": 0, **choice}]})
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: dict[str, Any]) -> None:
        body = {"id": "c1", "object": "chat.completion.chunk", "model": "old-model", **value}
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")

    def _json(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def _answer(messages: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
    last = messages[-1]
    said = last["content"] if isinstance(last["content"], str) else json.dumps(last["content"])
    if last["role"] == "tool":
        return {"content": "The tool has answered."}, "stop"
    if "write a file" in said:
        return _call("write_file", {"path": "made.txt", "content": "made by an older version\n"})
    if "ask first" in said:
        return _call("terminal", {"command": "rm -rf build cache"})
    if "start a job" in said:
        return _call("terminal", {"command": "echo built", "background": True, "when_ended": "record"})
    if "delegate" in said:
        return _call("delegate", {"tasks": [{"instructions": "Count the rivers."}]})
    if "hang" in said:
        time.sleep(600)
    return {"content": f"An answer to: {said[-60:]}"}, "stop"


def _call(name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]
    }, "tool_calls"


class _Server:
    def __init__(self, client: httpx2.Client) -> None:
        self.client = client
        self._keys = 0

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        if method == "POST":
            self._keys += 1
            headers.setdefault("idempotency-key", f"old-{self._keys}")
        answer = self.client.request(method, path, json=body, headers=headers)
        if answer.status_code >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def session(self, **fields: Any) -> str:
        return str(self.call("POST", "/api/sessions", fields)["id"])

    def turn(self, session: str, text: str, *states: str, **more: Any) -> str:
        turn = str(self.call("POST", f"/api/sessions/{session}/turns", {"text": text, **more})["turn"]["id"])
        for _ in range(600):
            state = self.call("GET", f"/api/turns/{turn}")
            state = state.get("turn", state)["state"]
            if not states or state in states:
                return turn
            time.sleep(0.05)
        raise RuntimeError(f"{text!r} stayed {state}")


def _fill(server: _Server) -> None:
    done = ("completed",)
    plain = server.session(title="Plain talk")
    for number in range(3):
        server.turn(plain, f"question {number}", *done)
    server.call("POST", f"/api/sessions/{plain}/retry", {})
    server.turn(plain, "after the retry", *done)
    server.call("POST", f"/api/sessions/{plain}/undo", {})
    server.call("POST", f"/api/sessions/{plain}/branch", {})
    server.call("PATCH", f"/api/sessions/{plain}", {"pinned": True, "tags": ["old", "kept"]})
    tools = server.session(title="Tools")
    server.turn(tools, "write a file", *done)
    server.turn(tools, "ask first", "waiting")
    server.turn(tools, "this one waits its turn")
    files = server.session(title="Attachments")
    uploaded = server.client.post(
        "/api/uploads", files={"file": ("note.txt", b"an attached note", "text/plain")}
    )
    server.turn(files, "see the note", *done, attachments=[uploaded.json()["id"]])
    long = server.session(title="Summarised")
    for number in range(4):
        server.turn(long, f"long question {number} " + "words " * 50, *done)
    server.call("POST", f"/api/sessions/{long}/compact", {})
    archived = server.session(title="Archived")
    server.turn(archived, "put me away", *done)
    server.call("PATCH", f"/api/sessions/{archived}", {"archived": True})
    server.call("PATCH", "/api/settings", {"model": "openai:old-model"})
    server.call("POST", "/api/tokens", {"label": "phone", "scopes": ["chat"]})
    cut = server.session(title="Cut off")
    server.turn(cut, "hang", "running")
    gone = server.session(title="Being deleted")
    server.turn(gone, "delete me", *done)
    server.call("DELETE", f"/api/sessions/{gone}")
    old = server.session(title="Archived, then deleted")
    server.call("PATCH", f"/api/sessions/{old}", {"archived": True})
    server.call("DELETE", f"/api/sessions/{old}")


def _fill_newer(server: _Server) -> None:
    """What came with the schemas 9 to 12."""
    paths = server.call("GET", "/openapi.json")["paths"]
    if "/api/jobs" in paths:
        jobs = server.session(title="Jobs")
        # Without a sandbox the command asks first.
        server.turn(jobs, "start a job", "completed", "waiting")
    if "/api/schedules" in paths:
        rule = {"kind": "cron", "expression": "0 8 1 1 *"}
        server.call("POST", "/api/schedules", {"name": "Yearly", "text": "Look back.", "rule": rule})
    if "/api/budgets" in paths:
        server.call("PUT", "/api/budgets", {"scope": "month", "unit": "tokens", "amount": 900_000_000})
    if "/api/delegates/{delegate}" in paths:
        delegates = server.session(title="Delegates")
        server.turn(delegates, "delegate", "completed", "waiting", "failed")


@contextlib.contextmanager
def _one_answer(client: httpx2.Client) -> Iterator[None]:
    """A request to ``/v1`` without a session, whose answer does not come as long as this is open."""
    asked = {"model": "everturn", "messages": [{"role": "user", "content": "hang"}], "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"POST /v1/chat/completions: {answer.status_code}")
        yield


@contextlib.contextmanager
def provider() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Provider) as http:
        http.daemon_threads = True
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield http.server_address[1]
        http.shutdown()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def make(program: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as parent, provider() as wire:
        home = Path(parent, "data")
        home.mkdir(mode=0o700)
        # Deletions in the folder can still be undone when a test opens it.
        home.joinpath("config.toml").write_text(f"[server]\nundo_delete_s = {UNDO_S}\n")
        port = free_port()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": parent,
            "EVERTURN_HOME": str(home),
            "OPENAI_BASE_URL": f"http://127.0.0.1:{wire}/v1",
            "OPENAI_API_KEY": "sk-not-a-key",
        }
        server = subprocess.Popen([program, "serve", "--port", str(port)], env=environment)
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                wait_until_ready(client)
                filled = _Server(client)
                _fill(filled)
                _fill_newer(filled)
                with _one_answer(client):
                    server.send_signal(signal.SIGKILL)
        finally:
            server.kill()
            server.wait()
        subprocess.run([program, "password"], env=environment, input=f"{PASSWORD}\n{PASSWORD}\n", text=True)
        with tarfile.open(target, "w:gz") as archive:
            archive.add(home, arcname="data")


def wait_until_ready(client: httpx2.Client) -> None:
    for _ in range(600):
        with contextlib.suppress(httpx2.TransportError):
            if client.get("/readyz").status_code == 200:
                return
        time.sleep(0.1)
    raise RuntimeError("the server did not start")


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]).resolve())
