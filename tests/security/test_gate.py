"""With the network on, the sandbox reaches the web and nothing on this machine or around it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from everturn.tools import Fetcher, Profile
from tests.unit.tools.kit import Kit, open_kit, profiles_of
from tests.unit.tools.test_web import _Site, site

__all__ = ["site"]
pytestmark = pytest.mark.anyio
ONLINE = {"profile": "online"}


@pytest.fixture
async def online(anyio_backend: str, site: _Site, tmp_path: Path) -> AsyncIterator[Kit]:
    """The test's own server stands for the web: its address is allowed, no other of this machine is."""
    fetcher = Fetcher(allowed=frozenset({("127.0.0.1", site.port)}), resolve=_resolve)
    profiles = profiles_of(Profile(name="host", host_network=True))
    async with open_kit(tmp_path / "home", fetcher=fetcher, profiles=profiles) as kit:
        yield kit


async def _resolve(host: str, port: int) -> list[str]:
    return {"site.example": ["127.0.0.1"], "inside.example": ["127.0.0.2"]}.get(host, [])


@pytest.fixture
def private() -> Iterator[int]:
    """Something on this machine that nobody outside may reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def _python(kit: Kit, code: str, **changes: str) -> str:
    return (await kit.run("python", {**ONLINE, **changes}, code=code)).text


async def test_the_web_is_reached_through_the_usual_variables(online: Kit, site: _Site) -> None:
    code = f"import urllib.request as u; u.urlopen('http://site.example:{site.port}/json').read()"
    assert await _python(online, code) == "b'{\"a\": 1}'"
    said = await online.run("terminal", ONLINE, command=f"curl -sS http://site.example:{site.port}/json")
    assert said.text == '{"a": 1}'
    assert site.visits == [f"site.example:{site.port} /json"] * 2


async def test_a_tunnel_carries_bytes_both_ways(online: Kit, site: _Site) -> None:
    code = f"""
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 3128)
connection.set_tunnel("site.example", {site.port})
connection.request("GET", "/long")
len(connection.getresponse().read())"""
    assert await _python(online, code) == "108890"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.0.0.2", "inside.example", "[::1]", "0", "2130706433", "169.254.169.254"],
)
@pytest.mark.parametrize("way", ["http", "tunnel"])
async def test_nothing_of_this_machine_is_reached(online: Kit, private: int, host: str, way: str) -> None:
    http = f"import urllib.request as u; u.urlopen('http://{host}:{private}/')"
    tunnel = f"""
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 3128)
connection.set_tunnel("{host.strip("[]")}", {private})
connection.connect()"""
    said = await _python(online, http if way == "http" else tunnel)
    assert "403" in said or "502" in said


async def test_going_past_the_gate_leads_nowhere(online: Kit, private: int, site: _Site) -> None:
    for port in (private, site.port):
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert "Connection refused" in await _python(online, code)
    assert "unreachable" in await _python(
        online, "import socket; socket.create_connection(('8.8.8.8', 53), 2)"
    )
    assert site.visits == []


async def test_without_the_network_there_is_no_gate(online: Kit, site: _Site) -> None:
    said = await online.run("terminal", command="env; ls -A /tmp")
    assert "proxy" not in said.text.replace("NODE_USE_ENV_PROXY", "").lower()
    assert ".gate" not in said.text


async def test_the_hosts_network_is_there_only_where_it_is_asked_for(online: Kit, private: int) -> None:
    code = f"import socket; socket.create_connection(('127.0.0.1', {private}), 2); print('reached')"
    assert await _python(online, code, profile="host") == "reached"


async def test_nonsense_on_the_gate_is_refused_and_ends(online: Kit) -> None:
    code = """
import socket
answers = []
starts = (b"", b"GET /x HTTP/1.1", b"CONNECT a@b:1 HTTP/1.1", b"CONNECT x:99999 HTTP/1.1", b"x" * 100_000)
for start in starts:
    with socket.create_connection(("127.0.0.1", 3128)) as gate:
        gate.sendall(start + b"\\r\\n\\r\\n")
        answers.append(gate.recv(100).split(b"\\r\\n")[0].decode())
answers"""
    assert await _python(online, code) == repr(["HTTP/1.1 403 Refused"] * 5)
