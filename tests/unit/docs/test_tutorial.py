"""Every command of the tutorial, in its order, in a shell, as a new user of one machine.

Blocks marked ``sh`` are run. Not run is the block marked ``text``, which sets a key; the model here is scripted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest

from everturn.testing.wires import WireAnswer, WireRequest, WireServer, openai_answer, wire_server

pytestmark = pytest.mark.anyio
TUTORIAL = Path(__file__).resolve().parents[3] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")) if found == kind]


class StoryTeller:
    """Answers at once, but for the first telling of the long story, which lasts until it is killed."""

    def __init__(self) -> None:
        self.told = 0

    def answer(self, request: WireRequest) -> WireAnswer:
        if b"long story" not in request.body:
            return WireAnswer(openai_answer(["The Douro."]))
        self.told += 1
        if self.told == 1:
            return WireAnswer(openai_answer(["Once ", "upon "])[:2], ending="hang")
        return WireAnswer(openai_answer(["a time."]))


@pytest.fixture
async def wires(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WireServer]:
    async with wire_server() as server:
        monkeypatch.setattr(server, "answer", StoryTeller().answer)
        yield server


async def test_the_commands_of_the_tutorial_work(tmp_path: Path, wires: WireServer) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN", "OPENAI"))}
    environ = kept | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OPENAI_BASE_URL": f"{wires.url}/v1",
        "OPENAI_API_KEY": "sk-test-000000000000",
        "EVERTURN_MODEL": "openai:test-model",
    }
    script = "set -eux\n" + "\n".join(blocks("sh"))

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    done = await anyio.to_thread.run_sync(run)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "The Douro." in (tmp_path / "first.md").read_text(encoding="utf-8")
    assert "Once " in (tmp_path / "story.txt").read_text(encoding="utf-8")
    assert "a time." in done.stdout


def test_only_the_block_with_a_key_is_not_run() -> None:
    (shown,) = blocks("text")
    assert "OPENAI_API_KEY" in shown
    assert len(blocks("sh")) + 1 == len(BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")))
