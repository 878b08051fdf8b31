"""Environments of Python packages that profiles choose: resolved, approved, installed once, read-only after.

An environment is a folder named after the digest of its list and of the Python that runs it. It is built
under another name in a child in the sandbox, made durable, then renamed, so that a folder with that name is
whole. The resolved list is kept as a plan before the user is asked, and exactly that plan is installed, by
its hashes: what is approved is what is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.tool import Emit
from everturn.tools.disk_sync import DiskSync
from everturn.tools.policy.hosts import is_listed
from everturn.tools.sandbox.gate import Gate
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView, python_program
from everturn.tools.schema import ToolFailed
from everturn.tools.terminal.package_settings import PackageSettings
from everturn.tools.terminal.process import Command, run

FOLDER: Final = "environments"  # of the data folder
SITE: Final = "site"  # of an environment: what Python finds
_PLAN, _LOCK = "plan.json", "lock"
_NEW: Final = ".new-"
RESOLVE_S_MAX: Final = 300.0
INSTALL_S_MAX: Final = 1500.0
BYTES_MAX: Final = 8 * 1024**3
KEEP_S: Final = 7 * 24 * 3600.0  # after its last use, where no profile names it
NEW_S: Final = 60.0  # before a new folder without its lock counts as left by a dead process
PLAN_S_MAX: Final = 24 * 3600.0  # then a plan that was not installed is made anew


class PackageFile(msgspec.Struct, frozen=True):
    """One wheel of a plan. ``is_named``: the list names it; others come with those."""

    name: str
    version: str
    sha256: str
    host: str = ""
    is_named: bool = False

    @property
    def words(self) -> str:
        return f"{self.name} {self.version}"


class PackagePlan(msgspec.Struct, frozen=True):
    """What a list of packages resolves to."""

    packages: tuple[str, ...]
    python: str
    files: tuple[PackageFile, ...]

    @property
    def words(self) -> str:
        listed = ", ".join(one.words for one in self.files)
        hosts = sorted({one.host for one in self.files if one.host})
        source = f" from {', '.join(hosts)}" if hosts else ""
        return f"{len(self.files)} Python packages{source}: {listed}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class PackageState(msgspec.Struct, frozen=True):
    """For the doctor and the settings. ``is_ready``: they are installed. ``files``: what was or would be."""

    packages: tuple[str, ...]
    is_ready: bool
    files: tuple[PackageFile, ...] = ()


class Environments:
    """Finds, plans, makes and collects environments. Any process of this data folder may do so."""

    def __init__(
        self, home: Path, sandbox: Sandbox, gate: Gate, clock: Clock, settings: PackageSettings
    ) -> None:
        self._folder = home / FOLDER
        self._sandbox = sandbox
        self._gate = gate
        self._clock = clock
        self._settings = settings
        self._busy: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._python = ""

    async def find(self, packages: Sequence[str], *, is_used: bool = False) -> Path | None:
        """The folder for ``PYTHONPATH``, or None: it is not installed."""
        folder = self._folder / await self._key(packages)
        if not await anyio.to_thread.run_sync((folder / SITE).is_dir):
            return None
        if is_used:
            await anyio.to_thread.run_sync(os.utime, folder)  # when it was last used
        return folder / SITE

    async def state(self, packages: Sequence[str]) -> PackageState:
        key = await self._key(packages)
        is_ready = await self.find(packages) is not None
        plan = _read_plan(self._folder / key / _PLAN) if is_ready else _read_plan(self._plan_file(key))
        return PackageState(tuple(packages), is_ready, () if plan is None else plan.files)

    async def plan(self, packages: Sequence[str]) -> PackagePlan:
        """What the list resolves to. Asks the index once, and keeps the answer. Nothing of a package is
        run. Raises ToolFailed."""
        key = await self._key(packages)
        async with self._busy[key]:
            file = self._plan_file(key)
            known = _read_plan(file)
            if known is None or time.time() - file.stat().st_mtime > PLAN_S_MAX:
                known = await self._resolve(tuple(packages))
                await anyio.to_thread.run_sync(_write_plan, file, known)
            return known

    async def make(self, packages: Sequence[str], emit: Emit) -> Path:
        """Install the plan that was approved, and return the folder for ``PYTHONPATH``. Raises ToolFailed."""
        key = await self._key(packages)
        async with self._busy[key]:
            found = await self.find(packages, is_used=True)
            if found is not None:
                return found  # made meanwhile
            plan = _read_plan(self._plan_file(key))
            if plan is None:
                raise ToolFailed("What the packages resolve to is not known any more. Call again.")
            await emit(f"Installing {plan.words}\n")
            with self._new_folder() as folder:
                await self._install(plan, folder)
                await anyio.to_thread.run_sync(_write_plan, folder / _PLAN, plan)
                await anyio.to_thread.run_sync(self._take_in, folder, key)
            return self._folder / key / SITE

    async def collect(self, wanted: Collection[Sequence[str]]) -> list[str]:
        """Delete what dead processes left, and environments that are in none of these lists and were not used
        for a week. Returns what was deleted."""
        keys = {await self._key(packages) for packages in wanted}
        return await anyio.to_thread.run_sync(self._collect, keys)

    # --- inside ------------------------------------------------------------------------------------

    async def _key(self, packages: Sequence[str]) -> str:
        if not self._python:
            self._python = await anyio.to_thread.run_sync(_version_of, python_program()[0])
        words = "\n".join([self._python, *sorted({one.replace(" ", "").lower() for one in packages})])
        return hashlib.sha256(words.encode()).hexdigest()[:32]

    def _plan_file(self, key: str) -> Path:
        return self._folder / "plans" / f"{key}.json"

    async def _resolve(self, packages: tuple[str, ...]) -> PackagePlan:
        with self._new_folder() as folder:
            (folder / "wanted").write_text("\n".join(packages))
            report = folder / "report.json"
            words = ("--dry-run", "--ignore-installed", "--report", str(report), "-r", str(folder / "wanted"))
            await self._pip(words, folder, RESOLVE_S_MAX, f"{', '.join(packages)} could not be resolved")
            found = msgspec.json.decode(report.read_bytes())
        files = sorted((_file_of(one) for one in found["install"]), key=lambda one: one.name.lower())
        return PackagePlan(packages, self._python, tuple(files))

    async def _install(self, plan: PackagePlan, folder: Path) -> None:
        lines = [f"{one.name}=={one.version} --hash=sha256:{one.sha256}" for one in plan.files]
        (folder / "wanted").write_text("\n".join(lines))
        words = ("--no-deps", "--require-hashes", "--no-compile", "--target", str(folder / SITE))
        what = f"{', '.join(plan.packages)} could not be installed"
        await self._pip((*words, "-r", str(folder / "wanted")), folder, INSTALL_S_MAX, what)
        size = await anyio.to_thread.run_sync(_size_of, folder)
        if size > BYTES_MAX:
            raise ToolFailed(f"{what}: they take {size / 1e9:.1f} GB, more than {BYTES_MAX / 1e9:.1f} GB.")

    async def _pip(self, words: tuple[str, ...], folder: Path, seconds: float, what: str) -> None:
        """Run ``pip install`` in the sandbox. It reaches the index alone, and runs nothing of a package: only
        wheels are taken, which are unpacked."""
        pip, (python, read) = _pip_folder(), python_program()
        options: tuple[str, ...] = (
            "--isolated",
            "--no-input",
            "--disable-pip-version-check",
            "--no-cache-dir",
            "--quiet",
        )
        options = (*options, "--retries", "2")
        source: tuple[str, ...] = ("--index-url", self._settings.index_url)
        if self._settings.wheels:
            source = ("--no-index", "--find-links", self._settings.wheels)
            read = (*read, Path(self._settings.wheels))
        argv = (python, "-I", str(pip), *options, "install", "--only-binary", ":all:", *source, *words)
        async with self._view(folder, (*read, pip)) as view:
            command = Command(argv, seconds)
            ended = await run(self._sandbox, command, view, emit=_silent, clock=self._clock)
        if ended.exit_code or ended.is_timed_out or ended.breach:
            said = ended.output.decode("utf-8", "replace").strip()
            why = ended.breach or (f"it took longer than {seconds:g} s" if ended.is_timed_out else said)
            raise ToolFailed(f"{what}: {why[-1500:] or 'pip failed'}")

    @asynccontextmanager
    async def _view(self, folder: Path, read: tuple[Path, ...]) -> AsyncIterator[SandboxView]:
        if self._settings.wheels:
            yield SandboxView(folder, read=read)
            return

        async def may(host: str) -> bool:
            return is_listed(host, self._settings.all_hosts)

        async with self._gate.door(may) as door:
            yield SandboxView(folder, gate=door.path, read=read)

    @contextmanager
    def _new_folder(self) -> Iterator[Path]:
        """A folder of ours while the block runs; what a killed process left is known by its free lock."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=_NEW, dir=self._folder))
        held = os.open(self._folder / f"{folder.name}.{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            (self._folder / f"{folder.name}.{_LOCK}").unlink(missing_ok=True)
            os.close(held)

    def _take_in(self, folder: Path, key: str) -> None:
        """Give the whole environment its name, once it is durable."""
        (folder / "wanted").unlink()
        DiskSync().sync_file_system(folder)
        try:
            folder.rename(self._folder / key)
        except OSError:
            if not (self._folder / key / SITE).is_dir():
                raise  # else another process was faster, and its own is the same
        DiskSync().sync_file_system(self._folder)
        self._plan_file(key).unlink(missing_ok=True)

    def _collect(self, wanted: Collection[str]) -> list[str]:
        deleted = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if path.name.startswith(_NEW) and path.suffix != f".{_LOCK}":
                is_over = self._is_left(path)
            elif path.name in ("plans", *wanted) or not path.is_dir():
                continue
            else:
                is_over = time.time() - path.stat().st_mtime > KEEP_S
            if is_over:
                # Under another name first: what is half deleted must not look whole.
                is_new = path.name.startswith(_NEW)
                gone = path if is_new else path.rename(path.with_name(f"{_NEW}{path.name}"))
                shutil.rmtree(gone, ignore_errors=True)
                (self._folder / f"{gone.name}.{_LOCK}").unlink(missing_ok=True)
                deleted.append(path.name)
        return deleted

    def _is_left(self, folder: Path) -> bool:
        """True if no process works there. A folder that is a moment old may not have its lock yet."""
        if time.time() - folder.stat().st_mtime < NEW_S:
            return False
        try:
            held = os.open(self._folder / f"{folder.name}.{_LOCK}", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(held)
        return True


def find_trouble(settings: PackageSettings) -> str:
    """Why nothing can be installed, or an empty text."""
    if settings.wheels and not Path(settings.wheels).is_dir():
        return f"There is no folder {settings.wheels}, which wheels in [packages] names."
    try:
        _pip_folder()
    except ToolFailed as error:
        return str(error)
    return ""


def _pip_folder() -> Path:
    """The package of pip: the server's own, else the system's."""
    found = importlib.util.find_spec("pip")
    if found is not None and found.origin:
        return Path(found.origin).resolve().parent
    system = Path("/usr/lib/python3/dist-packages/pip")
    if system.is_dir():
        return system
    raise ToolFailed("There is no pip here to install packages with: install pip beside Everturn.")


def _version_of(program: str) -> str:
    """What decides which wheels fit: version, build and machine of this Python."""
    code = "import sys, sysconfig as s; print(sys.version, s.get_platform(), s.get_config_var('SOABI'))"
    words = [program, "-I", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - ours
    return " ".join(done.stdout.split())


# ``Any``: an entry of pip's report.
def _file_of(entry: Any) -> PackageFile:
    url, about = entry["download_info"]["url"], entry["metadata"]
    if not url.endswith(".whl"):
        raise ToolFailed(f"{about['name']} has no wheel for this machine, and nothing is built here.")
    host = url.split("/")[2] if url.startswith("http") else ""
    digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
    return PackageFile(about["name"], about["version"], digest, host, bool(entry.get("requested")))


def _read_plan(file: Path) -> PackagePlan | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=PackagePlan)
    except (FileNotFoundError, msgspec.DecodeError):
        return None  # there is none, or a crash cut it off: it is made anew


def _write_plan(file: Path, plan: PackagePlan) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_bytes(msgspec.json.encode(plan))
    new.replace(file)


def _size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


async def _silent(text: str) -> None:
    """What pip says is shown only if it fails."""
