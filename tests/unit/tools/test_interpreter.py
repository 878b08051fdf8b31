"""Python that lives through the calls of a turn: what it keeps, what ends it, and what it gives back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from everturn.domain.messages import Outcome
from everturn.tools.terminal.interpreter import AT_ONCE_MAX
from everturn.tools.terminal.runner import ENDED, NEW, NOT_KEPT
from tests.unit.tools.kit import Kit

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_variables_are_kept_for_the_next_call_of_the_turn(kit: Kit) -> None:
    first = await kit.run("python", code="total = 20\nimport json")
    assert first.text.endswith(NEW)
    second = await kit.run("python", code="total += 1\nprint(json.dumps([total]))\ntotal * 2")
    assert second.text == "[21]\n42"


async def test_another_turn_has_an_interpreter_of_its_own(kit: Kit) -> None:
    await kit.run("python", code="secret = 1")
    other = await kit.run("python", {"turn_id": "trn_02"}, code="secret")
    assert "NameError" in other.text
    assert NEW in other.text


async def test_when_the_turn_leaves_its_interpreter_ends_and_the_next_call_says_so(kit: Kit) -> None:
    await kit.run("python", code="x = 1")
    process = _process(kit)
    assert process.returncode is None
    await kit.toolbox.leave("trn_01")
    await kit.toolbox.leave("trn_01")
    assert process.returncode is not None
    again = await kit.run("python", code="x")
    assert "NameError" in again.text
    assert NEW in again.text


async def test_an_error_keeps_the_variables_and_an_exit_does_too(kit: Kit) -> None:
    await kit.run("python", code="x = 1")
    failed = await kit.run("python", code="x = 2\n1 / 0")
    assert failed.outcome is Outcome.ERROR
    assert "ZeroDivisionError" in failed.text
    assert "line 2" in failed.text
    assert "interpreter_program" not in failed.text
    left = await kit.run("python", code="import sys\nsys.exit(3)")
    assert left.outcome is Outcome.ERROR
    assert (await kit.run("python", code="x")).text == "2"


async def test_a_time_out_ends_it_and_says_so(kit: Kit) -> None:
    await kit.run("python", code="x = 1")
    late = await kit.run("python", code="while True: pass", timeout_s=1)
    assert late.outcome is Outcome.ERROR
    assert "stopped after 1 s" in late.text
    assert late.text.endswith(ENDED)
    assert NEW in (await kit.run("python", code="1")).text


async def test_an_interpreter_that_kills_itself_is_reported(kit: Kit) -> None:
    ended = await kit.run("python", code="import os\nos._exit(7)")
    assert "[exit 7]" in ended.text
    assert ended.outcome is Outcome.ERROR


async def test_a_cancelled_call_leaves_no_process(kit: Kit) -> None:
    await kit.run("python", code="x = 1")
    process = _process(kit)
    with anyio.move_on_after(0.5):
        await kit.run("python", code="import time\ntime.sleep(60)")
    assert process.returncode is not None


async def test_output_of_children_is_seen_in_order_and_output_is_bounded(kit: Kit) -> None:
    code = "import subprocess\nprint('one')\nsubprocess.run(['echo', 'two'])\nprint('three')"
    assert (await kit.run("python", code=code)).text.splitlines()[:3] == ["one", "two", "three"]
    much = await kit.run("python", code="for n in range(200_000): print(n)")
    assert much.text.splitlines()[0] == "0"
    assert "199999" in much.text
    assert len(much.text) < 50_000
    assert much.full_output is not None


async def test_code_that_closes_its_output_does_not_stop_the_next_call(kit: Kit) -> None:
    await kit.run("python", code="import os, sys\nx = 5\nos.close(1)\nos.close(2)")
    assert (await kit.run("python", code="x")).text == "5"


async def test_forged_frames_hurt_nobody_else(kit: Kit) -> None:
    code = "import os\nfor fd in range(3, 12):\n    try: os.write(fd, b'D\\0\\0\\0\\x011')\n    except OSError: pass"
    await kit.run("python", code=code)
    assert "2" in (await kit.run("python", {"turn_id": "trn_02"}, code="1 + 1")).text


async def test_in_a_project_nothing_is_kept(kit: Kit, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    changes = {"workspace": project}
    first = await kit.run("python", changes, code="x = 1")
    assert first.text.endswith(NOT_KEPT)
    assert "NameError" in (await kit.run("python", changes, code="x")).text


async def test_there_is_a_bound_on_interpreters(kit: Kit) -> None:
    for number in range(AT_ONCE_MAX + 1):
        await kit.run("python", {"turn_id": f"trn_{number}"}, code="x = 1")
    assert NEW in (await kit.run("python", {"turn_id": "trn_0"}, code="1")).text
    assert (await kit.run("python", {"turn_id": f"trn_{AT_ONCE_MAX}"}, code="x")).text == "1"


async def test_figures_come_back_as_pictures(kit: Kit) -> None:
    if subprocess.run(
        ["/usr/bin/env", "-i", "python3", "-c", "import matplotlib"], capture_output=True
    ).returncode:
        pytest.skip("the system's Python has no matplotlib")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.figure()\nplt.bar([1], [2])\nplt.show()"
    drawn = await kit.run("python", code=code)
    assert [image.media for image in drawn.images] == ["image/png"] * 2
    assert all(image.data.startswith(b"\x89PNG") for image in drawn.images)
    assert (await kit.run("python", code="1")).images == ()


def _process(kit: Kit):
    """The process of the turn's interpreter."""
    return kit.toolbox._interpreters._by_turn["trn_01"]._child.process
