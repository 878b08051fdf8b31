"""The shim: one job from its start to its end, without a server."""

from __future__ import annotations

import fcntl
import marshal
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from everturn.domain.errors import EverturnError
from everturn.domain.job_states import JobState
from everturn.jobs import launcher, shim
from everturn.jobs.folder import JobEnd, JobFolder
from everturn.jobs.launcher import JobCommand, launch
from everturn.jobs.processes import end_command
from everturn.jobs.shim import END, LOCK, SPEC, Output, Shim
from everturn.tools import Sandbox
from everturn.tools.limits import ProcessLimits
from everturn.tools.sandbox.view import SandboxView
from tests.sandbox_levels import sandbox_at
from tests.waiting import until

pytestmark = pytest.mark.anyio

_BYTES_MAX = 4096
_LINES_APART = 8  # between two kills; 1 kills at every line


class Bench:
    """Starts jobs in one workspace."""

    def __init__(self, home: Path, sandbox: Sandbox) -> None:
        self._home = home
        self._sandbox = sandbox
        self.workspace = home / "workspaces" / "one"
        self.workspace.mkdir(parents=True)
        self.last = home  # the folder of the last job

    def replace_bubblewrap(self, program: str) -> None:
        self._sandbox._bubblewrap.program = program

    async def start(
        self,
        command: str,
        *,
        limits: ProcessLimits | None = None,
        workspace: Path | None = None,
        is_sandboxed: bool = True,
    ) -> JobFolder:
        # The name marks the processes: another test, in another process, must not find them.
        name = f"job-{uuid4().hex}"
        folder = JobFolder(self._home / "jobs" / name, _BYTES_MAX)
        view = SandboxView(workspace or self.workspace, limits=limits or ProcessLimits())
        self.last = folder.path
        lock = folder.make()
        try:
            job = JobCommand(("/bin/sh", "-c", command), view, name, _BYTES_MAX, is_sandboxed)
            await launch(self._sandbox, folder, lock, job)
        finally:
            os.close(lock)
        return folder


@pytest.fixture(params=["full", "landlock", "landlock 1"])
async def bench(request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path) -> Bench:
    home = tmp_path / "home"
    sandbox = sandbox_at(request.param, home)
    await sandbox.open()
    return Bench(home, sandbox)


async def _end(folder: JobFolder) -> JobEnd:
    await until("the shim is gone", lambda: not folder.is_held())
    end = folder.end()
    assert end is not None, (folder.path / "shim.log").read_text()
    return end


def _shim_of(folder: JobFolder) -> int:
    """The process id of the shim."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(folder.path) in words:
                return int(entry.name)
    raise AssertionError("no shim")


def _is_at_end(pipe: int) -> bool:
    """True if no process has the pipe open for writing."""
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


def _is_released(folder: JobFolder) -> bool:
    return not folder.is_held()


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def test_output_and_exit_code_are_in_files_when_the_lock_is_free(bench: Bench) -> None:
    folder = await bench.start("echo one; cat go; exit 3")
    end = await _end(folder)
    assert (end.state, end.exit_code, end.detail) == (JobState.ENDED, 3, "")
    found = folder.read(0, 100)
    assert found.data.startswith(b"one\n")
    assert found.total == end.output_bytes == found.end


async def test_a_stop_ends_every_process_of_the_sandbox(bench: Bench) -> None:
    held = bench.workspace / "held"
    os.mkfifo(held)
    reads = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    folder = await bench.start("(setsid sleep 1000 > held &) ; sleep 1000")
    await until("the process that left its group holds the pipe", lambda: not _is_at_end(reads))
    assert folder.is_held()
    folder.ask_to_stop()
    assert (await _end(folder)).state is JobState.STOPPED
    assert _is_at_end(reads), "it is gone when the stop is reported"
    os.close(reads)


async def test_without_a_sandbox_a_stop_finds_a_process_that_left_its_group(bench: Bench) -> None:
    folder = await bench.start("setsid sh -c 'echo $$ > pid; exec sleep 1000' & wait", is_sandboxed=False)
    written = bench.workspace / "pid"
    await until("the other process runs", lambda: written.exists() and written.read_text().strip())
    folder.ask_to_stop()
    assert (await _end(folder)).state is JobState.STOPPED
    assert not Path("/proc", written.read_text().strip(), "exe").exists()


async def test_a_command_that_halts_its_shim_can_be_stopped(bench: Bench) -> None:
    folder = await bench.start("kill -STOP $PPID; touch halted; sleep 1000", is_sandboxed=False)
    await until("the shim is halted", (bench.workspace / "halted").exists)
    folder.ask_to_stop()
    assert (await _end(folder)).state is JobState.STOPPED


async def test_what_runs_on_in_the_background_ends_with_the_command(bench: Bench) -> None:
    folder = await bench.start("sleep 1000 & exit 0")
    assert (await _end(folder)).exit_code == 0


# Becomes the shim, and is killed before it runs its line number N. ``_become`` is in the command's process.
_DYING = """
import os, runpy, sys

left = {line}

def trace(frame, event, argument):
    global left
    if frame.f_code.co_filename != {shim!r} or frame.f_code.co_name == "_become":
        return None
    left -= event == "line"
    if left == 0:
        os.kill(os.getpid(), 9)
    return trace

sys.settrace(trace)
runpy.run_path({shim!r}, run_name="__main__")
"""


@pytest.mark.parametrize("is_sandboxed", [True, False])
async def test_a_shim_killed_at_any_line_of_its_start_leaves_nothing_running(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sandboxed: bool
) -> None:
    dying = tmp_path / "dying.py"
    real_shim, real_run = shim.__file__, launcher._run_shim
    answers = [b""]
    pipe = held = -1

    def run(
        path: Path, scope: Sequence[str], environ: dict[str, str], passed: Sequence[int]
    ) -> tuple[bytes, str]:
        answer, refusal = real_run(path, scope, environ, (*passed, held))
        answers.append(answer)
        return answer, refusal

    monkeypatch.setattr(shim, "__file__", str(dying))
    monkeypatch.setattr(launcher, "_run_shim", run)
    line = 0
    while answers[-1] != b"started\n":
        line += _LINES_APART
        dying.write_text(_DYING.format(line=line, shim=real_shim))
        pipe, held = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)  # every process of the job inherits ``held``
        with suppress(EverturnError):  # a shim that was killed before it answered
            await bench.start("sleep 1000", is_sandboxed=is_sandboxed)
        os.close(held)
        folder = JobFolder(bench.last, _BYTES_MAX)
        await until("the shim is gone", partial(_is_released, folder))
        end_command(folder.path, folder.path.name)
        await until(f"nothing runs after a kill at line {line}", partial(_is_at_end, pipe))
        os.close(pipe)
    assert line > 50, "it was killed at many lines"


async def test_a_killed_shim_takes_its_command_along_and_leaves_no_end(bench: Bench) -> None:
    folder = await bench.start("while :; do echo $(date +%s%N) > beat; sleep 0.02; done")
    beat = bench.workspace / "beat"
    await until("the command runs", lambda: beat.exists() and beat.read_text())
    os.kill(_shim_of(folder), signal.SIGKILL)
    await until("the lock is free", lambda: not folder.is_held())
    assert folder.end() is None
    seen: list[str] = []

    def is_still() -> bool:
        seen.append(beat.read_text())
        return len(seen) > 100 and len(set(seen[-100:])) == 1

    await until("the command is dead", is_still)


def test_an_end_that_cannot_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / f"{END}.new"
    in_the_way.mkdir()  # as a full disk is
    monkeypatch.setattr("everturn.jobs.shim.time.sleep", lambda seconds: in_the_way.rmdir())
    (tmp_path / SPEC).write_bytes(marshal.dumps({"output_bytes_max": _BYTES_MAX}))
    Shim(str(tmp_path)).finish({"state": "ended", "exit_code": 5, "detail": "", "notes": []})
    end = JobFolder(tmp_path, _BYTES_MAX).end()
    assert end is not None
    assert end.exit_code == 5


async def test_a_job_whose_folder_was_deleted_is_stopped(bench: Bench) -> None:
    folder = await bench.start("sleep 1000")
    with open(folder.path / LOCK, "rb") as lock:
        shutil.rmtree(folder.path)
        await until("nothing runs that cannot be found", lambda: _is_free(lock.fileno()))


async def test_a_job_that_writes_more_than_is_kept_keeps_its_first_and_its_last_output(bench: Bench) -> None:
    folder = await bench.start("echo first; head -c 100000 /dev/zero | tr '\\0' x; echo last")
    end = await _end(folder)
    assert end.output_bytes == len("first\n") + 100_000 + len("last\n")
    assert folder.read(0, 6).data == b"first\n"
    assert sum(file.stat().st_size for file in folder.path.glob("output.*")) <= _BYTES_MAX
    tail = folder.read(end.output_bytes - 5, 100)
    assert (tail.data, tail.total) == (b"last\n", end.output_bytes)
    middle = folder.read(50_000, 100)
    assert middle.start > 50_000, "what was not kept is passed over"


async def test_a_limit_is_in_force_without_a_server(bench: Bench) -> None:
    folder = await bench.start(
        "for i in $(seq 40); do sleep 1000 & done; wait", limits=ProcessLimits(processes=20)
    )
    end = await _end(folder)
    assert "20" in end.detail or b"fork" in folder.read(0, 4000).data.lower()


@pytest.mark.parametrize("bench", ["full"], indirect=True)
async def test_a_sandbox_that_cannot_start_ends_its_job(bench: Bench) -> None:
    """So it is where no more processes can be made: bubblewrap ends before it says anything."""
    bench.replace_bubblewrap("/bin/false")
    folder = await bench.start("exit 0")
    assert (await _end(folder)).exit_code == 1


async def test_the_shim_imports_nothing_from_the_folder_of_a_project(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is started there with "python -m everturn" looks for modules there first."""
    project = tmp_path / "project"
    (project / "everturn").mkdir(parents=True)
    for name in ("everturn/__init__.py", "msgspec.py", "pickle.py"):
        (project / name).write_text(f"open({str(tmp_path / 'escaped')!r}, 'w').close()")
    monkeypatch.setattr(sys, "path", [str(project), *sys.path])
    folder = await bench.start("exit 3", workspace=project)
    assert (await _end(folder)).exit_code == 3
    assert not (tmp_path / "escaped").exists()


async def test_a_job_in_a_project_is_guarded_like_a_command(bench: Bench, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    folder = await bench.start(
        "mkdir sub; git init -q sub; echo x > sub/.git/hooks/pre-commit", workspace=project
    )
    end = await _end(folder)
    assert any("renamed" in note for note in end.notes) or not (project / "sub/.git").exists()


_STARTER = """
import os, sys, anyio
from pathlib import Path
from uuid import uuid4
from everturn.jobs.folder import JobFolder
from everturn.jobs.launcher import JobCommand, launch
from everturn.tools import Sandbox
from everturn.tools.sandbox.view import SandboxView

async def main():
    home = Path(sys.argv[1])
    sandbox = Sandbox(home)
    await sandbox.open()
    folder = JobFolder(home / "jobs" / "job", 4096)
    command = ("/bin/sh", "-c", "until [ -e go ]; do sleep 0.02; done; echo done; exit 7")
    job = JobCommand(command, SandboxView(home / "workspaces" / "one"), "job", 4096)
    await launch(sandbox, folder, folder.make(), job)
    os.kill(os.getpid(), 9)

anyio.run(main)
"""


async def test_a_job_outlives_the_server_that_started_it(bench: Bench, tmp_path: Path) -> None:
    home = tmp_path / "home"
    server = subprocess.run([sys.executable, "-c", _STARTER, str(home)], check=False)
    assert server.returncode == -signal.SIGKILL
    folder = JobFolder(home / "jobs" / "job", _BYTES_MAX)
    assert folder.is_held(), "it is found by its lock"
    (bench.workspace / "go").touch()
    end = await _end(folder)
    assert (end.exit_code, folder.read(0, 100).data) == (7, b"done\n")


@pytest.mark.parametrize("total", [0, 1, 99, 100, 101, 400, 450, 1000])
def test_output_is_read_back_by_its_place(tmp_path: Path, total: int) -> None:
    content = bytes(number % 251 for number in range(total))
    output = Output(str(tmp_path), 400)
    for start in range(0, total, 7):
        output.add(content[start : start + 7])
    folder = JobFolder(tmp_path, 400)
    for place in (0, 50, total // 2, total - 1, total):
        found = folder.read(max(0, place), 30)
        assert found.total == output.total == total
        assert found.data == content[found.start : found.end]
    assert folder.read(max(0, total - 1), 30).end == total
