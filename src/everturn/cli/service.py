"""everturn service"""

from __future__ import annotations

import getpass
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from everturn.cli.common import home_option, server_address
from everturn.cli.service_units import (
    KEYS_FILE,
    LABEL,
    MARK,
    NAME,
    ServicePlan,
    launchd_list,
    systemd_unit,
)
from everturn.config import Config, read_config
from everturn.domain.errors import EverturnError, Invalid

_MANAGER_S = 120.0
_UNIT = f"{NAME}.service"
# Whether a folder, or what has to be made for it, can be written.
_WRITABLE = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
while not folder.exists():
    folder = folder.parent
sys.exit(not os.access(folder, os.W_OK | os.X_OK))
"""
system_option = click.option(
    "--system", "is_system", is_flag=True, help="A service of the system, which starts with it. Needs root."
)


@click.group()
def service() -> None:
    """Run the server as a service: systemd on Linux, launchd on macOS."""


@service.command()
@system_option
@click.option("--run-as", "account", help="The user that a service of the system runs as.")
@click.option("--print", "is_printed", is_flag=True, help="Print the file; change nothing.")
@home_option
def install(is_system: bool, account: str | None, is_printed: bool, home: Path | None) -> None:
    """Write the service's file, and start the server now and at each login or start of the system."""
    plan = _plan(is_system, account, home)
    if is_printed:
        click.echo(_content(plan).decode(), nl=False)
        return
    _require_manager(is_system)
    if account:
        _require_access(plan)
    file = _file(is_system)
    _refuse_foreign(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_content(plan))
    click.echo(f"Written: {file}")
    if sys.platform == "darwin":
        _call(["launchctl", "bootout", f"{_domain(is_system)}/{LABEL}"], is_tried=True)
        _call(["launchctl", "bootstrap", _domain(is_system), str(file)])
    else:
        _systemctl(is_system, "daemon-reload")
        _systemctl(is_system, "enable", "--quiet", _UNIT)
        _systemctl(is_system, "restart", _UNIT)
    click.echo(f"The server runs. Keys from the environment belong in {plan.home / KEYS_FILE} (NAME=value).")
    if not is_system and sys.platform != "darwin" and not _lingers():
        click.echo(
            f"It ends when you log out, until you run: sudo loginctl enable-linger {getpass.getuser()}"
        )


@service.command()
@system_option
@home_option
def status(is_system: bool, home: Path | None) -> None:
    """Say whether the service is installed and runs. Exit code 1 if it does not run."""
    file = _file(is_system)
    if not file.exists():
        click.echo(f"The service is not installed: there is no {file}.")
        sys.exit(1)
    click.echo(f"Installed: {file}")
    if sys.platform == "darwin":
        state = _call(["launchctl", "print", f"{_domain(is_system)}/{LABEL}"], is_tried=True)
        is_running = "state = running" in state
    else:
        found = _systemctl(is_system, "show", "--property=ActiveState,SubState,UnitFileState", _UNIT)
        values = dict(line.partition("=")[::2] for line in found.splitlines())
        is_running = values.get("ActiveState") == "active"
        click.echo(
            f"State: {values.get('ActiveState')} ({values.get('SubState')}), {values.get('UnitFileState')}"
        )
    config = read_config(home)
    if is_running:
        click.echo(f"The server runs: {server_address(config)[0]}")
        return
    click.echo(f"The server does not run. Its log: {_log_command(is_system, config)}")
    sys.exit(1)


@service.command()
@system_option
def remove(is_system: bool) -> None:
    """Stop the server and remove the service's file. Your data stays, and jobs run on."""
    file = _file(is_system)
    if not file.exists():
        click.echo(f"The service is not installed: there is no {file}.")
        return
    _require_manager(is_system)
    _refuse_foreign(file)
    if sys.platform == "darwin":
        _call(["launchctl", "bootout", f"{_domain(is_system)}/{LABEL}"], is_tried=True)
        file.unlink()
    else:
        _systemctl(is_system, "disable", "--quiet", "--now", _UNIT)
        file.unlink()
        _systemctl(is_system, "daemon-reload")
    click.echo(f"Removed: {file}. Your data stays where it is.")


def _plan(is_system: bool, account: str | None, home: Path | None) -> ServicePlan:
    if is_system and not account:
        raise Invalid(
            "A service of the system needs a user to run as.",
            hint="Name one with --run-as, preferably one that does nothing else.",
        )
    if account and not is_system:
        raise Invalid("--run-as is for services of the system.", hint="Add --system, or leave it out.")
    if account and home is None:
        home = _home_of(account)
    config = read_config(home)
    return ServicePlan(
        command=(sys.executable, "-m", "everturn", "serve"),
        home=config.home,
        path=os.environ.get("PATH", os.defpath),
        grace_s=config.web.grace_s,
        account=account or "",
    )


def _home_of(account: str) -> Path:
    try:
        return Path(pwd.getpwnam(account).pw_dir) / ".everturn"
    except KeyError:
        raise Invalid(
            f"There is no user {account}.", hint=f"Make one: useradd --system --create-home {account}"
        ) from None


def _content(plan: ServicePlan) -> bytes:
    return launchd_list(plan) if sys.platform == "darwin" else systemd_unit(plan).encode()


def _file(is_system: bool) -> Path:
    if sys.platform == "darwin":
        root = Path("/Library/LaunchDaemons") if is_system else Path.home() / "Library" / "LaunchAgents"
        return root / f"{LABEL}.plist"
    if is_system:
        return Path("/etc/systemd/system") / _UNIT
    configured = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configured) if configured else Path.home() / ".config") / "systemd" / "user" / _UNIT


def _refuse_foreign(file: Path) -> None:
    if file.exists() and MARK not in file.read_text(errors="replace"):
        raise Invalid(
            f"{file} was not written by this command, so it is left alone.", hint="Move it away first."
        )


def _require_manager(is_system: bool) -> None:
    """Raises Invalid, before anything is changed, if this machine's manager cannot be used."""
    if is_system and os.geteuid() != 0:
        raise Invalid("A service of the system can only be changed by root.", hint="Use sudo.")
    program = "launchctl" if sys.platform == "darwin" else "systemctl"
    if shutil.which(program) is None:
        raise Invalid(
            f"There is no {program} on this machine, so no service can be installed.",
            hint="Start 'everturn serve' as your system starts servers; --print shows a unit to copy from.",
        )
    if sys.platform != "darwin":
        try:
            _systemctl(is_system, "show", "--property=Version")
        except EverturnError as error:
            raise Invalid(error.message, hint=_no_manager_hint(is_system)) from error


def _no_manager_hint(is_system: bool) -> str:
    start = "start 'everturn serve' as your system starts servers; --print shows a unit to copy from."
    if is_system:
        return f"systemd does not run here, as in most containers: {start}"
    return (
        "systemd has no session for this user here. Log in as the user (sudo and su do not make one), or "
        "install it for the system: --system --run-as USER. "
        f"Where systemd does not run, as in most containers, {start}"
    )


def _require_access(plan: ServicePlan) -> None:
    """Raises Invalid if the service's user cannot run this installation or write to the data folder."""
    if not _can_run(plan, "import everturn"):
        raise Invalid(
            f"{plan.account} cannot run {plan.command[0]}, so the service could not start.",
            hint="Install Everturn where every user may read it, such as /opt/everturn, and run this command "
            "from there. What 'uv tool' and pipx install in a home folder, only its owner can run.",
        )
    if not _can_run(plan, _WRITABLE, str(plan.home)):
        raise Invalid(
            f"{plan.account} cannot write to the data folder {plan.home}.",
            hint=f"Make it: install -d -m 700 -o {plan.account} {shlex.quote(str(plan.home))}",
        )


def _can_run(plan: ServicePlan, program: str, *words: str) -> bool:
    user = pwd.getpwnam(plan.account)
    try:
        done = subprocess.run(  # noqa: S603 - the Python of the service
            [plan.command[0], "-c", program, *words],
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=os.getgrouplist(plan.account, user.pw_gid),
            cwd="/",
            env={"HOME": user.pw_dir, "PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MANAGER_S,
            check=False,
        )
    except PermissionError:  # not even the interpreter
        return False
    return done.returncode == 0


def _systemctl(is_system: bool, *words: str) -> str:
    return _call(["systemctl", *([] if is_system else ["--user"]), *words])


def _call(words: Sequence[str], *, is_tried: bool = False) -> str:
    """Run a program of the manager; return its output. ``is_tried``: it may fail."""
    environ = {**os.environ}
    environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    done = subprocess.run(  # noqa: S603 - the manager's own program
        list(words),
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_MANAGER_S,
        check=False,
    )
    if done.returncode != 0 and not is_tried:
        raise EverturnError(
            f"'{' '.join(words)}' failed: {done.stderr.strip() or f'exit code {done.returncode}'}",
            hint="Your data was not changed. 'everturn service status' shows whether it runs.",
        )
    return done.stdout


def _domain(is_system: bool) -> str:
    return "system" if is_system else f"gui/{os.getuid()}"


def _lingers() -> bool:
    return Path("/var/lib/systemd/linger", getpass.getuser()).exists()


def _log_command(is_system: bool, config: Config) -> str:
    if sys.platform == "darwin":
        return str(config.home / "server.log")
    return f"journalctl {'' if is_system else '--user '}--unit {NAME}"
