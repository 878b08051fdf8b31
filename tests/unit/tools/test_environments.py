"""Packages of a profile: resolved, asked about, installed once by real pip, read-only, whole or not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest

from everturn.config import read_config
from everturn.domain.asks import Decision
from everturn.domain.errors import Invalid
from everturn.domain.messages import Outcome
from everturn.domain.tool import Verdict
from everturn.tools import Fetcher, Profile, parse_profiles
from everturn.tools.names import BUILT_IN_NAMES
from everturn.tools.profiles import find_excess
from everturn.tools.terminal.environments import FOLDER, KEEP_S, PLAN_S_MAX
from everturn.tools.terminal.package_settings import PackageSettings
from tests.unit.tools.kit import Kit, open_kit, profiles_of

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")]
ON = {"profile": "data"}


def make_wheel(folder: Path, name: str, version: str, code: str, needs: str = "") -> Path:
    """A real wheel, as small as one can be."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)
    return file


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(
        folder, "greeting", "1.0", "import names\ndef say(): return f'hello {names.ONE}'\n", "names>=2"
    )
    make_wheel(folder, "names", "1.0", "ONE = 'old'\n")
    make_wheel(folder, "names", "2.1", "ONE = 'olga'\n")
    return folder


def settings(wheels: Path) -> PackageSettings:
    return PackageSettings(wheels=str(wheels))


@pytest.fixture
async def data(anyio_backend: str, tmp_path: Path, wheels: Path) -> AsyncIterator[Kit]:
    profile = Profile(name="data", packages=("greeting",))
    other = Profile(name="other", packages=("names==1.0",))
    async with open_kit(
        tmp_path / "home", profiles=profiles_of(profile, other), packages=settings(wheels)
    ) as kit:
        yield kit


def whole(kit: Kit) -> list[Path]:
    folder = kit.home / "environments"
    if not folder.exists():
        return []
    return [path for path in folder.iterdir() if (path / "site").is_dir() and path.name[0] != "."]


async def test_the_question_has_what_resolves_and_the_answer_installs_it_once(data: Kit) -> None:
    ruling = await data.rule("python", ON, code="import greeting")
    assert ruling.verdict is Verdict.ASK
    assert ruling.reason == "It installs 2 Python packages: greeting 1.0, names 2.1."
    assert ruling.options == (Decision.ONCE, Decision.DENY)
    assert whole(data) == []
    ran = await data.run("python", ON, code="import greeting\ngreeting.say()")
    assert ran.text.startswith("'hello olga'")
    assert "Installing 2 Python packages: greeting 1.0, names 2.1\n" in "".join(data.live)
    assert (await data.rule("python", ON, code="import greeting")).verdict is Verdict.ALLOW
    assert len(whole(data)) == 1
    # A command has them too, and other profiles do not.
    told = await data.run("terminal", ON, command="python3 -c 'import greeting; print(greeting.say())'")
    assert told.text == "hello olga"
    assert (
        "ModuleNotFoundError" in (await data.run("python", {"turn_id": "trn_2"}, code="import greeting")).text
    )


async def test_what_was_installed_can_only_be_read(data: Kit) -> None:
    await data.rule("python", ON, code="1")
    await data.run("python", ON, code="import greeting")
    code = "import greeting, pathlib\npathlib.Path(greeting.__file__).write_text('ONE = 1')"
    tried = await data.run("python", ON, code=code)
    assert tried.outcome is Outcome.ERROR
    assert "Read-only file system" in tried.text


async def test_what_was_approved_is_what_comes(data: Kit, wheels: Path) -> None:
    """The file under a name changes between the question and the answer: it is refused."""
    await data.rule("python", ON, code="1")
    make_wheel(wheels, "names", "2.1", "ONE = 'eve'\n")
    ran = await data.run("python", ON, code="import greeting\ngreeting.say()")
    assert ran.outcome is Outcome.ERROR
    assert "could not be installed" in ran.text
    assert "hash" in ran.text.lower()
    assert whole(data) == []


async def test_a_newer_release_after_the_question_does_not_come(data: Kit, wheels: Path) -> None:
    await data.rule("python", ON, code="1")
    make_wheel(wheels, "names", "2.2", "ONE = 'eve'\n")
    assert "hello olga" in (await data.run("python", ON, code="import greeting\ngreeting.say()")).text


async def test_a_list_that_is_resolved_anew_is_another_thing_to_approve(data: Kit, wheels: Path) -> None:
    asked = await data.rule("python", ON, code="1")
    assert (await data.rule("python", ON, code="2")).terms == asked.terms
    make_wheel(wheels, "names", "6.6", "ONE = 'mallory'\n")
    (plan,) = (data.home / FOLDER / "plans").iterdir()
    os.utime(plan, (time.time() - PLAN_S_MAX - 1,) * 2)
    again = await data.rule("python", ON, code="1")
    assert "names 6.6" in again.reason
    assert not set(again.terms) <= set(asked.terms)


async def test_nothing_is_installed_that_no_question_named(data: Kit) -> None:
    ran = await data.run("python", ON, code="import greeting")  # as if nobody had been asked
    assert ran.outcome is Outcome.ERROR
    assert "not known any more" in ran.text
    assert whole(data) == []


async def test_a_source_is_not_built_and_what_cannot_be_resolved_is_refused(
    tmp_path: Path, wheels: Path
) -> None:
    mark = tmp_path / "ran"
    source = tmp_path / "setup.py"
    source.write_text(f"open({str(mark)!r}, 'w')\nfrom setuptools import setup\nsetup(name='evil')\n")
    with tarfile.open(wheels / "evil-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "evil-1.0/setup.py")
    profiles = profiles_of(Profile(name="data", packages=("evil",)))
    async with open_kit(tmp_path / "home", profiles=profiles, packages=settings(wheels)) as kit:
        ruling = await kit.rule("python", ON, code="1")
        assert ruling.verdict is Verdict.DENY
        assert "evil could not be resolved" in ruling.reason
        assert not mark.exists()
        assert (await kit.rule("python", code="1")).verdict is Verdict.ALLOW


async def test_each_list_has_an_environment_of_its_own(data: Kit) -> None:
    for profile in ("data", "other"):
        await data.rule("python", {"profile": profile}, code="1")
        await data.run("python", {"profile": profile, "turn_id": profile}, code="1")
    assert len(whole(data)) == 2
    ran = await data.run("python", {"profile": "other", "turn_id": "n"}, code="import names\nnames.ONE")
    assert ran.text.startswith("'old'")


CHILD = """
import sys
from pathlib import Path
import anyio
from everturn.tools import Profile
from everturn.tools.terminal.package_settings import PackageSettings
from tests.unit.tools.kit import open_kit, profiles_of

async def main():
    profiles = profiles_of(Profile(name="data", packages=("greeting",)))
    settings = PackageSettings(wheels=sys.argv[2])
    async with open_kit(Path(sys.argv[1]), profiles=profiles, packages=settings) as kit:
        changes = {"profile": "data"}
        await kit.rule("python", changes, code="1")
        environments = kit.toolbox.environments
        def stop(folder, key):
            # The whole environment lies there under its first name; it has no name of its own yet.
            print("built", flush=True)
            import time
            time.sleep(600)
        environments._take_in = stop
        await kit.run("python", changes, code="1")

anyio.run(main)
"""


async def test_a_kill_in_the_middle_leaves_nothing_half_used(tmp_path: Path, wheels: Path) -> None:
    home = tmp_path / "home"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(home), str(wheels)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert (await anyio.to_thread.run_sync(child.stdout.readline)).strip() == "built"
    child.kill()
    child.wait()
    child.stdout.close()
    [left] = [path for path in (home / FOLDER).iterdir() if path.name.startswith(".new-") and path.is_dir()]
    assert (left / "site" / "greeting.py").exists()
    os.utime(left, (0, 0))  # not a moment ago
    profiles = profiles_of(Profile(name="data", packages=("greeting",)))
    async with open_kit(home, profiles=profiles, packages=settings(wheels)) as kit:
        assert not left.exists()
        assert whole(kit) == []
        assert (await kit.rule("python", ON, code="1")).verdict is Verdict.ASK
        ran = await kit.run("python", ON, code="import greeting\ngreeting.say()")
        assert ran.text.startswith("'hello olga'")


async def test_an_environment_that_nobody_names_is_deleted_a_week_later(data: Kit) -> None:
    await data.rule("python", ON, code="1")
    await data.run("python", ON, code="1")
    [folder] = whole(data)
    environments = data.toolbox.environments
    assert await environments.collect([]) == []
    os.utime(folder, (time.time() - KEEP_S - 60,) * 2)
    assert await environments.collect([("greeting",)]) == []
    assert await environments.collect([]) == [folder.name]
    assert whole(data) == []


async def test_two_calls_at_once_install_once(data: Kit) -> None:
    await data.rule("python", ON, code="1")

    async def call(turn: str) -> None:
        await data.run("python", {**ON, "turn_id": turn}, code="1")

    async with anyio.create_task_group() as group:
        group.start_soon(call, "trn_1")
        group.start_soon(call, "trn_2")
    assert "".join(data.live).count("Installing") == 1


@pytest.mark.parametrize(
    "name", ["pandas", "pandas>=2", "uvicorn[standard] ~= 0.30", "a.b-c_d==1.*,!=1.3", "numpy >=1, <3"]
)
def test_a_requirement_is_a_name_with_versions(name: str) -> None:
    text = f"[profiles.data]\npackages = [{name!r}]\n"
    assert parse_profiles(text, "config.toml", BUILT_IN_NAMES).get("data").packages == (name,)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-r/etc/passwd",
        "--index-url=https://evil",
        "pandas @ https://evil/x.whl",
        "../pandas",
        "/tmp/x.whl",
        "git+https://evil/x",
        "pandas\n--pre",
        "pandas --pre",
        "pandas; python_version<'3'",
    ],
)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "data", "packages": [name]}, Profile)
    with pytest.raises(Invalid, match="packages"):
        parse_profiles(f"[profiles.data]\npackages = [{name!r}]\n", "config.toml", BUILT_IN_NAMES)


def test_more_packages_are_more_than_a_delegate_may_have() -> None:
    assert find_excess(Profile(packages=("pandas",)), Profile()) == "its Python has other packages"
    assert find_excess(Profile(), Profile(packages=("pandas",))) == ""


def test_where_packages_come_from_is_a_setting(tmp_path: Path) -> None:
    text = f'[packages]\nwheels = "{tmp_path}"\nhosts = ["files.example.com"]\n'
    (tmp_path / "config.toml").write_text(text)
    found = read_config(tmp_path).packages
    assert (found.wheels, found.hosts) == (str(tmp_path), ("files.example.com",))
    (tmp_path / "config.toml").write_text('[packages]\nindex = "http://plain.example.com"\n')
    with pytest.raises(Invalid, match="index"):
        read_config(tmp_path)


async def test_pip_reaches_the_index_alone_and_through_the_gate(tmp_path: Path) -> None:
    """The index is a closed port here: what counts is which names are looked up, and that all stays in the sandbox."""
    asked: set[str] = set()

    async def resolve(host: str, port: int) -> list[str]:
        asked.add(f"{host}:{port}")
        return ["127.0.0.1"]

    fetcher = Fetcher(allowed=frozenset({("127.0.0.1", 443)}), resolve=resolve)
    index = PackageSettings(index="https://index.example.com/simple")
    profiles = profiles_of(Profile(name="data", packages=("greeting",)))
    async with open_kit(tmp_path / "home", profiles=profiles, packages=index, fetcher=fetcher) as kit:
        ruling = await kit.rule("python", ON, code="1")
        assert ruling.verdict is Verdict.DENY
        assert "greeting could not be resolved" in ruling.reason
        assert asked == {"index.example.com:443"}
        assert whole(kit) == []
