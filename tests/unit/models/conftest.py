from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from everturn.models.network import make_client
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
    async with make_client(is_near=True) as running:
        yield running
