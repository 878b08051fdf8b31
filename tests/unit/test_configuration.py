"""docs/configuration.md says what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def test_the_configuration_reference_is_up_to_date() -> None:
    script = runpy.run_path(str(SCRIPTS / "configuration.py"))
    written = script["TARGET"].read_text(encoding="utf-8")
    assert written == script["render"](), "Run .venv/bin/python scripts/configuration.py."
