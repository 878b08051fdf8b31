from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.tools.kit import Kit, open_kit


@pytest.fixture
async def kit(anyio_backend: str, tmp_path: Path) -> AsyncIterator[Kit]:
    async with open_kit(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
async def bare_kit(anyio_backend: str, tmp_path: Path) -> AsyncIterator[Kit]:
    """A machine without a sandbox."""
    async with open_kit(tmp_path / "home", has_sandbox=False) as opened:
        yield opened
