"""The sandbox: bubblewrap around every process that a tool starts.

Inside there are the system folders, read-only, the workspace, writable, and a private /tmp; nothing
else. Three things are easy to get wrong and are done on purpose here:

- ``--clearenv`` alone is not enough: /proc/1/environ inside still shows what bubblewrap itself was
  started with. So bubblewrap gets an empty environment too.
- Started by root, bubblewrap keeps every capability, and a remount leaves the sandbox. So all are
  dropped, and where the kernel allows it the process is an ordinary user without nested namespaces.
- Options on the command line can be read by every user of the machine. So they go through a pipe.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process

from everturn.tools import forwarding
from everturn.tools.groups import Group, Groups
from everturn.tools.limits import Limits, Used, processes_in, used_by

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
_SHARED_BYTES = str(256 * 1024**2)
_USER = ("--unshare-user", "--uid", "1000", "--gid", "1000")
# From the strongest to the weakest; older versions of bubblewrap lack some options.
_LEVELS = (
    ("full", (*_USER, "--disable-userns"), ("--size", str(2 * 1024**3))),
    ("reduced", _USER, ()),
    ("reduced", (), ()),
)
_FIXED = ("--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv")
_MARK = "EVERTURN_CALL"

_SAME = """
while [ "$1" != -- ]; do
  [ "$(stat -c %d:%i "$1")" = "$2" ] || { echo "The project was changed while the call started."; exit 126; }
  shift 2
done
shift
exec "$@"
"""

# The trial succeeds only if the sandbox really holds: no capability, no remount, nothing of the host.
_TRIAL = """
test -z "$EVERTURN_TRIAL" || exit 11
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 12
! mount -o remount,rw,bind /usr 2>/dev/null || exit 13
test ! -e "$PWD/../passwd" || exit 14
: > "$PWD/.trial" && rm "$PWD/.trial" || exit 15
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
    network: bool = False  # the web, through the gate
    host_network: bool = False  # everything that this machine reaches, itself included
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    env: dict[str, str] = {}
    limits: Limits = Limits()


class Sandbox:
    """Starts processes inside bubblewrap, or beside it where there is none.

    ``home`` is the data folder; nothing of it is visible inside, even where it lies in a system folder.
    """

    def __init__(self, home: Path, *, program: str | None = None, is_wanted: bool = True) -> None:
        self._home = home.resolve()
        self._folder = self._home / "sandbox"  # what the sandbox shows as /etc/passwd and /etc/group
        self._program = program or shutil.which("bwrap")
        self._is_wanted = is_wanted
        self._gate: Path | None = None
        self._hard: tuple[str, ...] = ()  # the options of the level that works here
        self._size: tuple[str, ...] = ()  # the limit of /tmp, where it can be set
        self._groups: Groups | None = None
        self.state = SandboxState("none", "The sandbox was not tried yet.")

    async def open(self, gate: Path | None = None) -> SandboxState:
        """Try the sandbox by running it; say how well it works. ``gate``: its way to the network."""
        self._gate = gate
        self.state = await anyio.to_thread.run_sync(self._try)
        return self.state

    async def spawn(
        self, argv: Sequence[str], view: View, *, is_sandboxed: bool = True, stderr: int = subprocess.STDOUT
    ) -> Child:
        """Start a process with pipes; ``Child.end`` ends it and everything that it started."""
        if not (is_sandboxed and self.state.works):
            mark = secrets.token_hex(12)
            env = {**_environment(view), **_own_places(), _MARK: mark}
            process = await anyio.open_process(
                list(argv), cwd=view.workspace, env=env, stderr=stderr, start_new_session=True
            )
            return Child(process, mark=mark)
        kept = () if view.workspace.is_relative_to(self._home) else _git_places(view.workspace)
        told, tell = os.pipe()
        go, hold = os.pipe()  # bubblewrap begins when ``hold`` is closed
        try:
            options = [*self._options(view, kept), "--info-fd", str(tell), "--block-fd", str(go)]
            with _args_pipe(options, tell, go) as fd:
                process = await anyio.open_process(
                    [
                        str(self._program),
                        "--args",
                        str(fd),
                        "--",
                        *_only_if(kept),
                        *self._through_gate(view),
                        *argv,
                    ],
                    env={},
                    stderr=stderr,
                    start_new_session=True,
                    pass_fds=(fd, tell, go),
                )
            first = await _first_process(told)
            child = Child(process, first=first)
            if first is not None:
                await self._bound(child, first[0], view.limits)
            return child
        finally:
            os.close(hold)
            os.close(told)

    async def _bound(self, child: Child, pid: int, limits: Limits) -> None:
        """Set the limits on a sandbox's first process, before it begins."""
        try:
            if self._groups:
                child.group = self._groups.make(limits.processes)
                child.group.add(pid)
            limits.impose(pid)
        except ProcessLookupError:
            return  # bubblewrap could not build the sandbox; it says why
        except OSError:
            await child.end()  # never without its limits
            raise

    def _options(self, view: View, kept: Sequence[Place] = ()) -> list[str]:
        options = [*_FIXED, *self._hard]
        if view.host_network:
            options.append("--share-net")
        for folder in _SYSTEM:
            options += _system_folder(Path(folder))
        names = _ETC + (_ETC_NETWORK if view.host_network else ())
        for name in names:
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for name in ("passwd", "group"):
            options += ["--ro-bind-try", str(self._folder / name), f"/etc/{name}"]
        options += ["--proc", "/proc", "--dev", "/dev", *self._size, "--tmpfs", _TMP]
        if self._size:
            # Else both are as large as half of the machine's memory.
            options += ["--size", _SHARED_BYTES, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
        if any(self._home.is_relative_to(folder) for folder in _SYSTEM):
            options += ["--tmpfs", str(self._home)]
        for path in view.read:
            options += ["--ro-bind", str(path), str(path)]
        for path in (*view.write, view.workspace):
            options += ["--bind", str(path), str(path)]
        for place in kept:
            options += [place.option, place.path, place.path]
        if self._is_gated(view):
            options += ["--bind", str(self._gate), _GATE]
            for path in (*python_program()[1], Path(forwarding.__file__)):
                options += ["--ro-bind", str(path), str(path)]
        # Last, so that none of the mount points that were made on the way can be written to.
        options += ["--remount-ro", "/", "--chdir", str(view.workspace)]
        proxies = dict.fromkeys(_PROXIES, f"http://127.0.0.1:{_GATE_PORT}") if self._is_gated(view) else {}
        for name, value in (_environment(view) | proxies).items():
            options += ["--setenv", name, value]
        return options

    def _is_gated(self, view: View) -> bool:
        return view.network and not view.host_network and self._gate is not None

    def _through_gate(self, view: View) -> list[str]:
        """What runs before the command, so that it finds a proxy on its own loopback."""
        if not self._is_gated(view):
            return []
        return [python_program()[0], "-I", forwarding.__file__, _GATE, str(_GATE_PORT)]

    def _try(self) -> SandboxState:
        if not self._is_wanted:
            return SandboxState(
                "none", "The sandbox is switched off.", "Remove sandbox = false from config.toml."
            )
        if self._program is None:
            return SandboxState("none", "bubblewrap is not installed.", "Install the package bubblewrap.")
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "passwd").write_text("agent:x:1000:1000::/tmp:/bin/sh\nroot:x:0:0::/:/bin/sh\n")
        (self._folder / "group").write_text("agent:x:1000:\nroot:x:0:\n")
        trial = self._folder / "trial"
        trial.mkdir(exist_ok=True)
        detail = ""
        for level, self._hard, self._size in _LEVELS:
            detail = self._run_trial(trial)
            if not detail:
                self._groups = Groups.open() if _is_root() else None
                return SandboxState(level, _describe(level) + self._describe_groups())
        return SandboxState(
            "none", f"bubblewrap does not work here: {detail}", "Allow unprivileged user namespaces."
        )

    def _describe_groups(self) -> str:
        if self._groups or not _is_root():
            return ""
        return (
            " As root without control groups, the number of processes is only looked at, ten times a second."
        )

    def _run_trial(self, trial: Path) -> str:
        """An empty string if the sandbox held; else what was wrong."""
        options = self._options(View(workspace=trial))
        with _args_pipe(options) as fd:
            try:
                done = subprocess.run(  # noqa: S603 - our own program and options
                    [str(self._program), "--args", str(fd), "--", "/bin/sh", "-c", _TRIAL],
                    env={"EVERTURN_TRIAL": "leaked"},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_TRIAL_TIMEOUT_S,
                    pass_fds=(fd,),
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
        if done.returncode == 0:
            return ""
        return (
            done.stderr.decode("utf-8", "replace").strip()[:300] or f"its trial ended with {done.returncode}"
        )


class Child:
    """A process that a tool started, with whatever it starts in turn."""

    def __init__(self, process: Process, *, mark: str = "", first: tuple[int, int] | None = None) -> None:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process was started without pipes")
        self.process = process
        self.stdin = process.stdin
        self.stdout = process.stdout
        self._mark = mark
        # The first process inside the sandbox, and a handle of it.
        self._first = first[0] if first else 0
        self._namespace: int | None = first[1] if first else None
        self.group: Group | None = None  # that holds the number of its processes

    @property
    def is_sandboxed(self) -> bool:
        return self._namespace is not None

    async def used(self, limits: Limits) -> Used:
        """What it uses now, with everything it has started. Outside a sandbox nobody can tell."""
        if self._namespace is None:
            return Used()
        processes = processes_in(self._first)
        if len(processes) >= limits.processes:
            # Without a closer look: under a fork bomb that would not end while the machine is still ours.
            used = Used(len(processes))
        else:
            used = await anyio.to_thread.run_sync(used_by, self._first, processes, limits)
        # Once it has ended, its number may already be another's.
        return used if self._namespace is not None and not _is_over(self._namespace) else Used()

    async def end(self) -> None:
        """Kill it with everything it started, and wait until all of that is gone.

        In a sandbox the first process of the namespace is killed: the kernel then kills the others, and
        reports the end of the first only after theirs. Outside, the process group is killed, and then
        whatever left the group but still carries the mark of the call in its environment.
        """
        with anyio.CancelScope(shield=True):
            if self._namespace is not None:
                await _kill_namespace(self._namespace)
                self._namespace = None
            _kill_group(self.process.pid)
            if self._mark:
                await anyio.to_thread.run_sync(_kill_marked, self._mark)
            await self.process.wait()
            if self.group is not None:
                self.group.remove()
                self.group = None
            await self.process.aclose()


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


class Place(msgspec.Struct, frozen=True):
    """Something that is mounted only if it is still the same file or folder when the sandbox is ready."""

    option: str
    path: str
    identity: str  # device and inode


def _git_places(workspace: Path) -> tuple[Place, ...]:
    """Keep what git would run outside the sandbox, the next time its owner uses git in the project.

    The folder itself becomes a mount too: else it could be moved away and another put in its place. A
    session's own workspace is left alone: nobody but the agent uses git there.
    """
    git = workspace / ".git"
    places = []
    for option, path in (("--bind", git), ("--ro-bind", git / "hooks"), ("--ro-bind", git / "config")):
        try:
            found = path.lstat()
        except OSError:
            continue  # no repository here, or a file that names one elsewhere
        if stat.S_ISLNK(found.st_mode) or (path == git and not stat.S_ISDIR(found.st_mode)):
            break
        places.append(Place(option, str(path), f"{found.st_dev}:{found.st_ino}"))
    return tuple(places)


def _only_if(kept: Sequence[Place]) -> list[str]:
    """What runs before the command: it ends if another call in the same project put a link where git's
    folder was, between our look and the mount. From the mount on nothing can be swapped any more.

    A handle would be simpler, but bubblewrap hands every open file on to the command.
    """
    if not kept:
        return []
    words = [word for place in kept for word in (place.path, place.identity)]
    return ["/bin/sh", "-c", _SAME, "sh", *words, "--"]


def _is_root() -> bool:
    return os.geteuid() == 0


def _describe(level: str) -> str:
    if level == "full":
        return "bubblewrap works: no capabilities, no nested namespaces, nothing of the host in sight."
    return "bubblewrap works, but nested user namespaces could not be switched off."


@contextmanager
def _args_pipe(options: Sequence[str], *others: int) -> Iterator[int]:
    """A file that holds bubblewrap's options, NUL-separated, for ``--args``. Closed with the others."""
    fd = os.memfd_create("options", 0)
    try:
        os.write(fd, b"".join(option.encode() + b"\0" for option in options))
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        for each in (fd, *others):
            os.close(each)


async def _first_process(told: int) -> tuple[int, int] | None:
    """The sandbox's first process and a handle of it; None if bubblewrap could not even start it."""
    info = b""
    with anyio.CancelScope(shield=True):
        # To its end: bubblewrap writes in pieces, and dies of a pipe that closes too early.
        while not info.rstrip().endswith(b"}"):
            await anyio.wait_readable(told)
            piece = os.read(told, 4096)
            if not piece:
                break
            info += piece
    found = re.search(rb'"child-pid":\s*(\d+)', info)
    if found is None:
        return None
    try:
        return int(found[1]), os.pidfd_open(int(found[1]))
    except ProcessLookupError:
        return None  # it has ended already


def _is_over(handle: int) -> bool:
    return bool(select.select([handle], [], [], 0)[0])


async def _kill_namespace(handle: int) -> None:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        await anyio.wait_readable(handle)
    except ProcessLookupError:
        return  # it has ended already, and all others with it
    finally:
        os.close(handle)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # already gone, with everything in its group


def _kill_marked(mark: str) -> None:
    """Kill every process that carries the mark, until there is none; one may start another meanwhile."""
    for _ in range(200):
        found = _marked(mark)
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it ended by itself
        time.sleep(0.01)


def _marked(mark: str) -> list[int]:
    needle = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
    return found
