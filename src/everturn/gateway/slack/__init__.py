"""Slack: messages come in over a WebSocket (Socket Mode), answers leave through the Web API.

Imports domain, gateway's rendering and slack-sdk. ``updates`` reads what Slack sends, ``history`` finds
what it did not send, ``people`` what its people are called; ``platform`` talks to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from everturn.domain.clock import Clock
from everturn.domain.platform import Platform
from everturn.gateway.slack.platform import SlackPlatform, SlackSettings, SlackTokens

__all__ = ["CONFIG_ONLY", "SECRETS", "SENT_TO", "SlackPlatform", "SlackSettings", "SlackTokens", "platform"]

SECRETS = ("bot_token", "app_token")
CONFIG_ONLY = ("api_url",)  # the tokens are sent there
SENT_TO = CONFIG_ONLY


def platform(account: str, settings: SlackSettings, secrets: Mapping[str, str], clock: Clock) -> Platform:
    tokens = SlackTokens(bot=secrets["bot_token"], app=secrets["app_token"])
    return SlackPlatform(account, settings, tokens, clock)
