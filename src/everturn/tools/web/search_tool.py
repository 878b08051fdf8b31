"""Search the web."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from everturn.domain.json_types import Json, JsonObject
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.policy.hosts import is_listed
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed
from everturn.tools.web.search_providers import SearchProviders, WebHit

_TITLE_CHARS_MAX = 200
_SNIPPET_CHARS_MAX = 500
_URL_CHARS_MAX = 2000
_ADDRESS = re.compile(rf"https?://[^\s/][^\s]{{0,{_URL_CHARS_MAX}}}", re.I)
_TAG = re.compile(r"</?(?:strong|b|em|mark|span)\b[^<>]*>", re.I)


class WebSearch(Action):
    """Search the web: titles, addresses and short excerpts. Read a result with web_fetch before you rely
    on it, and name the addresses of what you used."""

    name = "web_search"
    asks_when = "text from outside is in the session and the host is not in the profile's list"
    is_safe_to_repeat = True
    reads_only = True
    timeout_s = 60.0

    def __init__(self, providers: SearchProviders) -> None:
        self._providers = providers

    @property
    def is_offered(self) -> bool:
        return self._providers.is_ready

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        query: Annotated[
            Annotated[str, msgspec.Meta(min_length=1, max_length=400)], "What to search for, in a few words"
        ],
        count: Annotated[Annotated[int, msgspec.Meta(ge=1, le=20)], "How many results"] = 8,
    ) -> ToolResult:
        provider = self._providers.choose()
        words = one_line(query, 400)
        if not words:
            raise ToolFailed("There is nothing to search for.")
        hits = _clean(await provider.search(words, count))[:count]
        listed: list[Json] = [{"title": hit.title, "url": hit.url} for hit in hits]
        display: JsonObject = {
            "kind": "search",
            "query": words,
            "provider": provider.title,
            "count": len(hits),
            "hits": listed,
        }
        if not hits:
            return ToolResult(
                f"{provider.title} has no results for {words!r}. Try fewer or other words.", display=display
            )
        rows = [
            "\n   ".join(line for line in (f"{number}. {hit.title}", hit.url, hit.snippet) if line)
            for number, hit in enumerate(hits, 1)
        ]
        return ToolResult(
            f"{provider.title}, results for {words!r}:\n\n" + "\n\n".join(rows), display=display
        )

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        label = one_line(arguments["query"])
        if not context.is_tainted:
            # Only the user's own messages can have led to this call.
            return Judgement(label=label)
        try:
            host = self._providers.choose().host
        except ToolFailed:
            return Judgement(label=label)  # the call itself says what to set, and sends nothing
        if is_listed(host, context.hosts):
            return Judgement(label=label)
        concern = Concern(f"it sends these words to {host}", f"search {host}", sends=True)
        return Judgement(label=label, concerns=(concern,))


def _clean(hits: Iterable[WebHit]) -> list[WebHit]:
    """The results with a web address, each address once. Each text is one line, so that none looks like a
    further result."""
    shown: dict[str, WebHit] = {}
    for hit in hits:
        url = hit.url.strip()
        if _ADDRESS.fullmatch(url) and url not in shown:
            title = _plain(hit.title, _TITLE_CHARS_MAX) or "(no title)"
            shown[url] = WebHit(title, url, _plain(hit.snippet, _SNIPPET_CHARS_MAX))
    return list(shown.values())


def _plain(text: str, chars_max: int) -> str:
    """Without the tags with which providers mark the words that were searched for."""
    return one_line(html.unescape(_TAG.sub("", text)), chars_max)
