"""What people see where Everturn cannot run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# As on Windows: its name, and none of the modules that only Unix has.
_WINDOWS = """
import sys
sys.platform = "win32"
for name in ("fcntl", "grp", "pwd", "resource", "termios", "_posixsubprocess"):
    sys.modules[name] = None
"""


def test_on_windows_the_command_names_wsl_and_nothing_else() -> None:
    code = f"{_WINDOWS}\nfrom everturn.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("Everturn does not run on Windows itself, only in WSL")
    assert len(done.stderr.splitlines()) == 1, "no traceback"


@pytest.mark.parametrize(
    ("pretends", "words"),
    [
        ("sys.platform = 'win32'", "only in WSL"),
        ("sys.version_info = (3, 10, 2)", "needs Python 3.11 or newer"),
    ],
)
def test_make_says_what_is_missing_before_it_installs(tmp_path: Path, pretends: str, words: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
{{ echo "import sys; {pretends}"; cat; }} | '{sys.executable}' "$@"
""")
    python.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "python-check", python], capture_output=True, text=True, check=False
    )
    assert (done.returncode, words in done.stderr) == (1, True)
    assert len(done.stderr.splitlines()) == 1


def test_this_python_is_one_that_works() -> None:
    subprocess.run([ROOT / "scripts" / "python-check", sys.executable], check=True)
