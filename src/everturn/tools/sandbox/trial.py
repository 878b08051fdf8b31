"""The sandbox's trial: a script that succeeds only if the sandbox holds, and its result."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import NamedTuple

import msgspec

from everturn.tools.sandbox.level import Ready

_TIMEOUT_S = 60  # a trial takes seconds on a busy machine, and a timeout would lower the level
_INSTALL = {
    "apt-get": "apt-get install bubblewrap",
    "dnf": "dnf install bubblewrap",
    "pacman": "pacman -S bubblewrap",
    "zypper": "zypper install bubblewrap",
    "apk": "apk add bubblewrap",
}
# Succeeds only if the sandbox holds: no capability, no remount, nothing of the host visible, no access to
# kernel settings. The first argument says whether the user must not be root, the second whether there is a
# filter.
SCRIPT = """
test -z "$EVERTURN_TRIAL" || exit 11
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 12
! mount -o remount,rw,bind /usr 2>/dev/null || exit 13
test ! -e "$PWD/../passwd" || exit 14
: > "$PWD/.trial" || exit 15
for setting in kernel/core_pattern kernel/hostname vm/swappiness; do
  test ! -w "/proc/sys/$setting" || exit 16
done
test ! -w /proc/sysrq-trigger || exit 16
# A file of root belongs to the sandbox's user only if that is root.
test "$1" != dropped || test "$(stat -c %u /usr)" != "$(id -u)" || exit 17
if [ "$2" = filtered ]; then
  # The first process too: it can be traced, and made to call what others may not.
  for process in self 1; do
    grep -q '^Seccomp:[[:space:]]*2$' /proc/$process/status || exit 18
  done
  ! chmod u+s "$PWD/.trial" 2>/dev/null || exit 19
fi
rm "$PWD/.trial" || exit 15
"""

# The same without namespaces. The first argument is the server's process id. Prints "mode" if the mode of a
# file can be changed.
CONFINED_SCRIPT = """
test -z "$EVERTURN_TRIAL" || exit 11
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 12
grep -q '^NoNewPrivs:[[:space:]]*1$' /proc/self/status || exit 13
! cat "$PWD/../scratch/lock" 2>/dev/null || exit 14
! ls "$PWD/.." 2>/dev/null || exit 14
: > "$PWD/.trial" || exit 15
: > "$TMPDIR/trial" || exit 15
for setting in kernel/core_pattern kernel/hostname vm/swappiness; do
  ! ( : >> "/proc/sys/$setting" ) 2>/dev/null || exit 16
done
grep -q '^Seccomp:[[:space:]]*2$' /proc/self/status || exit 18
! chmod u+s "$PWD/.trial" 2>/dev/null || exit 19
! kill -0 "$1" 2>/dev/null || exit 20
! cat "/proc/$1/environ" >/dev/null 2>&1 || exit 21
chmod 600 "$PWD/.trial" 2>/dev/null && echo mode
rm "$PWD/.trial" || exit 15
"""
# Succeeds if only the proxy can be reached: neither its port on another address nor another port here.
GATE_PROGRAM = """
import _socket, errno, os, sys
port = int(os.environ["http_proxy"].rpartition(":")[2])
_socket.socket().connect(("127.0.0.1", port))
for place in (("127.0.0.2", port), ("127.0.0.1", port ^ 1)):
    try:
        _socket.socket().connect(place)
    except OSError as error:
        if error.errno == errno.ENETUNREACH:
            continue
    sys.exit(22)
"""


class SandboxState(msgspec.Struct, frozen=True):
    """The sandbox's state, for doctor and the settings page.

    ``level``: full | reduced | landlock | none. ``gaps``: the protections that this level lacks, one sentence
    each.
    """

    level: str
    detail: str
    hint: str = ""
    gaps: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        return self.level != "none"


class TrialEnd(NamedTuple):
    """The result of a trial. ``problem`` is empty if it succeeded; ``said`` is what it printed."""

    problem: str
    said: str = ""


def run_trial(ready: Ready) -> TrialEnd:
    """Run a trial script, which fails if the sandbox does not hold."""
    try:
        done = subprocess.run(  # noqa: S603 - our own program and options
            ready.words,
            env={"EVERTURN_TRIAL": "leaked"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            pass_fds=ready.passed,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return TrialEnd(str(error))
    if done.returncode == 0:
        return TrialEnd("", done.stdout.decode("utf-8", "replace"))
    why = done.stderr.decode("utf-8", "replace").strip()[-300:]
    return TrialEnd(why or f"its trial ended with {done.returncode}")


def install_hint() -> str:
    """Return the command that installs bubblewrap here."""
    if sys.platform == "darwin":
        return "On macOS there is no sandbox that Everturn can use, so each command asks before it runs."
    for manager, words in _INSTALL.items():
        if shutil.which(manager):
            return f"Install it with: {'' if os.geteuid() == 0 else 'sudo '}{words}"
    return "Install the package bubblewrap."


def hint_for(detail: str, python: str) -> str:
    """Return advice for a trial that failed with this message."""
    if "namespace" in detail or "uid map" in detail:
        return "Allow unprivileged user namespaces."
    if "ermission denied" in detail:
        return f"The sandbox must be able to run {python}: let others enter its folders and run it."
    return ""
