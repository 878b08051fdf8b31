from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.messages import Outcome
from everturn.tools import Fetcher
from everturn.tools.schema import ToolFailed
from everturn.tools.web.fetch import is_public
from everturn.tools.web.readable import readable
from tests.unit.tools.kit import open_kit

pytestmark = pytest.mark.anyio

PAGE = """<!doctype html><html><head><title>The &amp; Title</title><style>p{}</style></head><body>
<nav><a href="/x">menu</a></nav><script>alert('<p>no</p>')</script>
<h1>Head</h1><p>First   paragraph with a <a href="https://example.com/a">link</a>.</p>
<ul><li>one</li><li>two</li></ul><pre>keep
  this</pre><table><tr><td>a</td><td>b</td></tr></table><footer>foot</footer></body></html>"""


BOMB = gzip.compress(b"0" * 20_000_000, 1)


class _Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.visits: list[str] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: _Site

    def do_GET(self) -> None:
        self.server.visits.append(f"{self.headers['Host']} {self.path}")
        path, _, query = self.path.partition("?")
        if path == "/redirect":
            self.send_response(302)
            self.send_header("Location", query)
            self.end_headers()
            return
        bodies = {
            "/page": ("text/html; charset=utf-8", PAGE.encode(), ""),
            "/latin": ("text/html; charset=iso-8859-1", "<p>naïve</p>".encode("latin-1"), ""),
            "/json": ("application/json", b'{"a": 1}', ""),
            "/slow": ("text/plain; charset=punycode", b"caf\xc3\xa9 " + b"a-" * 2_000_000, ""),
            "/binary": ("image/png", b"\x89PNG\0", ""),
            "/bomb": ("text/plain", BOMB, "gzip"),
            "/zipped": ("text/plain", gzip.compress(b"unpacked"), "gzip"),
            "/broken": ("text/plain", b"not gzip at all", "gzip"),
            "/brotli": ("text/plain", b"x", "br"),
            "/long": ("text/plain", b"".join(b"%d\n" % n for n in range(20000)), ""),
            "/huge": ("text/plain", b"x" * 9_000_000, ""),
        }
        kind, body, encoding = bodies.get(path, ("text/plain", b"nothing here", ""))
        self.send_response(200 if path in bodies else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        try:
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            return  # the reader had enough, as it should

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def site() -> Iterator[_Site]:
    server = _Site()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def fetcher(site: _Site, **options: Any) -> Fetcher:
    return Fetcher(allowed=frozenset({("127.0.0.1", site.port)}), **options)


async def test_a_page_comes_back_as_readable_text(site: _Site, tmp_path: Path) -> None:
    async with open_kit(tmp_path / "home", fetcher=fetcher(site)) as kit:
        result = await kit.run("web_fetch", url=f"http://127.0.0.1:{site.port}/page")
        assert result.text.startswith(f"http://127.0.0.1:{site.port}/page (200)\nThe & Title\n\n# Head\n")
        assert "First paragraph with a [link](https://example.com/a)." in result.text
        assert "- one\n- two" in result.text
        assert "keep\n  this" in result.text
        for gone in ("alert", "menu", "foot", "p{}"):
            assert gone not in result.text
        assert result.display["title"] == "The & Title"

        assert result.full_output is not None  # the page is kept, also if the model has seen all of it
        assert result.full_output.decode() in result.text
        missing = await kit.run("web_fetch", url=f"http://127.0.0.1:{site.port}/none")
        assert (missing.outcome, "404" in missing.text) == (Outcome.ERROR, True)
        assert "not text" in (await kit.run("web_fetch", url=f"http://127.0.0.1:{site.port}/binary")).text
        assert '{"a": 1}' in (await kit.run("web_fetch", url=f"http://127.0.0.1:{site.port}/json")).text
        assert "naïve" in (await kit.run("web_fetch", url=f"http://127.0.0.1:{site.port}/latin")).text


async def test_a_long_page_can_be_read_in_parts(site: _Site, tmp_path: Path) -> None:
    async with open_kit(tmp_path / "home", fetcher=fetcher(site)) as kit:
        url = f"http://127.0.0.1:{site.port}/long"
        first = await kit.run("web_fetch", url=url)
        assert first.full_output == b"".join(b"%d\n" % n for n in range(20000))
        start = int(first.text.rpartition("start=")[2].rstrip("]"))
        second = await kit.run("web_fetch", url=url, start=start)
        assert len(second.text) < 49_000
        head = first.text.partition("\n\n")[2].rpartition("\n[")[0]
        rest = second.text.partition("\n\n")[2].rpartition("\n[")[0]
        assert first.full_output.decode().startswith(head + rest)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "192.0.0.1", "192.0.0.192", "168.63.129.16", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:4136::1", "2001:db8::1",
        "fec0::1", "feff::1", "100::1", "5f00::1", "4000::1", "e000::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.215.14", "2606:4700:4700::1111"])
def test_addresses_that_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:PORT/page",
        "http://localhost:PORT/page",
        "http://127.1:PORT/page",
        "http://2130706433:PORT/page",
        "http://0x7f000001:PORT/page",
        "http://0177.0.0.1:PORT/page",
        "http://0.0.0.0:PORT/page",
        "http://0:PORT/page",
        "http://[::ffff:127.0.0.1]:PORT/page",
        "http://[::1]:PORT/page",
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1.:PORT/page",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "gopher://127.0.0.1:PORT/",
        "http://user:pw@127.0.0.1:PORT/page",
        "http:///page",
        "http://" + "a" * 70 + ".example/",
        "not an address",
        "//127.0.0.1/x",
    ],
)
async def test_nothing_on_this_machine_is_reached_however_it_is_written(site: _Site, url: str) -> None:
    with pytest.raises(ToolFailed):
        await Fetcher().get(url.replace("PORT", str(site.port)))
    assert site.visits == []


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.2:{0}/page", "http://localhost:{0}/page", "file:///etc/passwd", "http://10.0.0.1/"],
)
async def test_a_redirect_is_checked_like_the_first_address(site: _Site, target: str) -> None:
    url = f"http://127.0.0.1:{site.port}/redirect?" + target.format(site.port)
    with pytest.raises(ToolFailed):
        await Fetcher(allowed=frozenset({("127.0.0.1", site.port)}), resolve=_answers(["127.0.0.9"])).get(url)
    assert len(site.visits) == 1


async def test_redirects_are_followed_and_end(site: _Site) -> None:
    base = f"http://127.0.0.1:{site.port}"
    assert (await fetcher(site).get(f"{base}/redirect?/json")).url == f"{base}/json"
    with pytest.raises(ToolFailed, match="more than 5"):
        await fetcher(site).get(
            f"{base}/redirect?/redirect?/redirect?/redirect?/redirect?/redirect?/redirect?/page"
        )


def _answers(*answers: list[str]):
    left = list(answers)

    async def resolve(host: str, port: int) -> list[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


async def test_a_name_that_changes_its_address_gains_nothing(site: _Site) -> None:
    """The name is resolved once, and that very answer is used: a second one is never asked for."""
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        # First harmless and allowed, then somewhere it must not go.
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    page = await Fetcher(allowed=frozenset({("127.0.0.1", site.port)}), resolve=resolve).get(
        f"http://rebind.example:{site.port}/json"
    )
    assert page.status == 200
    assert asked == ["rebind.example"]
    assert site.visits == [f"rebind.example:{site.port} /json"]


async def test_one_private_address_among_public_ones_refuses_the_name(site: _Site) -> None:
    with pytest.raises(ToolFailed, match="not a public address"):
        await Fetcher(resolve=_answers(["8.8.8.8", "127.0.0.1"])).get(
            f"http://mixed.example:{site.port}/page"
        )
    assert site.visits == []


async def test_a_bomb_stops_at_the_limit(site: _Site) -> None:
    page = await fetcher(site, body_bytes_max=100_000).get(f"http://127.0.0.1:{site.port}/bomb")
    assert (len(page.body), page.is_cut) == (100_000, True)
    page = await fetcher(site, body_bytes_max=100_000).get(f"http://127.0.0.1:{site.port}/huge")
    assert (len(page.body), page.is_cut) == (100_000, True)
    page = await fetcher(site).get(f"http://127.0.0.1:{site.port}/zipped")
    assert (page.body, page.is_cut) == (b"unpacked", False)


@pytest.mark.parametrize("path", ["broken", "brotli"])
async def test_a_body_that_cannot_be_unpacked_is_reported(site: _Site, path: str) -> None:
    with pytest.raises(ToolFailed):
        await fetcher(site).get(f"http://127.0.0.1:{site.port}/{path}")


async def test_a_charset_that_is_not_for_text_is_not_used(site: _Site, tmp_path: Path) -> None:
    """Decoded with the charset that it names, this page takes hours, in a thread that cannot be stopped."""
    async with open_kit(tmp_path / "home", fetcher=fetcher(site)) as kit:
        result = await kit.run("web_fetch", url=f"http://127.0.0.1:{site.port}/slow")
        assert "café a-a-" in result.text


async def test_a_redirect_to_an_invalid_address_is_reported(site: _Site) -> None:
    for target in ("http://[::1", "http://a:99999999/", "http://a b/", "//"):
        with pytest.raises(ToolFailed):
            await fetcher(site).get(f"http://127.0.0.1:{site.port}/redirect?{target}")


async def test_a_server_that_says_nothing_is_left(site: _Site) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        quick = Fetcher(allowed=frozenset({("127.0.0.1", port)}), total_timeout_s=0.3)
        with pytest.raises(ToolFailed, match="longer than"):
            await quick.get(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("end", ["", ">", "</a>", "</form>"])
@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<!--",
        "<a ",
        "<a href='",
        "</",
        "<script>",
        "<form>",
        "&#",
        "<a href=/x>y",
        "<pre> ",
        " ",
        "<b",
        "<p>",
    ],
)
def test_hostile_html_costs_what_its_length_costs(piece: str, end: str) -> None:
    """With anything quadratic in it, one of these takes minutes."""
    page = piece * 50_000 + end * 50_000
    began = time.process_time()
    readable(page)
    assert time.process_time() - began < 4


def test_numbers_that_are_too_large_are_no_characters() -> None:
    assert readable("a&#" + "9" * 10_000 + ";b &#65;").text.endswith("b A")


async def test_once_tainted_a_redirect_to_another_host_is_not_followed(site: _Site, tmp_path: Path) -> None:
    """The user allowed the first host; an open redirect there would send the words on to any other."""
    fetching = fetcher(site)
    base = f"http://127.0.0.1:{site.port}"
    async with open_kit(tmp_path, fetcher=fetching) as kit:
        away = f"{base}/redirect?http://localhost:{site.port}/page?secret"
        result = await kit.run("web_fetch", {"is_tainted": True}, url=away)
        assert result.outcome is Outcome.ERROR
        assert "another host" in result.text
        assert site.visits == [f"127.0.0.1:{site.port} {away.removeprefix(base)}"]
        result = await kit.run("web_fetch", {"is_tainted": True}, url=f"{base}/redirect?/page")
        assert result.outcome is Outcome.OK
