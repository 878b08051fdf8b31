from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from everturn.models import network
from everturn.models.network import Transport, make_client

pytestmark = pytest.mark.anyio

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    done: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done.append(writer)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in done:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with its own body, for as long as the connection is used."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split()[0]) if "content-length:" in head else 0
        body = await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()


async def test_large_bodies_both_ways(client: httpx2.AsyncClient) -> None:
    body = os.urandom(5_000_000)
    async with serving(echo) as port:
        response = await client.post(f"http://127.0.0.1:{port}/", content=body)
    assert response.content == body


async def test_a_slow_reader_holds_the_sender_back(client: httpx2.AsyncClient) -> None:
    total, sent = 50_000_000, 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    async with serving(flood) as port, client.stream("GET", f"http://127.0.0.1:{port}/") as response:
        pieces = response.aiter_raw()
        received = len(await anext(pieces))
        settled = -1
        while settled != sent:  # until the kernel's buffers are full as well
            settled = sent
            for _ in range(200):
                await asyncio.sleep(0)
        assert sent < total / 2
        async for piece in pieces:
            received += len(piece)
    assert received == total


async def test_many_connections_at_once(client: httpx2.AsyncClient) -> None:
    texts: set[str] = set()

    async def ask(port: int, number: int) -> None:
        response = await client.post(f"http://127.0.0.1:{port}/", content=str(number))
        texts.add(response.text)

    async with serving(echo) as port, anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(ask, port, number)
    assert texts == {str(number) for number in range(200)}


async def test_a_connection_that_was_closed_meanwhile_is_not_used_again(client: httpx2.AsyncClient) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await writer.drain()

    async with serving(once) as port:
        for _ in range(20):
            assert (await client.get(f"http://127.0.0.1:{port}/")).text == "ok"


async def test_each_read_has_its_own_timeout(client: httpx2.AsyncClient) -> None:
    """A short timeout after a long one must ring in time, although one timer watches both."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await reader.readuntil(b"\r\n\r\n")

    async with serving(silent) as port:
        address = f"http://127.0.0.1:{port}/"
        assert (await client.get(address, timeout=600)).text == "ok"
        with anyio.fail_after(60), pytest.raises(httpx2.ReadTimeout):
            await client.get(address, timeout=0.05)


async def test_cancelling_a_read_leaves_nothing_behind(client: httpx2.AsyncClient) -> None:
    gone = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart")
        assert await reader.read() == b""  # the other side is gone
        gone.set()

    async with serving(hang) as port:
        with anyio.fail_after(60):
            with anyio.CancelScope() as reading:
                async with client.stream("GET", f"http://127.0.0.1:{port}/") as answer:
                    pieces = answer.aiter_raw()
                    assert await anext(pieces) == b"part"
                    reading.cancel()
                    await anext(pieces)
            await gone.wait()


async def test_a_request_that_the_server_never_reads_times_out(client: httpx2.AsyncClient) -> None:
    async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(never_reads) as port:
        with pytest.raises((httpx2.WriteTimeout, httpx2.ReadTimeout)):
            await client.post(f"http://127.0.0.1:{port}/", content=b"x" * 50_000_000, timeout=0.1)


async def test_a_closed_port_is_a_connection_error(client: httpx2.AsyncClient) -> None:
    async with serving(echo) as port:
        pass
    with pytest.raises(httpx2.ConnectError):
        await client.get(f"http://127.0.0.1:{port}/")


# --- TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


async def test_tls_with_a_known_certificate(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    body = os.urandom(1_000_000)
    async with (
        serving(echo, server_context(certificate)) as port,
        httpx2.AsyncClient(transport=Transport(trusting), timeout=60) as client,
    ):
        for _ in range(2):
            assert (await client.post(f"https://localhost:{port}/", content=body)).content == body


async def test_tls_with_an_unknown_certificate_is_refused(certificate: Path) -> None:
    async with serving(echo, server_context(certificate)) as port, make_client() as client:
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await client.get(f"https://localhost:{port}/")


async def test_tls_with_another_name_is_refused(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    async with (
        serving(echo, server_context(certificate)) as port,
        httpx2.AsyncClient(transport=Transport(trusting), timeout=60) as client,
    ):
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await client.get(f"https://127.0.0.1:{port}/")


async def test_plain_text_where_tls_should_be(client: httpx2.AsyncClient) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(plain) as port:
        with pytest.raises(httpx2.ConnectError):
            await client.get(f"https://127.0.0.1:{port}/")


async def test_a_proxy_is_used_where_one_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with serving(proxy) as port:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with network.make_client() as client:
            assert (await client.get("http://model.example/v1/models")).text == "ok"
    assert seen == ["GET http://model.example/v1/models HTTP/1.1"]
