"""Settings of the web search."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from everturn.domain.errors import Invalid

# The providers that need a key, in the order in which one is taken, and the variable that may hold it.
SEARCH_KEYS: Mapping[str, str] = MappingProxyType({"brave": "BRAVE_API_KEY", "tavily": "TAVILY_API_KEY"})


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    provider: Annotated[
        Literal["auto", "searxng", "brave", "tavily", "ddgs", "off"],
        Meta(
            description="Who searches the web. auto: SearXNG if url is set, else Brave or Tavily if there is "
            "a key, else DuckDuckGo (ddgs) if the extra search is installed."
        ),
    ] = "auto"
    url: Annotated[
        Annotated[str, Meta(pattern=r"^(https?://[^\s/@?#]+(/[^\s@?#]*)?)?$(?!\n)")],
        Meta(description="Address of your SearXNG, such as http://127.0.0.1:8888. It may be a private one."),
    ] = ""

    def __post_init__(self) -> None:
        if self.provider == "searxng" and not self.url:
            raise Invalid("SearXNG has no address.", hint="Set url in [search].", key="provider")
        if self.url and self.provider not in ("auto", "searxng", "off"):
            raise Invalid(
                "The address is that of SearXNG.", hint="Delete url, or set provider to searxng.", key="url"
            )
