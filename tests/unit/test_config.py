"""Settings: the last source wins, and a mistake names its line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

import everturn
from everturn.config import TABLES, Flags, former_settings, read_config
from everturn.domain.errors import Invalid
from everturn.domain.settings import settings_of
from everturn.engine.settings import EngineSettings
from everturn.web.settings import WebSettings


def write(home: Path, text: str) -> Path:
    (home / "config.toml").write_text(text, encoding="utf-8")
    return home


def test_without_anything_the_defaults_are_safe(tmp_path: Path) -> None:
    config = read_config(tmp_path, {})
    assert (config.web.host, config.web.port, config.web.password) == ("127.0.0.1", 8420, None)
    assert config.database_url is None
    assert config.model is None
    assert config.profiles.names == ["default", "guest", "pocket"]


def test_the_environment_wins_over_the_file_and_a_flag_over_both(tmp_path: Path) -> None:
    home = write(tmp_path, 'port = 1\nmodel = "file:one"\nhost = "127.0.0.2"\n')
    environ = {"EVERTURN_PORT": "2", "EVERTURN_MODEL": "env:two"}
    config = read_config(home, environ, Flags(port=3))
    assert (config.web.port, config.model, config.web.host) == (3, "env:two", "127.0.0.2")


def test_names_and_proxies_come_from_the_environment_as_the_errors_say(tmp_path: Path) -> None:
    environ = {"EVERTURN_HOSTS": "agent.example, other.example", "EVERTURN_TRUSTED_PROXIES": "10.0.0.0/8"}
    web = read_config(tmp_path, environ).web
    assert web.hosts == ("agent.example", "other.example")
    assert web.trusted_proxies == ("10.0.0.0/8",)


def test_the_address_of_object_storage_reaches_the_store_and_is_checked(tmp_path: Path) -> None:
    assert (
        read_config(write(tmp_path, '[files]\nurl = "s3://bucket/x"\n'), {}).store.files_url
        == "s3://bucket/x"
    )
    with pytest.raises(Invalid, match=r"line 2: files\.url") as raised:
        read_config(write(tmp_path, '[files]\nurl = "https://bucket/x"\n'), {})
    assert "s3://BUCKET/PREFIX" in raised.value.hint


@pytest.mark.parametrize(("table", "possible"), [("profiles.ops", "network, "), ("mcp.files", "command, ")])
def test_a_key_that_a_profile_does_not_have_is_answered_with_those_it_has(
    tmp_path: Path, table: str, possible: str
) -> None:
    with pytest.raises(Invalid) as refused:
        read_config(write(tmp_path, f"[{table}]\ncommand_ = 1\n"), {})
    assert f"line 2: {table}.command_" in refused.value.message
    assert refused.value.hint.startswith("Possible: ")
    assert possible in refused.value.hint


def test_tables_reach_their_rooms(tmp_path: Path) -> None:
    home = write(
        tmp_path,
        "[engine]\nsteps_max = 7\n[store]\nlease_s = 3.5\n[server]\nhosts = ['agent.lan']\n"
        "[models.settings.'openai:x']\nimages = true\n[profiles.ops]\nprompt = 'Be careful.'\n"
        "[gateway.ci]\nplatform = 'webhook'\nurl = 'https://ci.example.com'\n",
    )
    config = read_config(home, {})
    assert config.engine.steps_max == 7
    assert config.store.lease_s == 3.5
    assert config.web.hosts == ("agent.lan",)
    assert config.models.settings["openai:x"].images is True
    assert config.profiles.get("ops").prompt == "Be careful."
    assert config.gateway["ci"].options == {"url": "https://ci.example.com"}


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("port = 1\nprot = 2\n", 2, "prot"),
        ("port = 'many'\n", 1, "port"),
        ("[engine]\n\nsteps = 3\n", 3, "engine.steps"),
        ("[engine]\nsteps_max = 'three'\n", 2, "engine.steps_max"),
        ("[server]\npage = '/etc'\n", 2, "server.page"),
        ("[engine]\nprofiles = {}\n", 2, "engine.profiles"),
        ("[engine.cache]\nagents = 3\n", 2, "engine.cache.agents"),
        ("[engine.cache]\nagents_max = 'few'\n", 2, "engine.cache.agents_max"),
        ("[server]\n\ntrusted_proxies = ['10.0.0.0/33']\n", 3, "server.trusted_proxies"),
        ("[server]\nbase_path = 'http://x/y'\n", 2, "server.base_path"),
        ("[server]\npublic_url = 'http://localhost:8420'\n", 2, "server.public_url"),
        ("[server]\npublic_url = 'agent.example.org'\n", 2, "server.public_url"),
        ("[server]\npublic_url = 'http://[::1/'\n", 2, "server.public_url"),
        ("[store]\nlease_s = true\n", 2, "store.lease_s"),
        ("[profiles.ops]\ntools = ['no_such_tool']\n", 2, "profiles.ops.tools"),
        ("[gateway.Ops]\nplatform = 'webhook'\n", 1, "gateway.Ops"),
        ("[gateway.ops]\nprofile = 'default'\n", 1, "gateway.ops"),
        ("[gateway.ops]\nplatform = 'webhook'\nwhen_busy = 'never'\n", 3, "gateway.ops.when_busy"),
        ("[delivery]\nage_max_s = 0\n", 2, "delivery.age_max_s"),
    ],
)
def test_a_mistake_names_line_and_key(tmp_path: Path, text: str, line: int, key: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_config(write(tmp_path, text), {})
    assert refused.value.facts["line"] == line
    assert refused.value.facts["key"] == key
    assert f"line {line}" in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "line", "instead"),
    [
        ("[engine]\nsystem_prompt = 'Be kind.'\nsteps_max = 7\n", 2, "[profiles.default]"),
        ("[engine]\nsteps_max = 7\nsmall_prompt = 'Be brief.'\n", 3, "[profiles.pocket]"),
        ("[engine]\nsteps_max = 7\n[engine.short_prompts]\n'Be kind.' = 'Kind.'\n", 3, "delete"),
        ("[store]\nlease_s = 20.0\n[engine]\nlease_s = 60.0\nsteps_max = 7\n", 4, "[store]"),
        ("[engine]\nsteps_max = 7\n[server]\nhome = '/elsewhere'\n", 4, "EVERTURN_HOME"),
    ],
)
def test_a_removed_setting_is_ignored_and_a_warning_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, line: int, instead: str
) -> None:
    config = read_config(write(tmp_path, text), {})
    assert config.engine.steps_max == 7
    assert config.web.home == tmp_path
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"line {line}: " in record.getMessage()
    assert instead in record.getMessage()


@pytest.mark.parametrize(
    ("text", "line", "value"),
    [
        ("[engine]\nsteps_max = 7\npoll_s = 9.0\n", 3, "engine.poll_s is no longer a setting; the value 0.5"),
        ("[engine]\nsteps_max = 7\n[engine.cache]\nlook_s = 'x'\n", 4, "the value 45.0 is used"),
        ("[engine]\nsteps_max = 7\n[server]\nhead_timeout_s = 1\n", 4, "the value 10.0 is used"),
    ],
)
def test_a_setting_that_is_fixed_now_is_ignored_and_a_warning_names_its_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, line: int, value: str
) -> None:
    config = read_config(write(tmp_path, text), {})
    assert config.engine == EngineSettings(steps_max=7)
    assert config.web.head_timeout_s == WebSettings(home=tmp_path).head_timeout_s
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"line {line}: " in record.getMessage()
    assert value in record.getMessage()


def test_every_former_setting_is_accepted_and_none_is_still_a_setting() -> None:
    for name in former_settings():
        table, _, key = name.partition(".")
        assert key not in settings_of(TABLES[table])


def test_an_argument_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="modle"):
        everturn.open(tmp_path, modle="pocket")  # type: ignore[call-arg]  # a name that does not exist
    with pytest.raises(TypeError, match="prot"):
        Flags(prot=3)  # type: ignore[call-arg]  # a name that does not exist


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EVERTURN_TRUSTED_PROXIES", "127.0.0.1, *"),
        ("EVERTURN_TRUSTED_PROXIES", "proxy.lan"),
        ("EVERTURN_BASE_PATH", "/a b"),
        ("EVERTURN_BASE_PATH", "/x/../y"),
        ("EVERTURN_PORT", "99999"),
    ],
)
def test_a_mistake_in_the_environment_is_reported_with_the_allowed_values(
    tmp_path: Path, variable: str, value: str
) -> None:
    with pytest.raises(Invalid) as refused:
        read_config(tmp_path, {variable: value})
    assert value.split(", ")[-1] in refused.value.message
    assert "config.toml" not in refused.value.message
    assert refused.value.hint


def test_proxies_and_base_path_are_taken_as_people_write_them(tmp_path: Path) -> None:
    environ = {"EVERTURN_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/8 ::1", "EVERTURN_BASE_PATH": "agent/v1.2/"}
    web = read_config(tmp_path, environ).web
    assert (web.trusted_proxies, web.root) == (("127.0.0.1", "10.0.0.0/8", "::1"), "/agent/v1.2")


@pytest.mark.parametrize("address", ["https://agent.example.org/everturn", "http://10.0.0.7:8420", ""])
def test_an_address_for_links_in_chats_can_be_opened_from_elsewhere(tmp_path: Path, address: str) -> None:
    web = read_config(write(tmp_path, f"[server]\npublic_url = '{address}'\n"), {}).web
    assert web.public_url == address


def test_a_file_that_is_not_toml_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_config(write(tmp_path, "port = = 3"), {})


@pytest.mark.parametrize("port", ["x", "-1", "70000", "1.5"])
def test_an_invalid_port_is_refused(tmp_path: Path, port: str) -> None:
    with pytest.raises(Invalid, match="port"):
        read_config(tmp_path, {"EVERTURN_PORT": port})


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('\n[models.providers.work]\nbase_url = "x"\n', 3, "models.providers.work.base_url"),
        ('[models.providers.work]\nkind = "x"\n', 2, "models.providers.work.kind"),
        ('[models.settings."a:b.1"]\ncontext_tokens = "many"\n', 2, "models.settings.a:b.1.context_tokens"),
        ("[models]\nnonsense = 1\n", 2, "models.nonsense"),
    ],
)
def test_a_mistake_about_models_names_line_and_key(tmp_path: Path, text: str, line: int, key: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_config(write(tmp_path, text), {})
    assert caught.value.message.startswith(f"config.toml, line {line}: {key} ")
