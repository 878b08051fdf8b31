"""Who searches the web: SearXNG, Brave, Tavily, or DuckDuckGo through the package ddgs.

SearXNG, Brave and Tavily are asked with one request, which follows no redirect. Addresses are checked as for
a web fetch; only that of SearXNG is not, because the operator gave it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlencode

import anyio
import httpx2
import msgspec

from everturn.domain.errors import SecretUnreadable, StoreRefused
from everturn.domain.extras import install_command
from everturn.domain.json_types import Json
from everturn.tools.policy.judgement import one_line
from everturn.tools.schema import ToolFailed
from everturn.tools.web.fetch import FetchedPage, Fetcher, WebRequest, label_of
from everturn.tools.web.settings import SEARCH_KEYS, SearchSettings

_DDGS_HOST = "html.duckduckgo.com"
_DDGS_REQUEST_TIMEOUT_S = 10
_DDGS_TIMEOUT_S = 20.0
_DDGS_BYTES_MAX = 4 * 1024 * 1024
_ENGINES_MAX = 8

# Opens a proxy on loopback to one host, for answers of so many bytes, and yields its address.
Tunnel = Callable[[str, int], AbstractAsyncContextManager[str]]
A = TypeVar("A", bound=msgspec.Struct)


class WebHit(msgspec.Struct, frozen=True):
    """One result as the provider wrote it."""

    title: str
    url: str
    snippet: str


class SearchProvider(Protocol):
    """``host`` is where the words of a search are sent."""

    @property
    def title(self) -> str: ...

    @property
    def host(self) -> str: ...

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        """Raises ToolFailed, with a text for the model."""
        ...


class _Row(msgspec.Struct, frozen=True):
    url: str | None = None
    title: str | None = None
    content: str | None = None
    description: str | None = None

    def hit(self) -> WebHit:
        return WebHit(self.title or "", self.url or "", self.content or self.description or "")


class _Rows(msgspec.Struct, frozen=True):
    results: list[_Row] = []
    unresponsive_engines: list[Json] = []


class _BraveAnswer(msgspec.Struct, frozen=True):
    web: _Rows | None = None


class SearXng:
    title = "SearXNG"

    def __init__(self, fetcher: Fetcher, url: str) -> None:
        self._fetcher = fetcher
        self._url = url.rstrip("/")
        self.host = label_of(httpx2.URL(url))

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        address = f"{self._url}/search?{urlencode({'q': query, 'format': 'json'})}"
        answer = await _ask(self._fetcher, self.title, WebRequest(address, _JSON, is_trusted=True))
        if answer.status == 403:
            raise ToolFailed(
                "SearXNG refuses to answer in JSON. Tell the user to add json to search.formats in its "
                "settings.yml."
            )
        _check_status(self.title, answer)
        rows = _read(self.title, answer, _Rows)
        if not rows.results and rows.unresponsive_engines:
            # Each is a list of the engine's name and what was wrong with it.
            names = [
                str(one[0] if isinstance(one, list) and one else one) for one in rows.unresponsive_engines
            ]
            raise ToolFailed(
                f"SearXNG found nothing, and some of its engines did not answer: "
                f"{one_line(', '.join(names[:_ENGINES_MAX]), 200)}. Try again later."
            )
        return [row.hit() for row in rows.results]


class Brave:
    title = "Brave"

    def __init__(self, fetcher: Fetcher, key: str, root: str = "https://api.search.brave.com") -> None:
        self._fetcher = fetcher
        self._key = key
        self._root = root
        self.host = label_of(httpx2.URL(root))

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        words = urlencode({"q": query, "count": count, "text_decorations": "false"})
        headers = {**_JSON, "X-Subscription-Token": self._key}
        request = WebRequest(f"{self._root}/res/v1/web/search?{words}", headers)
        answer = await _ask(self._fetcher, self.title, request)
        _check_key(self.title, answer, is_wrong=b"SUBSCRIPTION_TOKEN" in answer.body and answer.status == 422)
        found = _read(self.title, answer, _BraveAnswer)
        return [row.hit() for row in found.web.results] if found.web else []


class Tavily:
    title = "Tavily"

    def __init__(self, fetcher: Fetcher, key: str, root: str = "https://api.tavily.com") -> None:
        self._fetcher = fetcher
        self._key = key
        self._root = root
        self.host = label_of(httpx2.URL(root))

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        headers = {**_JSON, "Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        body = msgspec.json.encode({"query": query, "max_results": count})
        answer = await _ask(self._fetcher, self.title, WebRequest(f"{self._root}/search", headers, body))
        _check_key(self.title, answer)
        return [row.hit() for row in _read(self.title, answer, _Rows).results]


class DuckDuckGo:
    """Through the package ddgs, which reads the page for people, so it needs no key.

    The package connects by itself, so it is given a proxy that leads to that one host, with the address
    checked. ``certificates``: a file with those that are trusted besides; tests.
    """

    title = "DuckDuckGo"
    host = _DDGS_HOST

    def __init__(self, tunnel: Tunnel, certificates: Path | None = None) -> None:
        self._tunnel = tunnel
        self._certificates = certificates

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        async with self._tunnel(self.host, _DDGS_BYTES_MAX) as proxy:
            with anyio.move_on_after(_DDGS_TIMEOUT_S):
                return await anyio.to_thread.run_sync(
                    self._search, query, count, proxy, abandon_on_cancel=True
                )
        raise ToolFailed(f"{self.title} took longer than {_DDGS_TIMEOUT_S:g} s.")

    def _search(self, query: str, count: int, proxy: str) -> list[WebHit]:
        """In a thread, which the package blocks."""
        try:
            from ddgs import DDGS
            from ddgs.exceptions import DDGSException
        except ImportError as error:
            raise ToolFailed(_HOW) from error
        verify: bool | str = str(self._certificates) if self._certificates else True
        try:
            rows = DDGS(proxy=proxy, timeout=_DDGS_REQUEST_TIMEOUT_S, verify=verify).text(
                query, max_results=count, backend="duckduckgo"
            )
        except DDGSException as error:
            if str(error) == "No results found.":  # the package says the same of a refusal
                raise ToolFailed(
                    f"{self.title} gave no results. It may have none, or limit searches without a key for "
                    "now. Try other words once; if that fails too, tell the user."
                ) from error
            raise ToolFailed(
                f"{self.title} could not be reached: {one_line(str(error), 200)}. Try again later."
            ) from error
        return [WebHit(row.get("title", ""), row.get("href", ""), row.get("body", "")) for row in rows]


class SearchProviders:
    """``secret`` finds a stored key by the provider's name, and one in the environment by its variable."""

    def __init__(
        self,
        settings: SearchSettings,
        fetcher: Fetcher,
        secret: Callable[[str], str | None],
        tunnel: Tunnel,
        *,
        has_ddgs: bool | None = None,
    ) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._secret = secret
        self._tunnel = tunnel
        self._has_ddgs = importlib.util.find_spec("ddgs") is not None if has_ddgs is None else has_ddgs

    @property
    def is_ready(self) -> bool:
        """Is there a provider? A key that cannot be read counts: the call says what to do."""
        try:
            return self._find() is not None
        except (SecretUnreadable, StoreRefused):
            return True

    def choose(self) -> SearchProvider:
        """Raises ToolFailed, which says what to set."""
        try:
            found = self._find()
        except (SecretUnreadable, StoreRefused) as error:
            raise ToolFailed(f"{error.message} {error.hint}") from error
        if found is None:
            raise ToolFailed(_HOW)
        return found

    def _find(self) -> SearchProvider | None:
        wanted, url = self._settings.provider, self._settings.url
        if wanted == "off":
            return None
        if url:
            return SearXng(self._fetcher, url)
        for name, kind in (("brave", Brave), ("tavily", Tavily)):
            if wanted in ("auto", name) and (key := self._key(name)):
                return kind(self._fetcher, key)
        if wanted in ("auto", "ddgs") and self._has_ddgs:
            return DuckDuckGo(self._tunnel)
        return None

    def _key(self, name: str) -> str | None:
        return self._secret(SEARCH_KEYS[name]) or self._secret(name)


_JSON = {"Accept": "application/json"}
_HOW = (
    "Web search is not set up. Tell the user to set url in [search] to the address of a SearXNG, to save a "
    "key with 'everturn keys set brave' or 'everturn keys set tavily', or to "
    f"run: {install_command('search')}"
)


async def _ask(fetcher: Fetcher, title: str, request: WebRequest) -> FetchedPage:
    try:
        answer = await fetcher.ask(request)
    except ToolFailed as error:
        raise ToolFailed(f"{title} could not be reached: {error} Tell the user if it stays so.") from error
    if answer.is_cut:
        raise ToolFailed(f"{title} answered with more than {len(answer.body):,} bytes; nothing was read.")
    return answer


def _check_key(title: str, answer: FetchedPage, *, is_wrong: bool = False) -> None:
    if is_wrong or answer.status in (401, 403):
        name = title.lower()
        raise ToolFailed(
            f"{title} refused the key. Tell the user to check {SEARCH_KEYS[name]}, or to save another key "
            f"with 'everturn keys set {name}'."
        )
    if answer.status in (402, 432, 433):
        raise ToolFailed(f"The searches of {title}'s plan are used up. Tell the user; do not search again.")
    _check_status(title, answer)


def _check_status(title: str, answer: FetchedPage) -> None:
    if answer.status == 429:
        raise ToolFailed(f"{title} limits how often it may be asked. Wait before you search again.")
    if answer.status >= 500:
        raise ToolFailed(f"{title} is not working now (status {answer.status}). Try again later.")
    if answer.status != 200:
        raise ToolFailed(f"{title} refused the search (status {answer.status}). Try shorter or other words.")


def _read(title: str, answer: FetchedPage, kind: type[A]) -> A:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise ToolFailed(f"{title} answered with something other than search results.") from error
