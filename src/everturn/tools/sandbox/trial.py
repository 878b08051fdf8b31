"""The trial of the sandbox: a script that succeeds only where the sandbox holds, and what was found."""

from __future__ import annotations

import os
import shutil

import msgspec

_INSTALL = {
    "apt-get": "apt-get install bubblewrap",
    "dnf": "dnf install bubblewrap",
    "pacman": "pacman -S bubblewrap",
    "zypper": "zypper install bubblewrap",
    "apk": "apk add bubblewrap",
}
# The trial succeeds only if the sandbox really holds: no capability, no remount, nothing of the host, no way
# to the kernel's settings. The first argument says whether it must be another user than root, the second
# whether there is a filter.
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


class SandboxState(msgspec.Struct, frozen=True):
    """For doctor and the settings page. ``level``: full | reduced | none."""

    level: str
    detail: str
    hint: str = ""

    @property
    def works(self) -> bool:
        return self.level != "none"


def install_hint() -> str:
    """The command that adds bubblewrap here."""
    for manager, words in _INSTALL.items():
        if shutil.which(manager):
            return f"Install it with: {'' if os.geteuid() == 0 else 'sudo '}{words}"
    return "Install the package bubblewrap."


def hint_for(detail: str, python: str) -> str:
    """What to do about a trial that failed with these words."""
    if "namespace" in detail or "uid map" in detail:
        return "Allow unprivileged user namespaces."
    if "ermission denied" in detail:
        return f"The sandbox must be able to run {python}: let others enter its folders and run it."
    return "Without a sandbox each command asks before it runs."
