"""The server starts with what it needs, and no more."""

import subprocess
import sys
from pathlib import Path

import pytest

from everturn.cli.serve import warn_of_readers


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
        "telegram",
    }
    assert not loaded & late


@pytest.mark.parametrize(("mode", "warns"), [(0o755, True), (0o750, True), (0o701, True), (0o700, False)])
def test_a_data_folder_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warns: bool
) -> None:
    tmp_path.chmod(mode)
    warn_of_readers(tmp_path)
    assert (f"chmod 700 {tmp_path}" in caplog.text) is warns
