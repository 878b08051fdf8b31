"""everturn gateway: accounts are set up without a server, which takes them up later."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everturn.cli.main import everturn
from everturn.domain.errors import AccountRefused, Invalid, NotFound, PlatformBusy, WrongState
from everturn.domain.platform import Identity
from everturn.gateway.webhook import WebhookPlatform

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
URL = "url=https://ci.example.com/in"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def call(home: Path, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(
        everturn,
        [*arguments, "--home", str(home)],
        input=stdin,
        env={"COLUMNS": "200", "EVERTURN_HOME": None},
    )


def add(home: Path, name: str = "ci", *more: str) -> Result:
    return call(
        home, "gateway", "add", name, "--platform", "webhook", "--set", URL, *more, stdin=SECRET + "\n"
    )


def test_an_account_is_added_listed_tested_paired_and_removed(home: Path) -> None:
    added = add(home, "ci", "--allow", "ada", "--set", "guests=true")
    assert (added.exit_code, "Added ci: ci.example.com" in added.output) == (0, True)
    listed = call(home, "gateway", "status").output
    assert "webhook" in listed
    assert "not served yet" in listed
    assert "ci is ci.example.com" in call(home, "gateway", "test", "ci").output
    assert len(call(home, "gateway", "pair", "ci").output.splitlines()[-1]) == 9
    assert call(home, "gateway", "remove", "ci").exit_code == 0
    assert "There are no accounts." in call(home, "gateway", "status").output
    lines = [json.loads(line) for line in (home / "audit.jsonl").read_text().splitlines()]
    assert [line["what"] for line in lines] == ["gateway.added", "gateway.code", "gateway.removed"]
    assert SECRET not in (home / "secrets.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("ci",), WrongState),
        (("Bad name",), Invalid),
        (("other", "--set", "colour=red"), Invalid),
        (("other", "--set", "guests=perhaps"), Invalid),
        (("other", "--set", 'private_addresses=["127.0.0.1:1"]'), Invalid),
    ],
    ids=["taken", "bad name", "unknown setting", "wrong setting", "only in config.toml"],
)
def test_a_wrong_account_is_refused(home: Path, arguments: tuple[str, ...], kind: type[Exception]) -> None:
    add(home)
    refused = add(home, *arguments)
    assert isinstance(refused.exception, kind)
    assert not isinstance(refused.exception, AccountRefused)


def test_a_message_to_an_unknown_chat_is_not_stored(home: Path) -> None:
    add(home)
    assert isinstance(call(home, "gateway", "send", "ci", "nowhere", "hello").exception, NotFound)


@pytest.mark.parametrize(("command", "code"), [(("doctor",), 1), (("gateway", "status"), 0)])
def test_the_doctor_and_the_status_say_what_is_wrong_with_an_account(
    home: Path, command: tuple[str, ...], code: int
) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[gateway.ci]\nplatform = "webhook"\nurl = "https://ci.example.com"\n')
    add(home, "other")
    found = call(home, *command)
    assert found.exit_code == code
    assert "The account ci has no secret." in " ".join(found.output.split())
    assert "The account other" not in found.output


def test_a_platform_that_cannot_be_reached_is_told_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def identify(platform: WebhookPlatform) -> Identity:
        raise PlatformBusy("ci.example.com is away.")

    monkeypatch.setattr(WebhookPlatform, "identify", identify)
    assert "ci.example.com is away. Nothing was changed." in str(add(home).exception)
    assert caplog.records == []
