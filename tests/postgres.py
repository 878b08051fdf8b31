"""The PostgreSQL of a run of tests: one that is already running, or a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from everturn.store import open_store
from everturn.testing.postgres_server import PostgresServer

# Names the port of a running server. A mutation run starts pytest hundreds of times, and starting the server takes
# longer than most of the tests.
PORT = "EVERTURN_TEST_POSTGRES_PORT"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server whose ``database`` has empty tables."""
    port = os.environ.get(PORT)
    if port is not None:
        yield PostgresServer.already_running(int(port))
        return
    with PostgresServer() as server:
        server.make_template(make_tables)
        yield server


async def make_tables(address: str) -> None:
    """Create the tables of an empty database."""
    with TemporaryDirectory() as folder:
        async with open_store(address, data_dir=folder):
            pass
