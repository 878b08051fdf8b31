"""The server starts with what it needs, and no more."""

import subprocess
import sys


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
