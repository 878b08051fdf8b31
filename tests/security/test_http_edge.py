"""What the edge lets through: hosts, origins, content types, sizes, broken and slow clients, files."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
import pytest

from everturn.store import Store
from everturn.testing.web_server import PATIENCE_S, Running, run_web
from everturn.web import LOCAL_OWNER, Scope
from everturn.web.http.problems import BodyTooSlow
from everturn.web.http.routing import collect
from everturn.web.logs import ForPeople
from tests.endpoint_paths import path_of

pytestmark = pytest.mark.anyio

LOCKED = {"password": "correct horse battery"}
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


async def bearer(server: Running, scope: Scope = Scope.ADMIN) -> dict[str, str]:
    _, text = await server.web.accounts.create_token(LOCAL_OWNER, "test", (scope,))
    return {"Authorization": f"Bearer {text}"}


def writes_of(server: Running) -> list[tuple[str, str]]:
    return [
        (
            endpoint.method,
            path_of(endpoint),
        )
        for endpoint in server.web.table.endpoints
        if endpoint.writes
    ]


# --- hosts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("agent.example", 200),
        ("AGENT.example:8420", 200),
        ("192.168.1.5:8420", 200),  # a plain address cannot be rebound
        ("[::1]", 200),
        ("localhost", 200),
    ],
)
async def test_with_sign_in_only_known_names_are_answered(
    store: Store, tmp_path: Path, host: str, status: int
) -> None:
    async with run_web(store, tmp_path, settings={**LOCKED, "hosts": ("agent.example",)}) as server:
        headers = {"Host": host, **await bearer(server)}
        for path in ("/api/sessions", "/healthz"):
            answer = await server.http.get(path, headers=headers)
            assert answer.status_code == status
        if status == 421:
            assert answer.json()["code"] == "wrong_host"


async def test_two_hosts_are_one_too_many(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        answer = await raw(server, b"GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400")


# --- other sites -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
async def test_no_write_is_taken_from_another_site(
    store: Store, tmp_path: Path, headers: dict[str, str]
) -> None:
    async with run_web(store, tmp_path) as server:
        tried = writes_of(server)
        assert ("POST", "/v1/chat/completions") in tried
        for method, path in tried:
            answer = await server.http.request(method, path, json={}, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "cross_site"), path


async def test_our_own_page_and_clients_that_are_no_browser_may_write(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        own = server.url.rstrip("/")
        for headers in (
            {},
            {"Origin": own},
            {"Origin": own, "Sec-Fetch-Site": "same-origin"},
            {"Sec-Fetch-Site": "none"},
        ):
            assert (await server.http.post("/api/sessions", json={}, headers=headers)).status_code == 201


async def test_another_site_cannot_load_our_data_into_its_page(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert (await server.http.get("/api/sessions", headers=foreign)).status_code == 403
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        page = await server.http.get("/", headers=link)
        assert page.status_code == 200
        assert page.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in page.headers


async def test_behind_a_trusted_proxy_the_origin_is_the_public_one(store: Store, tmp_path: Path) -> None:
    settings = {**LOCKED, "trusted_proxies": ("127.0.0.1",), "hosts": ("agent.example",)}
    async with run_web(store, tmp_path, settings=settings) as server:
        forwarded = {
            **await bearer(server),
            "X-Forwarded-Proto": "https",
            "X-Forwarded-Host": "agent.example",
            "X-Forwarded-For": "203.0.113.5",
        }
        good = {"Origin": "https://agent.example", **forwarded}
        assert (await server.http.post("/api/sessions", json={}, headers=good)).status_code == 201
        bad = {"Origin": "http://agent.example", **forwarded}
        assert (await server.http.post("/api/sessions", json={}, headers=bad)).status_code == 403
        rebound = {**forwarded, "X-Forwarded-Host": "evil.example"}
        assert (await server.http.get("/api/sessions", headers=rebound)).status_code == 421


async def test_an_untrusted_proxy_is_not_believed(store: Store, tmp_path: Path) -> None:
    settings = {**LOCKED, "trusted_proxies": ("10.0.0.0/8",), "hosts": ("agent.example",)}
    async with run_web(store, tmp_path, settings=settings) as server:
        headers = {
            **await bearer(server),
            "Host": "evil.example",
            "X-Forwarded-Host": "agent.example",
            "X-Forwarded-For": "10.0.0.1",
        }
        assert (await server.http.get("/api/sessions", headers=headers)).status_code == 421


# --- what is brought in ------------------------------------------------------------------------------


async def test_an_imported_preview_is_as_short_as_any(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        made = await server.new_session(title="Small")
        document = (await server.http.get(f"/api/sessions/{made['id']}/export")).json()
        document["session"]["preview"] = "word " * 600_000
        taken = await server.http.post("/api/sessions/import", json=document)
        assert taken.status_code == 201
        listed = (await server.http.get("/api/sessions")).json()["items"]
        assert max(len(row.get("preview", "")) for row in listed) <= 300
        assert taken.json()["preview"].startswith("word word")


# --- the log -----------------------------------------------------------------------------------------


async def test_no_request_writes_escape_sequences_to_the_operators_terminal(
    store: Store, tmp_path: Path
) -> None:
    screen = io.StringIO()
    handler = logging.StreamHandler(screen)
    handler.setFormatter(ForPeople())
    root = logging.getLogger("everturn")
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        async with run_web(store, tmp_path, settings=LOCKED) as server:
            for path in ("/%1b%5d0;owned%07", "/api/sessions/%0a12:00:00%20forged", "/%c2%9b2J%e2%80%ae"):
                await server.http.get(path)
                await server.http.post(path, json={})
            hostile = b"GET /api/me HTTP/1.1\r\nHost: \x9b2J.example\r\nUser-Agent: \x9b2J\r\n\r\n"
            assert (await raw(server, hostile)).startswith(b"HTTP/1.1 421")
            await server.http.post("/api/signin", json={"password": "\x1b[2J\nwrong"})
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
    lines = screen.getvalue().splitlines()
    assert any("owned" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("12:00:00 forged") for line in lines)


# --- content types -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "media",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/json; charset=utf-16",
        "application/jsonp",
        "",
    ],
)
async def test_only_json_that_says_so_is_parsed(store: Store, tmp_path: Path, media: str) -> None:
    async with run_web(store, tmp_path) as server:
        for method, path in writes_of(server):
            is_form = media.startswith("multipart/form-data")
            if path == "/api/uploads" or (is_form and path.startswith("/api/sessions/import/")):
                continue  # they take files, not JSON
            answer = await server.http.request(
                method, path, content=b'{"title":"smuggled"}', headers={"Content-Type": media}
            )
            assert (answer.status_code, answer.json()["code"]) == (415, "not_json"), (method, path)
        assert (await server.http.get("/api/sessions")).json()["items"] == []


async def test_json_with_a_charset_is_json_and_packed_json_is_not(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        good = {"Content-Type": "Application/JSON; charset=UTF-8"}
        assert (await server.http.post("/api/sessions", content=b"{}", headers=good)).status_code == 201
        packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        answer = await server.http.post("/api/sessions", content=b"\x1f\x8b", headers=packed)
        assert answer.status_code == 415


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "bad_json"),
        (b"", 422, "text_empty"),
        (b"[]", 422, "invalid"),
        (b'{"text":5}', 422, "invalid"),
        (b'{"text":"x","extra":1}', 422, "invalid"),
        (b'{"text":"\xff"}', 400, "bad_json"),
        (b'{"text":"\\ud800"}', 400, "bad_json"),
        (b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422, "invalid"),
        (b'{"text":"x","attachments":["../../etc/passwd"]}', 422, "invalid"),
    ],
)
async def test_bodies_that_are_wrong_are_refused_with_a_reason(
    store: Store, tmp_path: Path, body: bytes, status: int, code: str
) -> None:
    async with run_web(store, tmp_path) as server:
        session_id = (await server.new_session())["id"]
        answer = await server.http.post(
            f"/api/sessions/{session_id}/turns", content=body, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert (await server.http.get(f"/api/sessions/{session_id}")).json()["position"] == 0


async def test_invalid_ids_are_refused(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        for wrong in ("ses_1", "1", "ses_" + "U" * 26, "..%2f..%2fetc", "%00", "ses_" + "0" * 26 + "'--"):
            answer = await server.http.get(f"/api/sessions/{wrong}")
            assert answer.status_code in (404, 422), wrong


# --- headers of every answer -------------------------------------------------------------------------


async def test_every_answer_carries_the_strict_headers(store: Store, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("<!doctype html>")
    async with run_web(store, tmp_path, settings={"page": page}) as server:
        answers = [
            await server.http.get(path)
            for path in ("/", "/api/sessions", "/nowhere.txt", "/docs", "/metrics", "/api/sessions/x")
        ]
        for answer in answers:
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "server" not in answer.headers
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            scripts = re.findall(r"script-src ([^;]*)", policy)
            assert scripts in ([], ["'self'"])
        root = answers[0].headers["content-security-policy"]
        assert "img-src 'self' data: blob:;" in root
        assert answers[1].headers["cache-control"] == "no-store"


# --- files -------------------------------------------------------------------------------------------


async def upload(server: Running, content: bytes, name: str) -> httpx2.Response:
    return await server.http.post(
        "/api/uploads",
        params={"name": name},
        content=content,
        headers={"Content-Type": "application/octet-stream"},
    )


@pytest.mark.parametrize(
    ("content", "name", "media", "shown"),
    [
        (PNG, "a.png", "image/png", True),
        (PNG, "a.html", "image/png", True),
        (b"<html><script>alert(1)</script>", "a.html", "text/html", False),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "a.svg", "image/svg+xml", False),
        (b"<script>alert(1)</script>", "a.png", "text/plain", False),
        (b"%PDF-1.7", "a.pdf", "application/pdf", False),
        (b"\0\1\2\3", "a.txt", "application/octet-stream", False),
        (b"plain words", "a.txt", "text/plain", False),
    ],
)
async def test_images_are_shown_and_everything_else_is_a_download(
    store: Store, tmp_path: Path, content: bytes, name: str, media: str, shown: bool
) -> None:
    async with run_web(store, tmp_path) as server:
        stored = (await upload(server, content, name)).json()
        assert stored["media_type"] == media
        answer = await server.http.get(f"/api/files/{stored['id']}")
        assert answer.content == content
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("sandbox")
        disposition = answer.headers["content-disposition"]
        assert disposition.startswith("inline" if shown else "attachment")
        assert answer.headers["content-type"] == (media if shown else "application/octet-stream")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\system.ini", "system.ini"),
        ('a"b\r\nSet-Cookie: x', 'a"bSet-Cookie: x'),
        ("..", "file"),
        ("\u202egnp.exe", "gnp.exe"),
        ("x" * 500 + ".txt", "x" * 196 + ".txt"),
        ("Grüße.txt", "Grüße.txt"),
    ],
)
async def test_a_files_name_is_only_a_name(store: Store, tmp_path: Path, given: str, kept: str) -> None:
    async with run_web(store, tmp_path) as server:
        stored = (await upload(server, b"x", given)).json()
        assert stored["name"] == kept
        answer = await server.http.get(f"/api/files/{stored['id']}")
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
        inside = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert not any(path.name in (kept, given) for path in inside)


async def test_uploads_have_a_limit_and_leave_nothing_behind(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"upload_bytes_max": 1_000_000}) as server:
        assert (await upload(server, b"x" * 1_000_000, "fits")).status_code == 201

        async def unannounced() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b"x" * 100_000

        contents: list[bytes | AsyncIterator[bytes]] = [b"x" * 3_000_000, unannounced()]
        for content in contents:
            answer = await server.http.post(
                "/api/uploads",
                content=content,
                headers={"Content-Type": "application/octet-stream"},
            )
            assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
            assert answer.json()["hint"].startswith("Attach the part that is needed")
        assert list((tmp_path / "uploads").iterdir()) == []


async def test_a_form_with_a_file_is_streamed_too(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"upload_bytes_max": 1_000_000}) as server:
        content = PNG * 5000
        sent = await server.http.post("/api/uploads", files={"file": ("../pic.png", content)})
        assert sent.status_code == 201, sent.text
        assert (sent.json()["name"], sent.json()["size"]) == ("pic.png", len(content))
        large = await server.http.post("/api/uploads", files={"file": ("a", b"x" * 2_000_000)})
        assert large.status_code == 413
        fields = await server.http.post(
            "/api/uploads", content=b"x", headers={"Content-Type": "multipart/form-data; boundary=b"}
        )
        assert (fields.status_code, fields.json()["code"]) == (400, "bad_request")
        naked = await server.http.post(
            "/api/uploads", content=b"x", headers={"Content-Type": "multipart/form-data"}
        )
        assert naked.status_code == 400
        long = await server.http.post(
            "/api/uploads",
            content=b"x",
            headers={"Content-Type": f"multipart/form-data; boundary={'b' * 300}"},
        )
        assert (long.status_code, long.json()["code"]) == (400, "bad_request")
        crumbs = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n' * 101
        many = await server.http.post(
            "/api/uploads", content=crumbs, headers={"Content-Type": "multipart/form-data; boundary=b"}
        )
        assert (many.status_code, "parts" in many.json()["detail"]) == (400, True)
        endless = {"name": b"--b\r\n" + b"X" * 50_000, "junk": b"--b\r\n\r\n" + b"x" * 3_000_000}
        for what, (status, code) in {"name": (400, "bad_request"), "junk": (413, "body_too_large")}.items():

            async def pieces(content: bytes = endless[what]) -> AsyncIterator[bytes]:
                for start in range(0, len(content), 10_000):
                    yield content[start : start + 10_000]

            form = {"Content-Type": "multipart/form-data; boundary=b"}
            refused = await server.http.post("/api/uploads", content=pieces(), headers=form)
            assert (refused.status_code, refused.json()["code"]) == (status, code), what
        assert list((tmp_path / "uploads").iterdir()) == []


# --- large, broken and slow clients ------------------------------------------------------------------


async def raw(server: Running, data: bytes) -> bytes:
    """Send bytes as they are; return everything until the server closes or has answered."""
    got = b""
    async with await anyio.connect_tcp("127.0.0.1", server.port) as stream:
        await stream.send(data)
        with anyio.move_on_after(PATIENCE_S):
            try:
                while b"\r\n\r\n" not in got:
                    got += await stream.receive()
            except anyio.EndOfStream:
                pass
    return got


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"body_bytes_max": 10_000}) as server:
        answer = await server.http.post("/api/sessions", json={"title": "x" * 20_000})
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        head = (
            f"POST /api/sessions HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
            "Content-Type: application/json\r\n"
        )
        huge = await raw(server, head.encode() + b"Content-Length: 99999999999\r\n\r\n{")
        assert huge.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_http_get_400_and_disturb_no_other_client(
    store: Store, tmp_path: Path, request_bytes: bytes
) -> None:
    async with run_web(store, tmp_path) as server:
        answer = await raw(server, request_bytes)
        assert answer.startswith(b"HTTP/1.1 400")
        assert (await server.http.get("/healthz")).status_code == 200


_WRITE = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET http://evil.example/api/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://localhost/api/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n",
        _WRITE + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        _WRITE + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
async def test_a_request_that_two_servers_could_read_differently_is_refused(
    store: Store, tmp_path: Path, request_bytes: bytes
) -> None:
    async with run_web(store, tmp_path) as server:
        answer = await raw(server, request_bytes)
        assert answer.startswith(b"HTTP/1.1 400")
        assert (await server.http.get("/api/sessions")).json()["items"] == []


@pytest.mark.parametrize("name", ["Idempotency-Key", "If-Match", "Last-Event-ID", "X-Everturn-Session"])
async def test_what_may_be_said_once_is_not_said_twice(store: Store, tmp_path: Path, name: str) -> None:
    async with run_web(store, tmp_path) as server:
        answer = await server.http.get("/api/sessions", headers=[(name, "1"), (name, "2")])
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_an_address_that_is_too_long_for_a_file_is_the_page_or_nothing(
    store: Store, tmp_path: Path
) -> None:
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("the page")
    async with run_web(store, tmp_path, settings={"page": page}) as server:
        assert (await server.http.get("/s/" + "a" * 5_000)).text == "the page"
        assert (await server.http.get("/assets/" + "a" * 5_000 + ".js")).status_code == 404


async def test_a_head_that_is_too_large_gets_431(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"head_bytes_max": 8_000}) as server:
        fat = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Fat: " + b"x" * 9_000
        assert (await raw(server, fat + b"\r\n\r\n")).startswith(b"HTTP/1.1 431")
        many = b"".join(b"X-%d: 1\r\n" % n for n in range(2_000))
        answer = await raw(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 431")


async def test_a_client_that_never_finishes_its_head_is_disconnected(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"head_timeout_s": 0.2}) as server:
        assert (await raw(server, b"GET /healthz HTTP/1.1\r\nHost: loc")).startswith(b"HTTP/1.1 408")
        assert (await raw(server, b"")).startswith(b"HTTP/1.1 408")


async def test_a_client_that_never_finishes_its_body_is_disconnected(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"body_timeout_s": 0.2}) as server:
        head = (
            f"POST /api/sessions HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
            "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
        )
        answer = await raw(server, head.encode())
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in answer


async def test_a_body_that_drips_is_cut_off_however_regularly_it_does() -> None:
    sent = 0

    async def drip() -> dict[str, object]:
        nonlocal sent
        sent += 1
        await anyio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with anyio.fail_after(PATIENCE_S), pytest.raises(BodyTooSlow):
        await collect(drip, 1_000_000, 0.1, None)
    assert sent > 1


async def test_clients_that_send_slowly_leave_the_server_to_the_others(store: Store, tmp_path: Path) -> None:
    """Clients can send half a password without signing in."""
    async with run_web(
        store, tmp_path, settings={"requests_max": 2, "password": "a good password"}
    ) as server:
        head = (
            f"POST /api/signin HTTP/1.1\r\nHost: localhost:{server.port}\r\nExpect: 100-continue\r\n"
            "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        )
        async with AsyncExitStack() as stack:
            for _ in range(5):
                slow = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", server.port))
                await slow.send(head.encode())
                assert (await slow.receive()).startswith(b"HTTP/1.1 100")  # now it waits for the body
            answer = await server.http.post("/api/signin", json={"password": "a good password"})
            assert answer.status_code == 200
        large = await server.http.post("/api/signin", json={"password": "x" * 20_000})
        assert large.status_code == 413


async def test_more_requests_than_the_bound_get_429_with_retry_after(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"requests_max": 0}) as server:
        answer = await server.http.get("/api/sessions")
        assert (answer.status_code, answer.json()["code"]) == (429, "overloaded")
        assert answer.headers["retry-after"] == "1"
        for probe in ("/healthz", "/readyz", "/metrics"):
            assert (await server.http.get(probe)).status_code == 200


async def test_an_unexpected_error_reveals_nothing_internal(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_web(store, tmp_path) as server:

        async def broken(*args: object, **more: Any) -> None:
            raise RuntimeError("the password is hunter2")

        server.store.sessions.list = broken  # type: ignore[method-assign,assignment]  # a stand-in that fails
        answer = await server.http.get("/api/sessions")
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (500, "internal")
        assert "hunter2" not in answer.text
        assert problem["request_id"] in caplog.text


async def test_a_websocket_is_refused_without_a_trace(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        head = (
            f"GET /api/events HTTP/1.1\r\nHost: localhost:{server.port}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n"
        )
        answer = await raw(server, head.encode())
        assert b"101" not in answer.split(b"\r\n")[0]
