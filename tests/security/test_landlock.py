"""What the second level has to hold by itself, because nothing hides the rest of the machine there.

Each attack is tried on something that really is there, and from outside it is shown that it works.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from everturn.domain.tool import Verdict
from everturn.tools import Profile, Sandbox
from everturn.tools.limits import ProcessLimits
from everturn.tools.sandbox.process_tree import descendants
from everturn.tools.sandbox.scratch import sweep
from everturn.tools.sandbox.view import SandboxView
from tests.sandbox_levels import sandbox_at
from tests.unit.tools.kit import Kit, open_kit, profiles_of
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["landlock", "landlock 5", "landlock 1"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def kit(anyio_backend: str, tmp_path: Path, level: str) -> AsyncIterator[Kit]:
    home = tmp_path / "home"
    profiles = profiles_of(Profile(name="few", processes=20))
    async with open_kit(home, profiles=profiles, sandbox=sandbox_at(level, home)) as opened:
        assert opened.toolbox.sandbox_state().level == "landlock"
        yield opened


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process of the same user, outside."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# The numbers are those of x86_64 and of aarch64.
_SIGNALS = """
import ctypes, fcntl, os, platform, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
at = 0 if platform.machine() == "x86_64" else 1
pid = PID

def call(name, numbers, *arguments):
    result = libc.syscall(ctypes.c_long(numbers[at]), *map(ctypes.c_long, arguments))
    print(name, "worked" if result >= 0 else os.strerror(ctypes.get_errno()))

STOP = 19
call("kill", (62, 129), pid, STOP)
call("kill a group", (62, 129), -pid, STOP)
call("kill all", (62, 129), -1, 0)
call("tkill", (200, 130), pid, STOP)
call("tgkill", (234, 131), pid, pid, STOP)
info = (ctypes.c_int * 32)(STOP, 0, -1)
call("rt_sigqueueinfo", (129, 138), pid, STOP, ctypes.addressof(info))
call("rt_tgsigqueueinfo", (297, 240), pid, pid, STOP, ctypes.addressof(info))
call("pidfd_send_signal", (424, 424), os.pidfd_open(pid), STOP, 0, 0)
call("prlimit64", (302, 261), pid, 7, ctypes.addressof((ctypes.c_ulong * 2)(0, 0)), 0)
call("sched_setaffinity", (203, 122), pid, 8, ctypes.addressof((ctypes.c_ulong * 1)(1)))
call("setpriority", (141, 140), 0, pid, 19)
call("ptrace", (101, 117), 16, pid, 0, 0)
call("process_vm_readv", (310, 270), pid, 0, 0, 0, 0, 0)
for name in ("environ", "mem", "maps", "fd/0", "root/etc/shadow", "cwd/x"):
    try:
        open(f"/proc/{pid}/{name}").close()
        print(name, "worked")
    except OSError as error:
        print(name, error.strerror)
r, w = os.pipe()
try:
    fcntl.fcntl(r, fcntl.F_SETOWN, pid)
    fcntl.fcntl(r, 10, STOP)
    fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(w, b"x")
    print("sent through a pipe")
except OSError as error:
    print("F_SETOWN", error.strerror)
print("end")
"""


async def test_no_other_process_can_be_signalled_traced_or_slowed_down(kit: Kit, bystander: int) -> None:
    os.kill(bystander, 0)
    before = os.sched_getaffinity(bystander), os.getpriority(os.PRIO_PROCESS, bystander)
    for pid in (bystander, os.getpid()):
        said = await kit.python(_SIGNALS.replace("PID", str(pid)))
        worked = [line for line in said.splitlines() if line.endswith("worked")]
        # The first reads nothing, and asks for no right; the second reaches the command's own processes.
        assert {*worked} <= {"process_vm_readv worked", "kill all worked"}, said
        assert said.endswith("end")
    assert _state(bystander) == "S"
    assert (os.sched_getaffinity(bystander), os.getpriority(os.PRIO_PROCESS, bystander)) == before


async def test_a_command_can_signal_what_it_started(kit: Kit) -> None:
    said = await kit.run(
        "terminal",
        command="set -m; sleep 1000 & kill -9 %1; wait %1; echo killed $?; "
        "timeout 0.2 sleep 1000; echo timed out $?; "
        "python3 -c 'import os, signal; os.abort()'; echo aborted $?; sh -c 'kill -TERM 0'; echo $?",
    )
    words = ("killed 137", "timed out 124", "aborted 134")
    assert [line for line in said.text.splitlines() if line in words] == list(words)


async def test_modes_are_changed_in_the_workspace_only(kit: Kit, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    secret = outside / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    code = f"""
import os
open("own", "w").close()
os.symlink({str(secret)!r}, "link")
os.symlink("own", "inner")
os.mkdir("d")
open("d/x", "w").close()
folder = os.open("d", os.O_RDONLY)
place = os.open({str(secret)!r}, os.O_PATH)
tries = {{
    "own": lambda: os.chmod("own", 0o751),
    "inner": lambda: os.chmod("inner", 0o755),
    "fchmod": lambda: os.fchmod(os.open("own", os.O_RDONLY), 0o751),
    "dir_fd": lambda: os.chmod("x", 0o640, dir_fd=folder),
    "proc": lambda: os.chmod(f"/proc/self/fd/{{folder}}", 0o700),
    "absent": lambda: os.chmod("absent", 0o700),
    "outside": lambda: os.chmod({str(secret)!r}, 0o644),
    "folder": lambda: os.chmod({str(outside)!r}, 0o777),
    "through a link": lambda: os.chmod("link", 0o644),
    "through O_PATH": lambda: os.chmod(f"/proc/self/fd/{{place}}", 0o644),
    "relative": lambda: os.chmod(os.path.relpath({str(secret)!r}), 0o644),
    "the system": lambda: os.chmod("/usr/bin", 0o777),
    "fd of the system": lambda: os.fchmod(os.open("/usr/bin/env", os.O_RDONLY), 0o777),
    "proc of another": lambda: os.chmod("/proc/{os.getpid()}/cwd", 0o777),
    "chown": lambda: os.chown({str(secret)!r}, 1234, 1234),
    "xattr": lambda: os.setxattr({str(secret)!r}, "user.x", b"x"),
}}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "worked")
    except OSError as error:
        print(name, error.strerror)
print(oct(os.stat("own").st_mode), oct(os.stat("d/x").st_mode))
"""
    said = (await kit.python(code)).splitlines()
    worked = [line.removesuffix(" worked") for line in said if line.endswith("worked")]
    assert worked == ["own", "inner", "fchmod", "dir_fd", "proc"], said
    assert "absent No such file or directory" in said
    assert said[-1] == "0o100751 0o100640"
    assert (secret.stat().st_mode & 0o777, outside.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_what_belongs_to_files_outside_is_neither_read_nor_changed(kit: Kit, tmp_path: Path) -> None:
    """Extended attributes can hold what a file does. Its owner may change flags of a file that can only be
    read, and make every other program that opens it wait."""
    outside = tmp_path / "outside.txt"
    outside.write_text("kept")
    os.setxattr(outside, "user.secret", b"hidden words")
    code = f"""
import fcntl, os, struct
path = {str(outside)!r}
program = os.open("/usr/bin/env", os.O_RDONLY)
open("own", "w").close()
own = os.open("own", os.O_RDONLY)
flags = bytearray(8)
tries = {{
    "getxattr": lambda: print(os.getxattr(path, "user.secret")),
    "lgetxattr": lambda: print(os.getxattr(path, "user.secret", follow_symlinks=False)),
    "listxattr": lambda: os.listxattr(path),
    "set flags": lambda: fcntl.ioctl(program, 0x40086602, flags),
    "lease": lambda: fcntl.fcntl(program, fcntl.F_SETLEASE, fcntl.F_WRLCK),
    "lease of its own": lambda: fcntl.fcntl(own, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "watch": lambda: fcntl.fcntl(os.open("/usr/bin", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE),
}}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "worked")
    except OSError as error:
        print(name, error.strerror)
print("of an open file", os.listxattr(own))
"""
    said = await kit.python(code)
    assert "worked" not in said
    assert "hidden words" not in said
    assert "of an open file []" in said


async def test_what_is_outside_can_be_neither_cut_nor_taken(kit: Kit, tmp_path: Path) -> None:
    """The first version of Landlock did not know truncate, and none asks for a right to open for ioctl."""
    outside = tmp_path / "outside.txt"
    outside.write_text("kept")
    code = f"""
import ctypes, os
path = {str(outside)!r}
tries = {{
    "truncate": lambda: os.truncate(path, 0),
    "O_TRUNC": lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
    "O_TRUNC and 3": lambda: os.open(path, 3 | os.O_TRUNC),
    "for ioctl": lambda: os.open("/dev/full", 3),
    "rename": lambda: os.rename(path, "taken"),
    "replace": lambda: (open("new", "w").close(), os.rename("new", path)),
    "link": lambda: os.link(path, "taken"),
    "unlink": lambda: os.unlink(path),
    "/dev/shm": lambda: open("/dev/shm/everturn-test", "w"),
    "mknod": lambda: os.mknod("device", 0o20600, os.makedev(1, 3)),
    "a name in /tmp": lambda: open("/tmp/everturn-test", "w"),
}}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "worked")
    except OSError as error:
        print(name, error.strerror)
libc = ctypes.CDLL(None, use_errno=True)
for number in ((29, 194), (30, 196), (68, 186), (240, 180)):
    libc.syscall(number[os.uname().machine != "x86_64"], 0, 64, 0)
    print(os.strerror(ctypes.get_errno()))
"""
    said = await kit.python(code)
    assert "worked" not in said
    assert said.count("Function not implemented") == 4
    assert outside.read_text() == "kept"
    assert outside.stat().st_nlink == 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, int, int]]:
    """Servers of this machine: at a path, at a port, and at a port without connections."""
    path = tmp_path / "s"
    with (
        socket.socket(socket.AF_UNIX) as unix,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        unix.bind(str(path))
        unix.listen()
        udp.bind(("127.0.0.1", 0))
        yield path, tcp.getsockname()[1], udp.getsockname()[1]


@pytest.mark.parametrize("profile", [None, "online"])
async def test_no_server_of_this_machine_can_be_reached(
    kit: Kit, server: tuple[Path, int, int], profile: str | None
) -> None:
    path, tcp, udp = server
    socket.create_connection(("127.0.0.1", tcp)).close()
    code = f"""
import os, socket
TCP = ("127.0.0.1", {tcp})
own = lambda: socket.socket()
def non_blocking():
    s = own(); s.setblocking(False); s.connect(TCP)
def twice():
    s = own()
    s.connect(("127.0.0.1", int(os.environ["http_proxy"].rpartition(":")[2])))
    s.close()
    s = own()
    s.connect(TCP)
tries = {{
    "unix": lambda: socket.socket(socket.AF_UNIX).connect({str(path)!r}),
    "datagram": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", {str(path)!r}),
    "tcp": lambda: own().connect(TCP),
    "non-blocking": non_blocking,
    "after the proxy": twice,
    "fast open": lambda: own().sendto(b"x", socket.MSG_FASTOPEN, TCP),
    "fast open message": lambda: own().sendmsg([b"x"], [], socket.MSG_FASTOPEN, TCP),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp})),
    "mptcp": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(TCP),
    "tcp6": lambda: socket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", {tcp})),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "listen": lambda: own().listen(),
    "bind": lambda: own().bind(("127.0.0.1", 0)),
}}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "worked")
    except (OSError, KeyError) as error:
        print(name, error)
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))
"""
    result = await kit.run("python", {"profile": profile}, code=code)
    assert "worked" not in result.text
    assert "b'x'" in result.text


async def test_the_way_to_the_gate_serves_no_other_program(kit: Kit) -> None:
    """It is a port of the machine, which every user of it can reach."""
    # It connects once itself: before that nothing is accepted at all.
    code = """
import os, socket, time
connection = socket.create_connection(("127.0.0.1", int(os.environ["http_proxy"].rpartition(":")[2])))
open("port.new", "w").write(str(connection.getpeername()[1]))
os.rename("port.new", "port")
while not os.path.exists("go"):
    time.sleep(0.05)
"""
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: kit.run("python", {"profile": "online"}, code=code))
        written = kit.workspace / "port"
        await until("the command runs", written.exists)
        port = int(written.read_text())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.settimeout(60)
            try:
                connection.sendall(b"GET http://site.example/ HTTP/1.0\r\n\r\n")
                assert connection.recv(1) == b""
            except ConnectionResetError:
                pass  # closed before it was read
        (kit.workspace / "go").touch()


# --- processes -----------------------------------------------------------------------------------------


async def test_a_bomb_is_stopped_also_where_nothing_counts_processes(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def blind(child: object, limits: ProcessLimits) -> str:
        await anyio.sleep_forever()
        return ""

    # Neither by a control group nor by looking at it ten times a second.
    kit.toolbox._sandbox._groups = None
    monkeypatch.setattr("everturn.tools.terminal.interpreter.until_breach", blind)
    code = """
import os, time
made = 0
for _ in range(100):
    try:
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
    except OSError as error:
        print(made, error.strerror)
        break
"""
    said = (await kit.run("python", {"profile": "few"}, code=code)).text
    made, _, why = said.splitlines()[0].partition(" ")
    assert 5 < int(made) <= 20
    assert why == "Resource temporarily unavailable"


async def test_if_its_keeper_is_killed_a_command_cannot_go_on(tmp_path: Path, level: str) -> None:
    """Not even what has left its session and lost its parents: it may wait, but it can start nothing."""
    home, workspace = tmp_path / "home", tmp_path / "home" / "w"
    workspace.mkdir(parents=True)
    sandbox = sandbox_at(level, home)
    await sandbox.open()
    beat = workspace / "beat"
    loop = "while :; do date +%N > beat; sleep 0.01; done"
    argv = ("/bin/sh", "-c", f"(setsid sh -c '{loop}' &); sleep 1000")
    child = await sandbox.spawn(argv, SandboxView(workspace))
    keeper = child.process.pid
    await until("it beats", lambda: beat.exists() and beat.read_text())
    below = descendants(keeper)
    assert len(below) >= 3
    os.kill(keeper, signal.SIGKILL)
    seen: list[str] = []

    def is_still() -> bool:
        seen.append(beat.read_text())
        return len(seen) > 50 and len(set(seen[-50:])) == 1

    await until("nothing is started any more", is_still)
    for pid in below:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    await child.end()
    scratch = home / "sandbox" / "scratch"
    assert len(list(scratch.iterdir())) == 2, "its folder is left"
    sweep(str(scratch))
    assert [path.name for path in scratch.iterdir()] == ["lock"]


async def test_a_command_ends_with_the_server_that_started_it(tmp_path: Path, level: str) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        textwrap.dedent(f"""
        import anyio, sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from everturn.tools.sandbox.view import SandboxView
        from tests.sandbox_levels import sandbox_at

        async def main():
            home = Path(sys.argv[1])
            sandbox = sandbox_at({level!r}, home)
            await sandbox.open()
            argv = ("/bin/sh", "-c", "(setsid sleep 1000 > held &); sleep 1000")
            await sandbox.spawn(argv, SandboxView(home / "w"))
            await anyio.sleep_forever()

        anyio.run(main)
        """)
    )
    workspace = tmp_path / "home" / "w"
    workspace.mkdir(parents=True)
    os.mkfifo(workspace / "held")
    reads = os.open(workspace / "held", os.O_RDONLY | os.O_NONBLOCK)

    def is_at_end() -> bool:
        try:
            return os.read(reads, 1) == b""
        except BlockingIOError:
            return False

    import sys

    with subprocess.Popen([sys.executable, str(script), str(tmp_path / "home")]) as server:
        await until("what left its session holds the pipe", lambda: not is_at_end())
        server.kill()
    await until("it is gone", is_at_end)
    os.close(reads)
    scratch = tmp_path / "home" / "sandbox" / "scratch"
    await until("its folder too", lambda: [path.name for path in scratch.iterdir()] == ["lock"])


async def test_temporary_files_are_private_to_a_call_and_deleted_after_it(kit: Kit) -> None:
    said = (
        await kit.run(
            "terminal",
            command="cd $TMPDIR && echo mine > a && mkdir -p d/e && chmod 0 d/e && mktemp && pwd; ls ..",
        )
    ).text
    assert "Permission denied" in said, "the folders of other calls"
    folder = Path(next(line for line in said.splitlines() if line.startswith("/") and "tmp." not in line))
    assert folder.parent.name == "scratch"
    assert not folder.exists()


# --- what the policy makes of it -----------------------------------------------------------------------


async def test_in_a_project_commands_ask_because_startup_files_are_not_guarded(
    kit: Kit, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    workspace = await kit.toolbox.workspace("olga", "ses_01", str(project))
    line = "make all"
    assert (await kit.rule("terminal", command=line)).verdict is Verdict.ALLOW
    assert (await kit.rule("python", code="1")).verdict is Verdict.ALLOW
    asked = await kit.rule("terminal", {"workspace": workspace}, command=line)
    assert asked.verdict is Verdict.ASK
    assert asked.reason == "It could change what other programs run in this project (make)."
    assert (await kit.rule("python", {"workspace": workspace}, code="1")).verdict is Verdict.ASK
    assert (await kit.rule("terminal", {"workspace": workspace}, command="cat a")).verdict is Verdict.ALLOW
    await kit.remember("session", "terminal", {"workspace": workspace}, command=line)
    again = await kit.rule("terminal", {"workspace": workspace}, command=line)
    tainted = await kit.rule("terminal", {"workspace": workspace, "is_tainted": True}, command=line)
    assert (again.verdict, tainted.verdict) == (Verdict.ALLOW, Verdict.ASK)


async def test_no_folder_around_the_data_folder_is_shown(tmp_path: Path, level: str) -> None:
    home = tmp_path / "home"
    (home / "w").mkdir(parents=True)
    sandbox = sandbox_at(level, home)
    await sandbox.open()
    view = SandboxView(home / "w", read=(tmp_path,))
    with pytest.raises(OSError, match="data folder, which Landlock cannot hide") as refused:
        await sandbox.spawn(("/bin/true",), view)
    assert refused.value.errno == errno.EACCES


async def test_a_kernel_without_landlock_has_no_sandbox_and_says_why(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, levels=("landlock",), landlock_version_max=0)
    state = await sandbox.open()
    assert (state.level, state.works, state.gaps) == ("none", False, ())
    assert "no Landlock" in state.detail


async def test_where_bubblewrap_fails_landlock_is_used_and_says_what_it_lacks(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    state = await Sandbox(tmp_path / "home", program=str(fake)).open()
    assert state.level == "landlock"
    assert "No permissions to create new namespace" in state.detail
    assert state.hint == "Allow unprivileged user namespaces."
    assert any("Commands in a project ask" in gap for gap in state.gaps)


async def test_the_gaps_are_those_of_the_kernel(tmp_path: Path) -> None:
    found = {}
    for level in ("landlock", "landlock 1"):
        found[level] = (await sandbox_at(level, tmp_path).open()).gaps
    moved = "Files cannot be moved from one folder to another, only copied."
    assert moved in found["landlock 1"]
    assert moved not in found["landlock"]
