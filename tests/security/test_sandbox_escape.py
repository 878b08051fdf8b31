"""Attempts to get out of the sandbox. Each must fail, and each first shows that the bait is really there."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.unit.tools.kit import Kit

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def needs_a_sandbox(kit: Kit) -> None:
    state = kit.toolbox.sandbox_state()
    assert state.level == "full", f"these tests need bubblewrap: {state.detail}"


async def _shell(kit: Kit, command: str, profile: str | None = None) -> str:
    result = await kit.run("terminal", {"profile": profile}, command=command)
    return result.text


async def test_a_remount_does_not_make_the_system_writable(kit: Kit) -> None:
    targets = ("/usr/everturn-was-here", "/etc/everturn-was-here")
    said = await _shell(
        kit,
        "id -u; mount -o remount,rw /usr; mount -o remount,rw,bind /usr; mount -o remount,rw /; "
        f"touch {targets[0]}; touch {targets[1]}; umount /proc; umount -l /tmp; echo done",
    )
    assert said.endswith("done")
    for target in targets:
        assert not await anyio.Path(target).exists()
    assert "Read-only file system" in said


async def test_no_capability_and_no_nested_namespace(kit: Kit) -> None:
    said = await _shell(
        kit, "grep Cap /proc/self/status; unshare -Urm true && echo nested; sudo -n id; echo end"
    )
    for line in said.splitlines():
        if line.startswith("Cap"):
            assert int(line.split()[1], 16) == 0, line
    assert "nested" not in said.replace("nested too", "")


async def test_the_database_and_the_data_folder_are_not_there(kit: Kit, tmp_path: Path) -> None:
    home = tmp_path / "home"
    secrets = home / "secrets.toml"
    secrets.write_text("key = 'sk-planted-secret'")
    assert (home / "everturn.db").exists()
    said = await _shell(
        kit, f"ls -la {home}; cat {home}/everturn.db; cat {secrets}; ls {home}/sandbox; echo end"
    )
    assert "sk-planted-secret" not in said
    assert "SQLite" not in said
    assert "everturn.db: No such file" in said


async def test_another_workspace_is_neither_readable_nor_writable(kit: Kit) -> None:
    other = await kit.toolbox.workspace("olga", "ses_02", None)
    (other / "diary.txt").write_text("private")
    said = await _shell(
        kit, f"cat ../ses_02/diary.txt; cat {other}/diary.txt; echo x > {other}/new; ls ..; mkdir {other}"
    )
    assert "private" not in said
    assert [path.name for path in other.iterdir()] == ["diary.txt"]


async def test_home_run_and_host_tmp_are_absent(kit: Kit, tmp_path: Path) -> None:
    bait = tmp_path / "bait.txt"
    bait.write_text("bait")
    said = await _shell(
        kit, f"ls -A /root /home /run /var /srv /mnt; cat {bait}; cat /etc/shadow; ls -A /tmp; echo end"
    )
    assert "bait\n" not in said
    assert "root:" not in said
    assert "cannot access '/root'" in said
    assert "cannot access '/run'" in said


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
    assert "Connection refused" in said or "unreachable" in said
    assert visits == ["visit"]


async def test_an_abstract_socket_of_the_host_cannot_be_reached(kit: Kit) -> None:
    name = f"\0everturn-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r}); print('reached')"
        assert "reached\n" not in (await kit.run("python", code=code)).text + "\n"


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


async def test_the_terminal_cannot_be_typed_into(kit: Kit) -> None:
    """TIOCSTI into a shared terminal is the classic way out; there is no terminal."""
    said = await _shell(kit, "ps -o tty= -p $$; test -t 0 && echo tty; : < /dev/tty; echo end")
    assert "tty\n" not in said.replace("/dev/tty", "")
    assert "No such device or address" in said


async def test_a_git_hook_cannot_be_planted_in_a_project(kit: Kit, tmp_path: Path) -> None:
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
    assert said.endswith("end")
    assert list((project / ".git" / "hooks").iterdir()) == []
    assert (project / ".git" / "config").read_text() == "[core]\n"
    assert (project / ".git" / "index").read_text() == (project / "code.py").read_text() == "fine\n"


async def test_git_in_a_sessions_own_workspace_can_be_configured(kit: Kit) -> None:
    await _shell(kit, "git init -q .")
    said = await _shell(
        kit, "git config user.name x && git config user.name && git status --short && echo ok"
    )
    assert said == "x\nok"
