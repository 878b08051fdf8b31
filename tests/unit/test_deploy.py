"""What is in deploy/ and beside it names only settings that the server knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # it has no types of its own

from everturn.config import read_config

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "Containerfile", ROOT / "compose.yaml", *sorted((ROOT / "deploy").rglob("*.yaml"))]
# Of compose.yaml, for docker compose itself.
OWN = {"EVERTURN_PUBLISHED_PORT", "EVERTURN_USER"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_variable_is_documented(file: Path) -> None:
    names = set(re.findall(r"EVERTURN_[A-Z_]+", file.read_text())) - OWN
    known = (ROOT / "docs/configuration.md").read_text() + (ROOT / "docs/operations.md").read_text()
    assert {name for name in names if name not in known} == set()


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.suffix == ".yaml"], ids=lambda file: file.name
)
def test_a_server_gets_longer_to_stop_than_its_turns(file: Path, tmp_path: Path) -> None:
    grace_s = read_config(tmp_path, environ={}).web.grace_s
    for document in yaml.safe_load_all(file.read_text()):
        if "services" in document:
            period = document["services"]["everturn"].get("stop_grace_period", "60s")
            assert int(period.removesuffix("s")) > grace_s
        elif document["kind"] == "StatefulSet":
            assert document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > grace_s + 5


def test_object_storage_can_be_set_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[files]\nurl = "s3://old/place"\n')
    environ = {"EVERTURN_FILES_URL": "s3://bucket/prefix"}
    assert read_config(tmp_path, environ=environ).files.url == "s3://bucket/prefix"
    assert read_config(tmp_path, environ={}).files.url == "s3://old/place"
