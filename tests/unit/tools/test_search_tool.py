from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpcore2
import pytest

from everturn.domain.errors import Invalid
from everturn.domain.messages import Outcome
from everturn.tools import Fetcher, Profile
from everturn.tools.sandbox.gate import Gate
from everturn.tools.schema import ToolFailed
from everturn.tools.web.fetch import CheckedNetwork
from everturn.tools.web.search_providers import Brave, DuckDuckGo, SearchProviders, Tavily
from everturn.tools.web.settings import SearchSettings
from tests.unit.tools.kit import Kit, open_kit, profiles_of

pytestmark = pytest.mark.anyio

KEY = "k-123456"
PAGES: list[dict[str, Any]] = [
    {"url": "https://one.example/a", "title": "One", "content": "First  words\n2. not a result"},
    {"url": "https://one.example/a", "title": "One again", "content": ""},
    {"url": "javascript:alert(1)", "title": "No address", "content": ""},
    {"url": "https://two.example/", "title": None, "content": None},
    {"url": "https://three.example/", "title": "<b>Three</b> &amp; more", "content": "a &lt;p> b"},
]
DUCK = """<html><body><div class="result__body"><h2><a href="https://duck.example/">A <b>duck</b></a></h2>
<a href="https://duck.example/">It says quack.</a></div></body></html>"""


class _Service(ThreadingHTTPServer):
    """Answers as SearXNG, Brave, Tavily and DuckDuckGo do. ``fails``: what each request gets instead."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.fails: tuple[int, bytes] | None = None
        self.pages: list[dict[str, Any]] = PAGES
        self.silent: list[list[str]] = []

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Service

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.server.asked.append((url.path, asked))
        if url.path.endswith("/res/v1/web/search"):
            self._send_if(
                self.headers["X-Subscription-Token"] == KEY,
                (422, b'{"error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}}'),
                {
                    "web": {
                        "results": [{**page, "description": page["content"]} for page in self.server.pages]
                    }
                },
            )
        else:
            silent = self.server.silent
            self._send_if(
                asked.get("format") == "json",
                (403, b""),
                {"results": self.server.pages, "unresponsive_engines": silent},
            )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/html/":
            asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            self.server.asked.append((self.path, asked))
            self._answer(200, "text/html", DUCK.encode())
            return
        self.server.asked.append((self.path, json.loads(body)))
        allowed = self.headers["Authorization"] == f"Bearer {KEY}"
        self._send_if(allowed, (401, b"{}"), {"results": self.server.pages})

    def _send_if(self, allowed: bool, refusal: tuple[int, bytes], answer: dict[str, Any]) -> None:
        status, body = self.server.fails or ((200, json.dumps(answer).encode()) if allowed else refusal)
        self._answer(status, "application/json", body)

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def _serve(server: _Service) -> Iterator[_Service]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def service() -> Iterator[_Service]:
    yield from _serve(_Service())


@pytest.fixture
async def searching(service: _Service, tmp_path: Path, anyio_backend: str):
    """A toolbox that searches with a SearXNG at a private address, which only its operator may name."""
    async with open_kit(tmp_path / "home", web_search=SearchSettings(url=service.root + "/searx/")) as kit:
        yield kit


def near(service: _Service) -> Fetcher:
    return Fetcher(allowed=frozenset({("127.0.0.1", int(service.server_address[1]))}))


async def test_results_are_numbered_with_title_address_and_snippet(searching: Kit, service: _Service) -> None:
    result = await searching.run("web_search", query="two\nwords")
    assert service.asked == [("/searx/search", {"q": "two words", "format": "json"})]
    assert result.text == (
        "SearXNG, results for 'two words':\n\n"
        "1. One\n   https://one.example/a\n   First words 2. not a result\n\n"
        "2. (no title)\n   https://two.example/\n\n"
        "3. Three & more\n   https://three.example/\n   a <p> b"
    )
    assert result.display == {
        "kind": "search",
        "query": "two words",
        "provider": "SearXNG",
        "count": 3,
        "hits": [
            {"title": "One", "url": "https://one.example/a"},
            {"title": "(no title)", "url": "https://two.example/"},
            {"title": "Three & more", "url": "https://three.example/"},
        ],
    }
    first = await searching.run("web_search", query="two words", count=1)
    assert "\n2." not in first.text
    assert (await searching.run("web_search", query="x", count=21)).outcome is Outcome.ERROR


async def test_what_a_search_finds_is_outside_text_and_may_be_asked_again(searching: Kit) -> None:
    (spec,) = [
        t.spec for t in await searching.toolbox.tools("olga", "ses_01", None) if t.spec.name == "web_search"
    ]
    assert (spec.is_untrusted, spec.is_safe_to_repeat, spec.reads_only) == (True, True, True)


async def test_a_search_after_outside_text_asks_and_can_be_allowed_once_only(
    service: _Service, tmp_path: Path
) -> None:
    settings = SearchSettings(url=service.root)
    host = service.root.removeprefix("http://")
    profiles = profiles_of(Profile(name="listed", hosts=(host,)))
    async with open_kit(tmp_path / "home", web_search=settings, profiles=profiles) as kit:
        assert (await kit.rule("web_search", query="everything")).verdict == "allow"
        tainted = {"is_tainted": True}
        ruling = await kit.rule("web_search", tainted, query="everything")
        assert (ruling.verdict, ruling.options, ruling.label) == ("ask", ("once", "deny"), "everything")
        assert host in ruling.reason
        await kit.remember("session", "web_search", tainted, query="everything")
        assert (await kit.rule("web_search", tainted, query="everything")).verdict == "ask"
        listed = {**tainted, "profile": "listed"}
        assert (await kit.rule("web_search", listed, query="everything")).verdict == "allow"
        assert service.asked == []


async def test_the_address_of_searxng_opens_no_other_private_address(
    searching: Kit, service: _Service
) -> None:
    result = await searching.run("web_fetch", url=f"{service.root}/search?q=a&format=json")
    assert "not a public address" in result.text
    service.fails = (302, b"")
    result = await searching.run("web_search", query="a")
    assert result.outcome is Outcome.ERROR
    assert "redirects to 'http://127.0.0.1:1/elsewhere', which was not contacted" in result.text
    assert len(service.asked) == 1


async def test_each_failure_says_what_to_do(searching: Kit, service: _Service) -> None:
    for status, body, words in (
        (429, b"", "limits how often"),
        (403, b"", "add json to search.formats"),
        (502, b"", "not working now (status 502)"),
        (200, b"<html>", "other than search results"),
        (200, b"x" * 5_000_000, "more than 4,194,304 bytes"),
    ):
        service.fails = (status, body)
        result = await searching.run("web_search", query="a")
        assert (result.outcome, words in result.text) == (Outcome.ERROR, True), (status, result.text)
    service.fails, service.pages = None, []
    result = await searching.run("web_search", query="a")
    assert (result.outcome, result.text) == (
        Outcome.OK,
        "SearXNG has no results for 'a'. Try fewer or other words.",
    )
    service.silent = [["google", "CAPTCHA"], ["bing", "timeout"]]
    assert "did not answer: google, bing." in (await searching.run("web_search", query="a")).text


async def test_a_service_that_is_away_is_named(tmp_path: Path) -> None:
    settings = SearchSettings(url="http://127.0.0.1:1")
    async with open_kit(tmp_path / "home", web_search=settings) as kit:
        result = await kit.run("web_search", query="a")
        assert result.outcome is Outcome.ERROR
        assert result.text.startswith("SearXNG could not be reached: http://127.0.0.1:1 could not be read")


async def test_brave_and_tavily_get_their_key_in_a_header(service: _Service) -> None:
    brave, tavily = Brave(near(service), KEY, service.root), Tavily(near(service), KEY, service.root)
    for provider in (brave, tavily):
        hits = await provider.search("tea & cake", 5)
        assert (hits[0].title, hits[0].url) == ("One", "https://one.example/a")
        assert hits[0].snippet.startswith("First")
    assert service.asked == [
        ("/res/v1/web/search", {"q": "tea & cake", "count": "5", "text_decorations": "false"}),
        ("/search", {"query": "tea & cake", "max_results": 5}),
    ]


async def test_a_refused_key_names_its_variable_and_never_the_key(service: _Service) -> None:
    for kind, name in ((Brave, "brave"), (Tavily, "tavily")):
        with pytest.raises(ToolFailed, match=f"{name.upper()}_API_KEY.*keys set {name}") as wrong:
            await kind(near(service), "k-wrong", service.root).search("a", 5)
        assert "k-wrong" not in str(wrong.value)
        for status, words in ((432, "used up"), (429, "limits how often"), (400, "status 400")):
            service.fails = (status, b"{}")
            with pytest.raises(ToolFailed, match=words):
                await kind(near(service), KEY, service.root).search("a", 5)
        service.fails = None


async def test_the_addresses_of_providers_are_checked_and_a_key_follows_no_redirect(
    service: _Service,
) -> None:
    for kind in (Brave, Tavily):
        with pytest.raises(ToolFailed, match="not a public address"):
            await kind(Fetcher(), KEY, service.root).search("a", 5)
    assert service.asked == []
    service.fails = (307, b"")
    with pytest.raises(ToolFailed, match="status 307"):  # a redirect without a target
        await Brave(near(service), KEY, service.root).search("a", 5)
    service.fails = (302, b"")
    with pytest.raises(ToolFailed, match="not contacted"):
        await Brave(near(service), KEY, service.root).search("a", 5)


async def test_who_searches() -> None:
    fetcher = Fetcher()

    def chosen(settings: SearchSettings, *, has_ddgs: bool = False, **keys: str) -> str:
        providers = SearchProviders(
            settings, fetcher, keys.get, Gate(fetcher.network).tunnel, has_ddgs=has_ddgs
        )
        if not providers.is_ready:
            with pytest.raises(ToolFailed, match=r"not set up.*\[search\]"):
                providers.choose()
            return ""
        return providers.choose().title

    url = "http://127.0.0.1:8888"
    assert chosen(SearchSettings()) == ""
    assert chosen(SearchSettings(), has_ddgs=True) == "DuckDuckGo"
    assert chosen(SearchSettings(), has_ddgs=True, TAVILY_API_KEY=KEY) == "Tavily"
    assert chosen(SearchSettings(), tavily=KEY, brave=KEY) == "Brave"
    assert chosen(SearchSettings(url=url), brave=KEY) == "SearXNG"
    assert chosen(SearchSettings(provider="tavily"), has_ddgs=True, brave=KEY) == ""
    assert chosen(SearchSettings(provider="ddgs"), has_ddgs=True, brave=KEY) == "DuckDuckGo"
    assert chosen(SearchSettings(provider="off", url=url), has_ddgs=True, brave=KEY) == ""
    with pytest.raises(Invalid):
        SearchSettings(provider="searxng")
    with pytest.raises(Invalid):
        SearchSettings(provider="brave", url=url)


async def test_without_a_provider_the_tool_is_not_offered(tmp_path: Path) -> None:
    keys: dict[str, str] = {}
    settings = SearchSettings(provider="brave")
    async with open_kit(tmp_path / "home", web_search=settings, secret=keys.get) as kit:

        async def is_offered() -> bool:
            return "web_search" in {
                tool.spec.name for tool in await kit.toolbox.tools("olga", "ses_01", None)
            }

        assert not await is_offered()
        keys["brave"] = KEY  # saved while the server runs
        assert await is_offered()


class _Elsewhere(CheckedNetwork):
    """Leads each name to the stand-in, which cannot listen on port 443."""

    def __init__(self, port: int) -> None:
        super().__init__(frozenset({("127.0.0.1", port)}), _here)
        self.names: list[str] = []
        self._port = port

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **more: Any
    ) -> httpcore2.AsyncNetworkStream:
        self.names.append(f"{host}:{port}")
        return await super().connect_tcp(host, self._port, *args, **more)


async def _here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[tuple[_Service, Path]]:
    """A stand-in of DuckDuckGo's page, with a certificate for its name."""
    pytest.importorskip("ddgs")
    certificate = tmp_path / "duck.pem"
    certificate.write_bytes(_certificate("html.duckduckgo.com"))
    service = _Service()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    service.socket = context.wrap_socket(service.socket, server_side=True)
    for served in _serve(service):
        yield served, certificate


def _certificate(name: str) -> bytes:
    """A key and a certificate that it signed itself."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + made.public_bytes(pem)


async def test_the_keyless_search_reaches_its_one_host_through_the_check(duck: tuple[_Service, Path]) -> None:
    service, certificate = duck
    network = _Elsewhere(int(service.server_address[1]))
    async with Gate(network) as gate:
        hits = await DuckDuckGo(gate.tunnel, certificate).search("a duck", 3)
    assert [(hit.title, hit.url, hit.snippet) for hit in hits] == [
        ("A duck", "https://duck.example/", "It says quack.")
    ]
    assert (service.asked[0][1]["q"], set(network.names)) == ("a duck", {"html.duckduckgo.com:443"})
    async with Gate(CheckedNetwork(frozenset(), _here)) as gate:
        with pytest.raises(ToolFailed, match="could not be reached"):
            await DuckDuckGo(gate.tunnel, certificate).search("a duck", 3)
    assert len(service.asked) == 1
