"""Platforms of other packages, found by their entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.domain.gateway import AccountSetup
from everturn.gateway.platforms import PlatformKind, find_platform, platform_names, secrets_of
from everturn.store import Store
from everturn.testing import Say
from everturn.testing.harness import open_harness
from tests.gateways import Platforms, running_gateway
from tests.waiting import until

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).parents[3] / "docs" / "example_platform.py"
MODULE = "everturn_test_plugin"

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with one module, as an installer lays it out, for as long as the test lasts."""

    def install(entry: str, source: str) -> None:
        site = tmp_path / "site"
        info = site / f"{MODULE}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{MODULE}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[everturn.platforms]\n{entry} = {MODULE}\n")
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, MODULE, raising=False)

    return install


class _Installed(Platforms):
    def find(self, name: str) -> PlatformKind:
        return find_platform(name)


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
async def test_a_platform_of_another_package_is_served(
    store: Store, tmp_path: Path, install: Install
) -> None:
    install("folder", EXAMPLE.read_text())
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "1.txt").write_text("hello")
    assert "folder" in platform_names()
    setup = AccountSetup(platform="folder", allow=("folder",), options={"folder": str(tmp_path)})
    async with (
        open_harness(store, Say("good morning"), clock=SystemClock()) as harness,
        running_gateway(harness, tmp_path, _Installed(), {"desk": setup}),
    ):
        await until("the answer is there", lambda: list((tmp_path / "out").iterdir()))
        await until("the message is taken", lambda: not (tmp_path / "in" / "1.txt").exists())
    (answer,) = (tmp_path / "out").iterdir()
    assert answer.read_text() == "good morning"


def test_an_account_of_such_a_platform_says_what_it_needs(install: Install) -> None:
    install("folder", EXAMPLE.read_text())
    form = find_platform("folder").form()
    assert [(option.name, option.is_required) for option in form.options] == [("folder", True)]


def test_a_built_in_platform_cannot_be_replaced(install: Install) -> None:
    install("webhook", "raise AssertionError('imported')")
    assert find_platform("webhook").make.__module__ == "everturn.gateway.webhook"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "SECRETS"),
        ("SECRETS = ()", "platform"),
        ("SECRETS = ()\ndef platform(account, settings, secrets, clock): ...", "settings"),
        ("import a_package_that_is_not_there", "a_package_that_is_not_there"),
    ],
)
def test_a_package_that_is_no_platform_is_refused_with_a_reason(
    install: Install, source: str, reason: str
) -> None:
    install("pager", source)
    with pytest.raises(Invalid) as invalid:
        find_platform("pager")
    assert reason in invalid.value.message
    assert "everturn[" not in invalid.value.hint


def test_every_built_in_platform_describes_its_settings() -> None:
    for name in ("slack", "mail", "telegram", "discord", "webhook"):
        kind = find_platform(name)
        assert kind.secrets == secrets_of(name)
        described = {option.name for option in kind.form().options}
        assert described == set(kind.settings.__struct_fields__)
