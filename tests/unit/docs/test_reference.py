"""The pages of the reference say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("page", ["cli.md", "endpoints.md", "events.md"])
def test_a_page_of_the_reference_is_up_to_date(page: str) -> None:
    # In a process of its own: click keeps the help option that a command got when another test called it.
    command = [sys.executable, "scripts/reference.py", "--print", page]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == printed, "Run .venv/bin/python scripts/reference.py."
