"""everturn mcp, skills and knowledge, as they are typed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everturn.cli.knowledge import knowledge
from everturn.cli.mcp import mcp
from everturn.cli.skills import skills
from tests.unit.skills.kit import skill_text

SERVER = Path(__file__).parents[1] / "tools/mcp_example.py"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVERTURN_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def typed(*words: str) -> Result:
    group = {"mcp": mcp, "skills": skills, "knowledge": knowledge}[words[0]]
    return CliRunner().invoke(group, list(words[1:]))


def add_server() -> None:
    folders = [
        word for folder in (SERVER.parent, sys.prefix, sys.base_prefix) for word in ("--read", str(folder))
    ]
    assert typed("mcp", "add", "sums", *folders, "--", sys.executable, str(SERVER)).exit_code == 0


def test_a_server_is_changed_switched_and_its_tools_are_decided_about() -> None:
    add_server()
    before = typed("mcp", "mode", "sums", "add", "allow")
    assert before.exit_code != 0  # nothing is known of it before it was asked
    assert "new" in typed("mcp", "test", "sums").stdout
    untrusted = typed("mcp", "mode", "sums", "add", "allow")
    assert "not trusted add of sums yet" in str(untrusted.exception)
    assert "Trusted." in typed("mcp", "trust", "sums", "--yes").stdout
    assert typed("mcp", "mode", "sums", "add", "allow").stdout == "add of sums: allow.\n"
    assert re.search(r"^add +allow ", typed("mcp", "test", "sums").stdout, re.M)
    assert typed("mcp", "switch", "sums").stdout == "sums is off.\n"
    assert "sums (off)" in typed("mcp", "list").stdout
    assert typed("mcp", "switch", "sums", "--on").stdout == "sums is on.\n"
    assert typed("mcp", "change", "sums", "--timeout", "5", "https://sums.example/mcp").exit_code == 0
    listed = typed("mcp", "list").stdout
    assert "https://sums.example/mcp" in listed
    assert sys.executable not in listed


def test_skills_are_listed_with_and_without_the_word(tmp_path: Path) -> None:
    folder = tmp_path / "care"
    folder.mkdir()
    (folder / "SKILL.md").write_text(skill_text("care"))
    assert typed("skills", "import", str(folder)).exit_code == 0
    assert typed("skills", "list").stdout == typed("skills").stdout != ""


def test_knowledge_is_named_by_its_name_and_taken_from_everybody(tmp_path: Path) -> None:
    made = typed("knowledge", "add", "Recipes").stdout
    assert "No session may search it yet." in made
    assert typed("knowledge", "use", "Recipes", "--profile", "default").stdout == "Changed.\n"
    assert "default" in typed("knowledge", "list").stdout
    assert typed("knowledge", "use", "Recipes", "--nobody").stdout == "Changed.\n"
    assert "  none" in typed("knowledge", "list").stdout
    assert "no knowledge 'Recepies'" in str(typed("knowledge", "use", "Recepies", "--all").exception)
    assert typed("knowledge", "delete", "Recipes").stdout == "Deleted Recipes.\n"
