"""What stands in front of the workers: HAProxy, or where it is not installed a small one of our own."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import anyio
import anyio.abc

from everturn.testing.ports import free_port
from tests.fleet.programs import INSTALL, path_of, wait_until_open
from tests.fleet.workers import Worker

_PORT = anyio.abc.SocketAttribute.local_port
_CHECK_S = 0.5
_FALLS = 2  # failed checks in a row
_CHUNK = 65_536

# What docs/fleet.md recommends, with ports of the drill.
_HAPROXY = """
global
  maxconn 4000
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  timeout check 3s
  option redispatch 1
  retries 3
  retry-on conn-failure
frontend page
  bind 127.0.0.1:{port}
  default_backend workers
backend workers
  balance leastconn
  option httpchk
  http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
  default-server check inter 1s fastinter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""


@asynccontextmanager
async def haproxy(folder: Path, workers: Sequence[Worker]) -> AsyncIterator[str]:
    """Yields the address."""
    program = path_of("haproxy")
    assert program is not None, f"HAProxy is not installed: {INSTALL}"
    port = free_port()
    servers = "\n".join(f"  server {one.name} 127.0.0.1:{one.port}" for one in workers)
    settings = folder / "haproxy.cfg"
    settings.write_text(_HAPROXY.format(port=port, servers=servers))
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([program, "-db", "-f", str(settings)], stdout=log, stderr=log)
    try:
        await wait_until_open(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


class SmallBalancer:
    """Passes connections to workers in turn, asks each whether it is ready, and cuts those of one that is not."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._next = count()
        self._failed = {worker.name: _FALLS for worker in workers}
        self._open: dict[str, set[anyio.CancelScope]] = {worker.name: set() for worker in workers}

    async def watch(self) -> None:
        async with anyio.create_task_group() as group:
            for worker in self._workers:
                group.start_soon(self._watch, worker)

    async def _watch(self, worker: Worker) -> None:
        while True:
            is_ready = False
            with anyio.move_on_after(_CHECK_S):
                is_ready = await worker.is_ready()
            self._failed[worker.name] = 0 if is_ready else self._failed[worker.name] + 1
            if self._failed[worker.name] >= _FALLS:
                for scope in tuple(self._open[worker.name]):
                    scope.cancel()
            await anyio.sleep(_CHECK_S)

    async def serve(self, client: anyio.abc.SocketStream) -> None:
        async with client:
            for _ in self._workers:
                worker = self._workers[next(self._next) % len(self._workers)]
                if self._failed[worker.name] >= _FALLS:
                    continue
                try:
                    server = await anyio.connect_tcp("127.0.0.1", worker.port)
                except OSError:
                    continue
                async with server:
                    await self._carry(worker, client, server)
                return

    async def _carry(
        self, worker: Worker, client: anyio.abc.SocketStream, server: anyio.abc.SocketStream
    ) -> None:
        scopes = self._open[worker.name]
        async with anyio.create_task_group() as group:
            scopes.add(group.cancel_scope)
            try:
                group.start_soon(_pass_on, server, client, group.cancel_scope)
                await _pass_on(client, server, group.cancel_scope)
            finally:
                scopes.discard(group.cancel_scope)


async def _pass_on(
    source: anyio.abc.SocketStream, target: anyio.abc.SocketStream, both: anyio.CancelScope
) -> None:
    try:
        while True:
            await target.send(await source.receive(_CHUNK))
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        both.cancel()


@asynccontextmanager
async def small_balancer(workers: Sequence[Worker]) -> AsyncIterator[str]:
    """Yields the address."""
    balancer = SmallBalancer(workers)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(balancer.watch)
        group.start_soon(listener.serve, balancer.serve)
        yield f"http://127.0.0.1:{listener.extra(_PORT)}"
        group.cancel_scope.cancel()


def balancer_for(kind: str, folder: Path, workers: Sequence[Worker]) -> AbstractAsyncContextManager[str]:
    return haproxy(folder, workers) if kind == "haproxy" else small_balancer(workers)
