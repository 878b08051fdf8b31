"""Fetch a web page as readable text."""

from __future__ import annotations

import codecs
import re
from typing import Annotated

import anyio
import httpx2
import msgspec

from everturn.domain.messages import Outcome
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.policy.hosts import is_listed
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed
from everturn.tools.web.fetch import FetchedPage, Fetcher, label_of
from everturn.tools.web.readable import Readable, readable

_TEXT_TYPES = re.compile(r"^(text/|application/(.*\+)?(json|xml|javascript|yaml|toml)|$)")
# Python has codecs that are not for text; some take quadratic time.
_TEXT_CODECS = re.compile(
    r"(?:utf-(?:8|16|32)|ascii|iso8859|cp|koi8|mac|gb|hz|big5|euc|shift_jis|iso2022|johab|tis-620|ptcp)[\w-]*"
)
_CHARSET = re.compile(rb"""charset\s*=\s*["']?([a-zA-Z0-9_.:-]+)""", re.I)


class WebFetch(Action):
    """Fetch a public http(s) address and return its readable text."""

    name = "web_fetch"
    asks_when = "text from outside is in the session and the host is not in the profile's list"
    is_safe_to_repeat = True
    reads_only = True
    timeout_s = 60.0

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        url: Annotated[str, "The address, http or https"],
        start: Annotated[
            Annotated[int, msgspec.Meta(ge=0)], "Begin at this character, to go on in a long page"
        ] = 0,
    ) -> ToolResult:
        # The user was asked about one host. Text from outside may have chosen a redirecting address.
        page = await self._fetcher.get(url, stays=call.is_tainted)
        found = await anyio.to_thread.run_sync(_text, page)
        text, note = _part(found.text, start, self.spec.output_bytes_max - 500)
        head = [f"{page.url} ({page.status})"] + ([found.title] if found.title else [])
        if page.is_cut:
            note += f"\n[only the first {len(page.body):,} bytes of the page were read]"
        return ToolResult(
            "\n".join(head) + "\n\n" + text + note,
            outcome=Outcome.ERROR if page.status >= 400 else Outcome.OK,
            display={"kind": "fetch", "url": page.url, "status": page.status, "title": found.title},
            # Always: what the answer rests on can be read later, when the page says something else.
            full_output=found.text.encode() or None,
        )

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        url = arguments["url"]
        if not context.is_tainted:
            # Only the user's own messages can have led to this call.
            return Judgement(label=one_line(url))
        try:
            parsed = httpx2.URL(url)
            host = label_of(parsed)
        except httpx2.InvalidURL:
            return Judgement(label=one_line(url))  # the call itself refuses it
        port = parsed.port or (80 if parsed.scheme == "http" else 443)
        is_refused = self._fetcher.network.never_reaches(parsed.host, port)
        if is_refused or is_listed(host, context.hosts):  # nobody is asked about what the call refuses
            return Judgement(label=one_line(url))
        return Judgement(
            label=one_line(url),
            concerns=(Concern(f"it sends a request to {host}", f"fetch {host}", sends=True),),
        )


def _text(page: FetchedPage) -> Readable:
    kind = page.content_type.partition(";")[0].strip().lower()
    if not _TEXT_TYPES.match(kind) or b"\0" in page.body[:4096]:
        raise ToolFailed(f"{page.url} is not text ({kind or 'unknown type'}, {len(page.body):,} bytes).")
    text = _decode(page)
    if kind in ("text/html", "application/xhtml+xml") or (not kind and text.lstrip()[:1] == "<"):
        return readable(text)
    return Readable("", text)


def _decode(page: FetchedPage) -> str:
    named = _CHARSET.search(page.content_type.encode("latin-1", "replace")) or _CHARSET.search(
        page.body[:2048]
    )
    for charset in ([named[1].decode("latin-1")] if named else []) + ["utf-8"]:
        try:
            if _TEXT_CODECS.fullmatch(codecs.lookup(charset).name):
                return page.body.decode(charset, "strict" if not page.is_cut else "ignore")
        except (LookupError, UnicodeDecodeError):
            continue  # the page named a charset that does not exist or does not fit
    return page.body.decode("latin-1")


def _part(text: str, start: int, bytes_max: int) -> tuple[str, str]:
    if start and start >= len(text):
        raise ToolFailed(f"The page has {len(text):,} characters; there is nothing at {start:,}.")
    part = text[start:].encode()[:bytes_max].decode("utf-8", "ignore")
    end = start + len(part)
    if end >= len(text):
        return part or "[the page has no text]", ""
    return part, f"\n[characters {start:,} to {end:,} of {len(text):,}; go on with start={end}]"
