"""The HTTP clients of a process: one for this machine, one for the rest of the world.

There are two because a proxy is for the world and never for this machine.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio
import httpx2

from everturn.models.network import make_client
from everturn.models.providers import Provider

_CLOSE_TIMEOUT_S = 10.0
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "0.0.0.0")  # noqa: S104 - compared, not bound


class HttpClients:
    """Open it as an async context manager; leaving closes every connection."""

    def __init__(self) -> None:
        self.near = make_client(is_near=True)
        self._world: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        await self.near.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            if self._world is not None:
                await self._world.aclose()
            await self.near.aclose()

    def of(self, provider: Provider) -> httpx2.AsyncClient:
        """The client for a provider. The one for the world is made on first use: loading the certificates
        takes longer than the rest of the start."""
        if provider.base_url.startswith("http://") and _is_near(provider):
            return self.near
        if self._world is None:
            self._world = make_client()
        return self._world


def _is_near(provider: Provider) -> bool:
    host = provider.base_url.split("//", 1)[-1].split("/", 1)[0].rsplit(":", 1)[0]
    return host in _LOOPBACK
