"""Python that lives through the calls of a turn: what it keeps, what ends it, and what it gives back."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from everturn.domain.messages import Outcome
from everturn.domain.tool import Verdict
from everturn.tools import Profile
from everturn.tools.sandbox.view import python_program
from everturn.tools.terminal.interpreter import AT_ONCE_MAX
from everturn.tools.terminal.package_settings import PackageSettings
from everturn.tools.terminal.runner import ENDED, NEW, NOT_KEPT
from tests.unit.tools.kit import Kit, open_kit, profiles_of

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")]

PLOTS = {"profile": "plots"}


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


@pytest.fixture(scope="session")
def wheels() -> Path:
    """Real wheels of matplotlib and pandas for the Python of the sandbox, downloaded once."""
    folder = Path(__file__).parents[3] / "build" / "wheels"
    if len(list(folder.glob("*.whl"))) < 5:
        version = subprocess.run(
            [python_program()[0], "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        words = ("download", "-q", "--only-binary", ":all:", "--python-version", version, "-d", str(folder))
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words, "matplotlib", "pandas"], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"no wheels could be downloaded: {done.stderr[-300:]}")
    return folder


@pytest.fixture(scope="session")
def plotting_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data folder, so that the packages are installed once."""
    return tmp_path_factory.mktemp("plotting")


@pytest.fixture
async def plots(anyio_backend: str, plotting_home: Path, wheels: Path) -> AsyncIterator[Kit]:
    profiles = profiles_of(Profile(name="plots", packages=("matplotlib", "pandas")))
    settings = PackageSettings(wheels=str(wheels))
    async with open_kit(plotting_home, profiles=profiles, packages=settings) as kit:
        ruling = await kit.rule("python", PLOTS, code="1")
        assert ruling.verdict is Verdict.ALLOW or "matplotlib" in ruling.reason
        yield kit


async def test_figures_come_back_as_pictures(plots: Kit) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.figure()\nplt.bar([1], [2])\nplt.show()"
    drawn = await plots.run("python", PLOTS, code=code)
    assert drawn.outcome is Outcome.OK, drawn.text
    assert [image.media for image in drawn.images] == ["image/png"] * 2
    assert all(image.data.startswith(b"\x89PNG") for image in drawn.images)
    assert (await plots.run("python", PLOTS, code="1")).images == ()


async def test_a_table_comes_back_whole_as_csv(plots: Kit) -> None:
    code = "import pandas as pd\npd.DataFrame({'n': range(100), 'word': ['é,\"x\"'] * 100})"
    shown = await plots.run("python", PLOTS, code=code)
    assert shown.outcome is Outcome.OK, shown.text
    assert "..." in shown.text  # the middle is left out for the model
    assert "[the whole table is kept as CSV]" in shown.text
    [table] = shown.files
    assert (table.name, table.media) == ("table.csv", "text/csv")
    rows = list(csv.reader(table.data.decode().splitlines()))
    assert rows[0] == ["", "n", "word"]
    assert (len(rows), rows[100]) == (101, ["99", "99", 'é,"x"'])


def _process(kit: Kit):
    """The process of the turn's interpreter."""
    return kit.toolbox._interpreters._by_turn["trn_01"]._child.process
