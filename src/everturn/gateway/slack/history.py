"""Finds direct messages that Slack gave up delivering, because no connection was open for too long."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from slack_sdk.web.async_client import AsyncWebClient

from everturn.domain.json_types import JsonObject
from everturn.gateway.slack.updates import Frame

_PAGES_MAX: Final = 20
_PAGE: Final = 100

_log = logging.getLogger("everturn.gateway.slack")


async def find_missed(web: AsyncWebClient, since_us: int) -> list[Frame]:
    """Return the messages in direct conversations after this moment, in order, as Slack would deliver them.

    Some of them may have been delivered already.
    """
    since = f"{since_us // 1_000_000}.{since_us % 1_000_000:06d}"
    found: list[JsonObject] = []  # Slack's own messages
    for channel in await _pages(web, "users.conversations", "channels", {"types": "im"}):
        arguments = {"channel": str(channel["id"]), "oldest": since}
        messages = await _pages(web, "conversations.history", "messages", arguments)
        found += [{**message, "channel": channel["id"]} for message in messages]
    found.sort(key=lambda message: str(message.get("ts")))
    return [Frame("events_api", payload={"event": message}) for message in found]


async def _pages(
    web: AsyncWebClient, method: str, key: str, arguments: Mapping[str, str]
) -> list[JsonObject]:
    found: list[JsonObject] = []
    cursor = ""
    for _ in range(_PAGES_MAX):
        answer = await web.api_call(
            method, http_verb="GET", params={**arguments, "limit": _PAGE, "cursor": cursor}
        )
        found += answer[key]
        cursor = str((answer.get("response_metadata") or {}).get("next_cursor") or "")
        if not cursor:
            return found
    _log.warning("%s has more than %d entries: the rest is skipped", method, len(found))
    return found
