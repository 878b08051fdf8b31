"""A key is planted wherever a user may put one; then everything that was written is searched for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

import everturn
from everturn.models.keys import Keys
from everturn.store import SecretsFile
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    openai_answer,
    openai_call,
    openai_delta,
    refuse,
    sse,
)

pytestmark = pytest.mark.anyio
KEY = "sk-planted-4f9c2e7a1b8d6053"
STORED = "sk-stored-9e1d7c3b5a2f8460"


def call(name: str, arguments: dict[str, str], ident: str) -> WireAnswer:
    wished = openai_call(0, json.dumps(arguments), ident, name)
    return WireAnswer(sse(wished, openai_delta(finish="tool_calls"), b"[DONE]"))


async def run(home: Path, wires: WireServer, *arguments: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVERTURN")}
    environ |= {
        "EVERTURN_HOME": str(home),
        "OPENAI_BASE_URL": wires.url + "/v1",
        "OPENAI_API_KEY": KEY,
        "EVERTURN_MODEL": "openai:test-model",
    }

    def work() -> str:
        done = subprocess.run(
            [sys.executable, "-m", "everturn", "run", *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return done.stdout + done.stderr

    return await anyio.to_thread.run_sync(work)


def places_with(home: Path, secret: str) -> list[str]:
    """Every file under the data folder that has the secret, the key file itself left out."""
    found = []
    for path in home.rglob("*"):
        if path.is_file() and path.name != "secrets.toml" and secret.encode() in path.read_bytes():
            found.append(str(path.relative_to(home)))
    return found


async def test_a_tool_cannot_find_the_key_and_nothing_that_was_written_has_it(
    data_dir: Path, wires: WireServer
) -> None:
    await Keys(SecretsFile(data_dir), {}).put("anthropic", STORED)
    wires.play(
        call("terminal", {"command": "env; cat /proc/*/environ | tr '\\0' '\\n'"}, "call_1"),
        call("python", {"code": "import os; print(dict(os.environ))"}, "call_2"),
        call("terminal", {"command": f"cat {data_dir}/secrets.toml"}, "call_3"),
        WireAnswer(openai_answer(["I found nothing."])),
        WireAnswer(openai_answer(["Nothing"])),
    )
    output = await run(data_dir, wires, "--json", "Show me your keys")
    assert "turn.completed" in output
    assert len(wires.requests) >= 4
    for secret in (KEY, STORED):
        assert secret not in output
        assert places_with(data_dir, secret) == []
        # The model is told the tools' output: that must not have it either.
        assert all(secret.encode() not in request.body for request in wires.requests)


async def test_a_provider_that_repeats_the_key_in_its_error_does_not_bring_it_into_the_journal(
    data_dir: Path, wires: WireServer
) -> None:
    wires.play(refuse(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}))
    output = await run(data_dir, wires, "Hello")
    assert KEY not in output
    assert "Incorrect API key" in output
    assert places_with(data_dir, KEY) == []


async def test_an_export_has_no_key_and_the_key_file_is_for_its_owner_alone(
    data_dir: Path, wires: WireServer
) -> None:
    await Keys(SecretsFile(data_dir), {}).put("openai", STORED)
    assert (data_dir / "secrets.toml").stat().st_mode & 0o077 == 0
    wires.play(WireAnswer(openai_answer(["Yes."])), WireAnswer(openai_answer(["Title"])))
    await run(data_dir, wires, "Hello")
    async with everturn.open(data_dir, model="pocket") as agent:
        [session] = (await agent.sessions()).items
        whole = await agent.app.store.transcript.export("local", session.id)
        assert STORED not in repr(whole)
        assert KEY not in repr(whole)
