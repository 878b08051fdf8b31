from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.messages import Outcome
from everturn.tools import Profile
from everturn.tools.limits import DiskUsage, ProcessLimits, ResourceUsage
from everturn.tools.sandbox.control_groups import Groups
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView, python_program
from everturn.tools.terminal.process import until_breach
from tests.unit.tools.kit import Kit, open_kit, profiles_of, without_note

pytestmark = pytest.mark.anyio

SMALL = {"profile": "small"}


async def run(home: Path, tool: str, **arguments: str | int) -> tuple[str, Outcome, Kit]:
    profile = Profile(name="small", memory_mib=200, processes=60, file_mib=5)
    async with open_kit(home, profiles=profiles_of(profile)) as kit:
        result = await kit.run(tool, SMALL, **arguments)
        after = await kit.run("terminal", SMALL, command="echo alive")
        assert after.text == "alive"
        return without_note(result.text), result.outcome, kit


async def test_a_fork_bomb_is_ended_with_everything_it_started_and_says_why(tmp_path: Path) -> None:
    # It doubles as a bomb does, but stops at a thousand: a test that fails must not take the machine with it.
    sleep = f"sleep 30.{os.getpid()}"
    command = f"b() {{ [ $1 = 0 ] || {{ {sleep} & b $(($1 - 1)) & b $(($1 - 1)); }}; }}; b 9; {sleep}"
    with anyio.fail_after(60):
        text, outcome, _ = await run(tmp_path, "terminal", command=command)
    assert outcome is Outcome.ERROR
    assert "processes and threads at once" in text
    assert text.splitlines()[-1].endswith("the limit is 60]")
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and f"30.{os.getpid()}" in _command(pid)]
    assert left == []


async def test_the_kernel_itself_holds_the_number_of_processes(tmp_path: Path) -> None:
    if os.geteuid() == 0 and Groups.open() is None:
        pytest.skip("root needs control groups for that, and may not make any here")
    code = (
        "import os, time\n"
        "for made in range(200):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(50)\n"
        "    except BlockingIOError:\n"
        "        break\n"
        "print(made, flush=True)\n"
    )
    sandbox = Sandbox(tmp_path / "home")
    await sandbox.open()
    program, read = python_program()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    view = SandboxView(workspace, read=read, limits=ProcessLimits(processes=20))
    child = await sandbox.spawn([program, "-c", code], view)  # nothing samples this one
    try:
        made = int(await child.stdout.receive())
    finally:
        await child.end()
    assert 10 <= made < 20


def test_groups_that_a_killed_server_left_are_removed() -> None:
    groups = Groups.open()
    if groups is None:
        pytest.skip("control groups may not be made here")
    mine = groups.make(1, 64 * 1024**2)
    try:
        for _, path in mine.folders:
            left = path.with_name("everturn-999999999-1")  # no process has this number
            left.mkdir()
            Groups.open()
            assert (left.exists(), path.exists()) == (False, True)
    finally:
        mine.remove()


async def test_one_process_that_takes_too_much_memory_is_told_the_limit(tmp_path: Path) -> None:
    text, outcome, _ = await run(tmp_path, "python", code="held = bytearray(600 * 1024 * 1024)")
    assert outcome is Outcome.ERROR
    assert text.endswith("MemoryError\n[exit 1; the limit of memory here is 200 MiB]")


async def test_processes_that_take_too_much_memory_together_are_ended(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        held = bytearray(b'x') * (90 * 1024 * 1024)\n"
        "        time.sleep(50)\n"
        "time.sleep(50)\n"
    )
    text, outcome, _ = await run(tmp_path, "python", code=code)
    assert outcome is Outcome.ERROR
    assert "more than 200 MiB of memory" in text


async def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "held = bytearray(b'x') * (120 * 1024 * 1024)\n"
        "ends = [os.fork() for _ in range(3)]\n"
        "if 0 in ends:\n"
        "    import time; time.sleep(1); os._exit(0)\n"
        "for _ in ends: os.wait()\n"
        "print('done')\n"
    )
    text, outcome, _ = await run(tmp_path, "python", code=code)
    assert (text, outcome) == ("done", Outcome.OK)


MEMORY_FILES = {
    "memfd": "import os; out = os.memfd_create('x')\nwhile True: os.write(out, bytes(1 << 20))",
    "tmp": "out = open('/tmp/x', 'wb', 0)\nwhile True: out.write(bytes(1 << 20))",
    "forgotten mapping": (
        "import mmap\n"
        "for _ in range(40):\n"
        "    held = mmap.mmap(-1, 10 << 20); held.write(bytes(10 << 20)); held.madvise(mmap.MADV_DONTNEED)\n"
        "    globals().setdefault('all', []).append(held)\n"
    ),
}


@pytest.mark.parametrize("kind", MEMORY_FILES)
async def test_files_in_memory_count_as_memory(tmp_path: Path, kind: str) -> None:
    groups = Groups.open()
    if groups is None or not groups.holds("memory"):
        pytest.skip("no control group may be made here")
    text, outcome, _ = await run(tmp_path, "python", code=f"{MEMORY_FILES[kind]}\nprint('kept it all')")
    assert outcome is Outcome.ERROR
    assert "kept it all" not in text
    assert "200 MiB" in text or "larger than 5 MiB" in text


async def test_without_a_group_files_in_tmp_count_and_memfd_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Groups, "open", lambda: None)
    code = "for n in range(100): open(f'/tmp/{n}', 'wb').write(bytes(4 << 20))\nimport time; time.sleep(50)"
    text, outcome, kit = await run(tmp_path, "python", code=code)
    assert outcome is Outcome.ERROR
    assert "more than 200 MiB of memory" in text
    assert "memory" in kit.toolbox.sandbox_state().detail
    text, _, _ = await run(tmp_path, "python", code="import os; os.memfd_create('x')")
    assert "Function not implemented" in text
    code = "import ctypes; print('made', ctypes.CDLL(None).shmget(0, 100 << 20, 0o1600))"
    text, _, _ = await run(tmp_path, "python", code=code)
    assert text == "made -1"


async def test_a_file_does_not_grow_beyond_its_limit(tmp_path: Path) -> None:
    text, outcome, kit = await run(tmp_path, "terminal", command="head -c 20000000 /dev/zero > big")
    assert outcome is Outcome.ERROR
    assert "no file may become larger than 5 MiB here" in text
    assert (kit.workspace / "big").stat().st_size == 5 * 1024 * 1024


async def test_shared_memory_is_bounded_and_devices_are_no_place_for_files(kit: Kit) -> None:
    command = "head -c 300M /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x; : > /dev/y"
    result = await kit.run("terminal", command=command)
    assert str(256 * 1024**2) in result.text
    assert "No space left" in result.text
    assert "/dev/y: Read-only file system" in result.text


def test_the_default_leaves_half_of_the_machine() -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert ProcessLimits().memory == min(4 * 1024**3, machine // 2)
    assert ProcessLimits(memory_mib=7).memory == 7 * 1024**2


def test_usage_below_the_limits_is_no_breach() -> None:
    limits = ProcessLimits(memory_mib=10, processes=5)
    assert limits.breach(ResourceUsage(4, 10 * 1024**2)) == ""
    assert "5" in limits.breach(ResourceUsage(5, 0))
    assert "10 MiB of memory" in limits.breach(ResourceUsage(1, 11 * 1024**2))


def test_a_command_is_ended_only_for_a_disk_that_it_filled_itself() -> None:
    mib = 1024**2
    limits = ProcessLimits(disk_free_mib=1000)
    full = DiskUsage(free=500 * mib, taken=300 * mib, size=10**6 * mib)
    assert "took 300 MiB of the disk" in limits.breach(ResourceUsage(disk=full))
    innocent = DiskUsage(free=500 * mib, taken=10 * mib, size=10**6 * mib)
    assert limits.breach(ResourceUsage(disk=innocent)) == ""
    small = DiskUsage(free=500 * mib, taken=300 * mib, size=2000 * mib)  # of which a twentieth is enough
    assert limits.breach(ResourceUsage(disk=small)) == ""


def test_a_command_is_ended_for_a_disk_on_which_it_made_too_many_files() -> None:
    limits = ProcessLimits()

    def breach(free: int, taken: int, size: int) -> str:
        return limits.breach(ResourceUsage(disk=DiskUsage(10**12, 0, 10**13, free, taken, size)))

    assert "made 50000 files" in breach(99_999, 50_000, 10**8)
    assert breach(100_000, 50_000, 10**8) == ""
    assert breach(99_999, 1000, 10**8) == ""  # others made them
    assert breach(5000, 50_000, 100_000) == ""  # a twentieth of a small disk is enough
    assert breach(0, 0, 0) == ""  # a file system without such a number


def test_the_less_of_the_disk_is_left_the_sooner_it_is_looked_at_again() -> None:
    mib = 1024**2
    limits = ProcessLimits(disk_free_mib=1000)

    def pause_s(left_mib: int) -> float:
        return limits.pause_s(DiskUsage(free=(1000 + left_mib) * mib, taken=0, size=10**6 * mib))

    assert limits.pause_s(None) == pause_s(100_000) == 0.1
    assert pause_s(400) < 0.05
    assert 0 < pause_s(0) == pause_s(-500) < 0.01


class Filling:
    """A command that fills its disk between two looks: it takes 100 MiB whenever the disk is looked at."""

    is_sandboxed = True
    guard = None

    def __init__(self) -> None:
        self._taken = 0

    def disk(self) -> DiskUsage:
        self._taken += 100 * 1024**2
        return DiskUsage(free=1100 * 1024**2 - self._taken, taken=self._taken, size=10**12)

    async def measure(self, limits: ProcessLimits) -> ResourceUsage:
        return ResourceUsage(disk=self.disk())


async def test_a_command_that_fills_the_disk_is_ended_before_the_next_look_at_all_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    filling: Any = Filling()
    assert "of the disk" in await until_breach(filling, ProcessLimits(disk_free_mib=500))
    assert sum(waited) < 0.09


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
