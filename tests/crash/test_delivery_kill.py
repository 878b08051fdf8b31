"""A server with a chat is killed at every moment of delivery: one turn per message, one answer or marked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.probe import Moment, Probe
from everturn.store import open_store
from everturn.testing.forks import run_command
from everturn.testing.harness import OWNER
from tests.crash.delivery_work import MESSAGES, STORE, OutsidePlatform, Sent, serve
from tests.crash.test_kill import DELIVERING, KILLED

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("moment", sorted(DELIVERING))
async def test_f01_f03_a_killed_server_loses_no_message_and_doubles_no_answer_unmarked(
    moment: Moment, store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    arguments = (store_url, str(data_dir), str(outside), moment, "3")
    given: dict[str, Any] = {"environ": os.environ, "stdin": "", "timeout_s": 180}
    killed = await anyio.to_thread.run_sync(
        lambda: run_command(*arguments, **given, module="tests.crash.delivery_work")
    )
    assert killed.returncode == KILLED, killed.stderr
    async with open_store(store_url, data_dir=data_dir, settings=STORE) as store:
        with anyio.fail_after(180):
            await serve(store, outside, Probe())
        (session,) = (await store.sessions.list(OWNER)).items
        page = await store.transcript.page(OWNER, session.id, limit=100)
    asked = [message.text for message in page.messages.items if message.role == "user"]
    assert asked == [f"message {number}" for number in range(MESSAGES)]
    sent = OutsidePlatform(outside).sent()
    answers = [one for one in sent if one.text in ("one", "two")]
    first_seen = [one.text for at, one in enumerate(answers) if not (at and _repeats(one, answers[at - 1]))]
    assert first_seen == ["one", "two"] * MESSAGES
    repeats = [one for one in sent if one.is_repeat]
    # At the other moments a part may be on its way too, but only one: parts of a chat go one by one.
    assert len(repeats) == 1 if moment in (Moment.PART_CLAIMED, Moment.PART_SENT) else len(repeats) <= 1


def _repeats(one: Sent, before: Sent) -> bool:
    """A marked repeat of what arrived just before. One whose first attempt never left stands alone."""
    return one.is_repeat and one.text == before.text
