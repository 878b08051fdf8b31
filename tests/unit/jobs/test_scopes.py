"""Scopes of systemd: found by trying, and asked for with the limits of the sandbox. A program that becomes what
it was told to start stands in for systemd-run; what a real systemd does is in decision 097."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everturn.domain.errors import EverturnError
from everturn.jobs.folder import JobFolder
from everturn.jobs.launcher import JobCommand, launch
from everturn.jobs.scopes import ScopeLimits, Scopes, find_scopes
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView
from tests.waiting import until

pytestmark = pytest.mark.anyio

IN_A_SERVICE = "0::/system.slice/everturn.service/everturn-server\n"
OF_A_USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/everturn.service\n"
IN_A_TERMINAL = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope\n"
IN_A_CONTAINER = "0::/\n"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What systemd-run was asked for, one line for each time."""
    log = tmp_path / "asked"
    _program(tmp_path, f'echo "$@" >> {log}; while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return log


def _program(folder: Path, script: str) -> None:
    path = folder / "bin" / "systemd-run"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _proc(tmp_path: Path, groups: str) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cgroup").write_text(groups)
    return tmp_path / "proc"


@pytest.mark.parametrize("groups", [IN_A_TERMINAL, IN_A_CONTAINER])
def test_nothing_is_asked_for_outside_a_service(asked: Path, tmp_path: Path, groups: str) -> None:
    assert find_scopes(needs_memory=False, proc=_proc(tmp_path, groups)) is None
    assert not asked.exists()


@pytest.mark.parametrize(("groups", "is_user"), [(IN_A_SERVICE, False), (OF_A_USER, True)])
def test_the_manager_of_the_service_is_asked(asked: Path, tmp_path: Path, groups: str, is_user: bool) -> None:
    found = find_scopes(needs_memory=False, proc=_proc(tmp_path, groups))
    assert found == Scopes(f"{tmp_path}/bin/systemd-run", is_user)
    assert ("--user" in asked.read_text()) is is_user


def test_a_refusal_is_logged_with_what_follows(
    asked: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _program(tmp_path, "echo Interactive authentication required. >&2; exit 1")
    assert find_scopes(needs_memory=False, proc=_proc(tmp_path, IN_A_SERVICE)) is None
    assert "Interactive authentication required" in caplog.text
    assert "KillMode=process" in caplog.text


def test_a_scope_that_limits_no_memory_does_not_replace_a_group_that_does(
    asked: Path, tmp_path: Path
) -> None:
    assert find_scopes(needs_memory=True, proc=_proc(tmp_path, IN_A_SERVICE)) is None
    assert "MemoryMax=67108864" in asked.read_text()


def test_the_limits_of_the_sandbox_are_the_limits_of_the_scope() -> None:
    words = Scopes("systemd-run").words("everturn-job_1", ScopeLimits(256, 1024))
    assert {"--property=TasksMax=264", "--property=MemoryMax=1024", "--property=MemorySwapMax=0"} <= set(
        words
    )
    assert "MemoryMax" not in " ".join(Scopes("systemd-run").words("x", ScopeLimits(256, 0)))


async def test_a_job_in_a_scope_runs_and_ends_like_any_other(asked: Path, tmp_path: Path) -> None:
    folder = await _launch(tmp_path, "echo done; exit 4")
    await until("the shim is gone", lambda: not folder.is_held())
    end = folder.end()
    assert end is not None
    assert (end.exit_code, folder.read_kept()) == (4, b"done\n")
    assert "--unit=everturn-job_1.scope" in asked.read_text()


async def test_a_job_that_gets_no_scope_does_not_start_and_says_why(asked: Path, tmp_path: Path) -> None:
    _program(tmp_path, "echo Connection refused. >&2; exit 1")
    with pytest.raises(EverturnError, match=r"no scope of its own: Connection refused\."):
        await _launch(tmp_path, "touch begun")
    assert not (tmp_path / "workspace" / "begun").exists()


async def _launch(tmp_path: Path, command: str) -> JobFolder:
    sandbox = Sandbox(tmp_path / "home")
    await sandbox.open()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    folder = JobFolder(tmp_path / "home" / "jobs" / "job_1", 65536)
    lock = folder.make()
    scopes = Scopes(f"{tmp_path}/bin/systemd-run")
    job = JobCommand(("/bin/sh", "-c", command), SandboxView(workspace), "job_1", 65536, scopes=scopes)
    try:
        await launch(sandbox, folder, lock, job)
    finally:
        os.close(lock)
    return folder
