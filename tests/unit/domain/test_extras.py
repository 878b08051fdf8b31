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
    assert found == "uv tool install 'everturn[s3]'"


def test_uv_is_told_all_extras_that_shall_be_there_after(tmp_path: Path) -> None:
    wheel = tmp_path / "my wheels" / "everturn-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    receipt = tmp_path / "uv-receipt.toml"
    receipt.write_text(
        f'[tool]\nrequirements = [{{ name = "everturn", extras = ["pdf", "s3"], path = "{wheel}" }}, {{ name = "rich" }}]\n'
    )
    found = install_command("s3", prefix=str(tmp_path))
    assert found == f"uv tool install 'everturn[pdf,s3] @ {wheel.as_uri()}'"
    clone = tmp_path / "clone"
    clone.mkdir()
    receipt.write_text(f'[tool]\nrequirements = [{{ name = "everturn", directory = "{clone}" }}]\n')
    assert install_command("s3", prefix=str(tmp_path)) == f"uv tool install 'everturn[s3] @ {clone.as_uri()}'"
    receipt.write_text(
        f'[tool]\nrequirements = [{{ name = "everturn", extras = ["pdf", "s3"], path = "{wheel}" }}]\n'
    )
    wheel.unlink()
    assert install_command("mcp", prefix=str(tmp_path)) == "uv tool install 'everturn[pdf,s3,mcp]'"
