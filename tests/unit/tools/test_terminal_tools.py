from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.messages import Outcome
from everturn.domain.tool import ToolResult
from everturn.tools.disk_sync import DiskSync
from tests.unit.tools.kit import OWNER, SESSION, Kit

pytestmark = pytest.mark.anyio


async def test_a_command_runs_in_the_workspace_and_says_how_it_ended(kit: Kit) -> None:
    result = await kit.run("terminal", command="pwd; echo hello > note.txt; ls; echo oops >&2; exit 3")
    assert result.text == f"{kit.workspace}\nnote.txt\noops\n[exit 3]"
    assert result.outcome is Outcome.ERROR
    assert result.display == {"kind": "terminal", "exit": 3, "timed_out": False}
    assert (kit.workspace / "note.txt").read_text() == "hello\n"


async def test_silent_success_is_distinguished_from_nothing_having_run(kit: Kit) -> None:
    result = await kit.run("terminal", command="true")
    assert (result.text, result.outcome) == ("[no output]", Outcome.OK)


async def test_output_is_live_before_the_command_ends(kit: Kit) -> None:
    seen = anyio.Event()

    async def emit(text: str) -> None:
        kit.live.append(text)
        seen.set()

    command = "echo first; while ! test -e go; do sleep 0.02; done; echo second"
    call = kit.call("terminal", {"command": command})
    tools = {tool.spec.name: tool for tool in await kit.toolbox.tools(OWNER, SESSION, None)}
    results: list[object] = []
    async with anyio.create_task_group() as group:

        async def run() -> None:
            results.append(await tools["terminal"].run(call, emit))

        group.start_soon(run)
        with anyio.fail_after(60):
            await seen.wait()
        assert kit.live == ["first\n"]
        (kit.workspace / "go").touch()
    assert isinstance(results[0], ToolResult)
    assert "".join(kit.live) == "first\nsecond\n"


async def test_a_flood_shows_head_and_tail_and_keeps_the_whole(kit: Kit) -> None:
    result = await kit.run("terminal", command="seq 1 40000")
    assert result.full_output == b"".join(b"%d\n" % n for n in range(1, 40001))
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("39999\n40000")
    assert "left out" in result.text
    assert len(result.text.encode()) <= 48_200
    assert len("".join(kit.live)) <= 256 * 1024 + 100


async def test_what_runs_too_long_is_stopped_with_everything_it_started(kit: Kit) -> None:
    mark = _mark()
    result = await kit.run("terminal", command=f"sleep {mark} & echo on; sleep {mark}", timeout_s=5)
    assert result.outcome is Outcome.ERROR
    assert result.text.startswith("on\n[stopped after 5 s")
    assert result.display["timed_out"] is True
    assert not _running(mark)


@pytest.mark.parametrize("profile", [None, "bare"])
async def test_cancelling_ends_the_process_and_its_children(kit: Kit, profile: str | None) -> None:
    """In the sandbox the namespace dies; outside, also a child that left the process group."""
    mark = _mark()
    child = f"sh -c 'echo up; sleep 60; exit' {mark}"
    command = f"setsid {child} & {child} & wait"
    started = anyio.Event()

    async def emit(text: str) -> None:
        kit.live.append(text)
        if "".join(kit.live).count("up") == 2:
            started.set()

    tools = {tool.spec.name: tool for tool in await kit.toolbox.tools(OWNER, SESSION, profile)}
    call = kit.call("terminal", {"command": command}, profile=profile)
    async with anyio.create_task_group() as group:
        group.start_soon(tools["terminal"].run, call, emit)
        with anyio.fail_after(60):
            await started.wait()
        # Each shell, and for a moment its fork that is about to become the sleep.
        assert len(_running(mark)) >= 2
        group.cancel_scope.cancel()
    assert not _running(mark)


async def test_a_key_in_our_environment_is_in_no_tool(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-4711")
    for profile in (None, "bare"):
        changes = {"profile": profile}
        shown = await kit.run("terminal", changes, command="env; cat /proc/self/environ")
        assert "sk-planted-4711" not in shown.text
        shown = await kit.run("python", changes, code="import os; print(dict(os.environ))")
        assert "sk-planted-4711" not in shown.text


async def test_python_shows_what_it_prints_and_its_last_value(kit: Kit) -> None:
    (kit.workspace / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    result = await kit.run("python", code="from helper import double\nprint('hi')\ndouble(21)")
    assert (result.text.splitlines()[:-1], result.outcome) == (["hi", "42"], Outcome.OK)


async def test_a_python_error_names_the_line(kit: Kit) -> None:
    result = await kit.run("python", code="x = 1\nraise ValueError('no')")
    assert result.outcome is Outcome.ERROR
    assert 'File "<code>", line 2' in result.text
    assert "raise ValueError('no')" in result.text


async def test_wrong_arguments_are_a_result_that_names_them(kit: Kit) -> None:
    result = await kit.run("terminal", commando="ls")
    assert result.outcome is Outcome.ERROR
    assert "commando" in result.text
    result = await kit.run("terminal", command="echo a\0b")
    assert result.outcome is Outcome.ERROR
    assert "NUL" in result.text


async def test_with_a_gate_the_tools_differ_only_by_their_hosts(kit: Kit) -> None:
    plain = {tool.spec.name: tool.spec.schema for tool in await kit.toolbox.tools(OWNER, SESSION, None)}
    gated = {tool.spec.name: tool.spec.schema for tool in await kit.toolbox.tools(OWNER, SESSION, "online")}
    for name in ("terminal", "python"):
        assert gated[name].description.startswith(plain[name].description)
        assert "It reaches only hosts that the user allows" in gated[name].description
        properties = dict(gated[name].parameters["properties"])
        assert properties.pop("hosts")["description"] == "Hosts that it has to reach; the user is asked"
        assert properties == plain[name].parameters["properties"]


def _mark() -> str:
    """A number of seconds that no other process on this machine sleeps."""
    return f"60.{secrets.randbelow(10**12):012d}"


def _running(argument: str) -> list[int]:
    """Processes whose command line has this argument."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if argument.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


class _Witness:
    """Notes what was there when the file system was synced."""

    def __init__(self, trouble: OSError | None = None) -> None:
        self.seen: list[list[str]] = []
        self._trouble = trouble

    def sync_file_system(self, folder: Path) -> None:
        self.seen.append(sorted(path.name for path in folder.iterdir()))
        if self._trouble is not None:
            raise self._trouble


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("terminal", {"command": "mkdir d; echo x > d/y; (sleep 0.05; echo late > z) & sleep 0.2"}),
        ("python", {"code": "import os; os.mkdir('d'); open('z', 'w').close()"}),
    ],
)
async def test_what_a_command_made_is_synced_before_its_step_is_finished(
    kit: Kit, name: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Witness()
    monkeypatch.setattr(DiskSync, "sync_file_system", lambda _, folder: disk.sync_file_system(folder))
    result = await kit.run(name, **arguments)
    assert result.outcome is Outcome.OK, result.text
    assert disk.seen == [["d", "z"]]


async def test_a_command_whose_files_could_not_be_synced_says_so(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Witness(OSError(5, "Input/output error"))
    monkeypatch.setattr(DiskSync, "sync_file_system", lambda _, folder: disk.sync_file_system(folder))
    result = await kit.run("terminal", command="echo made > x; echo done")
    assert result.text == "done\n[a power cut may lose what it wrote: Input/output error]"
    assert result.outcome is Outcome.ERROR
