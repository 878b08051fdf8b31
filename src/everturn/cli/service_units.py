"""What a service manager is given: units for systemd, a property list for launchd."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

NAME = "everturn"
LABEL = "org.everturn.server"
MARK = "Written by 'everturn service install'"  # only what has it is replaced or removed
KEYS_FILE = "service.env"
_STOP_EXTRA_S = 30  # beyond what running turns get to end
_RESTART_S = 2


class ServicePlan(msgspec.Struct, frozen=True):
    """``account``: who runs a service of the system; empty for a service of the user who installs it."""

    command: Sequence[str]
    home: Path
    path: str
    grace_s: float
    account: str = ""

    @property
    def has_scopes(self) -> bool:
        """True if systemd gives jobs scopes of their own: to root, and below a user's own manager."""
        return self.account in ("", "root")


def systemd_unit(plan: ServicePlan) -> str:
    """A unit whose jobs survive a restart, and with no option that keeps the sandbox from working.

    The sandbox needs user namespaces and a /proc that nothing else is mounted on: RestrictNamespaces=,
    ProtectKernelTunables=, ProtectKernelLogs=, ProtectProc= and PrivateUsers= would break it.
    """
    lines = [
        f"# {MARK}. Changes are lost when it is installed again: use 'systemctl edit'.",
        "[Unit]",
        "Description=Everturn",
        "After=network-online.target",
        *(["Wants=network-online.target"] if plan.account else []),
        "",
        "[Service]",
        "Type=notify",
        f"ExecStart={_command_line(plan.command)}",
        f"Environment={_assignment('EVERTURN_HOME', str(plan.home))} {_assignment('PATH', plan.path)}",
        f"EnvironmentFile=-{_literal(str(plan.home / KEYS_FILE))}",
        *([f"User={plan.account}"] if plan.account else []),
        "Restart=on-failure",
        f"RestartSec={_RESTART_S}",
        f"TimeoutStopSec={plan.grace_s + _STOP_EXTRA_S:g}",
        *_job_lines(plan),
        "UMask=0077",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallArchitectures=native",
        *_system_lines(plan),
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if plan.account else 'default.target'}",
    ]
    return "\n".join(lines) + "\n"


def _job_lines(plan: ServicePlan) -> Sequence[str]:
    if plan.has_scopes:
        return (
            "# Jobs have scopes of their own and run on. All else ends with the server.",
            "KillMode=mixed",
            "Delegate=yes",
        )
    return (
        "# Jobs run on when the server stops. With Delegate=, systemd could not start it again beside them.",
        "KillMode=process",
    )


def _system_lines(plan: ServicePlan) -> Sequence[str]:
    """A user's manager cannot do these without namespaces that would break the sandbox."""
    if not plan.account:
        return ()
    lines = ["ProtectSystem=full", "ProtectClock=yes", "ProtectKernelModules=yes"]
    return lines if plan.account == "root" else [*lines, "CapabilityBoundingSet="]


def launchd_list(plan: ServicePlan) -> bytes:
    """A property list for launchd. ``AbandonProcessGroup``: jobs run on when the server stops."""
    environ: Mapping[str, str] = {"EVERTURN_HOME": str(plan.home), "PATH": plan.path}
    log = str(plan.home / "server.log")
    value = {
        "Label": LABEL,
        "ProgramArguments": list(plan.command),
        "EnvironmentVariables": environ,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "AbandonProcessGroup": True,
        "ExitTimeOut": int(plan.grace_s + _STOP_EXTRA_S),
        "Umask": 0o077,
        "StandardOutPath": log,
        "StandardErrorPath": log,
        **({"UserName": plan.account} if plan.account else {}),
    }
    text = plistlib.dumps(value).decode()
    head, _, body = text.partition("<plist")
    return f"{head}<!-- {MARK} -->\n<plist{body}".encode()


def _literal(text: str) -> str:
    """``%`` begins a specifier of systemd."""
    return text.replace("%", "%%")


def _command_line(words: Sequence[str]) -> str:
    """``$`` begins a variable in every word but the first."""
    program, *others = words
    return " ".join((_in_quotes(program), *(_in_quotes(word.replace("$", "$$")) for word in others)))


def _assignment(name: str, value: str) -> str:
    return _in_quotes(f"{name}={value}")


def _in_quotes(text: str) -> str:
    escaped = _literal(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
