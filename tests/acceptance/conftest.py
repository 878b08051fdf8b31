"""One browser for the page's tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.acceptance.paging import share_chromium


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def chromium(anyio_backend: str) -> AsyncIterator[None]:
    """For modules whose tests open the page: they run on one event loop and share a browser."""
    async with share_chromium():
        yield
