"""Attempts to get out of the sandbox. Each must fail, and each first shows that the bait is really there.

They run at each level: bubblewrap, Landlock as this kernel has it, and Landlock as its first version was.
"""

from __future__ import annotations

import errno
import os
import platform
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from everturn.tools import Sandbox
from everturn.tools.sandbox.idmap import IdMap
from tests.sandbox_levels import sandbox_at
from tests.unit.tools.kit import Kit, open_kit

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["full", "landlock", "landlock 1"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def kit(anyio_backend: str, tmp_path: Path, level: str) -> AsyncIterator[Kit]:
    home = tmp_path / "home"
    async with open_kit(home, sandbox=sandbox_at(level, home)) as opened:
        state = opened.toolbox.sandbox_state()
        assert state.level == level.split()[0], f"these tests need {level}: {state.detail}"
        yield opened


async def _shell(kit: Kit, command: str, profile: str | None = None) -> str:
    result = await kit.run("terminal", {"profile": profile}, command=command)
    return result.text


async def test_a_remount_does_not_make_the_system_writable(kit: Kit, level: str) -> None:
    targets = ("/usr/everturn-was-here", "/etc/everturn-was-here")
    said = await _shell(
        kit,
        "id -u; mount -o remount,rw /usr; mount -o remount,rw,bind /usr; mount -o remount,rw /; "
        f"touch {targets[0]}; touch {targets[1]}; umount /proc; umount -l /tmp; echo done",
    )
    assert said.endswith("done")
    for target in targets:
        assert not await anyio.Path(target).exists()
    assert ("Read-only file system" if level == "full" else "Permission denied") in said


async def test_no_capability_and_no_nested_namespace(kit: Kit) -> None:
    said = await _shell(
        kit, "grep Cap /proc/self/status; unshare -Urm true && echo nested; sudo -n id; echo end"
    )
    for line in said.splitlines():
        if line.startswith("Cap"):
            assert int(line.split()[1], 16) == 0, line
    assert "nested" not in said.replace("nested too", "")


async def test_the_database_and_the_data_folder_are_not_there(kit: Kit, tmp_path: Path, level: str) -> None:
    home = tmp_path / "home"
    secrets = home / "secrets.toml"
    secrets.write_text("key = 'sk-planted-secret'")
    assert (home / "everturn.db").exists()
    said = await _shell(
        kit, f"ls -la {home}; cat {home}/everturn.db; cat {secrets}; ls {home}/sandbox; echo end"
    )
    assert "sk-planted-secret" not in said
    assert "SQLite" not in said
    refused = "No such file" if level == "full" else "Permission denied"
    assert f"everturn.db: {refused}" in said


async def test_another_workspace_is_neither_readable_nor_writable(kit: Kit) -> None:
    other = await kit.toolbox.workspace("olga", "ses_02", None)
    (other / "diary.txt").write_text("private")
    said = await _shell(
        kit, f"cat ../ses_02/diary.txt; cat {other}/diary.txt; echo x > {other}/new; ls ..; mkdir {other}"
    )
    assert "private" not in said
    assert [path.name for path in other.iterdir()] == ["diary.txt"]


async def test_home_run_and_host_tmp_are_absent(kit: Kit, tmp_path: Path, level: str) -> None:
    bait = tmp_path / "bait.txt"
    bait.write_text("bait")
    said = await _shell(
        kit, f"ls -A /root /home /run /var /srv /mnt; cat {bait}; cat /etc/shadow; ls -A /tmp; echo end"
    )
    assert "bait\n" not in said
    assert "root:" not in said
    words = "cannot access" if level == "full" else "cannot open directory"
    assert f"{words} '/root'" in said
    assert f"{words} '/run'" in said


@pytest.mark.parametrize(
    "where",
    [
        "env",
        "cat /proc/self/environ",
        "cat /proc/1/environ",
        "cat /proc/*/environ",
        "cat /proc/*/cmdline",
        "cat /proc/PID/environ",
        'python3 -c "import os; print(os.environ)"',
    ],
)
async def test_a_key_is_not_found_in_any_environment(
    kit: Kit, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted-9000")
    # What is planted is really inherited by a child that is started the ordinary way.
    assert b"sk-ant-planted-9000" in (await anyio.run_process(["env"])).stdout
    for profile in (None, "online"):
        said = await _shell(kit, where.replace("PID", str(os.getpid())), profile)
        assert "sk-ant-planted-9000" not in said


@pytest.fixture
def listener() -> Iterator[tuple[int, list[str]]]:
    """A server on the host's loopback that notes who came."""
    visits: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            visits.append("visit")
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    port = server.getsockname()[1]
    yield port, visits
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


async def test_the_hosts_loopback_cannot_be_reached(kit: Kit, listener: tuple[int, list[str]]) -> None:
    port, visits = listener
    socket.create_connection(("127.0.0.1", port)).close()
    said = await _shell(kit, f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached; echo end")
    assert "reached" not in said
    said = (
        await kit.run("python", code=f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)")
    ).text
    refusals = ("Connection refused", "unreachable", "Address family not supported by protocol")
    assert any(words in said for words in refusals)
    assert visits == ["visit"]


async def test_an_abstract_socket_of_the_host_cannot_be_reached(kit: Kit) -> None:
    name = f"\0everturn-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r}); print('reached')"
        assert "reached\n" not in (await kit.python(code)) + "\n"


async def test_nothing_outlives_the_call(kit: Kit) -> None:
    beat = kit.workspace / "beat"
    command = (
        "(setsid nohup sh -c 'while :; do date +%N > beat; sleep 0.01; done' >/dev/null 2>&1 &) ; "
        "while ! test -s beat; do sleep 0.01; done; echo started"
    )
    assert "started" in await _shell(kit, command)
    assert beat.exists()
    beat.unlink()
    # If the child lived, it would write again well within the time this takes.
    await _shell(kit, "sleep 0.3")
    assert not beat.exists()


async def test_the_terminal_cannot_be_typed_into(kit: Kit, level: str) -> None:
    """TIOCSTI into a shared terminal is the classic way out; there is no terminal."""
    said = await _shell(kit, "ps -o tty= -p $$; test -t 0 && echo tty; : < /dev/tty; echo end")
    assert "tty\n" not in said.replace("/dev/tty", "")
    assert ("No such device or address" if level == "full" else "Permission denied") in said


async def test_a_git_hook_cannot_be_planted_in_a_project(kit: Kit, tmp_path: Path, level: str) -> None:
    project = tmp_path / "project"
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / ".git" / "config").write_text("[core]\n")
    workspace = await kit.toolbox.workspace("olga", "ses_01", str(project))
    command = (
        "echo 'touch /owned' > .git/hooks/pre-commit; echo '[core] fsmonitor=x' >> .git/config; "
        "rm -rf .git/hooks; mv .git .gone; mkdir -p .git/hooks; echo evil > .git/hooks/pre-push; "
        "echo fine > .git/index; echo fine > code.py; echo end"
    )
    said = (await kit.run("terminal", {"workspace": workspace}, command=command)).text
    config = project / ".git" / "config"
    if level != "full":
        # Nothing is mounted there. What it changed is found within a tenth of a second, or when it has ended:
        # by then ``.git`` is where it was, moved away, or a new one.
        assert "other programs" in said
        assert not config.exists() or config.read_text() == "[core]\n"
        assert not (project / ".git" / "hooks").exists()
        return
    assert config.read_text() == "[core]\n"
    assert "end" in said.splitlines()
    assert list((project / ".git" / "hooks").iterdir()) == []
    assert (project / ".git" / "index").read_text() == (project / "code.py").read_text() == "fine\n"


async def test_git_in_a_sessions_own_workspace_can_be_configured(kit: Kit) -> None:
    await _shell(kit, "git init -q .")
    said = await _shell(
        kit, "git config user.name x && git config user.name && git status --short && echo ok"
    )
    assert said == "x\nok"


async def test_the_kernels_settings_cannot_be_written(kit: Kit, level: str) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_bytes()
    said = await _shell(
        kit,
        "for file in $(find /proc/sys /proc/irq /proc/bus -type f -writable 2>/dev/null); do "
        "( : >> $file ) 2>/dev/null && echo $file; done | wc -l; "
        "echo '|/tmp/evil' > /proc/sys/kernel/core_pattern; echo 9 > /proc/sys/kernel/panic; "
        "echo 0 > /proc/sys/vm/drop_caches; ( : >> /proc/sysrq-trigger ) && echo writable; echo end",
    )
    assert said.splitlines()[0] == "0"
    assert said.count("Read-only file system" if level == "full" else "Permission denied") >= 3
    assert "writable" not in said
    assert Path("/proc/sys/kernel/core_pattern").read_bytes() == before


@pytest.mark.parametrize("level", ["full"], indirect=True)
async def test_a_server_of_root_runs_commands_as_another_user_who_owns_the_workspace(kit: Kit) -> None:
    if os.geteuid() != 0:
        pytest.skip("only for root")
    (kit.workspace / "ours.txt").write_text("by the server\n")
    (kit.workspace / "ours.txt").chmod(0o600)
    said = await _shell(
        kit,
        "cat ours.txt; echo by a command >> ours.txt; mkdir -m 700 d; echo new > d/theirs.txt; "
        "chmod 600 d/theirs.txt; stat -c %u /usr ours.txt",
    )
    assert said == "by the server\n65534\n1000"
    made = kit.workspace / "d" / "theirs.txt"
    assert (made.stat().st_uid, made.parent.stat().st_uid) == (0, 0)
    assert (kit.workspace / "ours.txt").read_text() == "by the server\nby a command\n"
    assert (kit.workspace / "ours.txt").stat().st_uid == 0


async def test_a_project_whose_commands_run_as_root_is_named_wherever_the_sandbox_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on NFS: the mount for another user than root is refused for this one folder."""
    if os.geteuid() != 0:
        pytest.skip("only for root")
    project = tmp_path / "nfs"
    project.mkdir()
    mount = IdMap.mount

    def refused(self: IdMap, path: Path) -> int:
        if path == project:
            raise OSError(errno.EINVAL, "Invalid argument")
        return mount(self, path)

    monkeypatch.setattr(IdMap, "mount", refused)
    words = f"Commands that use {project} run as root"
    async with open_kit(tmp_path / "home") as kit:
        assert kit.toolbox.sandbox_state().level == "full"
        await kit.toolbox.workspace("olga", "ses_01", str(project))
        state = kit.toolbox.sandbox_state()
        assert (state.level, words in state.detail) == ("reduced", True), "before the first command"
        assert f"what uses {project} runs as root" in caplog.text
        said = (await kit.run("terminal", {"workspace": project}, command="echo ran; stat -c %u /usr")).text
        assert said == "ran\n1000", "root's files are its own"
    # The start of the server and the doctor both open the sandbox and show what it says.
    again = await Sandbox(tmp_path / "home").open()
    assert (again.level, words in again.detail) == ("reduced", True)
    monkeypatch.undo()
    assert (await Sandbox(tmp_path / "home").open()).level == "full", "it is tried again"


async def test_no_set_id_file_stays_on_the_host(kit: Kit) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
open("x", "w").close()
tries = {
    "chmod": lambda: os.chmod("x", 0o4755),
    "fchmod": lambda: os.fchmod(os.open("x", os.O_RDONLY), 0o2755),
    "fchmodat": lambda: os.chmod("x", 0o6755, dir_fd=os.open(".", os.O_RDONLY)),
    "open": lambda: os.open("y", os.O_CREAT | os.O_WRONLY, 0o4755),
    "tmpfile": lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755),
    "mknod": lambda: os.mknod("z", 0o104755),
}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "worked")
    except OSError as error:
        print(name, error.strerror)
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
print("openat2", libc.syscall(437, -100, b"w", how, 24), os.strerror(ctypes.get_errno()))
print("fchmodat2", libc.syscall(452, -100, b"x", 0o4755, 0), os.strerror(ctypes.get_errno()))
"""
    said = await kit.python(code)
    assert "worked" not in said
    assert said.count("Operation not permitted") == 7
    assert "openat2 -1 Function not implemented" in said
    assert [path.name for path in kit.workspace.iterdir() if path.stat().st_mode & 0o6000] == []


_CALLS = {  # the numbers of x86_64 and of aarch64
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "mount": (165, 40),
    "open_tree": (428, 428),
    "setns": (308, 268),
    "clone3": (435, 435),
    "unknown": (500, 500),
}


async def test_the_filter_refuses_what_no_command_needs(kit: Kit) -> None:
    machine = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
    if machine is None:
        pytest.skip("there is no filter for this kind of machine")
    numbers = {name: both[machine] for name, both in _CALLS.items()}
    code = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for name, number in {numbers!r}.items():
    libc.syscall(number, 0, 0, 0, 0, 0)
    print(name, errno.errorcode[ctypes.get_errno()])
libc.unshare(0x10000000); print("unshare", errno.errorcode[ctypes.get_errno()])
libc.ioctl(0, 0x5412, b"x"); print("TIOCSTI", errno.errorcode[ctypes.get_errno()])
"""
    said = dict(line.split() for line in (await kit.python(code)).splitlines())
    unknown = {"io_uring_setup", "clone3", "unknown"}
    assert said == {name: "ENOSYS" if name in unknown else "EPERM" for name in said}
    assert said.keys() == {*numbers, "unshare", "TIOCSTI"}


async def test_no_call_takes_a_piece_of_the_disk_at_once(kit: Kit) -> None:
    """The disk is looked at in intervals, in which one such call would fill it."""
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("there is no filter for this kind of machine")
    code = """
import ctypes, fcntl, os, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
size = 64 * 1024**2
with open("big", "wb") as file:
    for mode in (0, 1, 0x10):
        print(mode, libc.fallocate(file.fileno(), mode, 0, size), os.strerror(ctypes.get_errno()))
    for command in (0x40305828, 0x4030582A, 0x40305839):
        try:
            fcntl.ioctl(file, command, struct.pack("hhqqiI4i", 0, 0, 0, size, 0, 0, 0, 0, 0, 0))
        except OSError as error:
            print(hex(command), -1, error.strerror)
    print(os.fstat(file.fileno()).st_blocks, "blocks")
    os.posix_fallocate(file.fileno(), 0, 1024**2)  # falls back to writing, which the disk's limit covers
    print(os.fstat(file.fileno()).st_size)
"""
    said = (await kit.python(code)).splitlines()
    assert [line.split(maxsplit=1)[1] for line in said[:6]] == ["-1 Operation not supported"] * 6
    assert said[6:] == ["0 blocks", str(1024**2)]


async def test_only_the_sandboxs_own_network_can_be_talked_to(kit: Kit, level: str) -> None:
    """AF_VSOCK knows nothing of network namespaces: it leads to the machine's host."""
    code = """
import socket
for family in ("AF_VSOCK", "AF_PACKET", "AF_ALG", "AF_CAN"):
    try:
        socket.socket(getattr(socket, family), socket.SOCK_STREAM)
        print(family, "worked")
    except OSError as error:
        print(family, error.strerror)
socket.socket(socket.AF_INET); socket.socket(socket.AF_INET6); socket.socketpair(); print("ordinary ones work")
"""
    said = await kit.python(code)
    if level == "full":
        assert said.count("Address family not supported by protocol") == 4
        assert said.endswith("ordinary ones work")
    else:
        assert "worked" not in said
        assert "OSError: [Errno 97]" in said, "the first ordinary one"


async def test_the_servers_keys_cannot_be_read(kit: Kit, level: str) -> None:
    shown = "/proc/keys /proc/key-users" if level == "full" else ""  # no content, but the names of keys
    said = await _shell(kit, f"cat {shown} /proc/kcore; keyctl show 2>&1; echo end")
    assert "keyring" not in said.replace("Unable to dump key", "")
