"""Looks up people's names, because Slack's messages contain only their ids."""

from __future__ import annotations

import logging
import re
from typing import Final

import aiohttp
import anyio
import msgspec
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from everturn.domain.clock import Clock
from everturn.domain.delivery import Update
from everturn.domain.json_types import JsonObject

_KEPT_MS: Final = 3_600_000  # afterwards Slack is asked again: people change their names
_KEPT_MAX: Final = 2_000
_PAUSE_MS: Final = 60_000  # after an error that concerns more than one person
_WAIT_S: Final = 1.0  # of the three seconds in which Slack wants its acknowledgement
_NAME_CHARS_MAX: Final = 80
_ASKED_MAX: Final = 5  # people that one message mentions
_UNKNOWN_PERSON: Final = ("user_not_found", "user_not_visible")
_MENTION: Final = re.compile(r"@([UW][A-Z0-9_]{4,})\b")

_log = logging.getLogger("everturn.gateway.slack")


class _Known(msgspec.Struct, frozen=True):
    name: str  # empty: Slack does not say
    until: int


class PeopleNames:
    """Caches the names of one account's people.

    A lookup never holds up a message: a name that is not found within a second stays an id.
    """

    def __init__(self, account: str, web: AsyncWebClient, clock: Clock) -> None:
        self._account = account
        self._web = web
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._paused_until = 0

    async def write_into(self, update: Update) -> Update:
        """Return the update with the names of its sender and of the people it mentions."""
        mentioned = list(dict.fromkeys(_MENTION.findall(update.text)))[:_ASKED_MAX]
        names: dict[str, str] = {}
        with anyio.move_on_after(_WAIT_S) as waiting:
            for person in (update.sender, *mentioned):
                names[person] = await self._find(person)
        if waiting.cancelled_caught:
            self._paused_until = self._clock.now_ms() + _PAUSE_MS
        text = _MENTION.sub(lambda found: f"@{names.get(found[1]) or found[1]}", update.text)
        name = names.get(update.sender) or update.sender_name
        return msgspec.structs.replace(update, sender_name=name, text=text)

    async def _find(self, person: str) -> str:
        known, now = self._known.get(person), self._clock.now_ms()
        if known is not None and now < known.until:
            return known.name
        if now < self._paused_until:
            return ""
        try:
            answer = await self._web.users_info(user=person)
        except SlackApiError as error:
            return self._note_refusal(person, error, now)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            _log.info("account %s: the name of %s: %r", self._account, person, error)
            self._paused_until = now + _PAUSE_MS
            return ""
        return self._keep(person, _name_of(answer["user"]), now)

    def _note_refusal(self, person: str, error: SlackApiError, now: int) -> str:
        # Slack's own answer, or aiohttp's if the body could not be read.
        data = getattr(error.response, "data", None)
        reason = str(data.get("error") or "") if isinstance(data, dict) else ""
        if reason in _UNKNOWN_PERSON:
            return self._keep(person, "", now)
        hint = " The app needs the scope users:read." if reason == "missing_scope" else ""
        _log.warning("account %s: people's names cannot be read: %s.%s", self._account, reason or error, hint)
        self._paused_until = now + (_KEPT_MS if hint else _PAUSE_MS)
        return ""

    def _keep(self, person: str, name: str, now: int) -> str:
        self._known.pop(person, None)
        if len(self._known) >= _KEPT_MAX:
            del self._known[next(iter(self._known))]  # the oldest
        self._known[person] = _Known(name, now + _KEPT_MS)
        return name


def _name_of(user: JsonObject) -> str:
    """What people call them: the name that they chose to be shown, or else their whole name."""
    profile = user.get("profile") or {}
    found = profile.get("display_name") or profile.get("real_name") or user.get("real_name")
    return " ".join(str(found or user.get("name") or "").split())[:_NAME_CHARS_MAX]
