"""The server starts with what it needs, and no more."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.cli.serve import (
    check_default,
    drain,
    notify_manager,
    report_sandbox,
    share_server_lock,
    warn_of_readers,
)
from everturn.config import Flags, read_config
from everturn.domain.model_errors import ModelUnknown
from everturn.store import Store
from everturn.testing import Pause, Say
from everturn.testing.clock import FakeClock
from everturn.testing.harness import open_harness
from everturn.tools import SandboxState


def test_the_server_loads_nothing_that_only_other_commands_and_extras_need() -> None:
    look = (
        "import sys, everturn.cli.main, everturn.cli.serve;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    loaded = set(found.stdout.split())
    assert "uvicorn" in loaded
    late = {
        "rich",
        "mcp",
        "openai",
        "pydantic",
        "asyncpg",
        "genai_prices",
        "xllamacpp",
        "numpy",
        "pypdf",
        "aiogram",
        "aiohttp",
        "aiosmtplib",
        "discord",
        "imap_tools",
        "slack_sdk",
    }
    assert not loaded & late


@pytest.mark.parametrize(("mode", "warns"), [(0o755, True), (0o750, True), (0o701, True), (0o700, False)])
def test_a_data_folder_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warns: bool
) -> None:
    tmp_path.chmod(mode)
    warn_of_readers(tmp_path)
    assert (f"chmod 700 {tmp_path}" in caplog.text) is warns


def test_a_second_server_on_one_folder_says_what_that_means_and_a_later_one_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with share_server_lock(tmp_path):
        assert caplog.text == ""
        with share_server_lock(tmp_path):
            assert caplog.text.count("another server has the data folder") == 1
            assert "That is safe" in caplog.text
        with share_server_lock(tmp_path):
            assert caplog.text.count("another server") == 2
    with share_server_lock(tmp_path):
        assert caplog.text.count("another server") == 2


@pytest.mark.anyio
async def test_a_provider_that_does_not_exist_is_refused_and_a_missing_key_only_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ModelUnknown):
        await check_default(read_config(tmp_path, {}, Flags(model="nope:x")))
    for name in ("pocket", "ollama:not-running", "anthropic:x"):
        await check_default(read_config(tmp_path, {}, Flags(model=name)))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "ANTHROPIC_API_KEY" in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("is_busy", [True, False])
async def test_only_a_server_with_running_turns_says_that_it_waits_for_them(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture, is_busy: bool
) -> None:
    caplog.set_level("INFO", "everturn.server")
    async with open_harness(store, [Say("Slowly. "), Pause(1e6)], clock=clock) as h:
        session = await h.new_session()
        if is_busy:
            await h.send(session)
            await h.seen(session, "text.delta")
        await drain(h.engine, 0.0)
    assert ("1 running turn: 0 seconds" in caplog.text) is is_busy


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("level", "said"), [("none", "without a sandbox"), ("reduced", "level reduced"), ("full", "level full")]
)
def test_the_level_of_the_sandbox_is_reported_at_the_start_with_a_remedy(
    caplog: pytest.LogCaptureFixture, level: str, said: str
) -> None:
    caplog.set_level("INFO", "everturn.server")
    hint = "Install it with: apt-get install bubblewrap" if level == "none" else ""
    report_sandbox(SandboxState(level, "bubblewrap: as it is.", hint))
    assert said in caplog.text
    assert hint in caplog.text
    assert bool(warnings_in(caplog)) is (level != "full")


def test_systemd_is_told_when_the_server_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify_manager("READY=1")
        assert told.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_manager("READY=1")  # outside a service it is nobody's business
