"""A backup can come from anywhere: what is put back is what a backup holds, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import everturn
from tests.acceptance.command_line import command

pytestmark = pytest.mark.anyio


async def backup_of(data_dir: Path, copy: Path) -> str:
    """Make a backup of a session with a workspace; its id."""
    async with everturn.open(data_dir, model="pocket") as agent:
        session = await agent.create_session(title="Kept")
    work = data_dir / "workspaces" / session.id
    work.mkdir(parents=True)
    (work / "made.txt").write_text("by hand")
    (work / "python").symlink_to("/usr/bin/python3")
    (data_dir / "config.toml").write_text("port = 0\n")
    done = await command(data_dir, "backup", str(copy))
    assert done.returncode == 0, done.stderr
    return session.id


async def test_a_restoration_takes_only_what_a_backup_holds(data_dir: Path, tmp_path: Path) -> None:
    copy, home, outside = tmp_path / "copy", tmp_path / "restored", tmp_path / "outside"
    kept = await backup_of(data_dir, copy)
    outside.mkdir()
    (outside / "diary").write_text("mine")
    (copy / "secrets.toml").write_text('openai = "sk-of-another-user"\n')
    (copy / "access-token").write_text("eva_" + "0" * 64)
    (copy / "models").mkdir()
    (copy / "models" / "weights.gguf").write_text("not ours")
    (copy / "spool").symlink_to(outside)
    (copy / "files").mkdir(exist_ok=True)
    (copy / "files" / "ab").symlink_to(outside)
    (copy / "memory" / "local").mkdir(parents=True, exist_ok=True)
    (copy / "memory" / "local" / "notes.md").symlink_to(outside / "diary")
    (copy / "workspaces" / f"ses_{'0' * 26}").symlink_to(outside)
    (copy / "\x1b[2J").write_text("a name that moves the cursor")
    done = await command(home, "restore", str(copy))
    assert done.returncode == 0, done.stderr
    for gone in ("secrets.toml", "models", "spool", "files/ab", "memory/local/notes.md"):
        assert not (home / gone).is_symlink(), gone
        assert not (home / gone).exists(), gone
        assert f"{gone}:" in done.stderr
    assert [path.name for path in (home / "workspaces").iterdir()] == [kept]
    assert (home / "workspaces" / kept / "made.txt").read_text() == "by hand"
    assert (home / "workspaces" / kept / "python").is_symlink()  # a link inside a workspace is part of it
    assert (home / "config.toml").read_text() == "port = 0\n"
    token = home / "access-token"
    assert not token.exists() or "0" * 64 not in token.read_text()
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("name", ["config.toml", "workspaces", "everturn.db"])
async def test_a_link_in_the_place_of_a_part_is_not_followed(
    data_dir: Path, tmp_path: Path, name: str
) -> None:
    copy, home = tmp_path / "copy", tmp_path / "restored"
    await backup_of(data_dir, copy)
    (copy / name).rename(tmp_path / "elsewhere")
    (copy / name).symlink_to(tmp_path / "elsewhere")
    done = await command(home, "restore", str(copy))
    assert not (home / name).is_symlink()
    if name == "everturn.db":
        assert done.returncode == 1
        assert not (home / name).exists()
    else:
        assert f"{name}: not part of a backup" in done.stderr
        assert not (home / name).exists()
