"""The models that run on this machine, each with its own server process, started with the first call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from everturn.domain.clock import Clock
from everturn.domain.model import Model, ProgressChunk
from everturn.models.clients import HttpClients
from everturn.models.local import Fetches, LlamaServer, LocalModel, LocalSpec


class LocalModels:
    def __init__(
        self, fetches: Fetches, clients: HttpClients, clock: Clock, environ: Mapping[str, str]
    ) -> None:
        self._fetches = fetches
        self._clients = clients
        self._clock = clock
        self._environ = environ
        self._servers: dict[str, LlamaServer] = {}

    def get(self, spec: LocalSpec) -> Model:
        server = self._servers.get(spec.name)
        if server is None:
            path = self._fetches.path(spec.weights)
            server = self._servers[spec.name] = LlamaServer(spec, path, self._environ)
        return LocalModel(spec, self._fetches, server, self._clients.near, self._clock)

    async def pull(self, spec: LocalSpec) -> AsyncGenerator[ProgressChunk, None]:
        """Download the weights; yields nothing if they are there. Continues if the caller stops listening."""
        async with aclosing(self._fetches.progress(spec.weights)) as progress:
            async for chunk in progress:
                yield chunk

    async def close(self) -> None:
        """End the server processes."""
        for server in self._servers.values():
            await server.close()
