"""Fixtures that every suite shares: a store of each kind, a fake clock, a probe that can hold.

``store`` is opened on an empty database, once for each kind in ``STORE_KINDS``, so that a promise is
tested on both. ``open_another`` opens a second Store on the same database, as another process would.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings

from everturn.domain.clock import Clock
from everturn.store import Store, StoreSettings, open_store
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.faulty_disk import FaultyVfs, Platter
from everturn.testing.postgres_proxy import PostgresProxy
from everturn.testing.postgres_server import PostgresServer
from everturn.testing.wires import WireServer, wire_server
from tests.postgres import make_tables, postgres_server
from tests.s3_server import KEYS, S3Server
from tests.waiting import HeldUp

STORE_KINDS = ("sqlite", "postgresql")

# How long an example takes says more about the machine's other work than about ours.
settings.register_profile("everturn", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("everturn")

OpenAnother = Callable[..., Awaitable[Store]]
RunSql = Callable[[str], Awaitable[object]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def probe() -> Iterator[HoldingProbe]:
    probe = HoldingProbe()
    yield probe
    probe.release_all()
    assert probe.overdue == [], "a moment was held and not released in time"


@pytest.fixture(params=STORE_KINDS)
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL, started when the first test asks for it."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of a database of its own with empty tables."""
    with postgres.database() as address:
        yield address


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3-speaking server, started when the first test asks for it."""
    with S3Server() as server:
        yield server


@pytest.fixture
def files_url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty bucket, whose keys are in the environment, also for a child process."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return s3_server.make_bucket()


@pytest.fixture
def store_url(request: pytest.FixtureRequest, store_kind: str, data_dir: Path) -> str:
    """The address of an empty database of this kind, also good for a child process."""
    if store_kind == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{data_dir / 'everturn.db'}"


@pytest.fixture
def held_up(store_url: str) -> HeldUp:
    return HeldUp(store_url)


@pytest.fixture
def lease_s() -> float:
    """Long, so that a jump of the fake clock does not end the lease before the database can renew it."""
    return 30 * 24 * 3600.0


@pytest.fixture
async def open_another(
    anyio_backend: str, store_url: str, data_dir: Path, clock: Clock, probe: HoldingProbe, lease_s: float
) -> AsyncIterator[OpenAnother]:
    """Opens one more Store on the test's database; options are those of ``open_store``."""
    async with AsyncExitStack() as stack:
        settings = StoreSettings(lease_s=lease_s)

        async def open_one(**options: Any) -> Store:
            given = {"data_dir": data_dir, "clock": clock, "probe": probe, "settings": settings, **options}
            return await stack.enter_async_context(open_store(store_url, **given))

        yield open_one


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with empty tables: making them takes longer than many tests."""
    file = tmp_path_factory.mktemp("empty") / "everturn.db"
    with start_blocking_portal() as portal:
        portal.call(make_tables, f"sqlite://{file}")
    return file


@pytest.fixture
def empty_tables(request: pytest.FixtureRequest, store_kind: str, store_url: str) -> None:
    """The test's database has its tables. That of PostgreSQL always has."""
    if store_kind == "sqlite" and not (file := Path(store_url.removeprefix("sqlite://"))).exists():
        shutil.copy(request.getfixturevalue("empty_sqlite"), file)


@pytest.fixture
async def store(empty_tables: None, open_another: OpenAnother) -> Store:
    return await open_another()


@pytest.fixture
async def proxy(anyio_backend: str, postgres: PostgresServer) -> AsyncIterator[PostgresProxy]:
    """A proxy before PostgreSQL that can break its connections."""
    async with PostgresProxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
async def spooling(
    proxy: PostgresProxy,
    postgres_url: str,
    tmp_path: Path,
    clock: Clock,
    probe: HoldingProbe,
    lease_s: float,
) -> AsyncIterator[Store]:
    """A store on the test's PostgreSQL that reaches it through the proxy, in a data folder of its own, as
    a worker on another machine would."""
    address = proxy.address(postgres_url)
    async with open_store(
        address,
        data_dir=tmp_path / "elsewhere",
        clock=clock,
        probe=probe,
        settings=StoreSettings(lease_s=lease_s),
    ) as store:
        yield store
        proxy.come_back()


@pytest.fixture
def platter(tmp_path: Path) -> Platter:
    """A disk whose power can be cut, which can be full, and which can fail."""
    return Platter(tmp_path / "data")


@pytest.fixture
def vfs(platter: Platter) -> Iterator[FaultyVfs]:
    vfs = FaultyVfs(platter)
    yield vfs
    vfs.unregister()


@pytest.fixture
async def wires() -> AsyncIterator[WireServer]:
    """A server with the APIs of the model providers, whose answers a test sets."""
    async with wire_server() as server:
        yield server


@pytest.fixture
def run_sql(store_url: str) -> RunSql:
    """Write to the database as a newer version would. Returns the first value, if there is one."""

    def sqlite(statement: str) -> object:
        database = apsw.Connection(store_url.removeprefix("sqlite://"))
        database.set_busy_timeout(10_000)
        value = database.execute(statement).get
        database.close()
        return value

    async def run(statement: str) -> object:
        if not store_url.startswith("postgresql"):
            return await asyncio.to_thread(sqlite, statement)
        connection = await asyncpg.connect(store_url)
        value = await connection.fetchval(statement)
        await connection.close()
        return value

    return run
