"""The table of what platforms promise, in docs/gateway.md, says what the adapters state."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.platform import Features, Promises
from everturn.gateway.discord.platform import DiscordPlatform
from everturn.gateway.mail.platform import MailPlatform
from everturn.gateway.platforms import platform_names
from everturn.gateway.slack.platform import SlackPlatform
from everturn.gateway.telegram.platform import TelegramPlatform
from everturn.gateway.webhook import WebhookPlatform

PAGE = Path(__file__).resolve().parents[3] / "docs" / "gateway.md"
HEAD = "| Platform | Recognises a repeated send |"
ADAPTERS: dict[str, Any] = {
    "Telegram": TelegramPlatform,
    "Discord": DiscordPlatform,
    "Slack": SlackPlatform,
    "Mail": MailPlatform,
    "Webhook": WebhookPlatform,
}
UNITS = {"minutes": 60, "hours": 3600, "days": 86400}


def table() -> dict[str, list[str]]:
    lines = PAGE.read_text().partition(HEAD)[2].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in takewhile(bool, lines)]
    return {row[0]: row[1:] for row in rows}


def test_the_table_has_every_platform_that_is_built_in() -> None:
    assert {name.lower() for name in table()} == set(platform_names())


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_what_the_page_says_of_a_platform_is_what_it_states(name: str) -> None:
    promises: Promises = ADAPTERS[name].promises
    features: Features = ADAPTERS[name].features
    repeats, again, keeps, shows = table()[name]
    assert repeats.startswith("yes") is promises.deduplicates
    assert again.startswith("no") is not promises.redelivers
    length = re.match(r"(?:about )?([0-9]+) (minutes|hours|days)", keeps)
    said = None if length is None else int(length[1]) * UNITS[length[2]]
    assert said == promises.keeps_updates_s
    assert [word == "yes" for word in shows.split(", ")] == [features.edits, features.buttons, features.files]
