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
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

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
_TMP_BYTES_MAX = 2 * 1024**3
_TRIAL_TIMEOUT_S = 10
_HARD = ("--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000")
_FIXED = ("--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv")
_MARK = "EVERTURN_CALL"

# The trial succeeds only if the sandbox really holds: no capability, no remount, nothing of the host.
_TRIAL = """
test -z "$EVERTURN_TRIAL" || exit 11
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 12
! mount -o remount,rw,bind /usr 2>/dev/null || exit 13
test ! -e /root/. -a ! -e /home/. -a ! -e /run/. || exit 14
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
    network: bool = False
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    env: dict[str, str] = {}


class Sandbox:
    """Starts processes inside bubblewrap, or beside it where there is none.

    ``home`` is the data folder; nothing of it is visible inside, even where it lies in a system folder.
    """

    def __init__(self, home: Path, *, program: str | None = None, is_wanted: bool = True) -> None:
        self._home = home.resolve()
        self._folder = self._home / "sandbox"  # what the sandbox shows as /etc/passwd and /etc/group
        self._program = program or shutil.which("bwrap")
        self._is_wanted = is_wanted
        self._hard: tuple[str, ...] = ()
        self.state = SandboxState("none", "The sandbox was not tried yet.")

    async def open(self) -> SandboxState:
        """Try the sandbox by running it; say how well it works."""
        self.state = await anyio.to_thread.run_sync(self._try)
        return self.state

    async def spawn(
        self, argv: Sequence[str], view: View, *, is_sandboxed: bool = True, stderr: int = subprocess.STDOUT
    ) -> Process:
        """Start a process with pipes. ``end`` ends it and everything that it started."""
        if not (is_sandboxed and self.state.works):
            env = {**_environment(view), **_own_places()}
            return await anyio.open_process(
                list(argv), cwd=view.workspace, env=env, stderr=stderr, start_new_session=True
            )
        with _args_pipe(self._options(view)) as fd:
            return await anyio.open_process(
                [str(self._program), "--args", str(fd), "--", *argv],
                env={},
                stderr=stderr,
                start_new_session=True,
                pass_fds=(fd,),
            )

    def _options(self, view: View) -> list[str]:
        options = [*_FIXED, *self._hard]
        if view.network:
            options.append("--share-net")
        for folder in _SYSTEM:
            options += _system_folder(Path(folder))
        names = _ETC + (_ETC_NETWORK if view.network else ())
        for name in names:
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for name in ("passwd", "group"):
            options += ["--ro-bind-try", str(self._folder / name), f"/etc/{name}"]
        options += ["--proc", "/proc", "--dev", "/dev", "--size", str(_TMP_BYTES_MAX), "--tmpfs", _TMP]
        if any(self._home.is_relative_to(folder) for folder in _SYSTEM):
            options += ["--tmpfs", str(self._home)]
        for path in view.read:
            options += ["--ro-bind", str(path), str(path)]
        for path in (*view.write, view.workspace):
            options += ["--bind", str(path), str(path)]
        for path in _hooks(view.workspace):
            options += ["--ro-bind", str(path), str(path)]
        # Last, so that none of the mount points that were made on the way can be written to.
        options += ["--remount-ro", "/", "--chdir", str(view.workspace)]
        for name, value in _environment(view).items():
            options += ["--setenv", name, value]
        return options

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
        for level, hard in (("full", _HARD), ("reduced", ())):
            self._hard = hard
            detail = self._run_trial(trial)
            if not detail:
                return SandboxState(level, _describe(level))
        self._hard = ()
        return SandboxState(
            "none", f"bubblewrap does not work here: {detail}", "Allow unprivileged user namespaces."
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


def pipes(process: Process) -> tuple[ByteSendStream, ByteReceiveStream]:
    """What goes in and what comes out: ``spawn`` always makes both."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process was started without pipes")
    return process.stdin, process.stdout


async def end(process: Process, mark: str = "") -> None:
    """Kill the process and everything it started, and wait until it is gone.

    In a sandbox the namespace dies with bubblewrap. Outside, the process group is killed, and then
    whatever left the group but still carries the call's mark in its environment.
    """
    with anyio.CancelScope(shield=True):
        _kill_group(process.pid)
        if mark:
            await anyio.to_thread.run_sync(_kill_marked, mark)
        await process.wait()
        await process.aclose()


def new_mark() -> str:
    return secrets.token_hex(12)


def marked(env: Mapping[str, str], mark: str) -> dict[str, str]:
    return {**env, _MARK: mark}


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
        **view.env,
    }


def _own_places() -> dict[str, str]:
    """Where the user's programs and settings are, for what runs outside the sandbox."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "USER") if name in os.environ}


def _system_folder(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", os.readlink(folder), str(folder)]
    return ["--ro-bind-try", str(folder), str(folder)]


def _hooks(workspace: Path) -> list[Path]:
    """What git would run outside the sandbox, the next time its owner uses git there."""
    git = workspace / ".git"
    return [path for path in (git / "hooks", git / "config") if path.exists() and not path.is_symlink()]


def _describe(level: str) -> str:
    if level == "full":
        return "bubblewrap works: no capabilities, no nested namespaces, nothing of the host in sight."
    return "bubblewrap works, but nested user namespaces could not be switched off."


class _args_pipe:  # noqa: N801 - used as a function
    """A file that holds bubblewrap's options, NUL-separated, for ``--args``."""

    def __init__(self, options: Sequence[str]) -> None:
        self._fd = os.memfd_create("options", 0)
        os.write(self._fd, b"".join(option.encode() + b"\0" for option in options))
        os.lseek(self._fd, 0, os.SEEK_SET)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, 9)
    except ProcessLookupError:
        return  # already gone, with everything in its group


def _kill_marked(mark: str) -> None:
    needle = f"{_MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), 9)
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
