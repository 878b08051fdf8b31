"""PostgreSQL as docs/fleet.md recommends it: two servers under Patroni and etcd, HAProxy to the primary, PgBouncer before it.

etcd is one process here, and should be three on machines of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import asyncpg
import httpx2

from everturn.testing.ports import free_port
from tests.fleet.programs import Program, give, path_of, tree_of, wait_until_open

TTL_S = 20  # of the leader's key; Patroni's default is 30
_LOOP_S = 3
_PATIENCE_S = 240.0
_LOOK_S = 0.2

_BALANCER = """
global
  maxconn 2000
defaults
  mode tcp
  timeout connect 3s
  timeout client 30m
  timeout server 30m
  timeout check 3s
listen primary
  bind 127.0.0.1:{port}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 1s fastinter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""

_POOLER = """
[databases]
everturn = host=127.0.0.1 port={primary} dbname=everturn
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 40
max_client_conn = 500
server_login_retry = 1
server_connect_timeout = 3
query_wait_timeout = 30
"""


class Node:
    """One machine: a Patroni and the PostgreSQL that it starts."""

    def __init__(self, name: str, folder: Path, etcd: int) -> None:
        self.name = name
        self.port, self.rest = free_port(), free_port()
        self._data = folder / name
        settings = folder / f"{name}.yml"  # JSON, which is YAML too
        settings.write_text(json.dumps(self._settings(folder, etcd), indent=1))
        self._patroni = Program(f"patroni-{name}", ["patroni", str(settings)], folder)

    def _settings(self, folder: Path, etcd: int) -> dict[str, Any]:
        access = ["local all all trust", "host all all 127.0.0.1/32 trust"]
        common = {
            "wal_log_hints": "on",
            "max_connections": 200,
            "shared_buffers": "256MB",
            "max_wal_size": "1GB",
            "synchronous_commit": "on",
        }
        return {
            "scope": "fleet",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.rest}", "connect_address": f"127.0.0.1:{self.rest}"},
            "etcd3": {"host": f"127.0.0.1:{etcd}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S,
                    "loop_wait": _LOOP_S,
                    "retry_timeout": 5,
                    "synchronous_mode": True,
                    "maximum_lag_on_failover": 1_048_576,
                    "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": common},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self._data),
                "bin_dir": str(Path(path_of("postgres") or "").resolve().parent),
                "pgpass": str(folder / f"{self.name}.pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres", "password": "unused"},
                    "replication": {"username": "replicator", "password": "unused"},
                },
                "pg_hba": [*access, "host replication all 127.0.0.1/32 trust"],
                "parameters": {"unix_socket_directories": str(folder)},
            },
        }

    def start(self) -> None:
        self._patroni.start()

    def kill(self) -> None:
        """As if the machine lost its power: everything at once, nothing is told to anyone."""
        found = self._processes()
        self._send(found, signal.SIGKILL)
        self._patroni.end()

    def freeze(self) -> list[int]:
        """As if its network were cut: connections stay open, and nothing answers. Returns what ``thaw`` takes."""
        found = self._processes()
        self._send(found, signal.SIGSTOP)
        return found

    def thaw(self, found: Sequence[int]) -> None:
        self._send(found, signal.SIGCONT)

    def end(self) -> None:
        self.kill()

    def _processes(self) -> list[int]:
        found = [self._patroni.pid]
        pid_file = self._data / "postmaster.pid"
        if pid_file.exists():
            postmaster = int(pid_file.read_text().split()[0])
            if str(self._data).encode() in _command_of(postmaster):  # the file may be left from a killed one
                found += tree_of(postmaster)
        return found

    def _send(self, found: Sequence[int], what: signal.Signals) -> None:
        for pid in found:
            try:
                os.kill(pid, what)
            except ProcessLookupError:
                continue  # ended, as the children of a killed server do

    async def members(self, http: httpx2.AsyncClient) -> dict[str, str]:
        """The role of each node that is running, as this one knows it; empty if it does not answer."""
        self._patroni.refuse_ended()
        try:
            answer = await http.get(f"http://127.0.0.1:{self.rest}/cluster", timeout=2.0)
        except httpx2.TransportError:
            return {}
        running = ("running", "streaming")
        return {one["name"]: one["role"] for one in answer.json()["members"] if one["state"] in running}


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Cluster:
    """What workers get is PgBouncer's address, and for LISTEN the one of HAProxy."""

    def __init__(self, nodes: Sequence[Node], pooler: int, primary: int, http: httpx2.AsyncClient) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._http = http
        self._admin = f"postgresql://postgres@127.0.0.1:{primary}/postgres"
        self.address = f"postgresql://everturn@127.0.0.1:{primary}/everturn"
        self.environ = {
            "EVERTURN_DATABASE_URL": f"postgresql://everturn@127.0.0.1:{pooler}/everturn",
            "EVERTURN_DATABASE_DIRECT_URL": self.address,
        }
        self.facts = (
            f"{_version('postgres')} with a synchronous replica, {_version('patroni')} (ttl {TTL_S} s), etcd, "
            f"{_version('pgbouncer')} in transaction mode, {_version('haproxy', '-v')} to the primary"
        )

    @property
    def faults(self) -> dict[str, Callable[[], Awaitable[str]]]:
        return {"primary": self.kill_primary, "replica": self.cut_replica}

    async def make_database(self) -> None:
        await self.wait_for_roles()
        connection = await _connect(self._admin)
        try:
            await connection.execute("CREATE ROLE everturn LOGIN")
            await connection.execute(
                "CREATE DATABASE everturn OWNER everturn ENCODING 'UTF8' TEMPLATE template0"
            )
        finally:
            await connection.close()

    async def kill_primary(self) -> str:
        """The primary's machine dies; it comes back when another one has taken over."""
        roles = await self.wait_for_roles()
        primary = self._nodes[_named(roles, "leader")]
        began = time.monotonic()
        primary.kill()
        while not await self._takes_writes():
            await anyio.sleep(_LOOK_S)
        moved_s = time.monotonic() - began
        primary.start()
        roles = await self.wait_for_roles()
        assert _named(roles, "leader") != primary.name
        whole_s = time.monotonic() - began
        return (
            f"{primary.name} killed with Patroni; the replica took writes after {moved_s:.1f} s; "
            f"the old primary was its synchronous replica after {whole_s:.1f} s"
        )

    async def cut_replica(self) -> str:
        """The replica stands still with its connections open. Commits wait until Patroni goes on without it."""
        roles = await self.wait_for_roles()
        replica = self._nodes[_named(roles, "sync_standby")]
        began = time.monotonic()
        found = replica.freeze()
        try:
            while not await self._takes_writes():
                await anyio.sleep(_LOOK_S)
            alone_s = time.monotonic() - began
            await anyio.sleep(TTL_S)
        finally:
            replica.thaw(found)
        thawed = time.monotonic()
        await self.wait_for_roles()
        return (
            f"{replica.name} stood still; commits went on without it after {alone_s:.1f} s; "
            f"synchronous again {time.monotonic() - thawed:.1f} s after it moved"
        )

    async def wait_for_roles(self) -> dict[str, str]:
        """Until one node leads and the other is its synchronous replica, and the balancer has seen it."""
        with anyio.fail_after(_PATIENCE_S):
            while True:
                for node in self._nodes.values():
                    roles = await node.members(self._http)
                    if sorted(roles.values()) == ["leader", "sync_standby"] and await self._takes_writes():
                        return roles
                await anyio.sleep(_LOOK_S)

    async def _takes_writes(self) -> bool:
        """A commit through the balancer, which waits for the synchronous replica if there is one."""
        try:
            with anyio.move_on_after(2.0):
                connection = await asyncpg.connect(self._admin, timeout=2.0)
                try:
                    await connection.execute("SELECT pg_logical_emit_message(true, 'drill', 'is it there?')")
                    return True
                finally:
                    connection.terminate()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            return False
        return False


def _named(roles: dict[str, str], role: str) -> str:
    return next(name for name, found in roles.items() if found == role)


async def _connect(address: str) -> asyncpg.Connection:
    with anyio.fail_after(_PATIENCE_S):
        while True:
            try:
                return await asyncpg.connect(address, timeout=3.0)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await anyio.sleep(_LOOK_S)


def _version(program: str, option: str = "--version") -> str:
    """Its first line, to the version."""
    said = subprocess.run([path_of(program) or program, option], capture_output=True, text=True, check=True)
    return " ".join(said.stdout.replace("(PostgreSQL) ", "").split("\n")[0].split()[:3]).removesuffix(
        " (Debian"
    )


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster in a folder of its own, which its user can reach."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        with TemporaryDirectory(prefix="everturn-cluster-") as name, ExitStack() as ends:
            folder = Path(name)
            give(folder)
            nodes, pooler, primary = await _start(folder, ends)
            running = Cluster(nodes, pooler, primary, http)
            await running.make_database()
            yield running


async def _start(folder: Path, ends: ExitStack) -> tuple[list[Node], int, int]:
    etcd, pooler, primary = free_port(), free_port(), free_port()
    store = _etcd(folder, etcd)
    ends.callback(store.end)
    store.start()
    await wait_until_open(etcd)
    nodes = [Node(name, folder, etcd) for name in ("a", "b")]
    for node in nodes:
        ends.callback(node.end)
        node.start()
        await wait_until_open(node.rest)
    servers = "\n".join(
        f"  server {node.name} 127.0.0.1:{node.port} check port {node.rest}" for node in nodes
    )
    balancer = _written(folder / "primary.cfg", _BALANCER.format(port=primary, servers=servers))
    users = _written(folder / "users.txt", '"everturn" ""\n')
    settings = _written(folder / "pgbouncer.ini", _POOLER.format(primary=primary, port=pooler, users=users))
    for program in (
        Program("haproxy", ["haproxy", "-db", "-f", str(balancer)], folder),
        Program("pgbouncer", ["pgbouncer", str(settings)], folder),
    ):
        ends.callback(program.end)
        program.start()
    await wait_until_open(primary)
    await wait_until_open(pooler)
    return nodes, pooler, primary


def _etcd(folder: Path, port: int) -> Program:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    options = {
        "data-dir": str(folder / "etcd"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        # A busy machine must not lose its leader: there is one process, which would elect itself again.
        "heartbeat-interval": "500",
        "election-timeout": "5000",
    }
    return Program("etcd", ["etcd", *(f"--{name}={value}" for name, value in options.items())], folder)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o644)
    return path
