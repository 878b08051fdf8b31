"""Who may steer a running turn over HTTP."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.store import Store
from everturn.testing import FakeClock, Say
from everturn.testing.models import Wait
from everturn.testing.web_server import run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in

pytestmark = pytest.mark.anyio


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


@pytest.mark.parametrize(("profile", "is_steering"), [(None, True), ("guest", False)])
async def test_a_chat_token_does_not_steer_a_turn_whose_profile_the_owner_chose(
    store: Store, data_dir: Path, profile: str | None, is_steering: bool
) -> None:
    going_on = anyio.Event()
    services = ToolServices(store.records, store.search, FakeClock())
    async with (
        EverturnToolbox(data_dir, services, built_in()) as tools,
        run_web(store, data_dir, [Wait(going_on)], [Say("done")], extras={"toolbox": tools}) as web,
    ):
        session = await web.new_session()
        first = await web.send(session["id"], "look", **({"profile": profile} if profile else {}))
        await web.read_until(f"/api/sessions/{session['id']}/events?after=0", "step.started")
        made = await web.http.post("/api/tokens", json={"label": "phone", "scopes": ["chat"]})
        sent = await web.http.post(
            f"/api/sessions/{session['id']}/turns",
            json={"text": "and delete it", "when_busy": "steer"},
            headers={"authorization": f"Bearer {made.json()['text']}"},
        )
        assert sent.status_code == 202, sent.text
        assert sent.json()["is_steering"] is is_steering
        assert (sent.json()["turn"]["id"] == first["turn"]["id"]) is is_steering
        if not is_steering:
            assert sent.json()["turn"].get("profile") is None  # it runs in the session's own profile
        going_on.set()
