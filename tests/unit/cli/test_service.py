"""everturn service: the files it writes, and that it changes nothing that is not its own. A script stands in for
systemctl; what a real systemd makes of the units is in decision 097."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everturn.cli.main import everturn
from everturn.cli.service_units import ServicePlan, launchd_list, systemd_unit


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What systemctl was asked for, one line for each time."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "systemctl"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        f"[ -e {tmp_path}/refuses ] && echo Failed to connect to bus >&2 && exit 1\n"
        "echo ActiveState=active; echo SubState=running; echo UnitFileState=enabled\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EVERTURN_HOME", str(tmp_path / "my data"))
    return tmp_path / "asked"


def _service(*words: str) -> Result:
    return CliRunner().invoke(everturn, ["service", *words])


def _file(asked: Path) -> Path:
    return asked.parent / "config" / "systemd" / "user" / "everturn.service"


def test_it_is_installed_seen_and_removed(asked: Path) -> None:
    assert _service("status").exit_code == 1
    done = _service("install")
    assert done.exit_code == 0, done.output
    assert "service.env" in done.output
    assert [line.split()[1] for line in asked.read_text().splitlines()] == [
        "show",
        "daemon-reload",
        "enable",
        "restart",
    ]
    assert "http://127.0.0.1:8420/" in _service("status").output
    assert _service("remove").exit_code == 0
    assert not _file(asked).exists()
    assert "disable --quiet --now everturn.service" in asked.read_text()


def test_the_file_of_somebody_else_is_left_alone(asked: Path) -> None:
    _file(asked).parent.mkdir(parents=True)
    _file(asked).write_text("[Service]\nExecStart=/usr/bin/mine\n")
    for word in ("install", "remove"):
        assert "left alone" in str(_service(word).exception)
    assert _file(asked).read_text() == "[Service]\nExecStart=/usr/bin/mine\n"


def test_nothing_is_written_where_no_systemd_answers(asked: Path) -> None:
    (asked.parent / "refuses").touch()
    assert "Failed to connect to bus" in str(_service("install").exception)
    assert not _file(asked).exists()


def test_a_service_of_the_system_names_its_user(asked: Path) -> None:
    assert "--run-as" in str(_service("install", "--system", "--print").exception.hint)
    assert "There is no user nobody-here" in str(
        _service("install", "--system", "--run-as", "nobody-here", "--print").exception
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs services of the system")
def test_a_user_who_cannot_run_the_installation_or_write_the_data_is_refused(
    asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = asked.parent / "closed"
    closed.mkdir(mode=0o700)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("sys.executable", str(closed / "python"))
        (closed / "python").symlink_to("/usr/bin/python3")
        refused = _service("install", "--system", "--run-as", "nobody", "--home", "/tmp/anywhere").exception
    assert f"nobody cannot run {closed}/python" in str(refused)
    assert "/opt/everturn" in str(refused.hint)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("everturn.cli.service._can_run", lambda plan, program, *words: not words)
        refused = _service("install", "--system", "--run-as", "nobody", "--home", str(closed)).exception
    assert f"nobody cannot write to the data folder {closed}" in str(refused)
    assert "systemctl" not in asked.read_text().replace("show --property=Version", "")


def test_where_systemd_does_not_answer_the_ways_out_are_named(asked: Path) -> None:
    (asked.parent / "refuses").touch()
    hint = str(_service("install").exception.hint)
    assert "--system --run-as USER" in hint
    assert "everturn serve" in hint


def _plan(account: str = "") -> ServicePlan:
    command = ("/opt/100% mine/$HOME/python", "-m", "everturn", "$serve")
    return ServicePlan(command, Path("/srv/my data"), "/usr/bin:/bin", 20, account)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("account", ["", "root", "daemon"])
def test_systemd_understands_every_line(tmp_path: Path, account: str) -> None:
    program = tmp_path / "50% $ mine" / "python"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    plan = ServicePlan((str(program), "-m", "everturn"), tmp_path / "my data", "/bin", 20, account)
    file = tmp_path / "everturn.service"
    file.write_text(systemd_unit(plan))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "everturn.service" in line]
    assert complaints == []


def test_jobs_survive_with_a_scope_or_else_by_the_way_the_service_is_ended() -> None:
    for account in ("", "root"):
        lines = systemd_unit(_plan(account)).splitlines()
        assert {"KillMode=mixed", "Delegate=yes"} <= set(lines)
    lines = systemd_unit(_plan("everturn")).splitlines()
    assert "KillMode=process" in lines
    assert "Delegate=yes" not in lines, "systemd could not start it beside a job"


def test_characters_that_mean_something_to_systemd_are_escaped() -> None:
    text = systemd_unit(_plan())
    assert 'ExecStart="/opt/100%% mine/$HOME/python" "-m" "everturn" "$$serve"' in text
    assert '"EVERTURN_HOME=/srv/my data"' in text


def test_launchd_gets_the_same() -> None:
    value = plistlib.loads(launchd_list(_plan("me")))
    assert value["ProgramArguments"][-1] == "$serve"
    assert value["UserName"] == "me"
    assert value["AbandonProcessGroup"] is True
    assert value["EnvironmentVariables"]["EVERTURN_HOME"] == "/srv/my data"
