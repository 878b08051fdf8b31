"""Sessions and turns over real HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.store import Store
from everturn.testing.web_server import run_web

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_and_everything_can_be_read_again(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "Hello there.") as server:
        session = await server.new_session(title="First")
        frames = await server.run(session["id"], "hi")
        assert [frame.event for frame in frames][0] == "turn.accepted"
        assert frames[-1].event == "turn.completed"
        assert [int(frame.id) for frame in frames] == list(range(1, len(frames) + 1))
        page = (await server.http.get(f"/api/sessions/{session['id']}/messages")).json()
        assert [message["role"] for message in page["messages"]] == ["user", "assistant"]
        assert page["position"] == len(frames) == page["replay_from"]
        assert page["turns"][0]["state"] == "completed"
