from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from everturn.domain.errors import Invalid, StoreRefused
from everturn.domain.secrets import Secret
from everturn.models.keys import Keys, redact
from everturn.store import SecretsFile

pytestmark = pytest.mark.anyio

KEY = "planted-key-0123456789"


async def test_a_stored_key_is_found_again_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await Keys(SecretsFile(home), {}).put("openai", f"  {KEY}\n")
    found = Keys(SecretsFile(home), {}).find("openai")
    assert found is not None
    assert (found.secret.reveal(), found.source) == (KEY, "file")
    assert (home / "secrets.toml").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert os.listdir(home) == ["secrets.toml"]


async def test_the_environment_wins(tmp_path: Path) -> None:
    keys = Keys(SecretsFile(tmp_path), {"OPENAI_API_KEY": "from-env", "EMPTY": " "})
    await keys.put("openai", KEY)
    found = keys.find("openai", ("EMPTY", "OPENAI_API_KEY"))
    assert found is not None
    assert (found.secret.reveal(), found.source) == ("from-env", "environment")


async def test_several_keys_and_deleting(tmp_path: Path) -> None:
    keys = Keys(SecretsFile(tmp_path), {})
    await keys.put("openai", 'quote"and\\slash')
    await keys.put("my-own_1", KEY)
    assert tomllib.loads((tmp_path / "secrets.toml").read_text())["keys"]["openai"] == 'quote"and\\slash'
    assert await keys.delete("openai")
    assert not await keys.delete("openai")
    assert keys.find("openai") is None
    assert keys.find("my-own_1") is not None


@pytest.mark.parametrize("provider", ["", "Open AI", "../x", "a\nb"])
async def test_odd_providers_are_refused(tmp_path: Path, provider: str) -> None:
    with pytest.raises(Invalid):
        await Keys(SecretsFile(tmp_path), {}).put(provider, KEY)


@pytest.mark.parametrize("key", ["", "  ", KEY + "\nx", KEY + "é", KEY + "\x00"])
async def test_odd_keys_are_refused_without_showing_them(tmp_path: Path, key: str) -> None:
    with pytest.raises(Invalid) as caught:
        await Keys(SecretsFile(tmp_path), {}).put("openai", key)
    assert KEY not in str(caught.value)
    assert not (tmp_path / "secrets.toml").exists()


def test_a_file_that_others_can_read_is_tightened(tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    file.write_text(f'[keys]\nopenai = "{KEY}"\n')
    file.chmod(0o644)
    assert Keys(SecretsFile(tmp_path), {}).find("openai") is not None
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_broken_file_says_so_without_showing_a_key(tmp_path: Path) -> None:
    (tmp_path / "secrets.toml").write_text(f'[keys]\nopenai = "{KEY}\n')
    with pytest.raises(StoreRefused) as caught:
        Keys(SecretsFile(tmp_path), {}).find("openai")
    assert "secrets.toml" in str(caught.value)
    assert KEY not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.hint}"


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret(KEY)
    assert KEY not in f"{secret} {secret!r} {[secret]} {secret!s:>40}"


async def test_redaction(tmp_path: Path) -> None:
    keys = Keys(SecretsFile(tmp_path), {})
    await keys.put("x", KEY)
    assert keys.redact("key=AIzaSyB1234567 is wrong") == "key=[key] is wrong"
    text = keys.redact(f"{KEY} and sk-proj-AbCd1234efgh and sk-ab*****yz and ask-me about skills")
    assert text == "[key] and [key] and [key] and ask-me about skills"
    assert keys.redact("Incorrect key: sk-bad*****9999. Find yours.") == "Incorrect key: [key]. Find yours."
    assert redact("nothing here", (Secret("a"),)) == "nothing here"  # too short to be a key
