"""The sandbox: bubblewrap around every process that a tool starts.

Inside there are the system folders, read-only, the workspace, writable, and a private /tmp; nothing
else. Four things are easy to get wrong and are done on purpose here:

- ``--clearenv`` alone is not enough: /proc/1/environ inside still shows what bubblewrap itself was
  started with. So bubblewrap gets an empty environment too.
- Started by root, bubblewrap keeps every capability, and a remount leaves the sandbox. So all are
  dropped, and where the kernel allows it the process is an ordinary user without nested namespaces.
- Without capabilities root is still the owner of the kernel's settings and of most files. So for root
  bubblewrap runs as another user (see ``idmap``), and those parts of /proc are read-only for everybody.
- Options on the command line can be read by every user of the machine. So they go through a pipe.
"""

from __future__ import annotations

import os
import platform
import resource
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import msgspec

from everturn.tools.policy.guarded import Guard, Place
from everturn.tools.policy.repositories import Repositories
from everturn.tools.sandbox import forward, launch, seccomp
from everturn.tools.sandbox.control_groups import Groups
from everturn.tools.sandbox.idmap import UID, IdMap, UnmappedFolders
from everturn.tools.sandbox.limits import Limits
from everturn.tools.terminal.child import MARK, Child, first_process

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
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
_ETC_NETWORK = ("gai.conf", "host.conf", "hosts", "nsswitch.conf", "protocols", "resolv.conf", "services")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TMP = "/tmp"  # noqa: S108 - private inside the sandbox
_GATE = "/tmp/.gate"  # noqa: S108 - private inside the sandbox
_GATE_PORT = 3128
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_TRIAL_TIMEOUT_S = 10
_PROJECTS_MAX = 8  # whose folders are remembered
_INSTALL = {
    "apt-get": "apt-get install bubblewrap",
    "dnf": "dnf install bubblewrap",
    "pacman": "pacman -S bubblewrap",
    "zypper": "zypper install bubblewrap",
    "apk": "apk add bubblewrap",
}
_SHARED_BYTES = str(256 * 1024**2)
_USER = ("--unshare-user", "--uid", "1000", "--gid", "1000")
_FIXED = ("--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv")
# The kernel's settings and switches. Their owner is root, whatever namespaces a process is in.
_PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "pressure")
# What tells about the machine and the keys of others.
_PROC_HIDDEN = ("keys", "key-users", "kcore", "kmsg", "timer_list", "sched_debug", "latency_stats")


class Level(msgspec.Struct, frozen=True):
    """One way to run bubblewrap. ``is_dropped``: as another user than root."""

    user: tuple[str, ...] = ()
    size: tuple[str, ...] = ()  # before a mount of memory: its limit
    is_dropped: bool = False
    lacks: str = ""  # what a stronger level has, in words


_NESTED = "Nested user namespaces could not be switched off."
_ROOT = "Commands run as root, without its capabilities, because bubblewrap could not run as another user."
# From the strongest to the weakest; older versions of bubblewrap lack some options.
_SIZE = ("--size", str(2 * 1024**3))
_LEVELS = (
    Level((*_USER, "--disable-userns"), _SIZE),
    Level(_USER, lacks=_NESTED),
)
_LEVELS_OF_ROOT = (
    *(msgspec.structs.replace(level, is_dropped=True) for level in _LEVELS),
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

# The trial succeeds only if the sandbox really holds: no capability, no remount, nothing of the host, no way
# to the kernel's settings. The first argument says whether it must be another user than root, the second
# whether there is a filter.
_TRIAL = """
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


class View(msgspec.Struct, frozen=True):
    """What a process may see and do besides the system folders."""

    workspace: Path
    gate: Path | None = None  # the socket file that leads to the network
    host_network: bool = False  # everything that this machine reaches, itself included
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    env: dict[str, str] = {}
    limits: Limits = Limits()
    is_read_only: bool = False  # the workspace too
    is_brief: bool = True  # one command, not a server that stays


class Sandbox:
    """Starts processes inside bubblewrap, or beside it where there is none.

    ``home`` is the data folder; nothing of it is visible inside, even where it lies in a system folder.
    """

    def __init__(self, home: Path, *, program: str | None = None, is_wanted: bool = True) -> None:
        self._home = home.resolve()
        self._folder = self._home / "sandbox"  # what the sandbox shows as /etc/passwd and /etc/group
        self._program = program or shutil.which("bwrap")
        self._is_wanted = is_wanted
        self._level = Level()  # the strongest that works here
        self._groups: Groups | None = None
        self._ids: IdMap | None = None  # for root only
        self._numbers = seccomp.machine()
        self._projects: dict[Path, Repositories] = {}
        self._unmapped = UnmappedFolders(self._folder / "unmapped")
        self._tried = SandboxState("none", "The sandbox was not tried yet.")

    @property
    def state(self) -> SandboxState:
        """How well it works, with every folder in which it works less well."""
        folders = [str(path) for path in self._unmapped]
        if not folders or not self._tried.works:
            return self._tried
        detail = (
            f"Commands that use {', '.join(folders)} run as root, without its capabilities, because the file "
            "system there cannot map owners. Run the server as an ordinary user, or move the folder."
        )
        return SandboxState("reduced", f"{self._tried.detail} {detail}", self._tried.hint)

    async def open(self) -> SandboxState:
        """Try the sandbox by running it; say how well it works."""
        self._tried = await anyio.to_thread.run_sync(self._try)
        if self._tried.works:
            self._unmapped.load(self._ids if self._level.is_dropped else None)
        return self.state

    def try_folder(self, folder: Path) -> None:
        """Find out whether commands can use a project's folder without root's rights; ``state`` tells."""
        if self._ids is not None and self._level.is_dropped:
            self._unmapped.try_folder(folder, self._ids)

    def close(self) -> None:
        """Let go of what ``open`` holds; processes that run go on."""
        if self._ids is not None:
            self._ids.close()
            self._ids = None

    async def spawn(
        self, argv: Sequence[str], view: View, *, is_sandboxed: bool = True, stderr: int = subprocess.STDOUT
    ) -> Child:
        """Start a process with pipes; ``Child.end`` ends it and everything that it started."""
        if not (is_sandboxed and self.state.works):
            mark = secrets.token_hex(12)
            env = {**_environment(view), **_own_places(), MARK: mark}
            process = await anyio.open_process(
                list(argv), cwd=view.workspace, env=env, stderr=stderr, start_new_session=True
            )
            return Child(process, mark=mark)
        guard = await self.guard(view)
        # The covers last: a socket may lie in a folder that is mounted itself.
        kept = (*guard.places, *guard.covers) if guard else ()
        told, tell = os.pipe()
        go, hold = os.pipe()  # bubblewrap begins when ``hold`` is closed
        try:
            with self._command(view, kept, {"--info-fd": tell, "--block-fd": go}) as (command, passed):
                process = await anyio.open_process(
                    [*command, *_only_if(kept), *_through_gate(view), *argv],
                    env={},
                    stderr=stderr,
                    start_new_session=True,
                    pass_fds=passed,
                )
            first = await first_process(told)
            child = Child(process, first=first, workspace=view.workspace, guard=guard)
            if first is not None:
                await self._bound(child, first[0], view.limits)
            return child
        finally:
            os.close(hold)
            os.close(told)

    async def guard(self, view: View) -> Guard | None:
        """Look at the project of a call, see ``guarded``. None for a session's own workspace, where nobody
        but the agent works, and where nothing is written."""
        if view.is_read_only or view.workspace.is_relative_to(self._home):
            return None
        known = self._projects.pop(view.workspace, None) or Repositories(str(view.workspace))
        self._projects[view.workspace] = known  # the last one is the latest
        if len(self._projects) > _PROJECTS_MAX:
            del self._projects[next(iter(self._projects))]
        return await anyio.to_thread.run_sync(
            lambda: Guard(view.workspace, known, is_brief=view.is_brief, covers_sockets=not view.host_network)
        )

    async def _bound(self, child: Child, pid: int, limits: Limits) -> None:
        """Set the limits on a sandbox's first process, before it begins."""
        try:
            if self._groups:
                child.group = self._groups.make(limits.processes, limits.memory)
                child.group.add(pid)
            if not _is_root():  # the kernel does not hold root to it, and may not let root set it for others
                limits.hold_processes(pid)
        except ProcessLookupError:
            return  # bubblewrap could not build the sandbox; it says why
        except OSError:
            await child.end()  # never without its limits
            raise

    @contextmanager
    def _command(
        self, view: View, kept: Sequence[Place] = (), pipes: Mapping[str, int] | None = None
    ) -> Iterator[tuple[list[str], list[int]]]:
        """What starts bubblewrap, up to the command, and the descriptors that it gets. All of them are
        closed in the end, ``pipes`` too, which are given by the option that names them."""
        with ExitStack() as stack:
            passed = dict(pipes or {})
            for fd in passed.values():
                stack.callback(os.close, fd)
            if self._numbers is not None:
                rules = seccomp.program(self._numbers, has_memfd=self._holds("memory"))
                passed["--seccomp"] = _memory_file("filter", rules, stack)
            sources = Sources(self._mounts(view, stack))
            options = self._options(view, sources, kept)
            for name, fd in passed.items():
                options += [name, str(fd)]
            content = b"".join(os.fsencode(option) + b"\0" for option in options)
            passed["--args"] = _memory_file("options", content, stack)
            keyctl = self._numbers.keyctl if self._numbers else 0
            mounts = list(sources.mounts.values())
            uid = UID if mounts else 0
            limits = self._limits(view.limits, is_dropped=bool(mounts))
            words = (sys.executable, "-I", "-S", launch.__file__, limits, keyctl, uid, len(mounts))
            command = [
                *map(str, (*words, *mounts)),
                str(self._program),
                "--args",
                str(passed["--args"]),
                "--",
            ]
            yield command, [*passed.values(), *mounts]

    def _limits(self, limits: Limits, *, is_dropped: bool) -> str:
        values = limits.values()
        if is_dropped and not self._holds("pids"):
            # Set before the user namespace is made, it counts all sandboxes together: better than nothing.
            values[resource.RLIMIT_NPROC] = limits.processes
        return ",".join(f"{kind}={most}" for kind, most in values.items())

    def _mounts(self, view: View, stack: ExitStack) -> dict[Path, int]:
        """For root: mounts of everything the view shows besides the system, by which another user than root
        can reach it. Empty if bubblewrap runs as who we are: always, or because a file system of this view
        cannot do it."""
        if self._ids is None or not self._level.is_dropped:
            return {}
        mounts: dict[Path, int] = {}
        with ExitStack() as own:
            for path in dict.fromkeys(self._shown(view)):
                try:
                    mounts[path] = self._ids.mount(path)
                except OSError as error:
                    self._unmapped.add(path, error)
                    return {}
                own.callback(os.close, mounts[path])
            stack.push(own.pop_all())
        return mounts

    def _shown(self, view: View) -> tuple[Path, ...]:
        gate = (view.gate, *_forwarding_files()) if view.gate and _is_gated(view) else ()
        accounts = (self._folder / "passwd", self._folder / "group")
        return (*accounts, *view.read, *view.write, view.workspace, *gate)

    def _options(self, view: View, source: Sources, kept: Sequence[Place] = ()) -> list[str]:
        level = self._level
        options = [*_FIXED, *level.user]
        if view.host_network:
            options.append("--share-net")
        for folder in _SYSTEM:
            options += _system_folder(Path(folder))
        names = _ETC + (_ETC_NETWORK if view.host_network else ())
        for name in names:
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for name in ("passwd", "group"):
            options += ["--ro-bind", source(self._folder / name), f"/etc/{name}"]
        options += ["--proc", "/proc", *_proc_options(), "--dev", "/dev", *level.size, "--tmpfs", _TMP]
        if level.size:
            # Else both are as large as half of the machine's memory.
            options += ["--size", _SHARED_BYTES, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
        if any(self._home.is_relative_to(folder) for folder in _SYSTEM):
            options += ["--tmpfs", str(self._home)]
        for path in view.read:
            options += ["--ro-bind", source(path), str(path)]
        for path in view.write:
            options += ["--bind", source(path), str(path)]
        bind = "--ro-bind" if view.is_read_only else "--bind"
        options += [bind, source(view.workspace), str(view.workspace)]
        for place in kept:
            options += [place.option, place.source or source(Path(place.path)), place.path]
        if view.gate and _is_gated(view):
            options += ["--bind", source(view.gate), _GATE]
            for path in _forwarding_files():
                options += ["--ro-bind", source(path), str(path)]
        # Last, so that none of the mount points that were made on the way can be written to.
        options += ["--remount-ro", "/", "--chdir", str(view.workspace)]
        proxies = dict.fromkeys(_PROXIES, f"http://127.0.0.1:{_GATE_PORT}") if _is_gated(view) else {}
        for name, value in (_environment(view) | proxies).items():
            options += ["--setenv", name, value]
        return options

    def _holds(self, what: str) -> bool:
        """Whether control groups hold ``pids`` or ``memory``."""
        return self._groups is not None and self._groups.holds(what)

    def _try(self) -> SandboxState:
        if not self._is_wanted:
            return SandboxState(
                "none", "The sandbox is switched off.", "Remove sandbox = false from config.toml."
            )
        if self._program is None:
            return SandboxState("none", "bubblewrap is not installed.", install_hint())
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "passwd").write_text("agent:x:1000:1000::/tmp:/bin/sh\nroot:x:0:0::/:/bin/sh\n")
        (self._folder / "group").write_text("agent:x:1000:\nroot:x:0:\n")
        trial = self._folder / "trial"
        trial.mkdir(mode=0o700, exist_ok=True)
        self._groups = Groups.open()
        self._ids = _id_map() if _is_root() else None
        detail = ""
        for self._level in _LEVELS_OF_ROOT if _is_root() else _LEVELS:
            detail = self._run_trial(trial)
            if not detail:
                return self._describe()
        return SandboxState(
            "none", f"bubblewrap does not work here: {detail}", "Allow unprivileged user namespaces."
        )

    def _describe(self) -> SandboxState:
        lacks = [self._level.lacks] if self._level.lacks else []
        if self._numbers is None:
            lacks.append(f"There is no filter of system calls for {platform.machine()}.")
        notes = []
        if not self._holds("memory"):
            notes.append(
                "There is no control group for memory: files in memory are refused or, in /tmp, counted ten "
                "times a second."
            )
        if _is_root() and not self._level.is_dropped and not self._holds("pids"):
            notes.append("The number of processes is looked at ten times a second.")
        works = "bubblewrap works: no capabilities, no access to the rest of the machine."
        return SandboxState("reduced" if lacks else "full", " ".join((works, *lacks, *notes)))

    def _run_trial(self, trial: Path) -> str:
        """An empty string if the sandbox held; else what was wrong."""
        if self._level.is_dropped and self._ids is None:
            return "this kernel has no mounts that map owners"
        words = ["dropped" if self._level.is_dropped else "", "filtered" if self._numbers else ""]
        with self._command(View(workspace=trial)) as (command, passed):
            try:
                done = subprocess.run(  # noqa: S603 - our own program and options
                    [*command, "/bin/sh", "-c", _TRIAL, "sh", *words],
                    env={"EVERTURN_TRIAL": "leaked"},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_TRIAL_TIMEOUT_S,
                    pass_fds=passed,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
        if done.returncode == 0:
            return ""
        return (
            done.stderr.decode("utf-8", "replace").strip()[-300:] or f"its trial ended with {done.returncode}"
        )


class Sources:
    """Where bubblewrap finds what it shows: at its own place, or for another user than root where
    ``launch`` attaches the mounts."""

    def __init__(self, mounts: Mapping[Path, int]) -> None:
        self.mounts = mounts
        self._places = {path: launch.place(index) for index, path in enumerate(mounts)}

    def __call__(self, path: Path) -> str:
        for parent in (path, *path.parents):
            if parent in self._places:
                return os.path.join(self._places[parent], *path.relative_to(parent).parts)
        return str(path)


def python_program() -> tuple[str, tuple[Path, ...]]:
    """A Python that the sandbox can see, and the folders it needs beside the system's."""
    found = shutil.which("python3", path=_PATH)
    if found:
        return found, ()
    return os.path.realpath(sys.executable), (Path(sys.base_prefix),)


def program_folders(program: str) -> tuple[Path, ...]:
    """The folders that a program outside the system's needs: its own, or its virtual environment's."""
    path = Path(program)
    if not path.is_absolute() or path.is_relative_to("/usr") or path.is_relative_to("/bin"):
        return ()
    settings = path.parent.parent / "pyvenv.cfg"
    if not settings.is_file():
        return (path.parent,)
    folders = [path.parent.parent]
    python = Path(os.path.realpath(path.parent / "python"))
    if not python.is_relative_to("/usr"):
        folders.append(python.parent.parent)
    return tuple(folders)


def _is_gated(view: View) -> bool:
    return view.gate is not None and not view.host_network


def _through_gate(view: View) -> list[str]:
    """What runs before the command, so that it finds a proxy on its own loopback."""
    if not _is_gated(view):
        return []
    return [python_program()[0], "-I", forward.__file__, _GATE, str(_GATE_PORT)]


def _environment(view: View) -> dict[str, str]:
    """The whole environment of a tool: an allow-list, never a copy of ours with something removed."""
    return {
        "PATH": _PATH,
        "HOME": _TMP,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NODE_USE_ENV_PROXY": "1",
        **view.env,
    }


def _own_places() -> dict[str, str]:
    """Where the user's programs and settings are, for what runs outside the sandbox."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "USER") if name in os.environ}


def _system_folder(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", os.readlink(folder), str(folder)]
    return ["--ro-bind-try", str(folder), str(folder)]


def _only_if(kept: Sequence[Place]) -> list[str]:
    """What runs before the command: it ends if another call in the same project put a link where a guarded
    file was, between our look and the mount. From the mount on nothing can be swapped any more.

    A handle would be simpler, but bubblewrap hands every open file on to the command.
    """
    if not kept:
        return []
    paths, identities = (
        "\n".join(place.path for place in kept),
        "\n".join(place.identity for place in kept),
    )
    return ["/bin/sh", "-c", _SAME, "sh", paths, identities]


def _is_root() -> bool:
    return os.geteuid() == 0


def _id_map() -> IdMap | None:
    try:
        return IdMap.open()
    except OSError:
        return None  # the levels that need it fail their trial, and the state says what that means


def _proc_options() -> list[str]:
    options = []
    for name in _PROC_READ_ONLY:
        options += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for name in _PROC_HIDDEN:
        if os.path.exists(f"/proc/{name}"):
            options += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return options


def _forwarding_files() -> tuple[Path, ...]:
    return (*python_program()[1], Path(forward.__file__))


def _memory_file(name: str, content: bytes, stack: ExitStack) -> int:
    """A file in memory, read from its beginning, closed with the stack."""
    fd = os.memfd_create(name, 0)
    stack.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def install_hint() -> str:
    """The command that adds bubblewrap here."""
    for manager, words in _INSTALL.items():
        if shutil.which(manager):
            return f"Install it with: {'' if _is_root() else 'sudo '}{words}"
    return "Install the package bubblewrap."
