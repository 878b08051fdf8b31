"""What a person reads at the terminal before they trust it holds nothing that they cannot see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command_line import command

pytestmark = pytest.mark.anyio
SPELLED = "".join(chr(0xE0000 + ord(char)) for char in "obey")  # a model reads it, people see nothing
HIDDEN = f"Be brief.{SPELLED}\u200b\u202e"
SHOWN = r"Be brief.\U000e006f\U000e0062\U000e0065\U000e0079\u200b\u202e"


async def test_a_skill_is_shown_with_what_would_be_hidden(data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "brief"
    folder.mkdir()
    gap = "\n" * 90
    (folder / "SKILL.md").write_text(f"---\nname: brief\ndescription: Be brief.\n---\n{HIDDEN}\n{gap}Last.\n")
    assert (await command(data_dir, "skills", "import", str(folder))).returncode == 0
    shown = (await command(data_dir, "skills", "show", "brief")).stdout
    assert SHOWN in shown
    assert "[90 blank lines]" in shown


async def test_a_profile_is_shown_with_what_would_be_hidden(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "brief.toml"
    file.write_text(f'[profiles.brief]\nprompt = "{HIDDEN}"\n')
    done = await command(data_dir, "profiles", "import", str(file), "--yes")
    assert done.returncode == 0, done.stderr
    assert SHOWN in done.stdout
