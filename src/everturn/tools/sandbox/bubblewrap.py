"""The options and the command line of bubblewrap: what is mounted where, and what runs before the command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from everturn.tools.policy.guarded import GuardedMount
from everturn.tools.sandbox import forward, launch
from everturn.tools.sandbox.view import TMP, SandboxView, environment, python_program

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    "alternatives",
    "ca-certificates",
    "debian_version",
    "fonts",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
ETC_NETWORK = ("gai.conf", "host.conf", "hosts", "nsswitch.conf", "protocols", "resolv.conf", "services")
_GATE = "/tmp/.gate"  # noqa: S108 - private inside the sandbox
GATE_PORT = 3128
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_SHARED_BYTES = str(256 * 1024**2)
_USER = ("--unshare-user", "--uid", "1000", "--gid", "1000")
_FIXED = ("--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv")
# Kernel settings. Root owns them in every namespace.
_PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "pressure")
# They reveal the machine and other users' keys.
_PROC_HIDDEN = ("keys", "key-users", "kcore", "kmsg", "timer_list", "sched_debug", "latency_stats")


class Level(msgspec.Struct, frozen=True):
    """One way to run bubblewrap. If ``is_dropped``, it does not run as root."""

    user: tuple[str, ...] = ()
    size: tuple[str, ...] = ()  # option that limits the size of the next tmpfs
    is_dropped: bool = False
    lacks: str = ""  # what is missing compared with a stronger level, in words


_NESTED = "Nested user namespaces could not be switched off."
_ROOT = "Commands run as root, without its capabilities, because bubblewrap could not run as another user."
# Strongest first. Older versions of bubblewrap lack some options.
_SIZE = ("--size", str(2 * 1024**3))
LEVELS = (
    Level((*_USER, "--disable-userns"), _SIZE),
    Level(_USER, lacks=_NESTED),
)
LEVELS_OF_ROOT = (
    *(msgspec.structs.replace(level, is_dropped=True) for level in LEVELS),
    Level((*_USER, "--disable-userns"), _SIZE, lacks=_ROOT),
    Level(_USER, lacks=f"{_ROOT} {_NESTED}"),
    Level(lacks=f"{_ROOT} {_NESTED}"),
)
_SAME = """
set -f
IFS='
'
[ "$(stat -c %d:%i -- $1)" = "$2" ] || { echo "The project was changed while the call started."; exit 126; }
unset IFS
set +f
shift 2
exec "$@"
"""
# Runs before a command that another process starts. The command begins when that process writes a line, and
# exits if that process is killed first.
AFTER_GO = ("/bin/sh", "-c", 'read -r _ || exit 125; exec "$@" </dev/null', "sh")


class Sources:
    """Maps each path to the source that bubblewrap mounts there.

    That is the same path, or the id-mapped mount that ``launch`` attached for it.
    """

    def __init__(self, mounts: Mapping[Path, int]) -> None:
        self.mounts = mounts
        self._places = {path: launch.place(index) for index, path in enumerate(mounts)}

    def __call__(self, path: Path) -> str:
        for parent in (path, *path.parents):
            if parent in self._places:
                return os.path.join(self._places[parent], *path.relative_to(parent).parts)
        return str(path)


def options_of(
    level: Level, view: SandboxView, source: Sources, kept: Sequence[GuardedMount], home: Path
) -> list[str]:
    """Return all options except those that name a descriptor.

    ``home`` is the data folder and stays hidden.
    """
    options = [*_FIXED, *level.user]
    if view.host_network:
        options.append("--share-net")
    for folder in SYSTEM:
        options += _system_folder(Path(folder))
    names = ETC + (ETC_NETWORK if view.host_network else ())
    for name in names:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in account_files(home):
        options += ["--ro-bind", source(path), f"/etc/{path.name}"]
    options += ["--proc", "/proc", *_proc_options(), "--dev", "/dev", *level.size, "--tmpfs", TMP]
    if level.size:
        # By default each tmpfs may take half of the machine's memory.
        options += ["--size", _SHARED_BYTES, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    shown = [("--ro-bind", path) for path in view.read] + [("--bind", path) for path in view.write]
    # Mount folders that contain the data folder before the mount that hides it, and folders inside it after.
    shown.sort(key=lambda option: not home.is_relative_to(option[1]))
    around = [path for _, path in shown if home.is_relative_to(path)]
    for option, path in shown[: len(around)]:
        options += [option, source(path), str(path)]
    if around or any(home.is_relative_to(folder) for folder in SYSTEM):
        options += ["--tmpfs", str(home)]
    for option, path in shown[len(around) :]:
        options += [option, source(path), str(path)]
    bind = "--ro-bind" if view.is_read_only else "--bind"
    options += [bind, source(view.workspace), str(view.workspace)]
    for place in kept:
        options += [place.option, place.source or source(Path(place.path)), place.path]
    if view.gate and view.is_gated:
        options += ["--bind", source(view.gate), _GATE]
        for path in forwarding_files():
            options += ["--ro-bind", source(path), str(path)]
    # Last, so that mount points created on the way become read-only too.
    options += ["--remount-ro", "/", "--chdir", str(view.workspace)]
    proxies = dict.fromkeys(PROXIES, f"http://127.0.0.1:{GATE_PORT}") if view.is_gated else {}
    for name, value in (environment(view) | proxies).items():
        options += ["--setenv", name, value]
    return options


def account_files(home: Path) -> tuple[Path, Path]:
    """Return the contents of /etc/passwd and /etc/group inside the sandbox."""
    return home / "sandbox" / "passwd", home / "sandbox" / "group"


def through_gate(view: SandboxView) -> list[str]:
    """Return the words that start a proxy on the sandbox's loopback before the command."""
    if not view.is_gated:
        return []
    return [python_program()[0], "-I", forward.__file__, _GATE, str(GATE_PORT)]


def only_if(kept: Sequence[GuardedMount]) -> list[str]:
    """Return a check that runs before the command and ends the call if the project or a guarded file changed.

    Another call in the same project could replace it with a link before it is mounted. After the mount it
    cannot be swapped. A descriptor would be simpler, but the command would inherit it from bubblewrap.
    """
    if not kept:
        return []
    paths, identities = (
        "\n".join(place.path for place in kept),
        "\n".join(place.identity for place in kept),
    )
    return ["/bin/sh", "-c", _SAME, "sh", paths, identities]


def forwarding_files() -> tuple[Path, ...]:
    return (*python_program()[1], Path(forward.__file__))


def _system_folder(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", os.readlink(folder), str(folder)]
    return ["--ro-bind-try", str(folder), str(folder)]


def _proc_options() -> list[str]:
    options = []
    for name in _PROC_READ_ONLY:
        options += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for name in _PROC_HIDDEN:
        if os.path.exists(f"/proc/{name}"):
            options += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return options
