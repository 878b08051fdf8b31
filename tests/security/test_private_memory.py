"""Keys in our environment: no other process of the same user reads them, and no child inherits them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from everturn.cli.editor import edit_arguments
from everturn.domain.environ import without_secrets
from everturn.web.access.browser import open_browser

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="of Linux's /proc")]
KEY = "sk-planted-77b1"
OTHER_USER = 65534

# Reads the environment of its parent, which is `everturn` after its start and before it ends.
_READER = """
import os, sys
try:
    sys.stdout.write(open(f"/proc/{os.getppid()}/environ").read())
except PermissionError:
    sys.stdout.write("denied")
"""
_OURS = """
import subprocess, sys
from everturn.cli import main
{prepare}
print(subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True).stdout)
"""


@pytest.mark.parametrize(
    ("prepare", "is_read"),
    [("", True), ("try: main(['version'])\nexcept SystemExit: pass", False)],
)
def test_another_process_of_the_same_user_cannot_read_our_environment(prepare: str, is_read: bool) -> None:
    """The first case shows that the bait is there: a program that does nothing about it is read."""
    python, options = _python_of_a_user()
    options["env"]["OPENAI_API_KEY"] = KEY
    done = subprocess.run(
        [python, "-c", _OURS.format(prepare=prepare), _READER],
        capture_output=True,
        text=True,
        check=True,
        **options,
    )
    assert (KEY in done.stdout) == is_read
    assert ("denied" in done.stdout) == (not is_read)


def _python_of_a_user() -> tuple[str, dict[str, Any]]:
    """A Python that runs as an ordinary user: root reads everything, so that it would show nothing."""
    options: dict[str, Any] = {"env": {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)}}
    if os.getuid() != 0:
        return sys.executable, options
    options |= {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            tried = subprocess.run([python, "-c", "import everturn.cli.common"], check=False, **options)
        except PermissionError:
            continue  # in a folder that only root can enter
        if tried.returncode == 0:
            return python, options
    pytest.skip("there is no Python here that others than root can run")


def test_every_command_makes_its_memory_private() -> None:
    code = """
import ctypes
from everturn.cli import main
get = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
before = get()
try: main(["version"])
except SystemExit: pass
print(before, get())"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "1 0"


async def test_the_editor_and_the_browser_get_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nenv >> {seen}\n")
    program.chmod(0o755)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("EVERTURN_PASSWORD", KEY)
    monkeypatch.setenv("EVERTURN_DATABASE_URL", f"postgresql://u:{KEY}@h/d")
    monkeypatch.setenv("BROWSER", str(program))
    assert await anyio.to_thread.run_sync(
        open_browser, "http://127.0.0.1:1/", "http://127.0.0.1:1/", tmp_path
    )
    await edit_arguments("{}", [str(program)], _no_line)
    assert seen.read_text().count("BROWSER=") == 2
    assert KEY not in seen.read_text()


async def _no_line(text: str) -> str:
    raise AssertionError("the editor is asked")


def test_what_looks_like_a_key_is_left_out_and_a_programs_own_settings_stay() -> None:
    given = {"PATH": "a", "GITHUB_TOKEN": "b", "PIP_INDEX_URL": "c", "PIP_PASSWORD": "d", "MY_PAT": "e"}
    assert without_secrets(given) == {"PATH": "a", "PIP_INDEX_URL": "c"}
    assert without_secrets(given, keeping="PIP_") == {"PATH": "a", "PIP_INDEX_URL": "c", "PIP_PASSWORD": "d"}
