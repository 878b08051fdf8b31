"""The short version of the campaign: a server with all platforms is killed at each kind of moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reach.campaign import Campaign, Plan
from tests.reach.chaos import Strike

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


async def test_f01_f02_f03_messages_over_all_platforms_are_answered_once_or_marked_however_servers_die(
    data_dir: Path,
) -> None:
    plan = Plan(messages=20, chats=2, kills=len(Strike), longest_s=500)
    figures = await Campaign(data_dir, plan).run()
    assert figures.turns == plan.messages
    assert set(figures.kills) == set(Strike)
