"""Which command adds an extra."""

from __future__ import annotations

from pathlib import Path

from everturn.domain.extras import install_command


def test_the_command_fits_the_installation(tmp_path: Path) -> None:
    folder = tmp_path / "everturn"
    folder.mkdir()
    python = "/opt/my tools/python"
    plain = install_command("s3", prefix=str(folder), python=python)
    assert plain == "'/opt/my tools/python' -m pip install 'everturn[s3]'"
    (folder / "pipx_metadata.json").touch()
    assert install_command("s3", prefix=str(folder), python=python) == "pipx inject everturn 'everturn[s3]'"
    (folder / "uv-receipt.toml").touch()
    found = install_command("s3", prefix=str(folder), python=python)
    assert found == "uv pip install --python '/opt/my tools/python' 'everturn[s3]'"
