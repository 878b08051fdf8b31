from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from everturn.domain.clock import SystemClock
from everturn.tools import Sandbox
from everturn.tools.sandbox import bubblewrap
from everturn.tools.sandbox.trial import hint_for
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.terminal.process import Command, CommandEnd, run
from tests.unit.tools.kit import Kit, open_kit

pytestmark = pytest.mark.anyio


async def _run(sandbox: Sandbox, view: SandboxView, command: str) -> CommandEnd:
    async def emit(_: str) -> None:
        """The output is not looked at."""

    shell = Command(("/bin/sh", "-c", command), timeout_s=20)
    return await run(sandbox, shell, view, emit=emit, clock=SystemClock())


@pytest.fixture
def under_home() -> Iterator[Path]:
    """A data folder where people really have it: below their home."""
    folder = Path(tempfile.mkdtemp(prefix=".everturn-test-", dir=Path.home()))
    yield folder
    shutil.rmtree(folder)


async def test_it_works_with_the_data_folder_below_home_and_shows_nothing_of_home(under_home: Path) -> None:
    (under_home / "secrets.toml").write_text("key")
    async with open_kit(under_home) as kit:
        assert kit.toolbox.sandbox_state().level == "full"
        said = await kit.run(
            "terminal", command=f"find {quote(str(Path.home()))} -not -path '{kit.workspace}*'; echo end"
        )
        parents = [str(path) for path in kit.workspace.parents if path.is_relative_to(Path.home())]
        assert sorted(said.text.splitlines()) == sorted([*parents, "end"])


async def test_without_the_program_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    state = await Sandbox(tmp_path, levels=("bubblewrap",)).open()
    assert (state.level, state.works) == ("none", False)
    assert state.hint == "Install the package bubblewrap."
    (tmp_path / "dnf").touch(mode=0o755)
    state = await Sandbox(tmp_path).open()
    assert state.hint.startswith("Install it with: ")
    assert state.hint.endswith("dnf install bubblewrap")


@pytest.mark.parametrize(
    "script", ["exit 1", "exit 0 # a sandbox that holds nothing and runs nothing", "sleep 0"]
)
async def test_a_program_that_only_pretends_is_found_out(tmp_path: Path, script: str) -> None:
    """It is tried by running it: one that fails, or runs the trial without confining it, does not count."""
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n" if script == "exit 1" else _NO_SANDBOX)
    fake.chmod(0o755)
    state = await Sandbox(tmp_path / "home", program=str(fake), levels=("bubblewrap",)).open()
    assert state.level == "none"
    assert "does not work here" in state.detail


# Passes the trial on to a plain shell, in the right folder, without any confinement.
_NO_SANDBOX = """#!/bin/sh
options=$(tr '\\0' '\\n' < /proc/self/fd/$2)
cd "$(echo "$options" | grep -A1 '^--chdir$' | tail -1)"
shift 3
exec "$@"
"""


async def test_an_older_bubblewrap_gives_a_reduced_sandbox_that_still_holds(tmp_path: Path) -> None:
    """A program that knows neither --disable-userns nor --size, as older versions do."""
    real = shutil.which("bwrap")
    old = tmp_path / "bwrap"
    old.write_text(
        f"#!/bin/sh\nif tr '\\0' '\\n' < /proc/self/fd/$2 | grep -qE '^--(disable-userns|size)$'; then\n"
        f'  echo unknown option >&2; exit 1\nfi\nexec {real} "$@"\n'
    )
    old.chmod(0o755)
    home = tmp_path / "home"
    sandbox = Sandbox(home, program=str(old))
    state = await sandbox.open()
    assert state.level == "reduced"
    workspace = home / "w"
    workspace.mkdir()
    said = await _run(
        sandbox, SandboxView(workspace=workspace), f"id -u; ls {home}; grep CapEff /proc/self/status"
    )
    assert said.output.decode() == "1000\nw\nCapEff:\t0000000000000000\n"


async def test_python_works_where_the_system_has_none(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn.tools.sandbox.view._PATH", "/nowhere")
    (kit.workspace / "a.txt").write_text("found")
    assert await kit.python("import json, ssl; 6 * 7") == "42"
    assert (await kit.run("search_files", pattern="found")).text == "a.txt:1:found"


async def test_a_data_folder_inside_a_system_folder_is_hidden(
    under_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if under_home.is_relative_to("/tmp"):
        pytest.skip("the home folder lies in /tmp, of which the sandbox has its own")
    system = ("/usr", "/bin", "/lib", "/lib64", "/sbin", str(under_home))
    monkeypatch.setattr("everturn.tools.sandbox.bubblewrap.SYSTEM", system)
    async with open_kit(under_home / "home") as kit:
        (under_home / "system.txt").write_text("of the system\n")
        around = quote(str(under_home))
        said = (await kit.run("terminal", command=f"cat {around}/system.txt; ls {around}/home")).text
        assert said == "of the system\nworkspaces"


async def test_a_project_swapped_while_the_call_starts_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Really swaps git's folder for a link, exactly between the look at it and the mount."""
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / ".git").mkdir(parents=True)
    outside.mkdir()
    (outside / "private.txt").write_text("private")
    sandbox = Sandbox(tmp_path / "home")
    await sandbox.open()
    before = await _run(sandbox, SandboxView(workspace=project), "echo ran; ls .git")
    assert before.output == b"ran\n"

    options_of = bubblewrap.options_of

    def swapped(*arguments: Any) -> list[str]:
        (project / ".git").rmdir()
        (project / ".git").symlink_to(outside)
        return options_of(*arguments)

    monkeypatch.setattr(bubblewrap, "options_of", swapped)
    after = await _run(sandbox, SandboxView(workspace=project), "echo ran; cat .git/private.txt")
    assert after.exit_code != 0
    assert b"ran" not in after.output
    assert b"private" not in after.output.replace(b"private.txt", b"")


async def test_only_the_standard_files_are_open_inside(kit: Kit) -> None:
    """An inherited handle of a folder outside would be a way out that no mount can close."""
    said = (await kit.run("terminal", command="ls /proc/$$/fd; true")).text
    assert said.split() == ["0", "1", "2"]


def test_bubblewrap_is_really_here() -> None:
    assert subprocess.run(["bwrap", "--version"], capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ("bwrap: No permissions to create new namespace", "user namespaces"),
        ("bwrap: setting up uid map: Permission denied", "user namespaces"),
        ("[Errno 13] Permission denied: '/opt/e/.venv/bin/python'", "run /opt/e/.venv/bin/python"),
        ("its trial ended with 16", ""),
    ],
)
def test_the_hint_is_about_what_failed(detail: str, words: str) -> None:
    assert words in hint_for(detail, "/opt/e/.venv/bin/python")
