"""The database of a drill: the wheel's PostgreSQL, or what ``cluster.py`` sets up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import anyio

from everturn.testing.postgres_server import PostgresServer


class Database(Protocol):
    """``environ``: how workers reach it. ``address``: how the drill does. ``faults``: what it can do to it, each
    with what it says when it is over."""

    @property
    def environ(self) -> dict[str, str]: ...
    @property
    def address(self) -> str: ...
    @property
    def facts(self) -> str: ...
    @property
    def faults(self) -> Mapping[str, Callable[[], Awaitable[str]]]: ...


class WheelDatabase:
    facts = "PostgreSQL from the wheel, one server, asked directly"

    def __init__(self, address: str) -> None:
        self.address = address
        self.environ = {"EVERTURN_DATABASE_URL": address, "EVERTURN_DATABASE_DIRECT_URL": address}
        self.faults: dict[str, Callable[[], Awaitable[str]]] = {}


@asynccontextmanager
async def wheel_database() -> AsyncIterator[WheelDatabase]:
    server = PostgresServer()
    await anyio.to_thread.run_sync(server.__enter__)
    try:
        yield WheelDatabase(server.address())
    finally:
        await anyio.to_thread.run_sync(server.__exit__, None, None, None)
