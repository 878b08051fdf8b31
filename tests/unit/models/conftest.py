from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from everturn.testing.wires import WireServer, wire_server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with wire_server() as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as running:
        yield running
