"""The pages of the reference say what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[3] / "scripts" / "reference.py"))


@pytest.mark.parametrize("page", SCRIPT["PAGES"])
def test_a_page_of_the_reference_is_up_to_date(page: str) -> None:
    written = (SCRIPT["DOCS"] / page).read_text(encoding="utf-8")
    assert written == SCRIPT["PAGES"][page](), "Run .venv/bin/python scripts/reference.py."
