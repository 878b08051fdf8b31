"""What plain ``pip install everturn`` has: every command answers, and says which extra is missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from everturn.cli.main import COMMANDS

_PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]

# Runs a command in a Python in which nothing can be imported that only an extra brings.
_PROGRAM = """
import sys
missing = set(sys.argv[1].split(","))
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from everturn.cli import main
main(sys.argv[2:])
"""


def _only_in_extras() -> str:
    """The modules of the packages that extras name, without what those names bring themselves."""
    named = {
        canonicalize_name(Requirement(one).name)
        for extra, needs in _PROJECT["optional-dependencies"].items()
        if extra not in ("all", "test")
        for one in needs
    }
    return ",".join(
        module
        for module, owners in packages_distributions().items()
        if {canonicalize_name(owner) for owner in owners} <= named
    )


def _run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, _only_in_extras(), *words],
        env={"HOME": str(tmp_path), "EVERTURN_HOME": str(tmp_path / "data"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(tmp_path: Path, command: str) -> None:
    done = _run(tmp_path, command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: everturn")


def test_a_move_says_what_is_missing(tmp_path: Path) -> None:
    done = _run(tmp_path, "move", str(tmp_path), "postgresql://somebody@127.0.0.1:1/none")
    assert done.returncode == 1
    assert "asyncpg, which is not installed" in done.stderr
    assert "'everturn[postgresql]'" in done.stderr
    assert "Traceback" not in done.stderr
