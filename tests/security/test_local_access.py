"""Who gets into a server without a password: its own user, whom the kernel names; others with the access token."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, parse_profiles
from everturn.web import StartRefused
from everturn.web.access import peers as peers_module
from everturn.web.access.peers import Place, by_diag, by_proc, never_owner, owner_check
from everturn.web.access.token import FILE, Access, new_code, read_token
from everturn.web.server import check_start
from tests.endpoint_paths import path_of

pytestmark = pytest.mark.anyio

LOCKED = {"password": "correct horse battery"}
OTHER_USER = 43210
PATIENCE_S = 120

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who opened a connection")
as_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can start processes of another user"
)


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


_AS_OTHER = """
import encodings.idna, http.client, json, os, runpy, socket, sys
peers = runpy.run_path({peers!r})  # all of it before the change: another user may not read it
os.setgroups([])
os.setgid({user})
os.setuid({user})
"""


def other(code: str, *arguments: str, user: int = OTHER_USER) -> list[str]:
    """The command that runs Python code as another user."""
    return [
        sys.executable,
        "-I",
        "-c",
        _AS_OTHER.format(user=user, peers=peers_module.__file__) + code,
        *arguments,
    ]


def as_other(code: str, *arguments: str) -> str:
    """Run Python code as another user; what it prints."""
    done = subprocess.run(other(code, *arguments), timeout=PATIENCE_S, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


_REQUESTS = """
port, requests = int(sys.argv[1]), json.loads(sys.argv[2])
answers = []
for method, path, headers in requests:
    there = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    there.request(method, path, b"{}" if method != "GET" else None, {"Content-Type": "application/json", **headers})
    answer = there.getresponse()
    text = answer.read().decode()
    answers.append((answer.status, json.loads(text).get("code") if text.startswith("{") else None))
print(json.dumps(answers))
"""


async def ask_as_other(
    server: Running, *requests: tuple[str, str, dict[str, str]]
) -> list[tuple[int, str | None]]:
    text = await anyio.to_thread.run_sync(as_other, _REQUESTS, str(server.port), json.dumps(requests))
    return [(status, code) for status, code in json.loads(text)]


def bearer(text: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def place_of(server: Running) -> str:
    return f"127.0.0.1:{server.port}"


# --- another user of the machine ---------------------------------------------------------------------


@as_root
async def test_another_user_of_the_machine_gets_nothing_without_the_token(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path) as server:
        guarded = [
            (
                one.method,
                path_of(one),
                {},
            )
            for one in server.web.table.endpoints
            if one.scope is not None
        ]
        answers = await ask_as_other(server, *guarded)
        assert len(answers) > 30
        assert set(answers) == {(401, "access_needed")}
        # What a proxy of another user sends, and what clients send that cannot be told to send no key.
        tried = await ask_as_other(
            server,
            ("GET", "/api/me", {"Host": "localhost"}),
            ("GET", "/api/me", bearer("not-needed")),
            ("GET", "/api/me", {"Cookie": "everturn=sin_00000000000000000000000000.00"}),
            ("GET", "/api/me", {"X-Everturn-Owner": "1"}),
        )
        assert set(tried) == {(401, "access_needed")}
        assert (await ask_as_other(server, ("GET", "/healthz", {})))[0][0] == 200
        assert (await server.http.get("/api/me")).json()["way"] == "open"


@as_root
async def test_another_user_comes_in_with_the_token(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        token = read_token(tmp_path)
        (me,) = await ask_as_other(server, ("GET", "/api/me", bearer(token)))
        assert me[0] == 200
        wrong = f"eva_{'0' * 64}"
        forwarded = {**bearer(token), "X-Forwarded-For": "203.0.113.9"}
        refused = await ask_as_other(server, ("GET", "/api/me", bearer(wrong)), ("GET", "/api/me", forwarded))
        assert refused == [(401, "access_needed"), (403, "sign_in_is_off")]


# --- the lookup --------------------------------------------------------------------------------------

_CONNECT = """
family, address, port = sys.argv[1:]
with socket.socket(getattr(socket, family)) as near:
    near.connect((address, int(port)))
    print(near.getsockname()[1], flush=True)
    sys.stdin.read()
"""

FAMILIES = [
    ("127.0.0.1", "AF_INET", "127.0.0.1"),
    ("127.0.0.1", "AF_INET6", "::ffff:127.0.0.1"),
    ("::1", "AF_INET6", "::1"),
    ("::", "AF_INET", "127.0.0.1"),
    ("::", "AF_INET6", "::1"),
]


@contextmanager
def connection(host: str, family: str, address: str, user: int) -> Iterator[tuple[Place, Place]]:
    """Both ends of a connection that a process of this user opens, as the accepting side sees them."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(kind)) as listener:
        if kind == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, 0))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        port = str(listener.getsockname()[1])
        child = subprocess.Popen(other(_CONNECT, family, address, port, user=user), stdin=subprocess.PIPE)
        try:
            accepted, _ = listener.accept()
            with accepted:
                yield accepted.getpeername()[:2], accepted.getsockname()[:2]
        finally:
            child.communicate(timeout=PATIENCE_S)


@as_root
@pytest.mark.parametrize("lookup", [by_diag, by_proc])
@pytest.mark.parametrize(("host", "family", "address"), FAMILIES)
def test_the_kernel_names_the_user_of_a_connection(
    lookup: Callable[[Place, Place], int | None], host: str, family: str, address: str
) -> None:
    with connection(host, family, address, OTHER_USER) as (peer, own):
        assert lookup(peer, own) == OTHER_USER
        assert not owner_check()(peer, own)
    with connection(host, family, address, os.geteuid()) as (peer, own):
        assert lookup(peer, own) == os.geteuid()
        assert owner_check()(peer, own)


@on_linux
@pytest.mark.parametrize("lookup", [by_diag, by_proc])
def test_a_closed_socket_has_no_owner(lookup: Callable[[Place, Place], int | None]) -> None:
    """The kernel says 0 for it, which is root: a server run by root would take every client for its owner."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        with far:
            peer, own = far.getpeername(), far.getsockname()
            assert lookup(peer, own) == os.geteuid()
            near.shutdown(socket.SHUT_WR)
            assert lookup(peer, own) is None  # still open, no longer established
            near.close()
            assert lookup(peer, own) is None
        assert lookup(peer, own) is None


@on_linux
@pytest.mark.parametrize("lookup", [by_diag, by_proc])
def test_a_listener_at_the_peers_place_is_no_connection(
    lookup: Callable[[Place, Place], int | None],
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        assert lookup(listener.getsockname(), ("127.0.0.1", 9)) is None
        assert lookup(("not an address", 1), ("127.0.0.1", 9)) is None


_SERVER_OF_ANOTHER = """
check = peers["owner_check"]()
with socket.create_server(("127.0.0.1", 0)) as listener:
    listener.settimeout(30)
    print(listener.getsockname()[1], flush=True)
    for _ in range(2):
        far, peer = listener.accept()
        with far:
            print(check(peer, far.getsockname()), flush=True)
"""


@as_root
def test_root_is_not_the_owner_of_a_server_that_runs_as_another_user() -> None:
    with subprocess.Popen(other(_SERVER_OF_ANOTHER), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)):
            assert child.stdout.readline() == "False\n"
        as_other(f"socket.create_connection(('127.0.0.1', {port})).recv(1)")
        assert child.stdout.readline() == "True\n"


async def test_the_owner_is_looked_up_once_for_a_connection(store: Store, tmp_path: Path) -> None:
    looked: list[tuple[Place, Place]] = []

    def is_owner(peer: Place, own: Place) -> bool:
        looked.append((peer, own))
        return True

    async with run_web(store, tmp_path, is_owner=is_owner) as server:
        for _ in range(5):
            assert (await server.http.get("/api/sessions")).status_code == 200
        assert len(looked) == 1
        assert looked[0][1] == ("127.0.0.1", server.port)


@on_linux
async def test_a_client_that_closes_its_half_is_still_its_user(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        stream = await anyio.connect_tcp("127.0.0.1", server.port)
        async with stream:
            await stream.send(b"GET /api/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            await stream.send_eof()
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")


# --- where the system does not tell ------------------------------------------------------------------


async def test_where_nothing_is_known_everybody_needs_the_token(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, is_owner=never_owner) as server:
        refused = await server.http.get("/api/me")
        assert (refused.status_code, refused.json()["code"]) == (401, "access_needed")
        assert "everturn open" in refused.json()["hint"]
        assert refused.headers["www-authenticate"].startswith("Bearer")
        me = await server.http.get("/api/me", headers=bearer(read_token(tmp_path)))
        assert me.json()["way"] == "open"
        assert "set-cookie" not in me.headers


@pytest.mark.parametrize("is_code", [True, False])
async def test_the_token_or_a_code_becomes_a_cookie(
    store: Store, tmp_path: Path, clock: FakeClock, is_code: bool
) -> None:
    async with run_web(store, tmp_path, clock=clock, is_owner=never_owner) as server:
        token = str(read_token(tmp_path))
        given = new_code(token, place_of(server), clock) if is_code else token
        entered = await server.http.post("/api/access", json={"token": given})
        assert (entered.status_code, entered.json()["way"]) == (200, "access")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert token not in cookie
        assert (await server.http.get("/api/me")).json()["way"] == "access"
        assert (await server.http.post("/api/sessions", json={})).status_code == 201
        server.http.cookies.clear()
        again = await server.http.post("/api/access", json={"token": given})
        assert again.status_code == (401 if is_code else 200)
        jar = {"Cookie": cookie.partition(";")[0]}
        assert (await server.http.post("/api/signout", json={}, headers=jar)).status_code == 204
        out = await server.http.get("/api/me", headers=jar)
        assert (out.status_code, out.json()["code"]) == (401, "access_needed")
        audit = (tmp_path / "audit.jsonl").read_text()
        assert '"what":"access"' in audit
        assert given not in audit


async def test_a_code_is_good_for_its_server_and_its_time_only(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    token = Access.open(tmp_path, clock) and str(read_token(tmp_path))
    early = new_code(token, "127.0.0.1:1", clock)  # type: ignore[arg-type]  # a token is there
    await clock.advance(1)
    async with run_web(store, tmp_path, clock=clock, is_owner=never_owner) as server:
        here = place_of(server)
        other = new_code(f"eva_{'1' * 64}", here, clock)
        elsewhere = new_code(token, "127.0.0.1:1", clock)  # type: ignore[arg-type]  # a token is there
        late = new_code(token, here, clock)  # type: ignore[arg-type]  # a token is there
        tampered = re.sub(r"_\d+_", f"_{clock.now_ms() + 1}_", late)
        await clock.advance(601)
        for code in (early, other, elsewhere, late, tampered, "evc_", "evc_1_2_3", "\u0660", token[:-1]):
            refused = await server.http.post("/api/access", json={"token": code})
            assert (refused.status_code, refused.json()["code"]) == (401, "access_needed"), code


async def test_a_code_of_before_the_start_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    """What was used is forgotten with the server: an older code could be used again."""
    first = Access.open(tmp_path, clock)
    code = new_code(str(read_token(tmp_path)), "127.0.0.1:8420", clock)
    assert first.redeem(code, "127.0.0.1:8420")
    await clock.advance(1)
    assert not Access.open(tmp_path, clock).redeem(code, "127.0.0.1:8420")


async def test_with_a_password_the_access_token_is_worth_nothing(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED, clock=clock) as server:
        token = str(read_token(tmp_path))
        assert (await server.http.get("/api/me", headers=bearer(token))).status_code == 401
        assert (await server.http.get("/api/me")).json()["code"] == "sign_in_needed"
        for given in (token, new_code(token, place_of(server), clock)):
            assert (await server.http.post("/api/access", json={"token": given})).status_code == 409


async def test_setting_a_password_ends_what_the_token_opened(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, is_owner=never_owner) as server:
        await server.http.post("/api/access", json={"token": read_token(tmp_path)})
        assert (await server.http.get("/api/me")).status_code == 200
        await server.web.accounts.set_password("correct horse battery")
        assert (await server.http.get("/api/me")).json()["code"] == "sign_in_needed"
        await server.web.accounts.remove_password()
        assert (await server.http.get("/api/me")).json()["code"] == "access_needed"


# --- the token's file --------------------------------------------------------------------------------


def test_the_token_is_its_owners_alone_to_read_and_stays(tmp_path: Path, clock: FakeClock) -> None:
    Access.open(tmp_path, clock)
    first = read_token(tmp_path)
    assert first
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    Access.open(tmp_path, clock)
    assert read_token(tmp_path) == first
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def _readable(path: Path) -> None:
    path.write_text(f"eva_{'a' * 64}\n")
    path.chmod(0o644)


def _linked(path: Path) -> None:
    chosen = path.with_name("chosen")
    chosen.write_text(f"eva_{'a' * 64}\n")
    chosen.chmod(0o600)
    path.symlink_to(chosen)


def _empty(path: Path) -> None:
    path.touch(0o600)


@pytest.mark.parametrize("spoil", [_readable, _linked, _empty])
def test_a_token_that_others_may_know_is_replaced(
    tmp_path: Path, clock: FakeClock, spoil: Callable[[Path], None]
) -> None:
    spoil(tmp_path / FILE)
    access = Access.open(tmp_path, clock)
    assert not access.is_token(f"eva_{'a' * 64}")
    assert access.is_token(str(read_token(tmp_path)))
    assert not (tmp_path / FILE).is_symlink()


def test_an_access_token_that_cannot_be_stored_admits_no_client(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    access = Access.open(tmp_path / "home", clock)
    assert not access.is_token("")
    assert not access.redeem("", "127.0.0.1:8420")


# --- the agent itself --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[profiles.ops]\nhost_network = true", "profiles.ops"),
        ("[mcp.tools]\ncommand = 'true'\nhost_network = true", "mcp.tools"),
    ],
)
async def test_host_network_needs_sign_in(store: Store, tmp_path: Path, text: str, name: str) -> None:
    profiles = parse_profiles(text, "config.toml", frozenset())
    async with EverturnToolbox(
        tmp_path, ToolServices(store.records, store.search, FakeClock()), profiles
    ) as toolbox:
        extras: dict[str, Any] = {"toolbox": toolbox}
        async with run_web(store, tmp_path, settings=LOCKED, extras=extras) as server:
            await check_start(server.web)
            await server.web.accounts.remove_password()
            with pytest.raises(StartRefused, match=name) as refused:
                await check_start(server.web)
            assert "everturn password" in refused.value.hint
