"""schemathesis over the OpenAPI document, against the real server as ``everturn serve`` starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.paging import IS_LONG

CHECKS = ",".join(
    (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
        "unsupported_method",
        "allow_header_conformance",
    )
)
_STREAMS = r"/events$"
_BIN = Path(sys.executable).parent


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """The server with a model that cannot be reached, so that turns end at once."""
    environ = {
        **os.environ,
        "EVERTURN_HOME": str(home),
        "EVERTURN_MODEL": "openai:none",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_API_KEY": "none",
        "HTTPS_PROXY": "http://127.0.0.1:9",  # the world is away at once, not after a timeout
    }
    command = [str(_BIN / "everturn"), "serve", "--port", "0"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield found[0]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def run(url: str, folder: Path, *options: str) -> None:
    done = subprocess.run(
        [
            str(_BIN / "schemathesis"),
            "run",
            f"{url}openapi.json",
            "--checks",
            CHECKS,
            "--seed",
            "7",
            *options,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    _, _, failures = done.stdout.partition("FAILURES")
    assert done.returncode == 0, failures[:8000] or done.stdout[-8000:]


@pytest.mark.timeout(900)
def test_no_answer_is_a_5xx_or_undocumented(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with serving(home) as url:
        run(
            url,
            tmp_path,
            "--phases",
            "coverage,fuzzing",
            "--max-examples",
            "8" if IS_LONG else "3",
            "--exclude-path-regex",
            _STREAMS,
        )
        run(
            url,
            tmp_path,
            *("--phases", "fuzzing", "--max-examples", "4", "--include-path-regex", _STREAMS),
            *("--request-timeout", "0.5"),
        )
    log = (home / "log").read_text()
    assert '"level":"error"' not in log
