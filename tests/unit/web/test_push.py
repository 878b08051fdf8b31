"""The endpoints of notifications."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from everturn.domain.clock import SystemClock
from everturn.store import Store
from everturn.testing.web_server import run_web
from tests.auditing import audit_of
from tests.notifying import service_of

pytestmark = pytest.mark.anyio
QUIET = {"start": "22:00", "end": "07:00", "timezone": "Europe/Vienna"}


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


async def test_what_changes_notifications_is_audited(store: Store, data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        notifications = service_of(store, SystemClock(), data_dir, [place])
        async with run_web(store, data_dir, extras={"notifications": notifications}) as web:
            hook = {"name": "mine", "webhook": f"http://{place}/hook", "kinds": ["job"]}
            added = await web.http.post("/api/push", json=hook)
            assert added.status_code == 201, added.text
            device = added.json()["device"]["id"]
            path = f"/api/push/{device}"
            assert (await web.http.patch(path, json={"kinds": ["job", "budget"]})).status_code == 200
            for new in ({"quiet": QUIET, "shows_content": False}, {"quiet": None, "shows_content": True}):
                assert (await web.http.put("/api/push/settings", json=new)).status_code == 200
            refused = await web.http.put("/api/push/settings", json={"quiet": {"start": "25:00"}})
            assert refused.status_code == 422
            assert (await web.http.delete(path)).status_code == 204
    assert audit_of(data_dir) == [
        ("device.added", f"{device} (webhook)"),
        ("device.changed", f"{device} (webhook): job, budget"),
        ("notifications.changed", "quiet 22:00 to 07:00 Europe/Vienna, content hidden"),
        ("notifications.changed", "quiet never, content shown"),
        ("device.removed", device),
    ]
