"""The web pages that an answer rests on, from what the tools of a turn showed. The page has the same rule.

Pages that were fetched, and results of a search whose address the answer names: the others were only offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from everturn.domain.json_types import Json
from everturn.domain.messages import Outcome, Result

SOURCES_MAX: Final = 30
_ENDS: Final = frozenset(" \t\r\n)>]}\"'`,;*|")  # after an address in a text; a full stop may belong to it


def sources_of(results: Iterable[Result], answer: str) -> list[tuple[str, str]]:
    """Addresses with their titles, each once, in the order in which they came up."""
    found: dict[str, str] = {}
    for result in results:
        display = result.display
        if not isinstance(display, dict) or result.outcome is not Outcome.OK:
            continue
        if display.get("kind") == "fetch":
            _add(found, display)
        hits = display.get("hits") if display.get("kind") == "search" else None
        for hit in hits if isinstance(hits, list) else ():
            if isinstance(hit, dict) and _names(answer, str(hit.get("url", ""))):
                _add(found, hit)
    return list(found.items())[:SOURCES_MAX]


def _add(found: dict[str, str], page: dict[str, Json]) -> None:
    url, title = str(page.get("url", "")), " ".join(str(page.get("title") or "").split())
    if url.startswith(("http://", "https://")) and not found.get(url):
        found[url] = title


def _names(answer: str, url: str) -> bool:
    """Is the whole address in the answer, not only as the beginning of a longer one?"""
    at = answer.find(url) if url else -1
    while at >= 0:
        after = answer[at + len(url) :]
        if not after or after[0] in _ENDS or (after[0] in ".:!?" and (not after[1:] or after[1] in _ENDS)):
            return True
        at = answer.find(url, at + 1)
    return False
